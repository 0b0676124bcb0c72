package natslease

import (
	"context"
	"flag"
	"slices"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/internal/natstest"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

var rounds = flag.Int("rounds", 1, "how many times TestHolderAndServerDie kills and stops a server")

// leader returns the index of the server that leads the g-th stream, once all copies of all streams are complete.
func (r *relay) leader(g int) (leader int) {
	r.t.Helper()
	complete := func() bool {
		for i, s := range r.streams {
			ctx, cancel := context.WithTimeout(r.t.Context(), time.Second)
			info, err := s.Info(ctx)
			cancel()
			if err != nil || slices.ContainsFunc(info.Cluster.Replicas, func(p *natsjs.PeerInfo) bool { return !p.Current || p.Offline }) {
				return false
			}
			if i == g {
				leader = slices.Index([]string{"n0", "n1", "n2"}, info.Cluster.Leader)
			}
		}
		return leader >= 0
	}
	for end := time.Now().Add(patience); !complete(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			r.t.Fatal("the copies of the streams are not complete")
		}
	}
	return leader
}

// TestHolderAndServerDie kills a relay together with the server that leads a stream. Another relay gets all
// shards with all states when the servers have elected a leader.
func TestHolderAndServerDie(t *testing.T) {
	c := natstest.StartProcesses(t, 3)
	const states = 10
	holder := start(t, c, "a", 3)
	holder.Want(true)
	for held := 0; held < holder.cfg.Shards; held++ {
		e := <-holder.events
		if e.Kind != cluster.ShardAcquired {
			held--
			continue
		}
		if err := holder.store(e.Shard, e.Epoch, keyframes(states, "x")); err != nil {
			t.Fatal(err)
		}
	}
	for round := range 2 * *rounds {
		name, lose, end := "kill", c.Kill, func(i int) { c.Launch(t, i) }
		if round%2 == 1 {
			name, lose, end = "stop", c.Pause, c.Continue
		}
		next := start(t, c, string(rune('b'+round)), 3)
		next.Want(true)
		leader := holder.leader(0)
		began := time.Now()
		lose(leader)
		holder.kill()
		var acquired []cluster.LeaseEvent
		timeout := time.After(patience)
		for len(acquired) < next.cfg.Shards {
			select {
			case e := <-next.events:
				if e.Kind == cluster.ShardAcquired {
					acquired = append(acquired, e)
				}
			case <-timeout:
				t.Fatalf("round %d: %d shards have a holder, want %d", round, len(acquired), next.cfg.Shards)
			}
		}
		held := time.Since(began)
		for _, e := range acquired {
			if got := next.load(e.Shard, e.Epoch); len(got) != states {
				t.Errorf("round %d: shard %d has %d states, want %d", round, e.Shard, len(got), states)
			}
		}
		t.Logf("round %d, %s of server %d with the holder: every shard has a holder after %.1f s, and its states after %.1f s",
			round, name, leader, held.Seconds(), time.Since(began).Seconds())
		end(leader)
		holder = next
	}
}
