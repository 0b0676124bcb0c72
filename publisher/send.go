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

// Everyone is every client of the space, in an Outgoing that is told.
const Everyone = "*"

// An Outgoing is a message for clients.
type Outgoing struct {
	To   string // a client, or Everyone
	Data []byte

	// Unreliable lets the message be lost on the way, and spares what makes it reliable. For Tell.
	Unreliable bool

	// Token lets Send repeat the message until an edge answers: the client gets it once. From 1 to 2^44-1, it must
	// be larger for each message of the session, and the next message must wait for this one. Edges without a
	// session log forget tokens when they end.
	Token uint64
}

// outgoing returns the message for NATS.
func (s *Space) outgoing(m Outgoing) (*nats.Msg, error) {
	out := &nats.Msg{Subject: s.p.subjects.To(s.name, m.To), Data: m.Data}
	switch {
	case m.To == Everyone:
		out.Subject = s.p.subjects.ToAll(s.name)
	case !subject.ValidToken(m.To):
		return nil, &Error{Op: "send to " + m.To, Code: CodeBadRequest, Message: "want a client, or Everyone"}
	}
	if m.Unreliable {
		out.Header = nats.Header{subject.HeaderReliable: {"false"}}
	}
	if m.Token != 0 {
		out.Header = nats.Header{subject.HeaderToken: {strconv.FormatUint(m.Token, 10)}}
	}
	return out, nil
}

// sendPatience is how long Send waits for the first answer to a message with a token: an edge answers within milliseconds,
// unless the message arrived when it had just handed the session over. Each further wait is twice as long, up to Config.Timeout.
const sendPatience = 250 * time.Millisecond

// sendLongest is how long Send waits without a deadline: the edge answers when a message is on its way to the client, behind all that wait
// before it, which may be a MiB at 256 KiB a second and some time without an acknowledgement.
const sendLongest = time.Minute

// Send sends a message to a client, reliably and in order, waits for the edge until the deadline of ctx, or a minute, and returns the number
// of the message. A long message takes the time that its path needs. With sessions in a log the number is a promise that survives the edge.
//
// The number says that the edge has sent the message, not that the client has it: an edge does not know at once that a client is gone. What a
// client that left did not acknowledge is lost; KindLeft tells of its end. Let the client answer where that matters.
//
// Without a Token, Send tries once, because an answer that is lost does not show that the message is lost: after any
// error but ErrNotConnected and an *Error the client may receive it or not. With one, Send repeats the message, more
// and more rarely, until an edge answers or ctx ends. The number is 0 if an edge had the message already and its answer
// was lost.
func (s *Space) Send(ctx context.Context, m Outgoing) (number uint64, err error) {
	out, err := s.outgoing(m)
	switch {
	case err != nil:
		return 0, err
	case m.Unreliable, m.To == Everyone:
		return 0, &Error{Op: "send to " + m.To, Code: CodeBadRequest, Message: "only a reliable message to one client has an answer; use Tell"}
	case s.ctx.Err() != nil:
		return 0, ErrClosed
	}
	out.Header = traceOf(ctx).add(out.Header)
	if m.Token != 0 {
		return s.sendOnce(ctx, m.To, out)
	}
	reply, err := s.p.requestFor(ctx, out, s.p.sendPatience(ctx))
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return 0, ErrNotConnected
	case err != nil:
		return 0, fmt.Errorf("send to %s: %w", m.To, err)
	}
	return messageNumber(m.To, reply.Data)
}

// sendOnce repeats a message with a token until an edge answers.
func (s *Space) sendOnce(ctx context.Context, client string, m *nats.Msg) (number uint64, err error) {
	patience := min(sendPatience, s.p.cfg.Timeout)
	for {
		reply, err := s.p.requestFor(ctx, m, patience)
		if err == nil {
			return messageNumber(client, reply.Data)
		}
		switch {
		case ctx.Err() != nil:
			return 0, fmt.Errorf("send to %s: %w", client, err)
		case s.ctx.Err() != nil:
			return 0, ErrClosed
		case !errors.Is(err, nats.ErrNoResponders):
			patience = min(2*patience, s.p.cfg.Timeout)
		}
		sleep(ctx, s.p.cfg.Retry) // also without a responder: another edge may be taking the session over
	}
}

// Tell sends a message to a client or Everyone and does not wait. The message is lost if the client is not connected,
// or NATS is away. A client that has just connected does not get what is said to
// Everyone until its edge has told NATS, about a round trip between the two later. The error says that NATS does not take it.
func (s *Space) Tell(m Outgoing) error {
	out, err := s.outgoing(m)
	switch {
	case err != nil:
		return err
	case m.Token != 0:
		return &Error{Op: "tell " + m.To, Code: CodeBadRequest, Message: "a message with a token waits for its answer; use Send"}
	case s.ctx.Err() != nil:
		return ErrClosed
	}
	return s.p.nc.PublishMsg(out)
}

// Kick ends the sessions of a client. It tries once: a repetition could end a session that
// began in between.
func (s *Space) Kick(ctx context.Context, client string) error {
	return s.publishOnce(ctx, "kick "+client, &payload.Op{Op: "kick", Client: client})
}

// Clear removes all states that game servers made, including those of others. It tries
// once: a repetition could remove states that were put in between.
func (s *Space) Clear(ctx context.Context) error {
	if err := s.do(s.clear); err != nil {
		return err
	}
	return s.publishOnce(ctx, "clear", &payload.Op{Op: "clear"})
}

func (s *Space) publishOnce(ctx context.Context, source string, form *payload.Op) error {
	m, err := s.p.requestFor(ctx, &nats.Msg{Subject: s.p.subjects.Publish(s.name, ""), Data: form.Append(nil)}, s.p.cfg.Timeout)
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

// sendPatience returns how long Send waits for an answer of which no repetition is sent: the deadline of ctx decides, or sendLongest.
func (p *Publisher) sendPatience(ctx context.Context) time.Duration {
	if at, ok := ctx.Deadline(); ok {
		return time.Until(at)
	}
	return sendLongest
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
