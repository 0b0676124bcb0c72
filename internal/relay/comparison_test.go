package relay

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/cluster/lease"
	"github.com/dnprelay/dnprelay/replication"
)

// TestComparisonPause: comparisons take at most a fiftieth of a slow store's time, and the number of workers costs it nothing.
func TestComparisonPause(t *testing.T) {
	for _, x := range []struct {
		took    time.Duration
		workers int
		first   bool
		want    time.Duration
	}{
		{time.Millisecond, 1, false, 2 * time.Second},
		{time.Millisecond, 1, true, 250 * time.Millisecond},
		{time.Millisecond, 8, false, 16 * time.Second},
		{time.Millisecond, 8, true, 2 * time.Second},
		{240 * time.Millisecond, 1, false, 12 * time.Second},
		{240 * time.Millisecond, 1, true, 12 * time.Second},
		{5 * time.Second, 1, true, time.Minute},
		{time.Second, 64, false, 128 * time.Second},
	} {
		if got := comparisonPause(x.took, x.workers, x.first); got != x.want {
			t.Errorf("after a list of %v with %d workers, first %v: %v, want %v", x.took, x.workers, x.first, got, x.want)
		}
	}
}

// An askedList is a list that the test answers.
type askedList struct {
	shard int
	done  func([]cluster.Keyframe, error)
}

// A compared is a relay whose lists the test answers.
type compared struct {
	*placed
	asked []askedList
	log   strings.Builder
}

func newCompared(t *testing.T) *compared {
	p := &compared{placed: newPlaced(t)}
	p.now = time.Unix(1e9, 0)
	p.relay.cfg.Log = slog.New(slog.NewTextHandler(&p.log, nil))
	p.relay.cfg.Stored = func(shard int, done func([]cluster.Keyframe, error)) {
		p.asked = append(p.asked, askedList{shard, done})
	}
	return p
}

// holds has the relay hold the shard that tests are about, with what is loaded.
func (p *compared) holds(epoch uint64, loaded ...cluster.Keyframe) {
	p.Helper()
	p.acquire(epoch, 0)
	load := p.leases.loads[len(p.leases.loads)-1]
	p.brings(load, loaded...)
	p.ends(load, nil)
}

// asks wants the relay to ask for a list within a time, and not before another one.
func (p *compared) asks(why string, before, within time.Duration) askedList {
	p.Helper()
	const step = 50 * time.Millisecond
	for passed := time.Duration(0); len(p.asked) == 0; passed += step {
		if passed > within {
			p.Fatalf("%s: no list was asked for within %v", why, within)
		}
		p.turn(step, 0, 1)
		if len(p.asked) > 0 && passed < before {
			p.Fatalf("%s: a list was asked for after %v, want no earlier than %v", why, passed, before)
		}
	}
	l := p.asked[0]
	p.asked = p.asked[1:]
	return l
}

// compares answers the next list, and wants so many states to be stored, and as unserved.
func (p *compared) compares(why string, stored, unserved uint64, list ...cluster.Keyframe) {
	p.Helper()
	p.asks(why, 0, time.Minute).done(list, nil)
	p.turn(time.Millisecond, 0, 1)
	p.found(why, stored, unserved)
}

func (p *compared) found(why string, stored, unserved uint64) {
	p.Helper()
	s := p.relay.worker(loadedShard).Stats(p.now)
	if s.StoredStates != stored || s.Unserved != unserved {
		p.Errorf("%s: %d states are stored, %d of them not served, want %d and %d", why, s.StoredStates, s.Unserved, stored, unserved)
	}
	missing := slices.Contains(p.relay.Missing(), fmt.Sprint("states of shards ", loadedShard))
	if missing != (unserved > 0) {
		p.Errorf("%s: the relay lacks %v", why, p.relay.Missing())
	}
}

