package cluster

import (
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/internal/fence"
)

// A wipedLease is a lease with a store that answers what the test says.
type wipedLease struct {
	*testing.T
	*Lease
	now   time.Time
	asked []Action
	told  []Action
}

// newWipedLease returns a lease that is held in epoch 10.
func newWipedLease(t *testing.T) *wipedLease {
	w := &wipedLease{T: t, Lease: NewLease(LeaseConfig{Node: "a", ID: "1"}), now: time.Unix(1000, 0)}
	w.Want(w.now, 0)
	w.wants(ActionRead, 0, "nothing is known of the shard")
	w.answer(Answer{Verdict: fence.OK})
	w.wants(ActionAcquire, 0, "the shard never had a holder")
	w.answer(Answer{Verdict: fence.OK, Seq: 10, Heartbeat: Heartbeat{Seq: 9}})
	w.tells(Action{Kind: ActionAcquired, Epoch: 10})
	return w
}

func (w *wipedLease) advance() {
	w.Want(w.now, 0) // as the worker of the shard does
	for _, a := range w.Advance(w.now) {
		if a.Kind < ActionAcquired {
			w.asked = append(w.asked, a)
		} else if a.Kind != ActionDurable {
			w.told = append(w.told, a)
		}
	}
}

func (w *wipedLease) wants(kind ActionKind, expect uint64, why string) {
	w.Helper()
	for range 100 {
		w.advance()
		if len(w.asked) > 0 {
			break
		}
		w.now = w.now.Add(100 * time.Millisecond)
	}
	if len(w.asked) == 0 || w.asked[0].Kind != kind || w.asked[0].ExpectHolder != expect {
		w.Fatalf("the lease asks %+v, want %d that expects %d: %s", w.asked, kind, expect, why)
	}
	w.asked = w.asked[1:]
}

func (w *wipedLease) answer(a Answer) { w.Answer(w.now, a); w.advance() }

func (w *wipedLease) tells(want Action) {
	w.Helper()
	if len(w.told) == 0 || w.told[0] != want {
		w.Fatalf("the lease tells %+v, want %+v", w.told, want)
	}
	w.told = w.told[1:]
}

// silence lets the store be silent until the shard is lost.
func (w *wipedLease) silence() {
	w.Helper()
	for range 200 {
		w.advance()
		if w.Epoch() == 0 {
			w.tells(Action{Kind: ActionLost, Epoch: 10, Reason: ReasonSilence})
			return
		}
		if len(w.asked) > 0 {
			w.asked = nil
			w.answer(Answer{Verdict: fence.Unreachable})
		}
		w.now = w.now.Add(100 * time.Millisecond)
	}
	w.Fatal("the lease is not lost")
}

