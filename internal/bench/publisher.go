//go:build linux

package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/dnprelay/dnprelay/subject"
	"github.com/nats-io/nats.go"
)

const (
	// opsPerMessage bounds the states that one publish changes, so that a message stays far
	// below the largest payload of NATS, 1 MiB.
	opsPerMessage = 500

	Space         = "bench"
	answerTimeout = 10 * time.Second
)

// A Publisher is the game server of a case.
type Publisher struct {
	c        *Case
	script   *script
	NC       *nats.Conn
	Subjects subject.Names

	mu      sync.Mutex // the goroutine of the subscription adds names
	joined  []string   // clients, in the order of their arrival
	grouped int        // joined[:grouped] are in their groups
}

func newPublisher(c *Case, s *script, url string) (*Publisher, error) {
	nc, err := nats.Connect(url, nats.Name("bench"))
	if err != nil {
		return nil, fmt.Errorf("connect to NATS: %w", err)
	}
	p := &Publisher{c: c, script: s, NC: nc}
	if _, err := nc.Subscribe(p.Subjects.Event(Space), p.event); err != nil {
		nc.Close()
		return nil, err
	}
	return p, nil
}

func (p *Publisher) close() { p.NC.Close() }

// event records clients that join.
func (p *Publisher) event(m *nats.Msg) {
	var e struct{ Type, Client string }
	if json.Unmarshal(m.Data, &e) != nil || e.Type != "joined" {
		return
	}
	p.mu.Lock()
	p.joined = append(p.joined, e.Client)
	p.mu.Unlock()
}

// holdPause is the time between two attempts while no relay holds the shard.
const holdPause = 50 * time.Millisecond

func (p *Publisher) putAll(ctx context.Context) error {
	for first := 0; first < p.c.States; first += opsPerMessage {
		b := []byte(`{"ops":[`)
		for i := first; i < min(first+opsPerMessage, p.c.States); i++ {
			if i > first {
				b = append(b, ',')
			}
			b = p.script.appendPut(b, i)
		}
		if err := p.request(ctx, append(b, ']', '}')); err != nil {
			return fmt.Errorf("put the states: %w", err)
		}
	}
	return nil
}

// groupJoined puts clients that joined into their groups, and returns how many
// are in theirs.
func (p *Publisher) groupJoined(ctx context.Context) (int, error) {
	p.mu.Lock()
	todo := p.joined[p.grouped:]
	p.mu.Unlock()
	todo = todo[:min(len(todo), opsPerMessage)]
	if len(todo) == 0 || p.c.groups() == 0 {
		return p.grouped, nil
	}
	b := []byte(`{"ops":[`)
	for i, name := range todo {
		if i > 0 {
			b = append(b, ',')
		}
		b = fmt.Appendf(b, `{"op":"group","client":"%s","join":["g%d"]}`, name, (p.grouped+i)%p.c.groups())
	}
	var refused *refusal
	switch err := p.request(ctx, append(b, ']', '}')); {
	case errors.As(err, &refused) && refused.code == "unknown_client":
		return p.grouped, nil // the relay does not know the client yet; the caller calls again
	case err != nil:
		return p.grouped, fmt.Errorf("group the clients: %w", err)
	}
	p.grouped += len(todo)
	return p.grouped, nil
}

// A refusal is the error of a relay in an answer.
type refusal struct{ code, message string }

func (r *refusal) Error() string { return r.code + ": " + r.message }

func (p *Publisher) request(ctx context.Context, data []byte) error {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	m, err := p.NC.RequestWithContext(ctx, p.Subjects.Publish(Space, ""), data)
	for errors.Is(err, nats.ErrNoResponders) && ctx.Err() == nil { // the relay does not hold the shard yet
		time.Sleep(holdPause)
		m, err = p.NC.RequestWithContext(ctx, p.Subjects.Publish(Space, ""), data)
	}
	if err != nil {
		return err
	}
	var answer struct {
		Error *struct{ Code, Message string }
	}
	if err := json.Unmarshal(m.Data, &answer); err != nil {
		return fmt.Errorf("answer %q: %w", m.Data, err)
	}
	if answer.Error != nil {
		return &refusal{answer.Error.Code, answer.Error.Message}
	}
	return nil
}

// publish sends the ticks of a timeline from its first up to, not including, end.
// A late tick is sent at once; no tick is left out.
func (p *Publisher) publish(ctx context.Context, line timeline, end uint32, active int) error {
	return everyTick(ctx, line, end, func(n uint32) error {
		for first := 0; first < active; first += opsPerMessage {
			if err := p.set(n, first, min(first+opsPerMessage, active)); err != nil {
				return err
			}
		}
		return nil
	})
}

// set publishes the values of states first to end-1 in tick n.
func (p *Publisher) set(n uint32, first, end int) error {
	b := []byte(`{"ops":[`)
	empty := len(b)
	for i := first; i < end; i++ {
		before := len(b)
		if before > empty {
			b = append(b, ',')
		}
		after := len(b)
		if b = p.script.appendSet(b, i, n); len(b) == after {
			b = b[:before]
		}
	}
	if len(b) == empty {
		return nil
	}
	return p.NC.Publish(p.Subjects.Publish(Space, ""), append(b, ']', '}'))
}

// everyTick calls f for each tick when it is due.
func everyTick(ctx context.Context, line timeline, end uint32, f func(n uint32) error) error {
	for n := line.first; n < end; n++ {
		if wait := time.Until(line.due(n)); wait > 0 {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(wait):
			}
		}
		if err := f(n); err != nil {
			return err
		}
	}
	return nil
}
