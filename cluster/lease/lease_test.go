package lease_test

import (
	"slices"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/cluster/lease"
	"github.com/dnprelay/dnprelay/internal/fence"
)

// TestRevokedBeforeItBegan revokes the lease of a relay whose first write has no answer. An incarnation that was revoked never writes again, so the
// relay begins another one. Otherwise others take its shards, although it holds them.
func TestRevokedBeforeItBegan(t *testing.T) {
	l := newLease()
	now := time.Now()
	first := written(l.Advance(now)).Record
	if first.Incarnation == "" {
		t.Fatal("a relay that knows all records does not begin")
	}
	now = now.Add(3 * time.Second)
	l.Saw(now, "a", lease.Record{Seq: 7, Incarnation: first.Incarnation, Revoked: "b"})
	if second := written(l.Advance(now)); second.Record.Incarnation == first.Incarnation || second.Expect != 7 {
		t.Errorf("after the incarnation %q was revoked by record 7, the relay writes %+v on the condition that %d is the last", first.Incarnation, second.Record, second.Expect)
	}
}

// TestRefusedWritesAreRepeated refuses writes of a lease, as a store does that has another write under way. The relay repeats them at once: others
// revoke a lease that has not changed for 1.1 s.
func TestRefusedWritesAreRepeated(t *testing.T) {
	l := newLease()
	now := time.Now()
	l.Wrote(now, now, written(l.Advance(now)).Record, lease.Answer{Verdict: fence.OK, Seq: 1})
	now = now.Add(400 * time.Millisecond) // so that the next write is due
	began, n := now, 0
	for now.Sub(began) < time.Second {
		if w := written(l.Advance(now)); w.Record.Incarnation != "" {
			l.Wrote(now, now, w.Record, lease.Answer{Verdict: fence.Busy})
			n++
		}
		at, ok := l.NextTimeout()
		if !ok || !at.After(now) {
			t.Fatalf("after %d refusals the relay asks for no pause", n)
		}
		now = at
	}
	if n < 6 || n > 20 {
		t.Errorf("a write that is refused is asked %d times in a second, want 6 to 20", n)
	}
}

// TestLeaseIsForgotten takes the record of a lease out of the stream, as time does an hour after the lease was revoked, and servers that lose what
// they stored. An answer that was asked before the write, or that says so for a moment, means nothing.
func TestLeaseIsForgotten(t *testing.T) {
	l := newLease()
	now := time.Now()
	first := written(l.Advance(now)).Record
	l.Wrote(now, now, first, lease.Answer{Verdict: fence.OK, Seq: 9})
	early := now
	forgot := func() bool {
		return slices.ContainsFunc(l.Advance(now), func(a lease.Action) bool { return a.Kind == lease.ActionForgot })
	}
	now = now.Add(time.Second)
	if w := written(l.Advance(now)); w.Expect != 9 {
		t.Fatalf("the next write is %+v, want one on the condition that 9 is the last record", w)
	}
	began := now
	for asked := now; now.Sub(began) <= 4*time.Second; asked = now {
		now = now.Add(500 * time.Millisecond)
		l.ReadLease(now, early, "a", lease.Record{}, fence.OK)
		if forgot() {
			t.Fatal("a late answer has the lease forgotten")
		}
		r := lease.Record{}
		if now.Sub(began) == 2*time.Second {
			r = lease.Record{Seq: 9, Incarnation: first.Incarnation, Write: first.Write} // the leader was another one meanwhile
		}
		l.ReadLease(now, asked, "a", r, fence.OK)
		if forgot() {
			t.Fatalf("forgotten after %v, although the leader had the record in between", now.Sub(began))
		}
	}
	for asked := now; ; asked = now {
		now = now.Add(500 * time.Millisecond)
		l.ReadLease(now, asked, "a", lease.Record{Seq: 4, Incarnation: first.Incarnation, Write: first.Write}, fence.OK)
		if forgot() {
			break
		}
		if now.Sub(began) > time.Minute {
			t.Fatal("the relay waits for a condition that never holds")
		}
	}
	l.Wiped(now)
	l.Rewatch()
	l.Saw(now, "a", lease.Record{Seq: 4, Incarnation: first.Incarnation, Write: first.Write})
	l.Primed()
	if w := written(l.Advance(now)); w.Expect != 4 || w.Record.Incarnation == first.Incarnation {
		t.Errorf("then the relay writes %+v, want a new incarnation on the condition that 4 is the last record", w)
	}
}

