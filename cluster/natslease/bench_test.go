package natslease

import (
	"fmt"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/internal/natstest"
)

// Each write is of one holder, one after the other, as in the product.
func BenchmarkStore(b *testing.B) {
	for _, replicas := range []int{1, 3} {
		c := natstest.Start(b, replicas)
		l := open(b, c.Connect(b), Config{Node: "a", Shards: 1, Streams: 1, Replicas: replicas})
		s := l.shards[0]
		do := func(b *testing.B, o op) cluster.Answer {
			a := s.do(b.Context(), o)
			if a.Verdict != cluster.OK {
				b.Fatalf("verdict %d", a.Verdict)
			}
			return a
		}
		read := func(b *testing.B) cluster.Answer { return do(b, op{Action: cluster.Action{Kind: cluster.ActionRead}}) }
		b.Run(fmt.Sprintf("R%d/read", replicas), func(b *testing.B) {
			for b.Loop() {
				read(b)
			}
		})
		b.Run(fmt.Sprintf("R%d/acquire", replicas), func(b *testing.B) {
			seen := read(b)
			own, beat := seen.Own.Seq, seen.Beat.Seq
			for b.Loop() {
				a := do(b, op{Action: cluster.Action{Kind: cluster.ActionAcquire, Expect: own, ExpectBeat: beat, Own: cluster.Own{Node: "a", ID: "a"}}})
				own, beat = a.Seq, a.Beat.Seq
			}
		})
		b.Run(fmt.Sprintf("R%d/beat", replicas), func(b *testing.B) {
			own := read(b).Own.Seq
			for b.Loop() {
				do(b, op{Action: cluster.Action{Kind: cluster.ActionBeat, Expect: own, Beat: cluster.Beat{Epoch: own, Write: 1}}})
			}
		})
		for _, n := range []int{10, 100, 500} {
			b.Run(fmt.Sprintf("R%d/batch%d", replicas, n), func(b *testing.B) {
				seen := read(b)
				own, beat, batch := seen.Own.Seq, seen.Beat.Seq, keyframes(n, string(make([]byte, 200)))
				for b.Loop() {
					beat = do(b, op{
						Action:    cluster.Action{Kind: cluster.ActionStore, Expect: own, ExpectBeat: beat, Beat: cluster.Beat{Epoch: own, Write: 1}},
						keyframes: batch,
					}).Seq
				}
				b.ReportMetric(float64(n*b.N)/b.Elapsed().Seconds(), "states/s")
			})
		}
	}
}

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
	for range 3 {
		leader := c.StreamLeader(StreamName(0))
		c.Stop(leader)
		begin := time.Now()
		if err := a.store(0, first.Epoch, keyframes(10, "x")); err != nil {
			t.Fatalf("after the stop of the leader: %v", err)
		}
		t.Logf("stored %v after the stop of the leader", time.Since(begin))
		c.Restart(t, leader)
	}
	if s := b.Stats(); s.OK > 60 {
		t.Logf("the challenger asked the store: %+v", s)
	}
	select {
	case e := <-b.events:
		t.Errorf("b has %+v although a lives", e)
	default:
	}
}