// logs wants the only line since the last call to have a text, or no line if it is empty.
func (p *compared) logs(why, want string) {
	p.Helper()
	p.now = p.now.Add(shardsQuiet)
	p.relay.shards.owned = false // of what the relay serves, it says more than this test is about
	p.relay.shards.tell(p.now, true, p.relay.cfg.Log)
	if got := p.log.String(); !strings.Contains(got, want) || strings.Count(got, "\n") != min(len(want), 1) {
		p.Errorf("%s: want a line with %q, got\n%s", why, want, got)
	}
	p.log.Reset()
}

func (p *compared) publish(ops ...replication.Op) {
	p.relay.worker(loadedShard).spaces[loadedSpace].store.Publish(p.now, replication.Publish{Ops: ops})
}

// key returns a keyframe as a list has it.
func listed(k cluster.Keyframe) cluster.Keyframe {
	return cluster.Keyframe{Space: k.Space, Number: k.Number}
}

// TestUnserved loads a state that cannot be read, and later finds records that no relay wrote: when two lists in a row have a state
// that the relay does not serve, it says so, until a list does not.
func TestUnserved(t *testing.T) {
	a, bad := keyframe(t, 2, 0, "a", 1), cluster.Keyframe{Space: loadedSpace, Number: 77, Data: []byte("?")}
	p := newCompared(t)
	p.holds(10, a, bad)
	p.log.Reset() // which says that it cannot be read
	a, bad = listed(a), listed(bad)
	p.compares("the first list", 2, 0, a, bad)
	p.logs("once is not enough", "")
	p.asks("the second list", compareAgain-shardsQuiet-100*time.Millisecond, 2*compareAgain).done([]cluster.Keyframe{bad, a}, nil)
	p.turn(time.Millisecond, 0, 1)
	p.found("the second list", 2, 1)
	p.logs("twice is", "level=ERROR msg=\"the durable store has states that this relay does not serve\" count=1 shards="+fmt.Sprint(loadedShard)+" one=s/77")
	p.compares("nothing changed", 2, 1, a, bad)
	p.logs("nothing changed", "")
	p.compares("it was deleted", 1, 0, a)
	p.logs("it was deleted", "level=INFO msg=\"this relay serves all states that the durable store has of its shards\"")

	for why, k := range map[string]cluster.Keyframe{
		"of another space": {Space: "other", Number: a.Number}, "of another number": {Space: loadedSpace, Number: a.Number + 1}, "with a subject that no relay has": {},
	} {
		p.compares(why, 2, 0, a, k)
		p.compares(why+", again", 2, 1, a, k)
		p.compares(why+", no longer", 1, 0, a)
	}
	p.compares("a stale leader, once", 2, 0, a, bad)
	p.compares("and the next list", 1, 0, a)
	p.compares("and another one", 2, 0, a, bad)
	p.compares("and another one", 2, 1, a, bad)
	p.event(cluster.LeaseEvent{Kind: cluster.ShardPaused, Epoch: 10})
	p.found("the shard is not served", 0, 0)
	p.event(cluster.LeaseEvent{Kind: cluster.ShardResumed, Epoch: 10})
	p.found("it is served again", 2, 1)
}

// TestUnservedStays: a copy of a shard that lacks a state lacks it also when the relay holds the shard again, and not after a load.
func TestUnservedStays(t *testing.T) {
	a, b := keyframe(t, 2, 0, "a", 1), keyframe(t, 2, 1, "b", 2)
	p := newCompared(t)
	p.holds(10, a)
	p.compares("a record behind the relay's back", 2, 0, listed(a), listed(b))
	p.compares("again", 2, 1, listed(a), listed(b))
	p.lose(10, lease.ReasonRevoked)
	p.found("the shard is lost", 0, 0)
	p.acquire(20, 10)
	p.found("it is held again, with the copy", 2, 1)
	p.lose(20, lease.ReasonTaken)
	p.holds(30, a, b)
	p.found("it was loaded", 0, 0)
	p.compares("it was loaded", 2, 0, listed(a), listed(b))
	p.compares("it was loaded, once more", 2, 0, listed(a), listed(b))
}