// TestLaggingWatch serves a watch that begins anew from a server that catches up: it has an old state of things, or nothing, and of each subject only
// the last record reaches it. What the relay knew counts when the leader says that it is there. Another relay that lives keeps its shard.
func TestLaggingWatch(t *testing.T) {
	for _, empty := range []bool{false, true} {
		l := newLease()
		now := time.Now()
		lives, held := lease.Record{Seq: 880, Incarnation: "b2", Write: 9}, lease.Owner{Seq: 500, Node: "b", Incarnation: "b2", Before: 100}
		l.Saw(now, "b", lives)
		l.SawOwner(now, 0, held)
		l.Wrote(now, now, written(l.Advance(now)).Record, lease.Answer{Verdict: fence.OK, Seq: 900})
		l.Rewatch()
		if !empty {
			l.SawOwner(now, 0, lease.Owner{Seq: 100, Node: "b", Incarnation: "b1"})
			l.Saw(now, "b", lease.Record{Seq: 390, Incarnation: "b1", Write: 9})
		}
		l.Primed()
		asked := map[lease.ActionKind]int{}
		turn := func() {
			l.Alive(now, 0, true)
			for _, a := range l.Advance(now) {
				asked[a.Kind]++
				switch {
				case a.Kind == lease.ActionReadOwner:
					l.ReadOwner(now, 0, held, fence.OK)
				case a.Kind == lease.ActionReadLease && a.Node == "b":
					l.ReadLease(now, a.Asked, "b", lives, fence.OK)
				}
			}
		}
		turn()
		l.SawOwner(now, 0, held) // the server has caught up so far, and not yet with the lease
		for range 8 {
			now = now.Add(50 * time.Millisecond)
			turn()
		}
		if asked[lease.ActionOwn]+asked[lease.ActionRevoke]+asked[lease.ActionForgot] > 0 || asked[lease.ActionReadLease] != 2 || asked[lease.ActionReadOwner] != 1 {
			t.Errorf("empty %v: the relay asks %v (kinds), want the leader for two leases and an owner, and nothing else", empty, asked)
		}
	}
}

