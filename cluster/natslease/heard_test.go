package natslease

import (
	"context"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/internal/natstest"
)

// TestHeard checks which sequences a relay believes.
func TestHeard(t *testing.T) {
	l := open(t, natstest.Start(t, 1).Connect(t), Config{Node: "a", Shards: 4, Streams: 2})
	clock := l.heard[0].highest.Load() + 1_000_000
	for _, step := range []struct {
		hear func()
		want uint64
		why  string
	}{
		{func() { l.Fence(2, clock+5) }, clock + 5, "a holder names its epoch"},
		{func() { l.Fence(2, 1<<60) }, clock + 5, "no stream comes as far"},
		{func() { l.Fence(2, clock+1) }, clock + 5, "a holder before it named that"},
		{func() { l.Fence(1, clock+50) }, clock + 5, "the shard is in another stream"},
	} {
		step.hear()
		if got := l.heard[0].highest.Load(); got != step.want {
			t.Errorf("the highest sequence is %d above the first, want %d: %s", got-clock, step.want-clock, step.why)
		}
	}
}

// TestHeardOfStream wants a relay to hear the sequences of what it writes and what the watch brings.
func TestHeardOfStream(t *testing.T) {
	c := natstest.Start(t, 1)
	a, b := start(t, c, "a", 1), start(t, c, "b", 1)
	a.Want(true)
	e := a.want(cluster.ShardAcquired, 0, "the shard never had a holder")
	for what, r := range map[string]*relay{"it wrote": a, "the watch brings": b} {
		eventually(t, "a relay hears of what "+what, func() bool { return r.heard[0].highest.Load() > e.Epoch })
	}
}

// TestOneName starts two relays with one name: the former one ends, and says why.
func TestOneName(t *testing.T) {
	c := natstest.Start(t, 1)
	a := start(t, c, "a", 1)
	a.Want(true)
	a.want(cluster.ShardAcquired, 0, "the shard never had a holder")
	b := start(t, c, "a", 1)
	b.Want(true)
	select {
	case err := <-a.ended:
		if err == nil || context.Cause(a.ctx) != nil {
			t.Errorf("the former relay ends with %v", err)
		}
		t.Log(err)
	case <-time.After(patience):
		t.Fatal("the former relay goes on")
	}
	a.want(cluster.ShardLost, 0, "the name is another process's")
	b.want(cluster.ShardAcquired, 0, "the former process has ended")
}
