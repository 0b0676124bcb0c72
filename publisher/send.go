package publisher

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/dnprelay/dnprelay/replication"
	"github.com/dnprelay/dnprelay/replication/payload"
	"github.com/dnprelay/dnprelay/subject"
	"github.com/nats-io/nats.go"
)

// ErrNotConnected reports a client that is not in the space.
var ErrNotConnected = errors.New("publisher: the client is not connected")

// Send sends data to a client, reliably and in order, and returns the number of the
// message. With sessions in a log the number is a promise that survives the edge. Send
// tries once, because an answer that is lost does not show that the message is lost:
// after any error but ErrNotConnected and an *Error the client may receive it or not.
func (s *Space) Send(ctx context.Context, client string, data []byte) (number uint64, err error) {
	m, err := s.p.request(ctx, &nats.Msg{Subject: s.p.subjects.To(s.name, client), Data: data})
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return 0, ErrNotConnected
	case err != nil:
		return 0, fmt.Errorf("send to %s: %w", client, err)
	}
	return messageNumber(client, m.Data)
}

// sendPatience is how long SendOnce waits for the first answer: an edge answers within milliseconds, unless the message
// arrived when it had just handed the session over. Each further wait is twice as long, up to Config.Timeout.
const sendPatience = 250 * time.Millisecond

// SendOnce sends data to a client reliably, and repeats it, more and more rarely, until an edge answers or ctx
// ends; the client receives it once. The token, from 1 to 2^44-1, must be larger for each
// message of the session, and the next message must wait for this one. SendOnce returns
// the number of the message, or 0 if an edge had the message already and its answer was
// lost. Edges without a session log forget tokens when they end.
func (s *Space) SendOnce(ctx context.Context, client string, token uint64, data []byte) (number uint64, err error) {
	m := &nats.Msg{Subject: s.p.subjects.To(s.name, client), Data: data, Header: nats.Header{subject.HeaderToken: {strconv.FormatUint(token, 10)}}}
	patience := min(sendPatience, s.p.cfg.Timeout)
	for {
		reply, err := s.p.requestFor(ctx, m, patience)
		if err == nil {
			return messageNumber(client, reply.Data)
		}
		if ctx.Err() != nil {
			return 0, fmt.Errorf("send to %s: %w", client, err)
		}
		if !errors.Is(err, nats.ErrNoResponders) {
			patience = min(2*patience, s.p.cfg.Timeout)
		}
		sleep(ctx, s.p.cfg.Retry) // also without a responder: another edge may be taking the session over
	}
}

// Tell sends data to a client reliably without waiting for an answer. The message is lost
// if the client is not connected.
func (s *Space) Tell(client string, data []byte) error {
	return s.p.nc.Publish(s.p.subjects.To(s.name, client), data)
}

// TellAll is Tell for every client of the space.
func (s *Space) TellAll(data []byte) error { return s.p.nc.Publish(s.p.subjects.ToAll(s.name), data) }

// Cast sends data to a client once. It may be lost on the way.
func (s *Space) Cast(client string, data []byte) error {
	return s.cast(s.p.subjects.To(s.name, client), data)
}

// CastAll is Cast for every client of the space.
func (s *Space) CastAll(data []byte) error { return s.cast(s.p.subjects.ToAll(s.name), data) }

func (s *Space) cast(to string, data []byte) error {
	return s.p.nc.PublishMsg(&nats.Msg{Subject: to, Data: data, Header: nats.Header{subject.HeaderReliable: {"false"}}})
}

// Kick ends the sessions of a client. It tries once: a repetition could end a session that
// began in between.
func (s *Space) Kick(ctx context.Context, client string) error {
	return s.publishOnce(ctx, "kick "+client, clientJSON{Op: "kick", Client: client})
}

// Clear removes all states that game servers made, including those of others. It tries
// once: a repetition could remove states that were put in between.
func (s *Space) Clear(ctx context.Context) error {
	if err := s.do(s.clear); err != nil {
		return err
	}
	return s.publishOnce(ctx, "clear", map[string]string{"op": "clear"})
}

func (s *Space) publishOnce(ctx context.Context, source string, form any) error {
	m, err := s.p.request(ctx, &nats.Msg{Subject: s.p.subjects.Publish(s.name, ""), Data: mustMarshal(form)})
	var a payload.Answer
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w", source, err)
	case json.Unmarshal(m.Data, &a) != nil:
		return &Error{Op: source, Code: Code(replication.CodeBadRequest), Message: "the answer cannot be read"}
	case a.Error != nil:
		return &Error{Op: source, Code: Code(a.Error.Code), Message: a.Error.Message}
	}
	return nil
}

// request sends m and waits up to Config.Timeout for the reply.
func (p *Publisher) request(ctx context.Context, m *nats.Msg) (*nats.Msg, error) {
	return p.requestFor(ctx, m, p.cfg.Timeout)
}

func (p *Publisher) requestFor(ctx context.Context, m *nats.Msg, patience time.Duration) (*nats.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return p.nc.RequestMsgWithContext(ctx, m)
}

// messageNumber reads the answer of an edge to a message.
func messageNumber(client string, data []byte) (uint64, error) {
	op := "send to " + client
	var a payload.Answer
	switch err := json.Unmarshal(data, &a); {
	case err != nil:
		return 0, fmt.Errorf("%s: the answer cannot be read: %w", op, err)
	case a.Error != nil:
		return 0, &Error{Op: op, Code: Code(a.Error.Code), Message: a.Error.Message}
	case a.Number != nil:
		return *a.Number, nil
	case a.Duplicate:
		return 0, nil
	}
	return 0, fmt.Errorf("%s: the answer has no number", op)
}
