package publisher

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"sync"
	"time"

	"github.com/dnprelay/dnprelay/subject"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// streamFrom is the stream in which edges store reliable messages of clients.
const streamFrom = "DNP_FROM"

// openTimeout bounds one attempt of Messages to open the stream, and streamPause is the pause before the
// next one. A question that a NATS server gets without a leader has no answer, so that a longer attempt would
// only make messages later than the election does.
const (
	openTimeout = 2 * time.Second
	streamPause = 200 * time.Millisecond
)

// A Message is what a client sent. The caller owns Data.
type Message struct {
	Client, Session string
	Reliable        bool
	Number          uint64 // of reliable ones: counts the client's reliable commands, with gaps
	Previous        uint64 // number of the message before, plus one; 0 for the first of the session
	Data            []byte
	Time            time.Time // when the stream stored it

	// Command is not nil for a command, which waits for an answer. Its Body is Data. Answer it before you
	// store the cursor: then a game server that restarts in between executes the command again, from
	// the state without it, and the client gets the first answer.
	Command *Command

	silent bool // no message of the application: the game server only has to know the number

	chained bool   // Previous is known
	stream  uint64 // sequence in the stream
}

// A GapError reports messages that the stream has deleted, because the game server was
// away for longer than the stream stores them.
type GapError struct {
	Client, Session string
	From, To        uint64 // the messages with numbers From to To-1 are lost
}

func (e *GapError) Error() string {
	return fmt.Sprintf("messages of client %s with numbers from %d to %d are lost (session %s)", e.Client, e.From, e.To-1, e.Session)
}

