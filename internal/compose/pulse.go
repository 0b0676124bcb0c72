package compose

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/dnprelay/dnprelay/bus/natsbus"
	"github.com/dnprelay/dnprelay/internal/turn"
)

// A relay asks NATS for an answer every pulseInterval and waits pulseWait for it. A relay
// without an answer for pulseSilence gets no shards. The silence is shorter than the time
// after which others take a silent relay's shards, 3 s, and longer than a connection takes
// to move to another server when its server dies.
const (
	pulseInterval = 500 * time.Millisecond
	pulseWait     = time.Second
	pulseSilence  = 2 * time.Second
)

// pulse sends on alive whether NATS answers on all connections, whenever that changes,
// until ctx ends. The receiver begins with true. Each ask makes one connection ask its
// server, and returns an error if no answer arrives before its context ends.
//
// The state of a connection does not serve: it is up while TCP repeats what it could not
// deliver, and that can last seconds longer than the fault. Gossip recovers at once, and
// other nodes would hand shards over to a relay that cannot serve them.
func pulse(ctx context.Context, alive chan<- bool, asks ...func(context.Context) error) {
	heard, start := make([]atomic.Pointer[time.Time], len(asks)), time.Now()
	for i, ask := range asks {
		heard[i].Store(&start)
		go askOften(ctx, ask, &heard[i]) // pulse does not wait for it: a write to a full socket ignores the context
	}
	was := true
	for range turn.After(ctx, pulseInterval/2) {
		is := true
		for i := range heard {
			is = is && time.Since(*heard[i].Load()) < pulseSilence
		}
		if is == was {
			continue
		}
		was = is
		select {
		case alive <- is:
		case <-ctx.Done():
			return
		}
	}
}

// followPulse notes whether NATS answers, until ctx ends.
func (n *node) followPulse(ctx context.Context, alive <-chan bool) {
	for {
		select {
		case <-ctx.Done():
			return
		case is := <-alive:
			n.noteAlive(is)
		}
	}
}

// noteAlive notes whether NATS answers. It logs a silence for which no lost connection is the reason, because the
// loss of one is logged, and the end of such a silence.
func (n *node) noteAlive(is bool) {
	connected := !slices.ContainsFunc(n.buses, func(b *natsbus.Bus) bool { return !b.Connected() })
	switch was := n.silent.Swap(!is); {
	case !is && connected:
		n.silenceTold = true
		n.log.Warn("NATS does not answer, although this node is connected to it")
	case is && was && n.silenceTold:
		n.silenceTold = false
		n.log.Info("NATS answers again")
	}
}

// askOften notes when the last answer arrived, until ctx ends.
func askOften(ctx context.Context, ask func(context.Context) error, heard *atomic.Pointer[time.Time]) {
	for range turn.Every(ctx, pulseInterval) {
		wait, cancel := context.WithTimeout(ctx, pulseWait)
		if ask(wait) == nil {
			now := time.Now()
			heard.Store(&now)
		}
		cancel()
	}
}
