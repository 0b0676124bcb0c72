package natslease

import (
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/internal/fence"
)

// TestHeard checks which sequences a relay believes.
func TestHeard(t *testing.T) {
	l := &Leases{cfg: Config{Node: "a", Shards: 4, Streams: 2}.withDefaults(), heard: make([]heard, 2)}
	for range 4 {
		l.shards = append(l.shards, newShard(l, len(l.shards)))
	}
	clock := uint64(time.Now().UnixMilli())
	for _, step := range []struct {
		hear func()
		want uint64
		why  string
	}{
		{func() { l.Fence(2, clock+5) }, clock + 5, "a holder names its epoch"},
		{func() { l.Fence(2, 1<<60) }, clock + 5, "no stream comes as far"},
		{func() { l.Fence(2, clock+1) }, clock + 5, "a holder before it named that"},
		{func() { l.Fence(1, clock+50) }, clock + 5, "the shard is in another stream"},
		{func() {
			l.answered(0, cluster.ActionRead, &cluster.Answer{Verdict: fence.OK, Holder: cluster.Holder{Seq: clock + 6}, Heartbeat: cluster.Heartbeat{Seq: clock + 9}})
		}, clock + 9, "the store has this record"},
		{func() {
			l.answered(0, cluster.ActionRead, &cluster.Answer{Verdict: fence.Unknown, Heartbeat: cluster.Heartbeat{Seq: clock + 20}})
		}, clock + 9, "there is no answer"},
		{func() { l.putHolder(0, cluster.Holder{Seq: clock + 11, Node: "b"}) }, clock + 11, "another relay hints that it holds the shard"},
	} {
		step.hear()
		if got := l.heard[0].highest.Load(); got != step.want {
			t.Errorf("the highest sequence is %d above the time, want %d: %s", got-clock, step.want-clock, step.why)
		}
	}
}
