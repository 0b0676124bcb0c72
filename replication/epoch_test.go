package replication

import (
	"fmt"
	"testing"

	"github.com/dnprelay/dnprelay/replication/view"
)

// RefIds belong to an epoch. A RefId that the new holder did not assign means nothing, although
// the former holder used it for a state that still exists.
func TestReplicaForgetsRefIds(t *testing.T) {
	r := joined(t)
	r.Apply(r.now, r.publish(tower("b", u8(1)))[0])
	next := &storeTest{t, NewStore(StoreConfig{Space: "s", Epoch: 9}), r.store.now}
	for _, d := range r.store.TakeDirty(nil, 2)[1:] {
		if _, err := next.Restore(d.Number, d.Data); err != nil {
			t.Fatal(err)
		}
	}
	r.store = next
	r.ApplyHead(r.now, 9, 0)
	r.repair()
	r.said("only b is left", "added b", "removed a")
	r.Apply(r.now, append(view.Header{Epoch: 9, Seq: 1}.Append(nil), view.Record{Ref: 2, Message: view.Update, Data: []byte{0, 9}}.Append(nil)...))
	r.said("RefId 2 was b in epoch 7, and is not assigned in epoch 9")
	if r.stats.BadRecords != 1 {
		t.Fatal("a RefId of a former epoch was used")
	}
}

// The store answers a request that arrives twice at two positions. Parts of one answer do not
// complete the other.
func TestReplicaDoesNotMixAnswers(t *testing.T) {
	r := newReplicaTest(t)
	r.store.limits.ValueBytes = 16_000
	for i := range 6 {
		r.publish(Op{Kind: OpPut, Key: fmt.Sprint("k", i), Values: largeStrings(3)})
	}
	q := r.asks("late join", RepairKeyframes)
	first := r.store.Repair(r.store.now, q)
	r.publish(Op{Kind: OpRemove, Key: "k5"})
	r.publish(tower("new"))
	second := r.store.Repair(r.store.now, q)
	if len(first) != 2 || len(second) != 1 {
		t.Fatalf("%d and %d parts", len(first), len(second))
	}
	r.ApplyReply(r.now, first[1])
	r.at("half of the first answer", 0, 0, false)
	r.ApplyReply(r.now, second[0])
	r.at("the second answer is whole", 7, r.store.batch.seq, true)
	if r.ByKey("k5") != nil || r.Len() != 6 {
		t.Fatalf("%d states, want 6: the second answer does not mention the others", r.Len())
	}
	r.ApplyReply(r.now, first[0])
	r.at("the rest of the first is late", 7, r.store.batch.seq, true)
}

func TestStoreIsNoHolderOfALaterEpoch(t *testing.T) {
	s := newStoreTest(t, Limits{})
	for _, kind := range []RepairKind{RepairRange, RepairKeyframes} {
		if p := s.Repair(s.now, (&RepairRequest{Kind: kind, Space: "s", Epoch: 8}).append(nil)); p != nil {
			t.Fatal("the store of epoch 7 answered a replica that follows epoch 8")
		}
	}
	if p := s.Repair(s.now, (&RepairRequest{Kind: RepairKeyframes, Space: "other"}).append(nil)); p != nil || s.stats.RepairMalformed != 1 {
		t.Fatal("the store answered a request for another space")
	}
	if s.stats.RepairForeign != 2 {
		t.Fatal("the store did not count the requests for a later holder")
	}
}

// Store and replica forget unused schemas.
func TestSchemasAreBounded(t *testing.T) {
	r := joined(t)
	for i := range 300 {
		op := tower("b")
		op.Values[0].Name = fmt.Sprint("n", i)
		op.Values[0].Precision = float64(i)
		for _, b := range r.publish(op) {
			r.Apply(r.now, b)
		}
	}
	if n := len(r.schemas.byID); n != 2 {
		t.Fatalf("the replica holds %d schemas for 2 states", n)
	}
	if n := len(r.store.schemas.byID); n > 8 || len(r.store.states.all) > 8 {
		t.Fatalf("the store holds %d schemas and %d states for 2", n, len(r.store.states.all))
	}
}

func TestReplicaAll(t *testing.T) {
	r := joined(t)
	for i := range 300 {
		ops := []Op{tower(fmt.Sprint("k", i))}
		if i%4 != 0 {
			ops = append(ops, Op{Kind: OpRemove, Key: fmt.Sprint("k", i-1)})
		}
		for _, b := range r.publish(ops...) {
			r.Apply(r.now, b)
		}
	}
	var last uint64
	n := 0
	for st := range r.All() {
		if st.Number <= last {
			t.Fatal("not in the order of the numbers")
		}
		last = st.Number
		n++
	}
	if n != r.Len() || n != len(r.store.states.byKey) {
		t.Fatalf("%d states, the store has %d", n, len(r.store.states.byKey))
	}
}
