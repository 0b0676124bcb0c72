package natslease

import (
	"context"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/dnprelay/dnprelay/cluster"
)

// Intervals of the watch. Both are arbitrary: a watch that stalls costs nothing
// but leader reads.
const (
	watchHeartbeat = time.Second
	watchPause     = 250 * time.Millisecond
)

// watch brings the records of all shards of stream g to their leases, until ctx
// ends. Each time anew it begins with what is there.
func (l *Leases) watch(ctx context.Context, g int) {
	for ctx.Err() == nil {
		if err := l.follow(ctx, g); err != nil && ctx.Err() == nil {
			l.counts.watches.Add(1)
		}
		select {
		case <-ctx.Done():
		case <-time.After(watchPause):
		}
	}
}

func (l *Leases) follow(ctx context.Context, g int) error {
	c, err := l.streams[g].OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{
		FilterSubjects: []string{l.cfg.Subjects.StoreOwnAll(), l.cfg.Subjects.StoreBeatAll()},
		DeliverPolicy:  jetstream.DeliverLastPerSubjectPolicy,
	})
	if err != nil {
		return err
	}
	it, err := c.Messages(jetstream.PullHeartbeat(watchHeartbeat), jetstream.PullExpiry(30*time.Second))
	if err != nil {
		return err
	}
	defer it.Stop()
	for {
		m, err := it.Next(jetstream.NextContext(ctx))
		if err != nil {
			return err
		}
		l.saw(m)
	}
}

// saw takes a record that the watch brought.
func (l *Leases) saw(m jetstream.Msg) {
	n, rest, ok := l.cfg.Subjects.ParseStore(m.Subject())
	meta, err := m.Metadata()
	if !ok || err != nil || n >= len(l.shards) {
		return
	}
	switch rest {
	case "own":
		own := cluster.ParseOwn(meta.Sequence.Stream, m.Data())
		l.shards[n].put(func(in *inbox) { in.own = own })
	case "beat":
		beat := cluster.ParseBeat(meta.Sequence.Stream, m.Data())
		l.shards[n].put(func(in *inbox) { in.beat = beat })
	}
}