// TestRemovedIsNotUnserved follows the end of states on the way to the durable store, which remembers each for a while: none of them
// lacks. The store that remembers an end no longer and has the state again is another matter.
func TestRemovedIsNotUnserved(t *testing.T) {
	a, b, c, d := keyframe(t, 2, 0, "a", 1), keyframe(t, 2, 1, "b", 2), keyframe(t, 2, 2, "c", 3), keyframe(t, 2, 3, "d", 4)
	d.Data = nil
	all := []cluster.Keyframe{listed(a), listed(b), listed(c), listed(d)}
	p := newCompared(t)
	p.holds(10, a, b, c, d)
	p.compares("d was removed before the load", 3, 0, all...)

	w := p.relay.worker(loadedShard)
	o, sp := w.ownership(loadedShard), w.spaces[loadedSpace]
	p.publish(replication.Op{Kind: replication.OpRemove, Key: "a"})
	list := func(why string, stored int) {
		t.Helper()
		w.comparisons.of, w.comparisons.found = o, tally{}
		if w.comparisons.count(all); w.comparisons.found.lacking != 0 || w.comparisons.found.stored != stored {
			t.Errorf("%s: the comparison finds %+v, want %d states", why, w.comparisons.found, stored)
		}
		w.comparisons.of = nil
	}
	list("a is removed", 2)
	w.emit(p.now, sp)
	list("edges were told", 2)
	var done func(error)
	store := p.relay.cfg.Leases
	p.relay.cfg.Leases = holdingLeases{p.leases, &done}
	w.store(o, 10)
	p.relay.cfg.Leases = store
	list("its end is on the way", 2)
	done(nil)
	p.turn(time.Millisecond, 0, 1)
	list("its end is stored", 2)
	p.lose(10, lease.ReasonRevoked)
	p.acquire(20, 10)
	for n := range 3 {
		p.compares(fmt.Sprint("held again, ", n), 2, 0, all...)
	}
	p.compares("the store forgot a and d, or a part of the list was lost", 2, 0, all[1], all[2])
	p.compares("it was the list", 2, 0, all...)
	p.compares("the store forgot them", 2, 0, all[1], all[2])
	p.compares("it did", 2, 0, all[1], all[2])
	p.compares("a has come back, as from a copy of the stream", 3, 0, all[:3]...)
	p.compares("it stays", 3, 1, all[:3]...)
}

// TestRemovedStaysRemoved removes a state, and then the durable store loses its last writes, so that it may have the state again. The relay stores
// again the states that it has, and the end of the removed one.
func TestRemovedStaysRemoved(t *testing.T) {
	a, b := keyframe(t, 2, 0, "a", 1), keyframe(t, 2, 1, "b", 2)
	p := newCompared(t)
	p.holds(10, a, b)
	p.publish(replication.Op{Kind: replication.OpRemove, Key: "a"})
	w := p.relay.worker(loadedShard)
	w.emit(p.now, w.spaces[loadedSpace])
	stores := func(why string, want map[uint64]bool) {
		t.Helper()
		p.leases.stored = nil
		for range 100 {
			p.turn(time.Second/10, 0, 1)
		}
		got := map[uint64]bool{}
		for _, k := range p.leases.stored {
			got[k.Number] = k.Data != nil
		}
		if !maps.Equal(got, want) {
			t.Errorf("%s: the relay stores %v, want %v (number, and whether it is there)", why, got, want)
		}
	}
	stores("a is removed", map[uint64]bool{a.Number: false})
	p.lose(10, lease.ReasonWiped)
	p.event(cluster.LeaseEvent{Kind: cluster.ShardAcquired, Epoch: 20, Former: 10, Wiped: true})
	stores("the store lost what it had", map[uint64]bool{a.Number: false, b.Number: true})
	p.lose(20, lease.ReasonRevoked)
	p.acquire(30, 20)
	stores("the store has what it had", map[uint64]bool{})
}

