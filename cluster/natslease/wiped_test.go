package natslease

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/cluster/lease"
	"github.com/dnprelay/dnprelay/internal/natstest"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// makeAhead makes streams whose sequences are an hour ahead of the time, as if they had taken more
// than a message per millisecond.
func makeAhead(t *testing.T, c *natstest.Cluster, replicas int) {
	t.Helper()
	ahead := func() uint64 { return uint64(time.Now().Add(time.Hour).UnixMilli()) }
	open(t, c.Connect(t), Config{Node: "before", Shards: 4, Streams: 2, Replicas: replicas, Epochs: ahead})
}

// TestStreamsAreMadeAgain deletes the streams of relays that run. The holder of a shard holds it
// again soon, in a higher epoch although the streams had more than a message per millisecond, and
// learns that nothing is newer than what it had.
func TestStreamsAreMadeAgain(t *testing.T) {
	forReplicas(t, func(t *testing.T, c *natstest.Cluster, replicas int) {
		makeAhead(t, c, replicas)
		a, b := start(t, c, "a", replicas), start(t, c, "b", replicas)
		a.Want(true)
		first := a.want(cluster.ShardAcquired, 0, "the shard never had a holder")
		b.want(cluster.ShardSeen, 0, "b, who may be the one to make the stream again, knows the epoch")
		for range 2 {
			highest := a.heard[0].highest.Load()
			deleteStreams(t, c)
			begin := time.Now()
			if e := a.want(cluster.ShardLost, 0, "the store is another one"); e.Reason != lease.ReasonWiped || e.Epoch != first.Epoch {
				t.Errorf("the shard is lost with %+v, want epoch %d and %s", e, first.Epoch, lease.ReasonWiped)
			}
			again := a.want(cluster.ShardAcquired, 0, "only a has what was stored")
			t.Logf("held again after %v, in an epoch %d higher", time.Since(begin), again.Epoch-first.Epoch)
			if again.Epoch <= highest || again.Former != first.Epoch || !again.Wiped {
				t.Errorf("the shard is held again with %+v, want an epoch above %d, and that nothing is newer than epoch %d", again, highest, first.Epoch)
			}
			for e := b.want(cluster.ShardSeen, 0, "a holds it again"); e.Epoch != again.Epoch; e = b.want(cluster.ShardSeen, 0, "a holds it again") {
			}
			if err := a.store(0, again.Epoch, keyframes(10, "again")); err != nil {
				t.Fatal(err)
			}
			first = again
		}
		for _, r := range []*relay{a, b} {
			eventually(t, r.cfg.Node+" knows of streams that were made again", func() bool { return r.Stats().Replaced >= 2 })
			eventually(t, r.cfg.Node+" misses no stream", func() bool { return len(r.Missing()) == 0 })
		}
		b.Want(true)
		eventually(t, "a sees that b takes shards", func() bool { return a.sees("b") })
		a.Release(0, first.Epoch, "b")
		if e := b.want(cluster.ShardAcquired, 0, "a gave it to b"); e.Former != 0 || len(b.load(0, e.Epoch)) != 10 {
			t.Errorf("b holds the shard with %+v, and does not load what a stored again", e)
		}
	})
}

// TestRelayThatKnowsLess makes a stream again by a relay that has just started. It asks which
// epochs holders have; if it hears of none, the others say what an operator should do.
func TestRelayThatKnowsLess(t *testing.T) {
	for _, hears := range []bool{true, false} {
		t.Run(fmt.Sprint("hears=", hears), func(t *testing.T) {
			c := natstest.Start(t, 1)
			makeAhead(t, c, 1)
			a := prepare(t, c, "a", 1)
			a.serve()
			a.Want(true)
			first := a.want(cluster.ShardAcquired, 0, "the shard never had a holder")
			highest := a.heard[0].highest.Load()
			deleteStreams(t, c)
			cfg := Config{Node: "b", Shards: 4, Streams: 2}
			if hears {
				cfg.Epochs = func() uint64 { return first.Epoch }
			}
			b := open(t, c.Connect(t), cfg)
			if made := b.streams[0].CachedInfo().Config.FirstSeq; (made > highest) != hears {
				t.Errorf("the stream begins at %d, the highest sequence was %d", made, highest)
			}
			a.maintain() // not earlier, because a would make the stream
			again := a.want(cluster.ShardAcquired, 0, "only a has what was stored")
			if (again.Epoch > highest) != hears || again.Former != first.Epoch || !again.Wiped {
				t.Errorf("a holds the shard with %+v after %d", again, highest)
			}
			if said := strings.Contains(a.log.String(), "made again by a relay that knew less"); said == hears {
				t.Errorf("the log of a is\n%s", &a.log)
			}
		})
	}
}

