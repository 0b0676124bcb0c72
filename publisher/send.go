package publisher

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/dnprelay/dnprelay/replication"
	"github.com/nats-io/nats.go"
)

// ErrNotConnected reports a client that is not in the space.
var ErrNotConnected = errors.New("publisher: the client is not connected")

// Headers of messages to clients.
const (
	headerReliable = "Dnp-Reliable"
	headerToken    = "Dnp-Token"
)

// Send sends data to a client, reliably and in order, and returns the number that the
// message got: with sessions in a log it is a promise that survives the edge. It does
// not try again, because an answer that is lost does not say that the message was: after
// any error but ErrNotConnected and an *Error the client may get it or not.
func (s *Space) Send(ctx context.Context, client string, data []byte) (number uint64, err error) {
	m, err := s.request(ctx, &nats.Msg{Subject: s.p.subjects.To(s.name, client), Data: data})
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return 0, ErrNotConnected
	case err != nil:
		return 0, fmt.Errorf("send to %s: %w", client, err)
	}
	return s.number("send to "+client, m.Data)
}

// Tell sends data to a client reliably without waiting for an answer. It is lost if the
// client is not connected.
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

func (s *Space) cast(subject string, data []byte) error {
	return s.p.nc.PublishMsg(&nats.Msg{Subject: subject, Data: data, Header: nats.Header{headerReliable: {"false"}}})
}

func (s *Space) request(ctx context.Context, m *nats.Msg) (*nats.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, s.p.cfg.Timeout)
	defer cancel()
	return s.p.nc.RequestMsgWithContext(ctx, m)
}

// Kick ends the sessions of a client. It is tried once: to try again could end a session
// that began meanwhile.
func (s *Space) Kick(ctx context.Context, client string) error {
	return s.once(ctx, "kick "+client, map[string]string{"op": "kick", "client": client})
}

// Clear removes all states that game servers made, those of others too. It is tried
// once: to try again could remove what was put meanwhile.
func (s *Space) Clear(ctx context.Context) error {
	if err := s.do(ctx, s.clear); err != nil {
		return err
	}
	return s.once(ctx, "clear", map[string]string{"op": "clear"})
}

func (s *Space) once(ctx context.Context, what string, op map[string]string) error {
	body, err := json.Marshal(op)
	if err != nil {
		panic("publisher: text that JSON cannot express: " + err.Error())
	}
	m, err := s.request(ctx, &nats.Msg{Subject: s.p.subjects.Publish(s.name, ""), Data: body})
	var a answer
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w", what, err)
	case json.Unmarshal(m.Data, &a) != nil:
		return &Error{Op: what, Code: string(replication.CodeBadRequest), Message: "the answer cannot be read"}
	case a.Error != nil:
		return &Error{Op: what, Code: a.Error.Code, Message: a.Error.Message}
	}
	return nil
}

// SendOnce sends data to a client reliably, and says it again until it is answered or
// ctx ends; the client gets it once. The token, from 1 to 2^44-1, must be larger for
// each message of the session, and the next message must wait for this one. It returns
// the number of the message, or 0 if an edge had it already and its answer was lost.
// Edges that keep no sessions know tokens only for as long as they live.
func (s *Space) SendOnce(ctx context.Context, client string, token uint64, data []byte) (number uint64, err error) {
	m := &nats.Msg{Subject: s.p.subjects.To(s.name, client), Data: data, Header: nats.Header{headerToken: {strconv.FormatUint(token, 10)}}}
	for {
		reply, err := s.request(ctx, m)
		if err == nil {
			return s.number("send to "+client, reply.Data)
		}
		if ctx.Err() != nil {
			return 0, fmt.Errorf("send to %s: %w", client, err)
		}
		wait(ctx, s.p.cfg.Retry) // also without a responder: another edge may be taking the session over
	}
}

func (s *Space) number(what string, data []byte) (uint64, error) {
	var a answer
	switch err := json.Unmarshal(data, &a); {
	case err != nil:
		return 0, fmt.Errorf("%s: the answer cannot be read: %w", what, err)
	case a.Error != nil:
		return 0, &Error{Op: what, Code: a.Error.Code, Message: a.Error.Message}
	case a.Number != nil:
		return *a.Number, nil
	case a.Duplicate:
		return 0, nil
	}
	return 0, fmt.Errorf("%s: the answer has no number", what)
}
