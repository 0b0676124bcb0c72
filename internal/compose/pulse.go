package compose

import (
	"context"
	"sync/atomic"
	"time"
)

// A relay asks NATS twice a second for a sign of life. One that has had none for
// pulseSilence is not given shards, and one that answers has pulseWait to do so. The
// silence is shorter than the time after which others take a silent relay's shards, 3 s,
// and longer than it takes to connect to another server when one dies.
const (
	pulseInterval = 500 * time.Millisecond
	pulseWait     = time.Second
	pulseSilence  = 2 * time.Second
)

// pulse tells on alive whether NATS answers on all connections, as often as that changes,
// until ctx ends. It begins with true. Each ask makes one connection ask its server, and
// returns an error if there is no answer before its context ends.
//
// A connection counts as one for as long as TCP repeats what it could not deliver, and
// that can be seconds longer than the trouble lasts. Other nodes meanwhile see this one
// by gossip, which recovers at once, and would hand shards over to a relay that
// cannot take them.
func pulse(ctx context.Context, alive chan<- bool, asks ...func(context.Context) error) {
	heard, start := make([]atomic.Pointer[time.Time], len(asks)), time.Now()
	for i, ask := range asks {
		heard[i].Store(&start)
		go askOften(ctx, ask, &heard[i]) // not waited for: a write to a full socket heeds no context
	}
	ticker := time.NewTicker(pulseInterval / 2)
	defer ticker.Stop()
	for was := true; ; {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
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

// askOften notes when the last answer came, until ctx ends.
func askOften(ctx context.Context, ask func(context.Context) error, heard *atomic.Pointer[time.Time]) {
	ticker := time.NewTicker(pulseInterval)
	defer ticker.Stop()
	for {
		wait, cancel := context.WithTimeout(ctx, pulseWait)
		if ask(wait) == nil {
			now := time.Now()
			heard.Store(&now)
		}
		cancel()
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}