// TestFirstWatchLags serves the first watch of a relay from a server that catches up: it brings who holds a shard, and not yet the lease of the
// holder. A holder that lives keeps the shard, and one that is over loses it.
func TestFirstWatchLags(t *testing.T) {
	lives := lease.Record{Seq: 880, Incarnation: "b2", Write: 9}
	old := lease.Record{Seq: 390, Incarnation: "b1", Write: 9}
	for _, c := range []struct {
		why  string
		seen lease.Record   // by the watch
		says []lease.Record // by the leader, the last again and again
		asks int
		take bool
	}{
		{"it lives", lease.Record{}, []lease.Record{lives}, 1, false},
		{"it lives, and its former lease is known", old, []lease.Record{lives}, 1, false},
		{"it lives, and a leader that was deposed does not know", lease.Record{}, []lease.Record{{}, {}, lives}, 3, false},
		{"it lives, and a leader that was deposed knows its former lease", lease.Record{}, []lease.Record{old, lives}, 2, false},
		{"nothing is left of its lease", lease.Record{}, []lease.Record{{}}, 4, true},
		{"nothing is left of its lease, and a leader that was deposed knows the former one", lease.Record{}, []lease.Record{old, {}}, 5, true},
		{"its lease was revoked", lease.Record{}, []lease.Record{{Seq: 880, Incarnation: "b2", Revoked: "c"}}, 1, true},
		{"it began again", lease.Record{}, []lease.Record{{Seq: 880, Incarnation: "b3", Write: 1}}, 1, true},
	} {
		l := newLease()
		now := time.Now()
		if c.seen.Seq != 0 {
			l.Saw(now, "b", c.seen)
		}
		l.SawOwner(now, 0, lease.Owner{Seq: 500, Node: "b", Incarnation: "b2", Before: 100})
		l.ReadLease(now, now, "b", lease.Record{}, fence.OK) // an answer that was asked before
		l.Primed()
		asks, takes, seq := 0, false, uint64(900)
		for end := now.Add(8 * time.Second); now.Before(end); now = now.Add(50 * time.Millisecond) {
			l.Alive(now, 0, true)
			for _, a := range l.Advance(now) {
				switch {
				case a.Kind == lease.ActionWrite:
					seq++
					l.Wrote(now, a.Asked, a.Record, lease.Answer{Verdict: fence.OK, Seq: seq})
				case a.Kind == lease.ActionReadLease && a.Node == "b":
					l.ReadLease(now, a.Asked, a.Node, c.says[min(asks, len(c.says)-1)], fence.OK)
					asks++
				case a.Kind == lease.ActionOwn:
					takes = true
				}
			}
		}
		if takes != c.take || asks != c.asks {
			t.Errorf("%s: the relay asks for the lease %d times, want %d, and takes the shard: %v", c.why, asks, c.asks, takes)
		}
	}
}

// TestEpochsOnlyGrow loses the records of a holder, and of another relay's shard. The relay takes no shard below the epochs that it knew, also if one is given to
// it; it writes until it may, and takes its own back at once.
func TestEpochsOnlyGrow(t *testing.T) {
	l := newLease()
	now := time.Now()
	first := written(l.Advance(now)).Record
	l.Wrote(now, now, first, lease.Answer{Verdict: fence.OK, Seq: 999})
	l.SawOwner(now, 0, lease.Owner{Seq: 1000, Node: "a", Incarnation: first.Incarnation, Before: 500})
	l.Advance(now)
	l.Rewatch()
	older := lease.Owner{Seq: 300, Node: "b", Incarnation: "b1"}
	l.SawOwner(now, 0, older)
	l.Primed()
	l.Wiped(now)
	l.Rewatch()
	l.SawOwner(now, 0, older)
	l.Primed()
	seq, given := uint64(900), false
	for range 1000 {
		now = now.Add(time.Millisecond)
		l.Alive(now, 0, true)
		for _, a := range l.Advance(now) {
			switch a.Kind {
			case lease.ActionWrite:
				seq++
				l.Wrote(now, now, a.Record, lease.Answer{Verdict: fence.OK, Seq: seq})
				if !given {
					given = true
					seq++
					l.SawOwner(now, 0, lease.Owner{Seq: seq, Node: "a", Incarnation: a.Record.Incarnation, Before: 300})
				}
			case lease.ActionOwn:
				seq++
				l.WroteOwner(now, 0, a.Expect, a.Owner, lease.Answer{Verdict: fence.OK, Seq: seq})
			case lease.ActionAcquired:
				if a.Epoch <= 1000 || a.Epoch > 1010 {
					t.Errorf("the relay holds the shard in epoch %d, and knew 1000", a.Epoch)
				}
				return
			}
		}
	}
	t.Error("the relay does not take its shard back within a second")
}

// newLease returns the lease of relay a, in a stream without records.
func newLease() *lease.Lease {
	l := lease.New(lease.Config{Node: "a", Start: "a1", Shards: []int{0}, Draw: cluster.DrawShard})
	l.Primed()
	return l
}

// written returns the write among actions; the zero Action if there is none.
func written(all []lease.Action) (w lease.Action) {
	for _, a := range all {
		if a.Kind == lease.ActionWrite {
			w = a
		}
	}
	return w
}
