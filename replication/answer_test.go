package replication

import (
	"bytes"
	"fmt"
	"testing"
	"time"
)

// large returns a test whose store holds n states of 16,000 bytes, 16 of which fill one part of
// an answer, and whose replica is empty.
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

// In an idle space the answers to a request and to its repetition are true at one position but cut
// differently, because the repetition lists the states of the first parts as equal. Their parts do
// not complete one answer.
func TestAnswersAtOnePosition(t *testing.T) {
	for _, c := range []struct{ states, first int }{{20, 1}, {40, 1}, {40, 2}, {60, 1}, {60, 3}} {
		r := large(t, c.states)
		parts := r.store.Repair(r.store.now, r.asks("late join", RepairKeyframes))
		if len(parts) <= c.first {
			t.Fatalf("%d states make %d parts", c.states, len(parts))
		}
		for _, p := range parts[:c.first] {
			r.ApplyReply(r.now, p) // the others are lost
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
			t.Errorf("%d parts of %d states arrived, then the repeated answer: %d states, complete %v", c.first, c.states, r.Len(), r.Complete())
		}
	}
}

// TestLargeSpaces sends answers of several parts through a lossy channel, with few changes, so
// that many answers are true at one position, with replicas that join late and with new
// holders. A replica that reports itself complete at the position of the store must equal the
// store at every moment.
func TestLargeSpaces(t *testing.T) {
	seeds(t, func(t *testing.T, seed uint64) {
		w := newWorld(t, seed, 2)
		w.newLargeHolder(10)
		for i := range 40 {
			w.putLarge(i)
		}
		w.loss = 0.4
		for i := range 40 {
			switch w.rand.IntN(40) {
			case 0:
				w.putLarge(w.rand.IntN(40))
			case 1:
				publish(w.store, w.now, Op{Kind: OpRemove, Key: fmt.Sprint("big", w.rand.IntN(40))})
			}
			switch i % 20 {
			case 0:
				n, o := w.rand.IntN(2), newWatcher(t)
				w.watchers[n], w.replicas[n] = o, NewReplica("s", o)
			case 15:
				w.newLargeHolder(uint64(11 + i))
			}
			w.step(time.Duration(w.rand.IntN(40)) * time.Millisecond)
			w.completeIsEqual()
		}
		w.loss = 0
		w.step(3 * time.Second)
		for i, r := range w.replicas {
			if !r.Complete() {
				t.Errorf("replica %d is not complete after 3 s without loss: %+v", i, r.stats)
			}
		}
		w.completeIsEqual()
		w.noDivergence()
	})
}

// newLargeHolder replaces the store by one that restores all states.
func (w *world) newLargeHolder(epoch uint64) {
	old := w.store
	w.store = NewStore(StoreConfig{
		Space: "s", Epoch: epoch, FirstNumber: epoch << 20, Tick: 10 * time.Millisecond, Limits: Limits{ValueBytes: 16_000},
	})
	for _, d := range old.TakeDirty(nil, old.Dirty()) {
		if _, err := w.store.Restore(d.Number, d.Data); err != nil {
			w.Fatal(err)
		}
	}
	for _, st := range w.store.states.all {
		w.store.unstored.add(w.now, st) // so that the next holder gets it too
	}
}

func (w *world) putLarge(i int) {
	content := bytes.Repeat([]byte{byte(w.rand.IntN(256))}, 14_000+w.rand.IntN(2000))
	op := Op{Kind: OpPut, Key: fmt.Sprint("big", i), Values: []PutValue{
		{ValueDef: ValueDef{Type: typ("data")}, Value: Encoded{typ("data"), appendLong(nil, content)}},
	}}
	if err := publish(w.store, w.now, op); err != nil {
		w.Fatal(err)
	}
}

func (w *world) completeIsEqual() {
	w.Helper()
	epoch, seq := w.store.Position()
	if w.store.Pending() {
		return
	}
	for i, r := range w.replicas {
		if e, s := r.Position(); !r.Complete() || e != epoch || s != seq {
			continue
		}
		if len(r.states.byNumber) != len(w.store.states.byKey) {
			w.Fatalf("replica %d is complete with %d states, the store has %d", i, len(r.states.byNumber), len(w.store.states.byKey))
		}
		for key, st := range w.store.states.byKey {
			w.equalState(fmt.Sprintf("replica %d, state %q", i, key), r.states.byKey[key], st)
		}
		w.watchers[i].equal(r)
	}
}