// Messages yields the reliable messages of the space's clients that the cursor does not
// have, each once, in order within each session. It notes each message in the cursor
// before it yields the message. So
//
//	for m, err := range space.Messages(ctx, &state.Cursor) {
//		if err != nil { … }
//		state.apply(m)
//		state.save() // with the cursor, in one step
//	}
//
// loses and repeats nothing, whatever stops and restarts. Messages needs edges that keep
// sessions in a log; it yields nothing until one of them has made the stream.
//
// An error beside a message is a *GapError about the messages before it. An error without
// a message is the end: that of ctx, or ErrClosed. NATS may be away for any time.
func (s *Space) Messages(ctx context.Context, cursor *Cursor) iter.Seq2[*Message, error] {
	return func(yield func(*Message, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(s.ctx, cancel)()
		var owed error // a gap before a message that is not yielded
		for ctx.Err() == nil {
			if !s.consume(ctx, cursor, &owed, yield) {
				return
			}
			sleep(ctx, streamPause)
		}
		if s.ctx.Err() != nil {
			yield(nil, ErrClosed)
			return
		}
		yield(nil, ctx.Err())
	}
}

// consume reads the stream from the cursor on until something fails. It returns false
// if the caller wants no more.
func (s *Space) consume(ctx context.Context, cursor *Cursor, owed *error, yield func(*Message, error) bool) bool {
	r, err := openReader(ctx, s, cursor)
	if err != nil {
		if !errors.Is(err, jetstream.ErrStreamNotFound) && ctx.Err() == nil {
			s.p.cfg.Log.Warn("cannot read messages of clients; trying again", "space", s.name, "error", err)
		}
		return true
	}
	defer r.close()
	for {
		m, meta, err := r.next()
		if err != nil || ctx.Err() != nil {
			return true
		}
		got, ok := s.parseMessage(m.Subject(), m.Headers(), m.Data())
		if !ok || !got.Reliable { // no edge published it
			continue
		}
		got.Time, got.stream = meta.Timestamp, meta.Sequence.Stream
		fresh, gap := cursor.take(got)
		if gap != nil {
			*owed = gap
		}
		switch {
		case !fresh:
		case got.silent:
			s.answerRefused(got.Client, m.Headers())
		default:
			gap, *owed = *owed, nil
			if !yield(got, gap) {
				return false
			}
		}
	}
}

func (s *Space) parseMessage(from string, h nats.Header, data []byte) (*Message, bool) {
	_, client, ok := s.p.subjects.ParseFrom(from)
	got := &Message{Client: client, Session: h.Get(subject.HeaderSession), Reliable: h.Get(subject.HeaderReliable) == "true", Data: data}
	var err error
	if got.Reliable {
		got.Number, err = strconv.ParseUint(h.Get(subject.HeaderNumber), 10, 64)
	}
	if text := h.Get(subject.HeaderPrevious); text != "" && err == nil {
		got.Previous, err = strconv.ParseUint(text, 10, 64)
		got.chained = true
	}
	if h.Get(subject.HeaderRequest) != "" {
		got.Command = s.parseCommand(h, client, h.Get(subject.HeaderKey), data)
		got.silent = got.Command == nil
	}
	return got, ok && err == nil && got.Session != ""
}

// A reader waits for readerHeartbeat twice without a sign of the server before it ends,
// and servers delete a consumer that has not been read from for readerIdle, in case that the
// reader could not delete it: a server allows a stream 1,000 consumers, for all game servers
// together. After readerLate the reader asks a second time to delete a consumer whose creation had no answer: a slow server may have
// made it behind the first request. Up to pullMax messages wait for the game server.
const (
	pullMax         = 500
	readerHeartbeat = 500 * time.Millisecond // the shortest that the library takes
	readerIdle      = 30 * time.Second
	readerLate      = 5 * time.Second
)

// A reader reads one stream in order, and ends when anything goes wrong. jetstream's
// ordered consumer does not serve: it recovers by itself and continues behind the last
// sequence, which in a stream that was deleted and made again is beyond every message.
type reader struct {
	nc       *nats.Conn
	consumer string // its name
	list     jetstream.MessagesContext
	received uint64 // messages
	cancel   context.CancelFunc
	watching sync.WaitGroup
}

var (
	errRemade = errors.New("the stream was made again while it was opened")
	errMissed = errors.New("a message was lost on its way")
)

// openReader opens the stream behind the cursor. If the stream was made again since, or is
// shorter than the cursor, the reader starts at its beginning: the numbers of messages
// decide which are new.
func openReader(running context.Context, s *Space, cursor *Cursor) (*reader, error) {
	ctx, cancel := context.WithTimeout(running, openTimeout)
	defer cancel()
	js, err := jetstream.New(s.p.nc)
	if err != nil {
		return nil, err
	}
	stream, err := js.Stream(ctx, streamFrom)
	if err != nil {
		return nil, err
	}
	had := stream.CachedInfo()
	if made := had.Created.UnixNano(); cursor.at.Made != made || cursor.at.Stream > had.State.LastSeq {
		cursor.at.Made, cursor.at.Stream = made, 0
	}
	cfg := jetstream.ConsumerConfig{
		Name: rand.Text(), FilterSubject: s.p.subjects.From(s.name, "*"), DeliverPolicy: jetstream.DeliverAllPolicy, AckPolicy: jetstream.AckNonePolicy,
		MemoryStorage: true, Replicas: 1, InactiveThreshold: readerIdle,
	}
	if cursor.at.Stream != 0 {
		cfg.DeliverPolicy, cfg.OptStartSeq = jetstream.DeliverByStartSequencePolicy, cursor.at.Stream+1
	}
	r := &reader{nc: s.p.nc, consumer: cfg.Name}
	if err := r.start(ctx, stream, cfg); err != nil {
		r.deleteConsumer() // the server may have made it although its answer did not come
		time.AfterFunc(readerLate, r.deleteConsumer)
		return nil, err
	}
	reading, stop := context.WithCancel(running)
	r.cancel = stop
	r.watching.Go(func() { r.watch(reading, s.p.nc) })
	return r, nil
}

// start makes the consumer and begins to read. A consumer ends with its stream, so the stream that the server names after
// the consumer exists is the one that the consumer reads.
func (r *reader) start(ctx context.Context, stream jetstream.Stream, cfg jetstream.ConsumerConfig) error {
	made := stream.CachedInfo().Created
	// It waits for the answer even if the game server ends: to delete a consumer that the server is about to make is of no use.
	making, cancel := context.WithTimeout(context.WithoutCancel(ctx), openTimeout)
	defer cancel()
	c, err := stream.CreateConsumer(making, cfg)
	if err != nil {
		return err
	}
	if has, err := stream.Info(ctx); err != nil {
		return err
	} else if !has.Created.Equal(made) {
		return errRemade
	}
	r.list, err = c.Messages(jetstream.PullMaxMessages(pullMax), jetstream.PullHeartbeat(readerHeartbeat))
	return err
}

// watch ends the reader with ctx, or when the connection is made again: a server that
// restarted does not know the consumer.
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
func (r *reader) next() (m jetstream.Msg, meta *jetstream.MsgMetadata, err error) {
	if m, err = r.list.Next(); err != nil {
		return nil, nil, err
	}
	if meta, err = m.Metadata(); err != nil {
		return nil, nil, err
	}
	if r.received++; meta.Sequence.Consumer != r.received {
		return nil, nil, errMissed
	}
	return m, meta, nil
}

func (r *reader) close() {
	r.cancel()
	r.watching.Wait()
	r.deleteConsumer()
}

// deleteConsumer deletes the consumer, and waits for no answer.
func (r *reader) deleteConsumer() {
	_ = r.nc.Publish("$JS.API.CONSUMER.DELETE."+streamFrom+"."+r.consumer, nil) // otherwise the server deletes it after readerIdle
}

// sleep waits for d or until ctx ends. It reports whether ctx goes on.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
