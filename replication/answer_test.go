package replication

import (
	"bytes"
	"fmt"
	"testing"
	"time"
)

// large returns a test whose store holds n states of 16,000 bytes, 16 of which
// fill one part of an answer, and whose replica holds none.
func large(t *testing.T, n int) *replicaTest {
	r := newReplicaTest(t)
	r.store.Store = NewStore(StoreConfig{Space: "s", Epoch: 7, Limits: Limits{ValueBytes: 16_000}})
	for i := range n {
		content := Encoded{typ("data"), appendLong(nil, bytes.Repeat([]byte{byte(i + 1)}, 16_000))}
		r.store.ok(Op{Kind: OpPut, Key: fmt.Sprint("big", i), Values: []PutValue{{ValueDef: ValueDef{Type: typ("data")}, Value: content}}})
	}
	r.batches(time.Second)
	return r
}

// In a space where nothing changes, the answers to a request and to its repetition
// are true at one position, but cut differently, because the second lists what came
// with the first as equal. Their parts are not one answer.
func TestAnswersAtOnePosition(t *testing.T) {
	for _, c := range []struct{ states, first int }{{20, 1}, {40, 1}, {40, 2}, {60, 1}, {60, 3}} {
		r := large(t, c.states)
		parts := r.store.Repair(r.store.now, r.asks("late join", RepairKeyframes))
		if len(parts) <= c.first {
			t.Fatalf("%d states make %d parts", c.states, len(parts))
		}
		for _, p := range parts[:c.first] {
			r.ApplyReply(r.now, p) // the others get lost
		}
		for range 20 {
			r.now = r.now.Add(3 * time.Second)
			if q, ok := r.Advance(r.now); ok {
				for _, p := range r.store.Repair(r.store.now, q) {
					r.ApplyReply(r.now, p)
				}
			}
		}
		if r.Len() != c.states || !r.Complete() {
			t.Errorf("%d parts of %d states came, then all was repeated: %d states, complete %v", c.first, c.states, r.Len(), r.Complete())
		}
	}
}