// TestMissing stops servers until the streams have no quorum.
func TestMissing(t *testing.T) {
	c := natstest.Start(t, 3)
	a := start(t, c, "a", 3)
	a.Want(true)
	a.want(cluster.ShardAcquired, 0, "the shard never had a holder")
	if m := a.Missing(); len(m) > 0 {
		t.Errorf("missing %v while all is well", m)
	}
	c.Stop(0)
	c.Stop(1)
	eventually(t, "the streams are missing without a quorum", func() bool { return slices.Contains(a.Missing(), StreamName(0)) })
	c.Restart(t, 0)
	eventually(t, "no stream is missing any longer", func() bool { return len(a.Missing()) == 0 })
	if n := a.Stats().Replaced; n != 0 {
		t.Errorf("%d streams count as made again after an outage", n)
	}
}

// TestRestoredStream has another server lead a stream that was restored from a backup. The servers do not agree on the time when such a stream was
// made, and all the same it is one stream.
func TestRestoredStream(t *testing.T) {
	t.Parallel()
	c := natstest.Start(t, 3)
	nc := c.Connect(t)
	open(t, nc, Config{Node: "before", Shards: 4, Streams: 2, Replicas: 3})
	backup := natstest.BackUp(t, nc, StreamName(0))
	deleteStreams(t, c)
	backup.Restore(t, nc, 3)
	a := start(t, c, "a", 3)
	a.Want(true)
	first := a.want(cluster.ShardAcquired, 0, "the shard never had a holder")
	led := map[int]bool{}
	eventually(t, "another server leads the stream", func() bool {
		if at := c.StreamLeader(StreamName(0)); at >= 0 && !led[at] {
			led[at] = true
			looks := a.maintainer.Looks()
			eventually(t, "the relay looks at the stream", func() bool { return a.maintainer.Looks() >= looks+4 })
		}
		_, _ = nc.Request("$JS.API.STREAM.LEADER.STEPDOWN."+StreamName(0), nil, time.Second)
		return len(led) == 2
	})
	if n := a.Stats().Replaced; n != 0 {
		t.Errorf("%d streams count as made again because another server leads", n)
	}
	if e := a.held[0].Load(); e != first.Epoch {
		t.Errorf("the shard is held in epoch %d, want still %d", e, first.Epoch)
	}
}

// TestStreamOfAnotherDeployment puts a stream of another deployment in the place of one that is deleted.
func TestStreamOfAnotherDeployment(t *testing.T) {
	c := natstest.Start(t, 1)
	a := prepare(t, c, "a", 1)
	a.serve()
	js, err := natsjs.New(c.Connect(t))
	if err != nil {
		t.Fatal(err)
	}
	other := a.streams[1].CachedInfo().Config
	other.Metadata = nil
	natstest.DeleteStream(t, js, StreamName(1))
	if _, err := js.CreateStream(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	a.maintain() // not earlier, because a would make the stream again
	select {
	case err := <-a.ended:
		if err == nil || !strings.Contains(err.Error(), StreamName(1)) {
			t.Errorf("Maintain ends with %v, want the name of the stream that is another deployment's", err)
		}
	case <-time.After(patience):
		t.Error("Maintain goes on with a stream of another deployment")
	}
}
