package natslease

import (
	"context"
	"crypto/rand"
	"errors"
	"strconv"
	"time"

	"github.com/dnprelay/dnprelay/cluster/lease"
	"github.com/dnprelay/dnprelay/internal/jetstream"
	"github.com/dnprelay/dnprelay/internal/turn"
	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// Times of the watch. All are arbitrary: a relay whose watch stalls revokes no lease.
const (
	watchHeartbeat = time.Second            // of a consumer that has nothing to say
	watchSilence   = 5 * watchHeartbeat / 2 // after which the consumer is gone, or its server
	watchPause     = 250 * time.Millisecond // before the watch begins anew
	watchIdle      = 10 * time.Second       // for which a server keeps a consumer without a listener
)

// errGap says that the watch missed a record, or that the server sends none any longer.
var errGap = errors.New("the watch is interrupted")

// watch brings the records of the stream to the lease, until ctx ends. Each attempt begins with the last record of each
// subject; so does one with each connection, because what the server sent over the former one is lost.
func (s *lane) watch(ctx context.Context) {
	reconnected := s.l.cfg.Conn.StatusChanged(nats.CONNECTED)
	defer s.l.cfg.Conn.RemoveStatusListener(reconnected)
	for number := 1; ctx.Err() == nil; number++ {
		following, stop := context.WithCancel(ctx)
		ended := make(chan struct{})
		go func() { // watch does not wait for its end: it may hang in the library until the connection is closed
			if errors.Is(s.follow(following, number), natsjs.ErrStreamNotFound) { // any other error only says that it ended
				s.l.maintainer.Suspect()
			}
			close(ended)
		}()
		select {
		case <-ctx.Done():
		case <-ended:
			turn.Pause(ctx, watchPause)
		case <-s.rewatch:
		case _, ok := <-reconnected:
			if !ok {
				reconnected = nil // the connection is closed, and Run ends soon
				turn.Pause(ctx, watchPause)
			}
		}
		stop()
		if ctx.Err() == nil {
			s.l.counts.watches.Add(1)
		}
	}
}

// follow watches with one consumer, which pushes the records: a request for them could be lost.
func (s *lane) follow(ctx context.Context, number int) error {
	subjects, conn := &s.l.cfg.Subjects, s.l.cfg.Conn
	inbox := make(chan *nats.Msg, 4096) // further records are a gap
	sub, err := conn.ChanSubscribe(conn.NewInbox(), inbox)
	if err != nil {
		return err
	}
	defer func() { _ = sub.Unsubscribe() }()
	name := "watch-" + rand.Text()
	opening, cancel := context.WithTimeout(ctx, openLate)
	defer cancel()
	c, err := s.l.streams[s.g].CreatePushConsumer(opening, natsjs.ConsumerConfig{
		Name: name, DeliverSubject: sub.Subject, FilterSubjects: []string{subjects.StoreOwnAll(), subjects.StoreLease(s.g, "*")},
		DeliverPolicy: natsjs.DeliverLastPerSubjectPolicy, AckPolicy: natsjs.AckNonePolicy, MemoryStorage: true, Replicas: 1,
		IdleHeartbeat: watchHeartbeat, InactiveThreshold: watchIdle,
	})
	if err != nil {
		return err
	}
	defer func() { _ = jetstream.DeleteConsumer(conn, StreamName(s.g), name) }() // otherwise the server does after a while
	w := &watched{lane: s, number: number, consumer: name}
	s.put(func(time.Time) {
		s.watching = number
		s.lease.Rewatch()
	})
	info := c.CachedInfo()
	if info.NumPending == 0 && info.Delivered.Consumer == 0 {
		w.primed()
	}
	silence := time.NewTimer(watchSilence)
	defer silence.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-silence.C:
			return errGap
		case m := <-inbox:
			silence.Reset(watchSilence)
			if err := w.take(m); err != nil {
				return err
			}
		}
	}
}

// A watched is a consumer of the watch.
type watched struct {
	*lane
	number   int
	consumer string
	last     uint64 // of its messages
	whole    bool   // it has brought all records that there were
}

// take takes a message of the consumer, whose messages have numbers without gaps.
func (w *watched) take(m *nats.Msg) error {
	if status := m.Header.Get("Status"); status != "" {
		if status != "100" || w.last > 0 && m.Header.Get("Nats-Last-Consumer") != "" && m.Header.Get("Nats-Last-Consumer") != strconv.FormatUint(w.last, 10) {
			return errGap
		}
		return nil
	}
	meta, err := m.Metadata()
	if err != nil || meta.Consumer != w.consumer {
		return nil // not of the consumer
	}
	if w.last++; meta.Sequence.Consumer != w.last {
		return errGap
	}
	seq := meta.Sequence.Stream
	w.l.heard[w.g].hear(seq)
	w.record(seq, m)
	if meta.NumPending == 0 && !w.whole {
		w.primed()
	}
	return nil
}

// primed says that the records that there were have all come.
func (w *watched) primed() {
	w.whole = true
	w.inOrder(func(time.Time) { w.lease.Primed() })
}

// inOrder has the lane do something, unless another watch counts by then.
func (w *watched) inOrder(do func(now time.Time)) {
	w.put(func(now time.Time) {
		if w.watching == w.number {
			do(now)
		}
	})
}

// record brings a record to the lease.
func (w *watched) record(seq uint64, m *nats.Msg) {
	subjects := &w.l.cfg.Subjects
	n, rest, ok := subjects.ParseStore(m.Subject)
	if !ok || n >= w.l.cfg.Shards {
		return
	}
	if rest == "own" {
		o := lease.ParseOwner(seq, m.Data)
		w.inOrder(func(now time.Time) { w.lease.SawOwner(now, n, o) })
	} else if node, ok := subjects.ParseStoreLease(rest); ok && n == w.g {
		r := lease.ParseRecord(seq, m.Data)
		w.inOrder(func(now time.Time) { w.lease.Saw(now, node, r) })
	}
}
