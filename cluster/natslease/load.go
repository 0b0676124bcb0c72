package natslease

import (
	"context"
	"errors"
	"time"

	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/internal/turn"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// Bounds of the parts in which a load hands keyframes over.
const (
	loadKeyframes = 512
	loadBytes     = 1 << 20
)

// A load waits for the first message for a while before it begins anew with another consumer,
// and the more often it did, the longer. A healthy store sends messages within milliseconds,
// but sometimes the request for them reaches a server before that server knows which other one
// has the consumer, and is lost without a trace while the shard is not served. For later
// messages the load waits for the longest of these times.
const (
	loadSilenceFirst = 50 * time.Millisecond
	loadSilenceLast  = 3 * time.Second
)

// loadSilence returns how long attempt n, counted from 0, waits.
func loadSilence(n int) time.Duration {
	return min(loadSilenceFirst<<min(n, 8), loadSilenceLast)
}

// A load is a request for all keyframes of a shard.
type load struct {
	shard *shard
	epoch uint64
	each  func([]cluster.Keyframe)
	done  func(error)
}

// serveLoads serves one load after the other, until ctx ends. It does not wait for a load that
// hangs in the library, which may take until the connection is closed.
func (l *Leases) serveLoads(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case d := <-l.loads:
			ended := make(chan error, 1)
			go func() { ended <- d.run(ctx) }()
			select {
			case err := <-ended:
				d.done(err)
			case <-ctx.Done():
				d.done(cluster.ErrNotHeld)
			}
		}
	}
}

// run tries until it has everything or the shard is lost.
func (d *load) run(ctx context.Context) error {
	for n := 0; d.held(ctx); n++ {
		err := d.try(ctx, loadSilence(n))
		if err == nil || errors.Is(err, cluster.ErrNotHeld) {
			return err
		}
		d.shard.l.counts.loadRetries.Add(1)
		if !errors.Is(err, context.DeadlineExceeded) { // otherwise it has waited
			turn.Pause(ctx, watchPause)
		}
	}
	return cluster.ErrNotHeld
}

func (d *load) held(ctx context.Context) bool {
	return ctx.Err() == nil && d.shard.held.Load() == d.epoch
}

// try reads the keyframes and the holder's record with one consumer, in the order of the
// stream. When the record of this epoch arrives, try has all keyframes: the sequence of the
// record is the epoch, what earlier holders stored precedes it, and they can store nothing
// behind it. This holds even if a replica that lags serves the consumer; a count of pending
// messages would not. The library makes sure that no message between is missing.
//
// A keyframe may come twice, if try is repeated; it is the same then.
func (d *load) try(ctx context.Context, silence time.Duration) error {
	l := d.shard.l
	c, err := l.consumer(ctx, d.shard.n%l.cfg.Streams, natsjs.OrderedConsumerConfig{
		FilterSubjects: []string{l.cfg.Subjects.StoreKeyframeAll(d.shard.n), l.cfg.Subjects.StoreOwn(d.shard.n)},
		DeliverPolicy:  natsjs.DeliverAllPolicy,
	})
	if err != nil {
		return err
	}
	it, err := c.Messages()
	if err != nil {
		return err
	}
	defer it.Stop()
	return d.collect(ctx, it, silence)
}

func (d *load) collect(ctx context.Context, it natsjs.MessagesContext, silence time.Duration) error {
	var part []cluster.Keyframe
	size := 0
	flush := func() {
		if len(part) > 0 {
			d.each(part)
			part, size = nil, 0
		}
	}
	for d.held(ctx) {
		m, err := next(ctx, it, silence)
		if err != nil {
			return err
		}
		silence = loadSilenceLast
		meta, err := m.Metadata()
		if err != nil {
			return err
		}
		space, number, ok := d.shard.l.cfg.Subjects.ParseStoreKeyframe(m.Subject())
		switch {
		case ok:
			k := cluster.Keyframe{Space: space, Number: number, Data: m.Data()}
			if len(k.Data) == 0 {
				k.Data = nil
			}
			part, size = append(part, k), size+len(k.Data)
			if len(part) >= loadKeyframes || size >= loadBytes {
				flush()
			}
		case meta.Sequence.Stream == d.epoch:
			flush()
			return nil
		case meta.Sequence.Stream > d.epoch:
			return cluster.ErrNotHeld
		}
	}
	return cluster.ErrNotHeld
}

func next(ctx context.Context, it natsjs.MessagesContext, silence time.Duration) (natsjs.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, silence)
	defer cancel()
	return it.Next(natsjs.NextContext(ctx))
}
