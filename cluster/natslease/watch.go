package natslease

import (
	"context"
	"encoding/binary"
	"errors"
	"time"

	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/internal/fence"
	"github.com/dnprelay/dnprelay/internal/jetstream"
	"github.com/dnprelay/dnprelay/internal/turn"
	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// Intervals of the watch. Both are arbitrary: a watch that stalls costs only reads from the
// leader.
const (
	watchHeartbeat = time.Second
	watchPause     = 250 * time.Millisecond
)

// watch brings the records of all shards of stream g to their leases, until ctx ends. Each
// attempt begins with the last record of each.
//
// The watch begins anew with each connection: otherwise it would notice only after two
// heartbeats that the server does not send anything, and a shard that another relay hands over
// meanwhile would lie idle for as long.
func (l *Leases) watch(ctx context.Context, g int) {
	reconnected := l.cfg.Conn.StatusChanged(nats.CONNECTED)
	defer l.cfg.Conn.RemoveStatusListener(reconnected)
	consumers := &opener{l: l, g: g}
	for ctx.Err() == nil {
		following, stop := context.WithCancel(ctx)
		ended := make(chan struct{})
		go func(consumers *opener) { // watch does not wait for its end: it may hang in the library until the connection is closed
			if errors.Is(l.follow(following, consumers), natsjs.ErrStreamNotFound) { // any other error only says that it ended
				l.maintainer.Suspect()
			}
			close(ended)
		}(consumers)
		select {
		case <-ctx.Done():
		case <-ended:
			turn.Pause(ctx, watchPause)
		case _, ok := <-reconnected:
			consumers = &opener{l: l, g: g} // the former watch may still use its own
			// The library tries for seconds to repair the former watch, whatever its context
			// says. Records that it still brings are old, and the leases ignore them.
			if !ok {
				reconnected = nil // the connection is closed, and Run ends soon
				turn.Pause(ctx, watchPause)
			}
		}
		stop()
		if ctx.Err() == nil {
			l.counts.watches.Add(1)
		}
	}
}

func (l *Leases) follow(ctx context.Context, consumers *opener) error {
	c, end, err := consumers.open(ctx, natsjs.OrderedConsumerConfig{
		FilterSubjects: []string{l.cfg.Subjects.StoreOwnAll(), l.cfg.Subjects.StoreHeartbeatAll()},
		DeliverPolicy:  natsjs.DeliverLastPerSubjectPolicy,
	})
	if err != nil {
		return err
	}
	defer end()
	it, err := c.Messages(natsjs.PullHeartbeat(watchHeartbeat), natsjs.PullExpiry(30*time.Second))
	if err != nil {
		return err
	}
	defer it.Stop()
	for {
		m, err := it.Next(natsjs.NextContext(ctx))
		if err != nil {
			return err
		}
		l.watched(m)
	}
}

// watched takes a record that the watch brought.
func (l *Leases) watched(m natsjs.Msg) {
	n, rest, ok := l.cfg.Subjects.ParseStore(m.Subject())
	meta, err := m.Metadata()
	if !ok || err != nil || n >= len(l.shards) {
		return
	}
	l.heard[n%l.cfg.Streams].hear(meta.Sequence.Stream)
	switch rest {
	case "own":
		l.putHolder(n, cluster.ParseHolder(meta.Sequence.Stream, m.Data()))
	case "beat":
		heartbeat := cluster.ParseHeartbeat(meta.Sequence.Stream, m.Data())
		l.shards[n].put(func(in *inbox) { in.heartbeat = heartbeat })
	}
}

// A hint tells all relays at once which holder the store accepted, as a message that may be
// lost. The watch brings the same record, but it asks the server for the next message, and a
// lost request costs it a second or two, in which a shard that is handed over would lie idle.
//
//	sequence uint64, little endian
//	record   as stored

// hint sends the hint about the holder that an answer is about.
func (s *shard) hint(h cluster.Holder, a cluster.Answer) {
	if a.Verdict != fence.OK {
		return
	}
	data := h.Append(binary.LittleEndian.AppendUint64(nil, a.Seq))
	_ = s.l.cfg.Conn.Publish(s.l.cfg.Subjects.Own(s.n), data) // the watch brings a hint that is lost
}

// hinted takes the hint of another relay. Its sequence tells it from an answer of JetStream, which is
// published wherever a request says: as a number, the beginning of any text is one that no stream reaches.
func (l *Leases) hinted(m *nats.Msg) {
	n, ok := l.cfg.Subjects.ParseShard(m.Subject)
	if !ok || n >= len(l.shards) || len(m.Data) < 8 {
		return
	}
	if seq := binary.LittleEndian.Uint64(m.Data); jetstream.Believable(time.Now(), seq) {
		l.putHolder(n, cluster.ParseHolder(seq, m.Data[8:]))
	}
}

// putHolder brings the newest record of a holder to a lease.
func (l *Leases) putHolder(n int, h cluster.Holder) {
	l.heard[n%l.cfg.Streams].hear(h.Seq)
	l.shards[n].put(func(in *inbox) {
		if h.Seq > in.holder.Seq {
			in.holder = h
		}
	})
}
