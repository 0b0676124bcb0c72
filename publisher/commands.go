package publisher

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/dnprelay/dnprelay/dnp/command"
	"github.com/dnprelay/dnprelay/subject"
	"github.com/nats-io/nats.go"
)

// A Command asks the game server to do something with a state that the client may write. The client
// waits for one answer: call Reply, Fail or Unknown once, from any goroutine. Those of sessions in a log are
// Messages with a Command. Others are events of KindCommand: they are not repeated, and the client gets an error
// after 5 s without an answer.
type Command struct {
	Client, Session string
	Key             string // of the state
	Name            string
	ID              uint16 // of the request in the session
	Body            []byte // the game server owns it

	space *Space
	reply string    // where the edge waits; empty for a session in a log
	until time.Time // when the edge has answered by itself; zero if that is not known
}

// ErrLate reports an answer to a command whose client has got another one, or has left.
var ErrLate = errors.New("publisher: the client no longer waits for the answer")

// Reply answers the command. For a session in a log, it repeats the answer until an edge has it, or ctx
// ends; the client gets it once, whichever edges end meanwhile. Otherwise it sends the answer once, and nil does not say that
// the client has it: it may have left, or the edge may have answered it (command.Timeout) at the same moment. ErrLate
// means that the client got another answer, or left. An edge that has an answer after an attempt of this call that it did not confirm is
// taken to have this one.
func (c *Command) Reply(ctx context.Context, body []byte) error {
	return c.answer(ctx, command.OK, body)
}

// Fail is Reply for a command that the game server does not execute. The client gets the text.
func (c *Command) Fail(ctx context.Context, text string) error {
	return c.answer(ctx, command.Failed, []byte(text))
}

// Unknown is Reply for a command that the game server does not know.
func (c *Command) Unknown(ctx context.Context) error {
	return c.answer(ctx, command.Unknown, []byte(command.Unknown.String()))
}

func (c *Command) answer(ctx context.Context, code command.Code, body []byte) error {
	if len(body) > command.BodyMax {
		return fmt.Errorf("answer command %s of %s: %w", c.Name, c.Client, command.ErrTooLarge)
	}
	m := &nats.Msg{Data: body, Header: nats.Header{}}
	if code != command.OK {
		m.Header.Set(subject.HeaderCode, code.String())
	}
	if !c.until.IsZero() && time.Now().After(c.until) {
		return ErrLate
	}
	if c.reply != "" {
		m.Subject = c.reply
		return c.space.p.nc.PublishMsg(m)
	}
	return c.space.answerOnce(ctx, c.Client, c.Session, c.ID, m)
}

// goneAfter is how long a client counts as there although no edge takes messages for it: an edge
// takes less to take a session over, but for the worst faults.
const goneAfter = time.Minute

// answerOnce sends an answer to a session in a log until an edge has it.
func (s *Space) answerOnce(ctx context.Context, client, session string, id uint16, m *nats.Msg) error {
	m.Subject = s.p.subjects.To(s.name, client)
	m.Header.Set(subject.HeaderAnswer, strconv.Itoa(int(id)))
	m.Header.Set(subject.HeaderSession, session)
	patience, heard := min(sendPatience, s.p.cfg.Timeout), time.Now()
	unheard := false // an edge may have the answer, although it did not say so in time
	for {
		reply, err := s.p.requestFor(ctx, m, patience)
		switch {
		case err == nil:
			if ends, err := verdict(client, reply.Data, unheard); ends {
				return err
			}
		case ctx.Err() != nil:
			return fmt.Errorf("answer a command of %s: %w", client, ctx.Err())
		case !errors.Is(err, nats.ErrNoResponders):
			patience, heard, unheard = min(2*patience, s.p.cfg.Timeout), time.Now(), true
		case time.Since(heard) > goneAfter:
			return ErrLate
		}
		sleep(ctx, s.p.cfg.Retry)
	}
}

// verdict says whether the reply of an edge ends the repetition of an answer, and with which error. unheard is whether an edge did not
// confirm an earlier attempt in time, so that the answer that the edge has is this one.
func verdict(client string, reply []byte, unheard bool) (ends bool, err error) {
	number, err := messageNumber(client, reply)
	refused, _ := errors.AsType[*Error](err)
	switch {
	case refused != nil && refused.Code == CodeUnknownClient, err == nil && number == 0 && duplicate(reply) && !unheard:
		return true, ErrLate
	case refused != nil && refused.Code == CodeBusy:
		return false, nil
	}
	return true, err
}

// duplicate reports whether an edge had an answer already.
func duplicate(data []byte) bool {
	var a struct{ Duplicate bool }
	return json.Unmarshal(data, &a) == nil && a.Duplicate
}

// parseCommand returns the command that a message is, nil if it is none.
func (s *Space) parseCommand(h nats.Header, client, key string, body []byte) *Command {
	id, err := strconv.ParseUint(h.Get(subject.HeaderRequest), 10, 16)
	name, session := h.Get(subject.HeaderCommand), h.Get(subject.HeaderSession)
	if err != nil || id == command.HelloID || name == "" || session == "" || client == "" || key == "" {
		return nil
	}
	return &Command{Client: client, Session: session, Key: key, Name: name, ID: uint16(id), Body: body, space: s}
}

// refusalsMax bounds the answers to refused commands that are under way. The edge answers by itself, so
// beyond them one gets lost only if its edge died before that.
const refusalsMax = 256

// refusals are the answers to commands that an edge refused.
type refusals struct{ waiting atomic.Int64 }

// answerRefused sends the answer to a command that an edge refused, in case that edge died before the client had it. The
// session may have had another edge since, whose answer counts.
func (s *Space) answerRefused(client string, h nats.Header) {
	id, err := strconv.ParseUint(h.Get(subject.HeaderRequest), 10, 16)
	if err != nil || id == command.HelloID {
		return
	}
	if s.refusals.waiting.Add(1) > refusalsMax {
		s.refusals.waiting.Add(-1)
		return
	}
	code := command.ParseCode(h.Get(subject.HeaderRefused)).String()
	m := &nats.Msg{Data: []byte(code), Header: nats.Header{subject.HeaderCode: {code}}}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil { // Close does not wait for it
		s.refusals.waiting.Add(-1)
		return
	}
	s.running.Go(func() {
		defer s.refusals.waiting.Add(-1)
		ctx, cancel := context.WithTimeout(s.ctx, refusalTime)
		defer cancel()
		_ = s.answerOnce(ctx, client, h.Get(subject.HeaderSession), uint16(id), m) // mostly ErrLate: the edge answered
	})
}

// refusalTime is how long a refusal is repeated.
const refusalTime = 10 * time.Second
