package publisher

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// How many messages may wait for the game server, after which time without a sign of the
// server twice over a reader ends, and after which time servers forget a consumer that
// nobody reads from.
const (
	pullMax         = 500
	readerHeartbeat = time.Second
	readerIdle      = 5 * time.Minute
)

// A reader reads one stream in order, and ends when anything is wrong with it. It is not
// jetstream's ordered consumer, because that one goes on by itself behind the last
// sequence: in a stream that was made anew, that is beyond everything.
type reader struct {
	list     jetstream.MessagesContext
	received uint64 // messages
	cancel   context.CancelFunc
	watching sync.WaitGroup
}

var (
	errRemade = errors.New("the stream was made anew meanwhile")
	errMissed = errors.New("a message was lost on its way")
)

// open opens the stream behind the cursor. A stream that was made anew since, or is
// shorter than the cursor, is read from its start: what is new is decided by numbers.
func (s *Space) open(ctx context.Context, cursor *Cursor) (*reader, error) {
	js, err := jetstream.New(s.p.nc)
	if err != nil {
		return nil, err
	}
	stream, err := js.Stream(ctx, streamFrom)
	if err != nil {
		return nil, err
	}
	had := stream.CachedInfo()
	if made := had.Created.UnixNano(); cursor.made != made || cursor.stream > had.State.LastSeq {
		cursor.made, cursor.stream = made, 0
	}
	cfg := jetstream.ConsumerConfig{
		FilterSubject: s.p.subjects.From(s.name, "*"), DeliverPolicy: jetstream.DeliverAllPolicy, AckPolicy: jetstream.AckNonePolicy,
		MemoryStorage: true, Replicas: 1, InactiveThreshold: readerIdle,
	}
	if cursor.stream != 0 {
		cfg.DeliverPolicy, cfg.OptStartSeq = jetstream.DeliverByStartSequencePolicy, cursor.stream+1
	}
	consumer, err := stream.CreateConsumer(ctx, cfg)
	if err != nil {
		return nil, err
	}
	// A consumer ends with its stream, so now that it is there the stream says which it is.
	if has, err := stream.Info(ctx); err != nil {
		return nil, err
	} else if !has.Created.Equal(had.Created) {
		return nil, errRemade
	}
	return s.read(ctx, consumer)
}

func (s *Space) read(ctx context.Context, consumer jetstream.Consumer) (*reader, error) {
	list, err := consumer.Messages(jetstream.PullMaxMessages(pullMax), jetstream.PullHeartbeat(readerHeartbeat))
	if err != nil {
		return nil, err
	}
	r := &reader{list: list}
	ctx, r.cancel = context.WithCancel(ctx)
	r.watching.Go(func() { r.watch(ctx, s.p.nc) })
	return r, nil
}

// watch ends the reader with ctx, or when the connection is made anew: a server that was
// started again does not know the consumer.
func (r *reader) watch(ctx context.Context, nc *nats.Conn) {
	connected := nc.StatusChanged(nats.CONNECTED)
	defer nc.RemoveStatusListener(connected)
	select {
	case <-ctx.Done():
	case <-connected:
	}
	r.list.Stop()
}

// next waits for a message.
func (r *reader) next() (jetstream.Msg, error) {
	m, err := r.list.Next()
	if err != nil {
		return nil, err
	}
	meta, err := m.Metadata()
	if err != nil {
		return nil, fmt.Errorf("message of stream %s: %w", streamFrom, err)
	}
	if r.received++; meta.Sequence.Consumer != r.received {
		return nil, errMissed
	}
	return m, nil
}

func (r *reader) close() {
	r.cancel()
	r.watching.Wait()
}
