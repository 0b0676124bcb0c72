package relay

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/cluster/lease"
	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/internal/outage"
	"github.com/dnprelay/dnprelay/replication"
)

// loadedSpace and loadedShard are what the tests of loads are about.
const loadedSpace = "s"

var (
	loadedShard  = cluster.Shard(loadedSpace, placedShards)
	uint8Type, _ = wire.ParseValueType("uint8")
)

func (p *placed) event(e cluster.LeaseEvent) {
	e.Shard = loadedShard
	p.leases.handle(e)
	p.turn(time.Millisecond, 0, 1)
}

func (p *placed) acquire(epoch, former uint64) {
	p.event(cluster.LeaseEvent{Kind: cluster.ShardAcquired, Epoch: epoch, Former: former})
}

func (p *placed) lose(epoch uint64, reason lease.Reason) {
	p.event(cluster.LeaseEvent{Kind: cluster.ShardLost, Epoch: epoch, Reason: reason})
}

// loads wants so many loads to have been asked for, and returns the last.
func (p *placed) loads(why string, want int) askedLoad {
	p.Helper()
	if len(p.leases.loads) != want {
		p.Fatalf("%s: %d loads were asked for, want %d", why, len(p.leases.loads), want)
	}
	return p.leases.loads[want-1]
}

// brings answers a load with a part.
func (p *placed) brings(l askedLoad, part ...cluster.Keyframe) {
	l.each(part)
	p.turn(time.Millisecond, 0, 1)
}

func (p *placed) ends(l askedLoad, err error) {
	l.done(err)
	p.turn(time.Millisecond, 0, 1)
}

// serves wants the relay to serve these keys and values, or nothing.
func (p *placed) serves(why string, want ...string) {
	p.Helper()
	var got []string
	served := false
	for _, w := range p.relay.Workers() {
		if s := w.Store(loadedSpace); s != nil {
			served = true
			for _, st := range s.List("", 100).States {
				got = append(got, fmt.Sprintf("%s=%d", st.Desc.Key, st.Values.Value(0)[0]))
			}
		}
	}
	if !slices.Equal(got, want) || served != (want != nil) {
		p.Errorf("%s: the relay serves %v (%v), want %v", why, got, served, want)
	}
}

// keyframe returns a state as a holder of an epoch stores it, which is the n-th that it makes.
func keyframe(t *testing.T, epoch uint64, n int, key string, value byte) cluster.Keyframe {
	t.Helper()
	s := replication.NewStore(replication.StoreConfig{Space: loadedSpace, Epoch: epoch, FirstNumber: firstNumber(epoch) + uint64(n)})
	s.Publish(time.Unix(1, 0), replication.Publish{Ops: []replication.Op{{Kind: replication.OpPut, Key: key, Values: []replication.PutValue{{ValueDef: replication.ValueDef{Name: "n", Type: uint8Type}, Value: replication.Encoded{Type: uint8Type, Value: []byte{value}}}}}}})
	s.Advance(time.Unix(1, 0))
	all := s.TakeDirty(nil, 1)
	if len(all) != 1 {
		t.Fatalf("%s is not stored", key)
	}
	return cluster.Keyframe{Space: loadedSpace, Number: all[0].Number, Data: all[0].Data}
}

// TestFormerNeedsWholeLoad loses the lease of a shard while its states are loaded, and acquires it again: the states have to
// be loaded anew, and what the first load brings late is for nobody.
func TestFormerNeedsWholeLoad(t *testing.T) {
	a, b, c := keyframe(t, 2, 0, "a", 1), keyframe(t, 2, 1, "b", 2), keyframe(t, 2, 2, "c", 3)
	for name, reason := range map[string]lease.Reason{"revoked": lease.ReasonRevoked, "wiped": lease.ReasonWiped} {
		for parts, why := range []string{"no answer", "a part of the answer"} {
			t.Run(name+" "+why, func(t *testing.T) {
				p := newPlaced(t)
				p.acquire(10, 0)
				first := p.loads("acquired", 1)
				if parts > 0 {
					p.brings(first, a)
				}
				p.lose(10, reason)
				p.acquire(20, 10)
				second := p.loads("acquired again", 2)
				p.brings(first, c)
				p.ends(first, nil)
				p.serves("the first load ends late")
				p.brings(second, b)
				p.serves("half of the second load")
				p.brings(second, a)
				p.ends(second, nil)
				p.serves("the second load has ended", "a=1", "b=2")
			})
		}
	}
}

// TestFormerIsComplete serves the copy of a shard again that was complete when it was lost, without a load, however often it
// is lost; also one whose load ended while the shard was to be handed over.
func TestFormerIsComplete(t *testing.T) {
	a := keyframe(t, 2, 0, "a", 1)
	p := newPlaced(t)
	p.acquire(10, 0)
	load := p.loads("acquired", 1)
	p.brings(load, a)
	p.ends(load, nil)
	p.serves("the load has ended", "a=1")
	for epoch := uint64(20); epoch < 50; epoch += 10 {
		p.lose(epoch-10, lease.ReasonRevoked)
		p.serves("the shard is lost")
		p.acquire(epoch, epoch-10)
		p.serves("the shard is held again", "a=1")
	}
	p.loads("nothing is newer", 1)
	p.lose(40, lease.ReasonRevoked)
	p.acquire(60, 0) // another relay held it
	p.loads("something may be newer", 2)
	p.serves("the second load has not ended")
}

