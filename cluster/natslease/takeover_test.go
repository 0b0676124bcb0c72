package natslease

import (
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/internal/natstest"
)

// TestHolderDies kills a relay, whose shard another one takes over.
func TestHolderDies(t *testing.T) {
	forReplicas(t, func(t *testing.T, c *natstest.Cluster, replicas int) {
		a, b := start(t, c, "a", replicas), start(t, c, "b", replicas)
		a.Want(true)
		first := a.want(cluster.ShardAcquired, 0, "the shard never had a holder")
		if err := a.store(0, first.Epoch, keyframes(10, "x")); err != nil {
			t.Fatal(err)
		}
		b.want(cluster.ShardSeen, 0, "a holds it")
		b.Want(true)
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

// TestStreamLeaderStops stops the leader of the stream: the holder stays the same although
// another relay wants the shard.
func TestStreamLeaderStops(t *testing.T) {
	c := natstest.Start(t, 3)
	a, b := start(t, c, "a", 3), start(t, c, "b", 3)
	a.Want(true)
	first := a.want(cluster.ShardAcquired, 0, "the shard never had a holder")
	for shard := 1; shard < a.cfg.Shards; shard++ {
		a.want(cluster.ShardAcquired, shard, "so that b finds none that is free")
	}
	b.want(cluster.ShardSeen, 0, "a holds it")
	b.Want(true)
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
	for len(b.events) > 0 {
		if e := <-b.events; e.Kind == cluster.ShardAcquired {
			t.Errorf("b reports %+v although a lives", e)
		}
	}
}

// TestWatchAfterReconnect checks that a relay begins its watches anew with its connection:
// messages of the server are lost meanwhile, and a shard that is handed over to the relay must
// not lie idle until the library notices.
func TestWatchAfterReconnect(t *testing.T) {
	c := natstest.Start(t, 1)
	a, b := start(t, c, "a", 1), start(t, c, "b", 1)
	a.Want(true)
	first := a.want(cluster.ShardAcquired, 0, "the shard never had a holder")
	b.want(cluster.ShardSeen, 0, "a holds it")
	b.Want(true)
	if err := b.cfg.Conn.ForceReconnect(); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(patience); b.Stats().WatchRestarts < uint64(b.cfg.Streams); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the watches did not begin anew")
		}
	}
	eventually(t, "a sees that b takes shards", func() bool { return a.sees("b") })
	a.Release(0, first.Epoch, "b")
	b.want(cluster.ShardAcquired, 0, "a gave it to b")
}
