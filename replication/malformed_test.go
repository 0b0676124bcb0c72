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
	q := (&RepairRequest{Kind: RepairKeyframes, Space: "s", Epoch: 7, sums: make([]byte, sumBytes)}).append(nil)
	for n := range len(q) {
		if _, err := ParseRepairRequest(q[:n]); err == nil {
			t.Errorf("a request of %d of %d bytes was parsed", n, len(q))
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
