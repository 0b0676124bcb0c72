package natslease

import (
	"context"
	"errors"
	"time"

	"github.com/dnprelay/dnprelay/cluster"
	"github.com/nats-io/nats.go/jetstream"
)

// Parts in which keyframes are handed over.
const (
	loadKeyframes = 512
	loadBytes     = 1 << 20
)

// A load waits for the first message for so long before it begins anew with another
// consumer; the more often it did, the longer. Messages of a store that is well come
// within milliseconds, but now and then the request for them reaches the server before
// it knows which other one has the consumer, and is lost without a word, while nobody
// speaks for the shard. For later messages it waits for the longest of these times.
const (
	loadSilenceFirst = 50 * time.Millisecond
	loadSilenceLast  = 3 * time.Second
)

// loadSilence returns how long try n, counted from 0, waits.
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

// serveLoads loads one shard after the other.
func (l *Leases) serveLoads(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case d := <-l.loads:
			d.done(d.run(ctx))
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
		if errors.Is(err, context.DeadlineExceeded) {
			continue // it has waited
		}
		select {
		case <-ctx.Done():
		case <-time.After(watchPause):
		}
	}
	return cluster.ErrNotHeld
}

func (d *load) held(ctx context.Context) bool {
	return ctx.Err() == nil && d.shard.held.Load() == d.epoch
}

// try reads the keyframes and the record of who holds the shard, in the order of
// the stream, with one consumer. It has all of them when that record comes,
// because its sequence is the epoch: what earlier holders stored is before it,
// and they can store nothing behind it. This holds also if a replica that lags
// serves the consumer, which a count of what is pending would not. The library
// makes sure that no message between is missing.
//
// If a keyframe comes twice, because try was called again, it is the same.
func (d *load) try(ctx context.Context, silence time.Duration) error {
	l := d.shard.l
	c, err := l.stream(d.shard.n).OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{
		FilterSubjects: []string{l.cfg.Subjects.StoreKeyframeAll(d.shard.n), l.cfg.Subjects.StoreOwn(d.shard.n)},
		DeliverPolicy:  jetstream.DeliverAllPolicy,
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

func (d *load) collect(ctx context.Context, it jetstream.MessagesContext, silence time.Duration) error {
	var part []cluster.Keyframe
	size := 0
	hand := func() {
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
				hand()
			}
		case meta.Sequence.Stream == d.epoch:
			hand()
			return nil
		case meta.Sequence.Stream > d.epoch:
			return cluster.ErrNotHeld
		}
	}
	return cluster.ErrNotHeld
}

func next(ctx context.Context, it jetstream.MessagesContext, silence time.Duration) (jetstream.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, silence)
	defer cancel()
	return it.Next(jetstream.NextContext(ctx))
}