// TestWiped checks what a holder does whose store was made anew, and what it tells about what
// the relay still has: that nothing is newer, unless another relay held the shard.
func TestWiped(t *testing.T) {
	own := Holder{Seq: 10, Node: "a", ID: "1"}
	t.Run("made anew", func(t *testing.T) {
		w := newWipedLease(t)
		w.Wiped(w.now)
		w.Want(w.now, 0)
		w.advance()
		w.tells(Action{Kind: ActionLost, Epoch: 10, Reason: ReasonWiped})
		w.wants(ActionAcquire, 0, "the store has no holder")
		w.answer(Answer{Verdict: fence.Unknown})
		w.wants(ActionRead, 0, "the write may be stored")
		w.answer(Answer{Verdict: fence.OK, Holder: Holder{Seq: 50, Node: "a", ID: "1"}, Heartbeat: Heartbeat{Seq: 49}})
		w.wants(ActionAcquire, 50, "it is the trace of its own attempt")
		w.answer(Answer{Verdict: fence.OK, Seq: 52, Heartbeat: Heartbeat{Seq: 51}})
		w.tells(Action{Kind: ActionAcquired, Epoch: 52, Former: 10, Wiped: true})
	})
	t.Run("made anew, and another relay was faster", func(t *testing.T) {
		w := newWipedLease(t)
		w.Wiped(w.now)
		w.wants(ActionAcquire, 0, "the store has no holder")
		w.answer(Answer{Verdict: fence.Stale})
		w.wants(ActionRead, 0, "the store has another record")
		w.answer(Answer{Verdict: fence.OK, Holder: Holder{Seq: 50, Node: "b", ID: "2", Released: true}, Heartbeat: Heartbeat{Seq: 49}})
		w.wants(ActionAcquire, 50, "it is released")
		w.answer(Answer{Verdict: fence.OK, Seq: 52, Heartbeat: Heartbeat{Seq: 51}})
		w.tells(Action{Kind: ActionLost, Epoch: 10, Reason: ReasonWiped})
		w.tells(Action{Kind: ActionAcquired, Epoch: 52, Wiped: true})
	})
	t.Run("silent", func(t *testing.T) {
		w := newWipedLease(t)
		w.silence()
		w.wants(ActionAcquire, 10, "its own record is the last that it knows")
		w.answer(Answer{Verdict: fence.OK, Seq: 12, Heartbeat: Heartbeat{Seq: 11}})
		w.tells(Action{Kind: ActionAcquired, Epoch: 12, Former: 10})
	})
	t.Run("silent, then made anew", func(t *testing.T) {
		w := newWipedLease(t)
		w.silence()
		w.wants(ActionAcquire, 10, "its own record is the last that it knows")
		w.answer(Answer{Verdict: fence.Stale})
		w.wants(ActionRead, 0, "the store has another record")
		w.answer(Answer{Verdict: fence.OK})
		w.wants(ActionAcquire, 0, "the store has no holder")
		w.answer(Answer{Verdict: fence.OK, Seq: 52, Heartbeat: Heartbeat{Seq: 51}})
		w.tells(Action{Kind: ActionAcquired, Epoch: 52, Former: 10, Wiped: true})
	})
	t.Run("silent, and another relay held the shard", func(t *testing.T) {
		w := newWipedLease(t)
		w.silence()
		w.wants(ActionAcquire, 10, "its own record is the last that it knows")
		w.SeenHolder(w.now, Holder{Seq: 20, Node: "b", ID: "2"})
		w.answer(Answer{Verdict: fence.Stale})
		w.wants(ActionRead, 0, "the store has another record")
		w.answer(Answer{Verdict: fence.OK, Holder: Holder{Seq: 30, Node: "b", ID: "2", Released: true, To: "a"}, Heartbeat: Heartbeat{Seq: 29}})
		w.wants(ActionAcquire, 30, "b released the shard to a")
		w.answer(Answer{Verdict: fence.OK, Seq: 32, Heartbeat: Heartbeat{Seq: 31}})
		w.tells(Action{Kind: ActionAcquired, Epoch: 32})
	})
	t.Run("released", func(t *testing.T) {
		w := newWipedLease(t)
		w.Release("")
		w.wants(ActionRelease, 10, "the relay gives the shard up")
		w.answer(Answer{Verdict: fence.OK, Seq: 12})
		w.tells(Action{Kind: ActionLost, Epoch: 10, Reason: ReasonReleased})
		w.wants(ActionAcquire, 12, "it is free")
		w.answer(Answer{Verdict: fence.OK, Seq: 14, Heartbeat: Heartbeat{Seq: 13}})
		w.tells(Action{Kind: ActionAcquired, Epoch: 14})
	})
	t.Run("a false alarm", func(t *testing.T) {
		w := newWipedLease(t)
		w.Wiped(w.now)
		w.wants(ActionAcquire, 0, "the store has no holder")
		w.answer(Answer{Verdict: fence.Stale})
		w.wants(ActionRead, 0, "the store has a record")
		w.answer(Answer{Verdict: fence.OK, Holder: own, Heartbeat: Heartbeat{Seq: 11}})
		w.wants(ActionAcquire, 10, "it is its own")
	})
}
