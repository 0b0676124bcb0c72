package replication

import (
	"bytes"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/replication/view"
)

func TestReplicaMalformed(t *testing.T) {
	good := func(records []byte) []byte {
		return append(view.Header{Epoch: 7, Seq: 2, Prev: 1}.Append(nil), records...)
	}
	describe := appendDescribe(nil, &Description{Key: "b", Message: []byte("b"), Values: []ValueDef{{Type: typ("uint8")}, {Type: typ("uint8")}}})
	assign := view.AppendAssign(nil, view.Entity(2, 0), 2)
	introduced := appendDescribeRecords(bytes.Clone(assign), 2, 0, describe)
	for _, c := range []struct {
		why     string
		records []byte
		kind    RepairKind
	}{
		{"unknown RefId", view.AppendChecksum(nil, 9, 1), RepairStates},
		{"index beyond the state", view.Record{Ref: 1, Message: view.Update, Data: []byte{3, 1}}.Append(nil), RepairStates},
		{"null for a value that is not nullable", view.Record{Ref: 1, Message: view.Update, Data: []byte{0x80}}.Append(nil), RepairStates},
		{"half an update changes nothing", view.Record{Ref: 1, Message: view.Update, Data: []byte{0, 5, 3}}.Append(nil), RepairStates},
		{"unknown message", view.Record{Ref: 1, Message: 99}.Append(nil), RepairStates},
		{"truncated keyframe", view.Record{Ref: 1, Message: view.Keyframe, Data: []byte{0, 1, 2}}.Append(nil), RepairStates},
		{"truncated checksum", view.Record{Ref: 1, Message: view.Checksum, Data: []byte{0, 1, 2}}.Append(nil), RepairStates},
		{"RefId 0", view.Record{Ref: view.NoRef, Message: view.RefIDAssign, Data: []byte{0, 0}}.Append(nil), RepairSums},
		{"half a record", []byte{4, 1, 0}, RepairSums},
		{"a state without keyframes is half a state", introduced, RepairSums},
		{"a keyframe of a state that was not described", view.Record{Ref: 2, Message: view.Keyframe, Data: []byte{1, 2}}.Append(bytes.Clone(assign)), RepairStates},
		{"a malformed Describe", view.Record{Ref: 2, Message: view.Describe, Data: []byte{1, 2}}.Append(bytes.Clone(assign)), RepairStates},
	} {
		r := joined(t)
		r.now = r.now.Add(time.Second)
		r.Apply(r.now, good(c.records))
		r.said(c.why)
		if r.stats.BadRecords == 0 {
			t.Fatalf("%s: was accepted", c.why)
		}
		r.at(c.why, 7, 2, false)
		r.asks(c.why+": the replica asks for what the record should have changed", c.kind)
		if len(r.schemas.byID) != 1 {
			t.Fatalf("%s: %d schemas are held for one state", c.why, len(r.schemas.byID))
		}
	}
	r := joined(t)
	r.Apply(r.now, nil)
	r.ApplyReply(r.now, good(nil))
	r.Apply(r.now, view.Header{Flags: view.FlagReply, Epoch: 7}.Append(nil))
	if r.stats.Malformed != 3 {
		t.Fatalf("%d messages were malformed, want 3: nothing, a batch as a reply, a reply as a batch", r.stats.Malformed)
	}
}

// Every truncation of every message of a conversation is an error and changes nothing.
func TestTruncations(t *testing.T) {
	r := joined(t)
	batch := r.publish(set("a", "hp", u8(5), "text", str("long")))[0]
	whole := r.publish(tower("b"))[0]
	for _, p := range [][]byte{batch, whole} {
		for n := range len(p) {
			c := joined(t)
			c.Apply(c.now, view.Header{Epoch: 7, Seq: 2, Prev: 1}.Append(nil))
			c.Apply(c.now, p[:n])
			c.said("a truncated batch")
		}
	}
	for _, q := range []RepairRequest{
		{Kind: RepairKeyframes, sums: make([]byte, sumBytes)},
		{Kind: RepairSums, groups: groupSet{of: 3, first: 1, n: 2}},
		{Kind: RepairStates, groups: groupSet{of: 3, list: []byte{2, 0}}, refs: []byte{1, 0}, sums: make([]byte, sumBytes)},
	} {
		q.Space, q.Epoch = "s", 7
		p := q.append(nil)
		if _, err := ParseRepairRequest(p); err != nil {
			t.Errorf("a request of kind %d was not parsed: %v", q.Kind, err)
		}
		for n := range len(p) {
			if _, err := ParseRepairRequest(p[:n]); err == nil {
				t.Errorf("a request of %d of %d bytes was parsed", n, len(p))
			}
		}
		if _, err := ParseRepairRequest(append(p, 0)); err == nil {
			t.Errorf("a request of kind %d with a byte more was parsed", q.Kind)
		}
	}
	head := AppendHead(nil, 7, []SpaceHead{{"s", 1}, {"t", 2}})
	for n := range len(head) {
		if _, seqs, err := ParseHead(head[:n]); err == nil || seqs != nil {
			t.Errorf("a head of %d of %d bytes was parsed", n, len(head))
		}
	}
	describe := appendDescribe(nil, r.store.states.byKey["a"].Desc)
	for n := range len(describe) {
		if _, err := parseDescribe(describe[:n]); err == nil {
			t.Errorf("a Describe of %d of %d bytes was parsed", n, len(describe))
		}
	}
}

