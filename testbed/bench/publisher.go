package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/dnprelay/dnprelay/replication"
	"github.com/dnprelay/dnprelay/replication/payload"
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
	script   *script
	NC       *nats.Conn
	Subjects subject.Names

	mu      sync.Mutex // the goroutine of the subscription adds names
	joined  []string   // clients, in the order of their arrival
	grouped int        // joined[:grouped] are in their groups
}

func newPublisher(s *script, url string) (*Publisher, error) {
	nc, err := nats.Connect(url, nats.Name("bench"))
	if err != nil {
		return nil, fmt.Errorf("connect to NATS: %w", err)
	}
	p := &Publisher{script: s, NC: nc}
	if _, err := nc.Subscribe(p.Subjects.Event(Space), p.event); err != nil {
		nc.Close()
		return nil, err
	}
	return p, nil
}

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

// Message returns a publish with the ops of items first to end-1, or nil if none has any.
func Message(first, end int, appendOp func(b []byte, i int) []byte) []byte {
	return AppendMessage(nil, first, end, appendOp)
}

// AppendMessage is [Message] in memory of the caller, whose content it replaces.
func AppendMessage(b []byte, first, end int, appendOp func(b []byte, i int) []byte) []byte {
	b = append(b[:0], `{"ops":[`...)
	for i := first; i < end; i++ {
		before := len(b)
		if b = appendOp(b, i); len(b) > before {
			b = append(b, ',')
		}
	}
	if b[len(b)-1] != ',' {
		return nil
	}
	b[len(b)-1] = ']'
	return append(b, '}')
}

func (p *Publisher) putAll(ctx context.Context) error {
	for first := 0; first < p.script.c.States; first += opsPerMessage {
		if err := p.request(ctx, Message(first, min(first+opsPerMessage, p.script.c.States), p.script.appendPut)); err != nil {
			return fmt.Errorf("put the states: %w", err)
		}
	}
	return nil
}

// groupJoined puts clients that joined into their groups.
func (p *Publisher) groupJoined(ctx context.Context) error {
	p.mu.Lock()
	joined := p.joined
	p.mu.Unlock()
	end := min(len(joined), p.grouped+opsPerMessage)
	if end == p.grouped || p.script.c.Links == 0 {
		return nil
	}
	err := p.request(ctx, Message(p.grouped, end, func(b []byte, i int) []byte {
		return fmt.Appendf(b, `{"op":"group","client":"%s","join":["g%d"]}`, joined[i], i%p.script.c.groups())
	}))
	switch {
	case payload.HasCode(err, replication.CodeUnknownClient):
		return nil // the relay does not know the client yet; the caller calls again
	case err != nil:
		return fmt.Errorf("group the clients: %w", err)
	}
	p.grouped = end
	return nil
}

func (p *Publisher) request(ctx context.Context, data []byte) error {
	return Request(ctx, p.NC, p.Subjects.Publish(Space, ""), data)
}

// Request publishes ops and returns what the relay says of them. It waits for a relay that does not hold the shard yet.
func Request(ctx context.Context, nc *nats.Conn, subject string, data []byte) error {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	m, err := nc.RequestWithContext(ctx, subject, data)
	for errors.Is(err, nats.ErrNoResponders) && ctx.Err() == nil {
		time.Sleep(holdPause)
		m, err = nc.RequestWithContext(ctx, subject, data)
	}
	if err != nil {
		return err
	}
	_, err = payload.ParseAnswer(m.Data)
	return err
}

// publish sends the ticks of a timeline from its first up to, not including, end.
// A late tick is sent at once; no tick is left out.
func (p *Publisher) publish(ctx context.Context, line timeline, end uint32, active int) error {
	return everyTick(ctx, line, end, func(n uint32) error {
		for first := 0; first < active; first += opsPerMessage {
			m := Message(first, min(first+opsPerMessage, active), func(b []byte, i int) []byte { return p.script.appendSet(b, i, n) })
			if m == nil {
				continue
			}
			if err := p.NC.Publish(p.Subjects.Publish(Space, ""), m); err != nil {
				return err
			}
		}
		return nil
	})
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
