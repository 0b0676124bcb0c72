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

// A load waits for the first message of a consumer for a while before it goes on with another one, and the more often it
// did, the longer. A healthy store sends messages within milliseconds, but sometimes the request for them reaches a
// server before that server knows which other one has the consumer, and is lost without a trace while the shard is not
// served. A slow store needs longer for every consumer, so a limit that does not grow would keep a load from its end.
const (
	loadSilenceFirst = 50 * time.Millisecond
	loadSilenceLater = 3 * time.Second // for later messages, at least
	loadSilenceMax   = 12 * time.Second
)

// loadSilence returns how long a load waits for the first message of a consumer after n that were silent.
func loadSilence(n int) time.Duration {
	return min(loadSilenceFirst<<min(n, 8), loadSilenceMax)
}

// refusalsMax is how many attempts the store may refuse until a load ends with the reason, and its relay asks again and
// can say why the shard is not served. They take 4 s. Arbitrary.
const refusalsMax = 16

// A load is a request for all keyframes of a shard.
type load struct {
	l     *Leases
	shard int
	epoch uint64
	each  func([]cluster.Keyframe)
	done  func(error)

	consumers opener
	next      uint64 // sequence behind that of the last message that arrived; 0 before the first
	silent    int    // consumers that were silent
}

// serveLoads serves one load after the other, until ctx ends. It does not wait for a load that
// hangs in the library, which may take until the connection is closed.
func serveLoads(ctx context.Context, loads chan load) {
	for {
		select {
		case <-ctx.Done():
			return
		case d := <-loads:
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

// run tries until it has everything, the shard is lost, or the store refuses it for too long.
func (d *load) run(ctx context.Context) error {
	for refusals := 0; d.held(ctx); {
		err := d.try(ctx)
		if err == nil || errors.Is(err, cluster.ErrNotHeld) {
			return err
		}
		d.l.counts.loadRetries.Add(1)
		if errors.Is(err, context.DeadlineExceeded) { // it has waited
			refusals = 0
			continue
		}
		if refusals++; refusals == refusalsMax {
			return err
		}
		turn.Pause(ctx, watchPause)
	}
	return cluster.ErrNotHeld
}

func (d *load) held(ctx context.Context) bool {
	return ctx.Err() == nil && d.l.held[d.shard].Load() == d.epoch
}

// try reads the keyframes and the holder's record with one consumer, in the order of the
// stream, behind those that former attempts read. When the record of this epoch arrives, all keyframes
// have: the sequence of the record is the epoch, what earlier holders stored precedes it, and they can
// store nothing behind it. One filter brings leases, too, which a load ignores: with two, the server looks
// through all subjects of the shard for each message. This holds even if a replica that lags serves the consumer; a count of
// pending messages would not. The library makes sure that no message between is missing.
func (d *load) try(ctx context.Context) error {
	cfg := natsjs.OrderedConsumerConfig{
		FilterSubjects: []string{d.l.cfg.Subjects.StoreAll(d.shard)},
		DeliverPolicy:  natsjs.DeliverAllPolicy,
	}
	if d.next != 0 {
		cfg.DeliverPolicy, cfg.OptStartSeq = natsjs.DeliverByStartSequencePolicy, d.next
	}
	c, end, err := d.consumers.open(ctx, cfg)
	if err != nil {
		return err
	}
	defer end()
	it, err := c.Messages()
	if err != nil {
		return err
	}
	defer it.Stop()
	return d.collect(ctx, it)
}

// collect hands over what a consumer brings. A replica that lags may begin before the sequence that it was asked for;
// what it repeats may be older than what is known.
func (d *load) collect(ctx context.Context, it natsjs.MessagesContext) error {
	var part []cluster.Keyframe
	size := 0
	flush := func() {
		if len(part) > 0 {
			d.each(part)
			part, size = nil, 0
		}
	}
	defer flush()
	silence := loadSilence(d.silent)
	for d.held(ctx) {
		m, err := next(ctx, it, silence)
		if errors.Is(err, context.DeadlineExceeded) {
			d.silent++
		}
		if err != nil {
			return err
		}
		silence = max(silence, loadSilenceLater)
		meta, err := m.Metadata()
		if err != nil {
			return err
		}
		seq := meta.Sequence.Stream
		if seq < d.next {
			continue
		}
		d.next = seq + 1
		space, number, ok := d.l.cfg.Subjects.ParseStoreKeyframe(m.Subject())
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
		case seq == d.epoch:
			return nil
		case seq > d.epoch:
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