// Requests beyond the bounds are malformed, so that a request cannot cost more than the bounds allow.
func TestRequestBounds(t *testing.T) {
	for _, c := range []struct {
		why  string
		q    RepairRequest
		good bool
	}{
		{"most groups", RepairRequest{Kind: RepairSums, groups: groupSet{of: groupsMax, first: groupsMax - sumsAnswerMax, n: sumsAnswerMax}}, true},
		{"no groups", RepairRequest{Kind: RepairSums, groups: groupSet{}}, false},
		{"more groups than there are", RepairRequest{Kind: RepairSums, groups: groupSet{of: 3, first: 2, n: 2}}, false},
		{"no sums", RepairRequest{Kind: RepairSums, groups: groupSet{of: 3, first: 2}}, false},
		{"too many sums", RepairRequest{Kind: RepairSums, groups: groupSet{of: groupsMax, n: sumsAnswerMax + 1}}, false},
		{"a space in too many groups", RepairRequest{Kind: RepairSums, groups: groupSet{of: groupsMax + 1, n: 1}}, false},
		{"most states", RepairRequest{
			Kind: RepairStates, groups: groupSet{of: groupsMax, list: make([]byte, 2*groupsAskedMax)},
			refs: make([]byte, 2*refsAskedMax), sums: make([]byte, sumBytes*sumsAskedMax),
		}, true},
		{"groups of none", RepairRequest{Kind: RepairStates, groups: groupSet{list: []byte{0, 0}}}, false},
		{"too many groups", RepairRequest{Kind: RepairStates, groups: groupSet{of: groupsMax, list: make([]byte, 2*groupsAskedMax+2)}}, false},
		{"too many RefIds", RepairRequest{Kind: RepairStates, refs: make([]byte, 2*refsAskedMax+2)}, false},
		{"too many views", RepairRequest{Kind: RepairStates, sums: make([]byte, sumBytes*(sumsAskedMax+1))}, false},
	} {
		if _, err := ParseRepairRequest(c.q.append(nil)); (err == nil) != c.good {
			t.Errorf("%s: %v, want it to be parsed: %v", c.why, err, c.good)
		}
	}
}

// The answer to a hostile request for states is one message, whatever it asks for, and every state
// is in it at most once.
func TestHostileRequest(t *testing.T) {
	r := large(t, 40)
	numbers := []byte{}
	for i := range sumsAskedMax {
		numbers = appendSums(numbers, view.Entity(uint64(i%40+1), i%7), sums{})
	}
	for _, q := range []RepairRequest{
		{groups: groupSet{of: 1, list: []byte{0, 0}}},
		{groups: groupSet{of: groupsMax, list: bytes.Repeat([]byte{1, 0}, groupsAskedMax)}, refs: bytes.Repeat([]byte{1, 0}, refsAskedMax), sums: numbers},
		{refs: bytes.Repeat([]byte{255, 255}, refsAskedMax)},
	} {
		q.Kind, q.Space, q.Epoch = RepairStates, "s", 7
		parts := r.store.Repair(r.store.now, q.append(nil))
		if len(parts) != 1 || len(parts[0]) > view.BatchMax {
			t.Fatalf("%d messages, the first of %d bytes", len(parts), len(parts[0]))
		}
		_, records, err := view.Parse(parts[0])
		if err != nil {
			t.Fatal(err)
		}
		seen := map[uint64]bool{}
		in := view.NewRecords(records)
		for m, ok := in.Next(); ok; m, ok = in.Next() {
			if n := m.Entity.State(); m.Message == view.RefIDAssign {
				if seen[n] {
					t.Errorf("state %d is in the answer twice", n)
				}
				seen[n] = true
			}
		}
	}
}
