package natslease

import (
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/internal/natstest"
)

// A relay dies without a word, and another takes the shard over.
func TestHolderDies(t *testing.T) {
	forReplicas(t, func(t *testing.T, c *natstest.Cluster, replicas int) {
		a, b := start(t, c, "a", replicas), start(t, c, "b", replicas)
		a.Want(0, true)
		first := a.want(cluster.ShardAcquired, 0, "nobody ever had it")
		if err := a.store(0, first.Epoch, keyframes(10, "x")); err != nil {
			t.Fatal(err)
		}
		b.want(cluster.ShardSeen, 0, "a holds it")
		b.Want(0, true)
		a.kill()
		died := time.Now()
		second := b.want(cluster.ShardAcquired, 0, "a is dead")
		took := time.Since(died)
		begin := time.Now()
		if got := b.load(0, second.Epoch); len(got) != 10 {
			t.Errorf("%d states after the takeover, want 10", len(got))
		}
		t.Logf("a new holder after %v, loaded in %v", took, time.Since(begin))
	})
}

// The leader of the stream goes, and the holder stays the same although another
// relay wants the shard.
func TestStreamLeaderStops(t *testing.T) {
	c := natstest.Start(t, 3)
	a, b := start(t, c, "a", 3), start(t, c, "b", 3)
	a.Want(0, true)
	first := a.want(cluster.ShardAcquired, 0, "nobody ever had it")
	b.want(cluster.ShardSeen, 0, "a holds it")
	b.Want(0, true)
	for range 2 {
		leader := c.StreamLeader(StreamName(0))
		c.Stop(leader)
		begin := time.Now()
		if err := a.store(0, first.Epoch, keyframes(10, "x")); err != nil {
			t.Fatalf("after the stop of the leader: %v", err)
		}
		t.Logf("stored %v after the stop of the leader", time.Since(begin))
		c.Restart(t, leader)
	}
	select {
	case e := <-b.events:
		t.Errorf("b has %+v although a lives", e)
	default:
	}
}

// A relay whose connection was made anew watches anew: what the server sent meanwhile is
// lost, and a shard that is handed over to it must not lie idle until it notices.
func TestWatchAfterReconnect(t *testing.T) {
	c := natstest.Start(t, 1)
	a, b := start(t, c, "a", 1), start(t, c, "b", 1)
	a.Want(0, true)
	first := a.want(cluster.ShardAcquired, 0, "nobody ever had it")
	b.want(cluster.ShardSeen, 0, "a holds it")
	b.Want(0, true)
	if err := b.cfg.Conn.ForceReconnect(); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(patience); b.Stats().WatchRestarts < uint64(b.cfg.Streams); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the watches did not begin anew")
		}
	}
	a.Release(0, first.Epoch, "b")
	b.want(cluster.ShardAcquired, 0, "a gave it to b")
}
