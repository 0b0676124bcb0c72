package publisher

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// streamFrom is the stream in which edges keep reliable messages of clients.
const streamFrom = "DNP_FROM"

// Headers of messages of clients.
const (
	headerSession  = "Dnp-Session"
	headerNumber   = "Dnp-Number"
	headerPrevious = "Dnp-Previous"
)

// streamPause is the pause after which the stream is looked for again.
const streamPause = time.Second

// A Message is what a client sent. The caller owns Data.
type Message struct {
	Client, Session string
	Reliable        bool
	Number          uint64 // of reliable ones: counts the client's reliable commands, with gaps
	Previous        uint64 // number of the message before, plus one; 0 for the first of the session
	Data            []byte
	Time            time.Time // when the stream got it

	chained bool   // Previous is known
	stream  uint64 // sequence in the stream
}

// A GapError reports messages that are not in the stream any more, because the game
// server was away for longer than it keeps them.
type GapError struct {
	Client, Session string
	From, To        uint64 // numbers From to To-1 have messages that are lost
}

func (e *GapError) Error() string {
	return fmt.Sprintf("messages of client %s with numbers from %d to %d are lost (session %s)", e.Client, e.From, e.To-1, e.Session)
}

// Messages yields the reliable messages of the space's clients that the cursor does not
// have, each session's in order, each once, and notes each in the cursor before it
// yields it. So
//
//	for m, err := range space.Messages(ctx, &state.Cursor) {
//		if err != nil { … }
//		state.apply(m)
//		state.save() // with the cursor, in one step
//	}
//
// loses and doubles nothing, whatever stops and starts again. It needs edges that keep
// sessions in a log; until one of them has made the stream, nothing comes.
//
// An error beside a message is a *GapError about what should have come before. One
// without a message is the end: that of ctx, or ErrClosed. NATS may come and go.
func (s *Space) Messages(ctx context.Context, cursor *Cursor) iter.Seq2[*Message, error] {
	return func(yield func(*Message, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(s.p.ctx, cancel)()
		for ctx.Err() == nil {
			if !s.consume(ctx, cursor, yield) {
				return
			}
			wait(ctx, streamPause)
		}
		if s.p.ctx.Err() != nil {
			yield(nil, ErrClosed)
			return
		}
		yield(nil, ctx.Err())
	}
}

// consume reads the stream from the cursor on until something fails. It returns false
// if the caller wants no more.
func (s *Space) consume(ctx context.Context, cursor *Cursor, yield func(*Message, error) bool) bool {
	r, err := s.open(ctx, cursor)
	if err != nil {
		if !errors.Is(err, jetstream.ErrStreamNotFound) && ctx.Err() == nil {
			s.p.cfg.Log.Warn("messages of clients cannot be read; trying again", "space", s.name, "error", err)
		}
		return true
	}
	defer r.close()
	for {
		m, err := r.next()
		if err != nil || ctx.Err() != nil {
			return true
		}
		got, ok := s.message(m)
		if !ok {
			continue
		}
		from := cursor.Next(got.Session)
		switch cursor.take(got) {
		case verdictNew:
			ok = yield(got, nil)
		case verdictGap:
			ok = yield(got, &GapError{got.Client, got.Session, from, got.Previous})
		}
		if !ok {
			return false
		}
	}
}

// message reads a message of the stream. What has no session or number was not
// published by an edge.
func (s *Space) message(m jetstream.Msg) (*Message, bool) {
	meta, err := m.Metadata()
	if err != nil {
		return nil, false
	}
	got, ok := s.parseMessage(m.Subject(), m.Headers(), m.Data())
	if !ok || !got.Reliable {
		return nil, false
	}
	got.Time, got.stream = meta.Timestamp, meta.Sequence.Stream
	return got, true
}

func (s *Space) parseMessage(subject string, h nats.Header, data []byte) (*Message, bool) {
	_, client, ok := s.p.subjects.ParseFrom(subject)
	got := &Message{Client: client, Session: h.Get(headerSession), Reliable: h.Get(headerReliable) == "true", Data: data}
	var err error
	if got.Reliable {
		got.Number, err = strconv.ParseUint(h.Get(headerNumber), 10, 64)
	}
	if text := h.Get(headerPrevious); text != "" && err == nil {
		got.Previous, err = strconv.ParseUint(text, 10, 64)
		got.chained = true
	}
	return got, ok && err == nil && got.Session != ""
}

// Listen calls f with the messages of the space's clients, unreliable ones too, as they
// come and at most once, until ctx ends. A slow f loses some. Reliable ones of sessions
// in a log come to Messages, too.
func (s *Space) Listen(ctx context.Context, f func(*Message)) error {
	sub, err := s.p.nc.SubscribeSync(s.p.subjects.From(s.name, "*"))
	if err != nil {
		return fmt.Errorf("listen to clients of space %s: %w", s.name, err)
	}
	defer func() { _ = sub.Unsubscribe() }() // fails only if the connection is closed
	if err := sub.SetPendingLimits(followMessages, followBytes); err != nil {
		return fmt.Errorf("listen to clients of space %s: %w", s.name, err)
	}
	for {
		m, err := sub.NextMsgWithContext(ctx)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, nats.ErrSlowConsumer):
		case err != nil:
			return fmt.Errorf("listen to clients of space %s: %w", s.name, err)
		default:
			if got, ok := s.parseMessage(m.Subject, m.Header, m.Data); ok {
				f(got)
			}
		}
	}
}

// wait waits, but not beyond the end of ctx.
func wait(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