// TestLoadAgain repeats a load that fails until it ends without an error, or the shard is lost, and logs that once for all shards.
func TestLoadAgain(t *testing.T) {
	p := newPlaced(t)
	p.now = time.Unix(1e9, 0) // long after the bus was reached
	var text strings.Builder
	p.relay.cfg.Log = slog.New(slog.NewTextHandler(&text, nil))
	logs := func(why, want string) {
		t.Helper()
		for _, w := range p.relay.Workers() {
			w.loads.log(p.now)
		}
		if strings.Count(text.String(), want) != 1 || strings.Count(text.String(), "\n") != 1 {
			t.Errorf("%s: want a line with %q, got\n%s", why, want, text.String())
		}
		text.Reset()
	}
	quiet := func(why string) {
		t.Helper()
		for _, w := range p.relay.Workers() {
			w.loads.log(p.now)
		}
		if text.Len() > 0 {
			t.Errorf("%s: want no line, got\n%s", why, text.String())
		}
		text.Reset()
	}
	a := keyframe(t, 2, 0, "a", 1)
	p.acquire(10, 0)
	quiet("a load begins")
	for n := range 5 {
		load := p.loads("asked again", n+1)
		p.brings(load, a)
		p.ends(load, []error{cluster.ErrQueueFull, cluster.ErrNotHeld, errors.New("anything")}[n%3])
		p.serves("the load failed")
		p.turn(loadPause/2, 0, 1)
		p.loads("after half the pause", n+1)
		p.turn(loadPause, 0, 1)
		if n == 0 {
			logs("it fails", "level=WARN")
		} else {
			quiet("it fails again")
		}
	}
	p.leases.handle(cluster.LeaseEvent{Kind: cluster.ShardAcquired, Shard: loadedShard + 1, Epoch: 5})
	p.turn(loadLate, 0, 1)
	quiet("the load of another shard takes long")
	p.ends(p.loads("another shard", 7), nil)
	p.ends(p.leases.loads[5], nil)
	p.serves("it ended", "a=1")
	quiet("it may fail again soon")
	p.now = p.now.Add(outage.End)
	logs("all is loaded", "level=INFO")

	p.lose(10, lease.ReasonTaken)
	p.acquire(20, 0)
	p.ends(p.loads("acquired again", 8), cluster.ErrNotHeld)
	p.lose(20, lease.ReasonTaken)
	p.turn(2*loadPause, 0, 1)
	p.loads("the shard is lost", 8)
	p.acquire(30, 0)
	p.loads("a load begins", 9)
	p.turn(loadLate-2*time.Millisecond, 0, 1)
	quiet("it has not taken long")
	p.turn(2*time.Millisecond, 0, 1)
	logs("it takes long", "level=WARN")
}

// TestTwoKeyframesOfOneKey loads two states with one key, in both orders: the later one is served, and the durable store is told
// to delete the other.
func TestTwoKeyframesOfOneKey(t *testing.T) {
	older, newer, other := keyframe(t, 2, 0, "a", 1), keyframe(t, 3, 0, "a", 2), keyframe(t, 2, 1, "b", 3)
	for _, order := range [][]cluster.Keyframe{{older, other, newer}, {newer, other, older}, {older, newer, other, older, newer}} {
		p := newPlaced(t)
		p.acquire(10, 0)
		load := p.loads("acquired", 1)
		for _, k := range order {
			p.brings(load, k)
		}
		p.ends(load, nil)
		p.serves("both were loaded", "a=2", "b=3")
		p.turn(time.Second/2, 0, 1)
		if s := p.leases.stored; len(s) != 1 || s[0].Number != older.Number || s[0].Data != nil || s[0].Space != loadedSpace {
			t.Errorf("the durable store gets %v, want the end of %d", s, older.Number)
		}
		if p.relay.shards.old != 1 || p.relay.shards.oldOne != fmt.Sprintf("%s/%d", loadedSpace, older.Number) {
			t.Errorf("the log has %d, the first of which is %s", p.relay.shards.old, p.relay.shards.oldOne)
		}
	}
}

// TestLoadBeyondSpaces loads more spaces than a relay lets publishers begin, as it does after several relays died: it serves all.
func TestLoadBeyondSpaces(t *testing.T) {
	p := newPlaced(t)
	p.relay.cfg.Spaces = 2
	p.acquire(10, 0)
	load := p.loads("acquired", 1)
	for i := range 5 {
		k := keyframe(t, 2, 0, "a", byte(i))
		k.Space = fmt.Sprint("s", i)
		p.brings(load, k)
	}
	p.ends(load, nil)
	w := p.relay.worker(loadedShard)
	if len(w.spaces) != 5 {
		t.Errorf("%d spaces are served, want 5", len(w.spaces))
	}
	p.lose(10, lease.ReasonRevoked)
	p.acquire(20, 10)
	if len(w.spaces) != 5 {
		t.Errorf("%d spaces are served when the shard is held again, want 5", len(w.spaces))
	}
	if _, ok := w.space(p.now, w.ownership(loadedShard), "another"); ok {
		t.Error("another space was begun")
	}
}
