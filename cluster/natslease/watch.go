package natslease

import (
	"context"
	"sync"
	"time"

	"github.com/dnprelay/dnprelay/cluster"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Intervals of the watch. Both are arbitrary: a watch that stalls costs nothing
// but leader reads.
const (
	watchHeartbeat = time.Second
	watchPause     = 250 * time.Millisecond
)

// watch brings the records of all shards of stream g to their leases, until ctx
// ends. Each time anew it begins with what is there.
//
// It begins anew when the connection was, too: otherwise it would notice only after two
// heartbeats that the server does not send it anything any more, and a shard that another
// relay hands over meanwhile would lie idle for so long.
func (l *Leases) watch(ctx context.Context, g int) {
	reconnected := l.cfg.Conn.StatusChanged(nats.CONNECTED)
	defer l.cfg.Conn.RemoveStatusListener(reconnected)
	var former sync.WaitGroup
	defer former.Wait()
	for ctx.Err() == nil {
		following, stop := context.WithCancel(ctx)
		ended := make(chan struct{})
		former.Go(func() { _ = l.follow(following, g); close(ended) }) // its error is that it ended
		select {
		case <-ended:
			l.rest(ctx)
		case _, ok := <-reconnected:
			// The library tries for seconds to repair the former watch, whatever its
			// context says. What it still brings is old, and ignored.
			if !ok {
				reconnected = nil // the connection is closed, and Run ends soon
				l.rest(ctx)
			}
		}
		stop()
		if ctx.Err() == nil {
			l.counts.watches.Add(1)
		}
	}
}

// rest waits for a moment before a watch begins anew that failed.
func (l *Leases) rest(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(watchPause):
	}
}

func (l *Leases) follow(ctx context.Context, g int) error {
	c, err := l.streams[g].OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{
		FilterSubjects: []string{l.cfg.Subjects.StoreOwnAll(), l.cfg.Subjects.StoreHeartbeatAll()},
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
		l.watched(m)
	}
}

// saw takes a record that the watch brought.
func (l *Leases) watched(m jetstream.Msg) {
	n, rest, ok := l.cfg.Subjects.ParseStore(m.Subject())
	meta, err := m.Metadata()
	if !ok || err != nil || n >= len(l.shards) {
		return
	}
	switch rest {
	case "own":
		own := cluster.ParseHolder(meta.Sequence.Stream, m.Data())
		l.putHolder(n, own)
	case "beat":
		beat := cluster.ParseHeartbeat(meta.Sequence.Stream, m.Data())
		l.shards[n].put(func(in *inbox) { in.heartbeat = beat })
	}
}
