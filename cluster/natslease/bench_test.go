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
