package natslease

import (
	"sync/atomic"
	"time"

	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/internal/fence"
	"github.com/dnprelay/dnprelay/internal/jetstream"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// heard is the highest sequence that this relay heard of, from a stream, its leader or other
// relays. Many goroutines note it.
type heard struct{ highest atomic.Uint64 }

// hear notes a sequence, above which the stream begins if it has to be made again. One that no
// stream has reached must not hide those that were.
func (h *heard) hear(seq uint64) {
	if !jetstream.Believable(time.Now(), seq) {
		return
	}
	for old := h.highest.Load(); seq > old && !h.highest.CompareAndSwap(old, seq); old = h.highest.Load() {
	}
}

// answered notes what an answer says about the stream of a shard. A stream without a quorum
// answers reads, so they say nothing about its health.
func (l *Leases) answered(shard int, asked cluster.ActionKind, a *cluster.Answer) {
	g := shard % l.cfg.Streams
	if a.Verdict == fence.OK {
		l.heard[g].hear(max(a.Seq, a.Holder.Seq, a.Heartbeat.Seq))
	}
	if asked != cluster.ActionRead {
		l.maintainer.Wrote(g, a.Verdict)
	}
}

// Missing returns the names of the streams that are gone, do not answer or take no writes.
func (l *Leases) Missing() []string { return l.maintainer.Missing() }

// replaced tells the shards of a stream that the store is another one.
func (l *Leases) replaced(g int, made natsjs.StreamConfig) {
	if highest := l.heard[g].highest.Load(); made.FirstSeq <= highest {
		l.cfg.Log.Error("a stream was made again by a relay that knew less: edges and game servers ignore its epochs; delete it once more",
			"stream", made.Name, "first_sequence", made.FirstSeq, "highest_epoch", highest)
	}
	for n := g; n < len(l.shards); n += l.cfg.Streams {
		l.shards[n].put(func(in *inbox) { in.wiped = true })
	}
}
