package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dnprelay/dnprelay/dnp/command"
)

// A CommandError says why a command was not executed. With the code "timeout" it may have been.
type CommandError struct {
	Code string // a code of INTERFACES.md, such as not_authorised; "failed" if the game server says why
	Text string
}

// Error says what happened.
func (e *CommandError) Error() string {
	if e.Text == "" || e.Text == e.Code {
		return "client: the command was refused: " + e.Code
	}
	return fmt.Sprintf("client: the command was refused: %s: %s", e.Code, e.Text)
}

// ErrNoCommands reports an edge that does not answer that it takes commands.
var ErrNoCommands = errors.New("client: the edge does not take commands")

// abandonedTime is after what time a command whose caller did not wait for the answer no longer counts among
// those without an answer.
const abandonedTime = time.Minute

// commands are the commands without an answer. Client.mu guards them.
type commands struct {
	next uint16
	open map[uint16]*openCommand
}

// A hello is what became of the client's opting in. Client.mu guards it.
type hello struct {
	said    bool      // what begins like an envelope is put into one
	arrived time.Time // when the server was seen to have it
	granted command.Capabilities
}

// helloWait is how long values wait for the answer to a hello that has arrived. An edge repeats its answer for 10 s, and then
// ends the connection (dnp/PROTOCOL.md). So a server that does not answer in this time is no edge.
const helloWait = 12 * time.Second

// answered reports whether the edge answered: what begins like an envelope is one.
func (h *hello) answered() bool { return h.granted != 0 }

// writes reports whether the edge takes numbered writes.
func (h *hello) writes() bool { return h.granted&command.Writes != 0 }

// settledAt returns when it is known whether the edge takes numbered writes, but not before another time. It is not ok
// while the hello may not have arrived.
func (h *hello) settledAt(c *Client, at time.Time) (_ time.Time, ok bool) {
	switch {
	case c.cfg.Plain || h.answered():
		return at, true
	case h.arrived.IsZero():
		return time.Time{}, false
	}
	if by := h.arrived.Add(helloWait); by.After(at) {
		return by, true
	}
	return at, true
}

// look notes that the server has the hello.
func (h *hello) look(c *Client, now time.Time) {
	if h.said && h.arrived.IsZero() && c.endpoint.Undelivered(c.conn) == 0 {
		h.arrived = now
	}
}

// An openCommand is a command without an answer.
type openCommand struct {
	answer    *command.Answer // once it is there
	abandoned time.Time       // when the caller stopped waiting
}

// Command asks the game server to do something with the state, and returns its answer. The client must have
// the right to write the state. The body has at most 60,000 bytes. If more than 16 commands have no answer,
// Command waits. The error is a [*CommandError], that of ctx, or why the connection ended; after the
// latter two, the command may have been executed. A function of Config must not call it.
func (s *State) Command(ctx context.Context, name string, body []byte) (answer []byte, err error) {
	q := command.Request{ByLink: true, Link: s.id, Name: name, Body: body}
	if s.own {
		s.client.mu.Lock()
		link, ok := s.client.conn.LinkOf(s.source)
		s.client.mu.Unlock()
		if !ok {
			return nil, errors.New("client: the state has no link")
		}
		q.Link = link.ID
	}
	return s.client.command(ctx, q)
}

// Command is [State.Command] for the state with a key, which need not be the link message.
func (c *Client) Command(ctx context.Context, key, name string, body []byte) (answer []byte, err error) {
	return c.command(ctx, command.Request{Key: key, Name: name, Body: body})
}

func (c *Client) command(ctx context.Context, q command.Request) ([]byte, error) {
	if err := c.helloAnswered(ctx); err != nil {
		return nil, err
	}
	var cmd *openCommand
	var failed error
	err := c.Until(ctx, func() bool {
		cmd, failed = c.request(&q)
		return cmd != nil || failed != nil && !errors.Is(failed, ErrFull)
	})
	if err = errors.Join(err, failed); cmd == nil {
		return nil, err
	}
	err = c.Until(ctx, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return cmd.answer != nil
	})
	if err != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		cmd.abandoned = time.Now()
		return nil, err
	}
	if cmd.answer.Code != command.OK {
		return nil, &CommandError{Code: cmd.answer.Code.String(), Text: string(cmd.answer.Body)}
	}
	return cmd.answer.Body, nil
}

// sayHello opts in, once. mu is held.
func (c *Client) sayHello() {
	has := command.Commands
	if !c.cfg.Plain {
		has |= command.Writes
	}
	if !c.hello.said && c.over() == nil {
		c.hello.said = c.send(command.AppendHello(nil, has)) == nil
	}
}

// helloAnswered opts in and waits for the answer of the edge.
func (c *Client) helloAnswered(ctx context.Context) error {
	granted := func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.sayHello()
		return c.hello.answered()
	}
	if err := c.Until(ctx, granted); err != nil {
		if ctx.Err() != nil {
			return errors.Join(ErrNoCommands, err)
		}
		return err
	}
	return nil
}

// request sends a request with the next id. It returns nil if the command has to wait.
func (c *Client) request(q *command.Request) (*openCommand, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.over(); err != nil {
		return nil, err
	}
	p := &c.commands
	now := time.Now()
	q.ID = p.next + 1
	if q.ID == command.HelloID {
		q.ID++
	}
	for id, other := range p.open {
		if !other.abandoned.IsZero() && now.Sub(other.abandoned) > abandonedTime {
			delete(p.open, id)
		} else if q.ID-id >= command.Window {
			return nil, nil
		}
	}
	if len(p.open) >= command.OutstandingMax {
		return nil, nil
	}
	data, err := q.Append(nil)
	if err == nil {
		err = c.send(data)
	}
	if err != nil {
		return nil, err
	}
	if p.open == nil {
		p.open = map[uint16]*openCommand{}
	}
	p.next = q.ID
	cmd := &openCommand{}
	p.open[q.ID] = cmd
	return cmd, nil
}

// envelope takes an envelope of the edge out of a reliable message. It reports false if there is nothing for
// the program. mu is held.
func (c *Client) envelope(m *Message) bool {
	p := &c.commands
	if !m.Reliable || !c.hello.said || !command.IsEnvelope(m.Data) {
		return true
	}
	env, err := command.Parse(m.Data)
	hello := err == nil && env.Kind == command.KindAnswer && env.Answer.ID == command.HelloID
	switch {
	case !c.hello.answered() && !hello:
		return true
	case hello:
		if c.hello.granted = env.Answer.Granted(); c.hello.writes() {
			c.conn.ExpectOrder()
		}
	case err != nil:
	case env.Kind == command.KindRaw:
		m.Data = env.Raw
		return true
	case env.Kind == command.KindAnswer:
		if cmd := p.open[env.Answer.ID]; cmd != nil {
			env.Answer.Body = bytes.Clone(env.Answer.Body)
			cmd.answer = &env.Answer
			delete(p.open, env.Answer.ID)
		}
	}
	return false
}
