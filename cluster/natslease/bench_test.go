package natslease

import (
	"fmt"
	"testing"

	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/internal/fence"
	"github.com/dnprelay/dnprelay/internal/natstest"
)

// BenchmarkStore has one holder write one op after the other, as the product does.
func BenchmarkStore(b *testing.B) {
	for _, replicas := range []int{1, 3} {
		c := natstest.Start(b, replicas)
		l := open(b, c.Connect(b), Config{Node: "a", Shards: 1, Streams: 1, Replicas: replicas})
		s := l.shards[0]
		do := func(b *testing.B, o op) cluster.Answer {
			a := s.ask(b.Context(), o)
			if a.Verdict != fence.OK {
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
			own, beat := seen.Holder.Seq, seen.Heartbeat.Seq
			for b.Loop() {
				a := do(b, op{Action: cluster.Action{Kind: cluster.ActionAcquire, ExpectHolder: own, ExpectHeartbeat: beat, Holder: cluster.Holder{Node: "a", ID: "a"}}})
				own, beat = a.Seq, a.Heartbeat.Seq
			}
		})
		b.Run(fmt.Sprintf("R%d/beat", replicas), func(b *testing.B) {
			own := read(b).Holder.Seq
			for b.Loop() {
				do(b, op{Action: cluster.Action{Kind: cluster.ActionRenew, ExpectHolder: own, Heartbeat: cluster.Heartbeat{Epoch: own, Write: 1}}})
			}
		})
		for _, n := range []int{10, 100, 500} {
			b.Run(fmt.Sprintf("R%d/batch%d", replicas, n), func(b *testing.B) {
				seen := read(b)
				own, beat, batch := seen.Holder.Seq, seen.Heartbeat.Seq, keyframes(n, string(make([]byte, 200)))
				for b.Loop() {
					beat = do(b, op{
						Action:    cluster.Action{Kind: cluster.ActionStore, ExpectHolder: own, ExpectHeartbeat: beat, Heartbeat: cluster.Heartbeat{Epoch: own, Write: 1}},
						keyframes: batch,
					}).Seq
				}
				b.ReportMetric(float64(n*b.N)/b.Elapsed().Seconds(), "states/s")
			})
		}
	}
}

// BenchmarkLoad loads a shard whose states came and went in small batches, as those of clients do.
func BenchmarkLoad(b *testing.B) {
	const states, each = 10_000, 10
	a := start(b, natstest.Start(b, 1), "a", 1)
	a.Want(1, 0)
	held := a.want(cluster.ShardAcquired, 1, "the shard never had a holder")
	for i := 0; i < states; i += each {
		for _, text := range []string{"old", "new", ""} {
			batch := keyframes(each, text)
			for k := range batch {
				batch[k].Number += uint64(i)
			}
			if err := a.store(1, held.Epoch, batch); err != nil {
				b.Fatal(err)
			}
		}
	}
	a.Release(1, held.Epoch, "a")
	held = a.want(cluster.ShardAcquired, 1, "it was released to this relay")
	for b.Loop() {
		if got := len(a.load(1, held.Epoch)); got != states {
			b.Fatalf("the load brings %d states, want %d", got, states)
		}
	}
}