// holdingLeases keep the answer to a batch.
type holdingLeases struct {
	*askedLeases
	done *func(error)
}

func (l holdingLeases) Store(_ int, _ uint64, _ []cluster.Keyframe, done func(error)) { *l.done = done }

// TestComparesAllShards: the shards that were never compared come first and soon, then all in turn; each worker asks for one list at a
// time, and goes on after one that fails, or whose shard is lost meanwhile.
func TestComparesAllShards(t *testing.T) {
	p := newCompared(t)
	p.acquireAll()
	asked := map[int]int{}
	answer := func(why string, err error) (shard int) {
		l := p.asks(why, 0, time.Minute)
		asked[l.shard]++
		l.done(nil, err)
		p.turn(time.Millisecond, 0, 1)
		return l.shard
	}
	began := p.now
	for range placedShards {
		answer("first", nil)
	}
	if passed := p.now.Sub(began); len(asked) != placedShards || passed > comparePause+placedShards*compareFirst {
		t.Errorf("the first round of %v took %v", asked, passed)
	}
	began = p.now
	for n := range 2 * placedShards {
		answer("in turn", map[bool]error{true: errors.New("no answer")}[n%3 == 0])
	}
	for shard, n := range asked {
		if n != 3 {
			t.Errorf("shard %d was compared %d times in three rounds", shard, n)
		}
	}
	if passed := p.now.Sub(began); passed < 2*(placedShards-1)*comparePause {
		t.Errorf("two further rounds took %v", passed)
	}
	l := p.asks("the first worker", 0, time.Minute)
	p.asks("the other worker", 0, time.Minute)
	for range 100 {
		p.turn(time.Second/2, 0, 1)
	}
	if len(p.asked) > 0 {
		t.Fatalf("%d lists were asked for while both workers wait for one", len(p.asked))
	}
	p.leases.handle(cluster.LeaseEvent{Kind: cluster.ShardLost, Shard: l.shard, Epoch: uint64(l.shard + 1), Reason: lease.ReasonTaken})
	l.done([]cluster.Keyframe{{Space: "x", Number: 1}}, nil)
	p.turn(time.Millisecond, 0, 1)
	if next := answer("the shard was lost", nil); next == l.shard {
		t.Errorf("the list of shard %d is asked for, which was lost", next)
	}
}

// TestComparesInSteps compares a large list in several turns, and leaves a shard of which the store remembers too much alone.
func TestComparesInSteps(t *testing.T) {
	p := newCompared(t)
	p.holds(10)
	var list []cluster.Keyframe
	for n := range uint64(2*compareStep + 1) {
		list = append(list, cluster.Keyframe{Space: "x", Number: n})
	}
	p.asks("a large list", 0, time.Minute).done(list, nil)
	w := p.relay.worker(loadedShard)
	for n := range 3 {
		if w.counts.Compared != 0 {
			t.Fatalf("%d states were compared in %d turns", len(list), n)
		}
		p.turn(time.Millisecond, 0, 1)
	}
	if w.counts.Compared != 1 || w.ownership(loadedShard).comparison.lacking != len(list) {
		t.Errorf("%d comparisons found %+v", w.counts.Compared, w.ownership(loadedShard).comparison.tally)
	}
	for n := range uint64(removedMax + 1) {
		w.comparisons.noteRemoved(w.ownership(loadedShard), "x", n)
	}
	for range 100 {
		p.turn(time.Second/2, 0, 1)
	}
	if len(p.asked) > 0 || len(w.ownership(loadedShard).comparison.removed) != removedMax {
		t.Errorf("a shard with %d removed states is compared", len(w.ownership(loadedShard).comparison.removed))
	}
}
