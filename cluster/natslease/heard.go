package natslease

import (
	"sync/atomic"
	"time"

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

// Missing returns the names of the streams that are gone, do not answer or take no writes.
func (l *Leases) Missing() []string { return l.maintainer.Missing() }

// wiped tells the lease of a stream that the store is another one.
func (l *Leases) wiped(g int, made natsjs.StreamConfig) {
	if highest := l.heard[g].highest.Load(); made.FirstSeq <= highest {
		l.cfg.Log.Error("a stream was made again by a relay that knew less: edges and game servers ignore its epochs; delete it once more",
			"stream", made.Name, "first_sequence", made.FirstSeq, "highest_epoch", highest)
	}
	l.lanes[g].wiped()
}
