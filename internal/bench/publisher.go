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
	// opsPerMessage is how many states one publish changes: a message stays far
	// below the payload of NATS, 1 MiB.
	opsPerMessage = 500

	space         = "bench"
	answerTimeout = 10 * time.Second
)

// A publisher plays the game server.
type publisher struct {
	c        *Case
	script   *script
	nc       *nats.Conn
	subjects subject.Names

	mu      sync.Mutex // names come from the goroutine of the subscription
	joined  []string   // clients, in the order of their coming
	grouped int        // joined[:grouped] are in their groups

}

func newPublisher(c *Case, s *script, url string) (*publisher, error) {
	nc, err := nats.Connect(url, nats.Name("bench"))
	if err != nil {
		return nil, fmt.Errorf("connect to NATS: %w", err)
	}
	p := &publisher{c: c, script: s, nc: nc}
	if _, err := nc.Subscribe(p.subjects.Event(space), p.event); err != nil {
		nc.Close()
		return nil, err
	}
	return p, nil
}

func (p *publisher) close() { p.nc.Close() }

// event notes who joins.
func (p *publisher) event(m *nats.Msg) {
	var e struct{ Type, Client string }
	if json.Unmarshal(m.Data, &e) != nil || e.Type != "joined" {
		return
	}
	p.mu.Lock()
	p.joined = append(p.joined, e.Client)
	p.mu.Unlock()
}

// holdPause is the time between two tries while nobody holds the shard.
const holdPause = 50 * time.Millisecond

// putAll makes all states.
func (p *publisher) putAll(ctx context.Context) error {
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
func (p *publisher) groupJoined(ctx context.Context) (int, error) {
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
		return p.grouped, nil // the relay has not heard of it; the caller comes again
	case err != nil:
		return p.grouped, fmt.Errorf("group the clients: %w", err)
	}
	p.grouped += len(todo)
	return p.grouped, nil
}

// A refusal is the relay's error in an answer.
type refusal struct{ code, message string }

func (r *refusal) Error() string { return r.code + ": " + r.message }

func (p *publisher) request(ctx context.Context, data []byte) error {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	m, err := p.nc.RequestWithContext(ctx, p.subjects.Publish(space, ""), data)
	for errors.Is(err, nats.ErrNoResponders) && ctx.Err() == nil { // the relay does not hold the shard yet
		time.Sleep(holdPause)
		m, err = p.nc.RequestWithContext(ctx, p.subjects.Publish(space, ""), data)
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
// A tick whose time has passed goes out at once; none is left out.
func (p *publisher) publish(ctx context.Context, line timeline, end uint32, active int) error {
	return everyTick(ctx, line, end, func(n uint32) error {
		for first := 0; first < active; first += opsPerMessage {
			if err := p.set(n, first, min(first+opsPerMessage, active)); err != nil {
				return err
			}
		}
		return nil
	})
}

// set publishes what states first to end-1 are in tick n.
func (p *publisher) set(n uint32, first, end int) error {
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
	return p.nc.Publish(p.subjects.Publish(space, ""), append(b, ']', '}'))
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
