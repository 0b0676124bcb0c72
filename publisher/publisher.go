package publisher

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/dnprelay/dnprelay/subject"
	"github.com/nats-io/nats.go"
)

// ErrClosed reports a Publisher that was closed.
var ErrClosed = errors.New("publisher: closed")

// reconnectWait is the pause between two tries to reach a NATS server.
const reconnectWait = 250 * time.Millisecond

// A Publisher is a game server's connection. Its methods may be called from any
// goroutine.
type Publisher struct {
	cfg      Config
	nc       *nats.Conn
	own      bool // nc is closed by Close
	subjects subject.Names

	ctx     context.Context // of all spaces
	stop    context.CancelFunc
	running sync.WaitGroup

	mu     sync.Mutex // spaces are asked for from any goroutine
	spaces map[string]*Space
}

// Connect connects to NATS, for ever: when a server stops, another one is looked for.
// The error names the servers if none can be reached.
func Connect(cfg Config) (*Publisher, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	p := &Publisher{cfg: cfg, nc: cfg.Conn, subjects: subject.Names{Prefix: cfg.Prefix}, spaces: map[string]*Space{}}
	if p.nc == nil {
		// What NATS would keep for later while it is away is said again by the spaces.
		options := []nats.Option{nats.Name("game server"), nats.MaxReconnects(-1), nats.ReconnectWait(reconnectWait), nats.ReconnectBufSize(-1)}
		nc, err := nats.Connect(cfg.URL, append(options, cfg.Options...)...)
		if err != nil {
			return nil, fmt.Errorf("connect to NATS at %s: %w", cfg.URL, err)
		}
		p.nc, p.own = nc, true
	}
	p.ctx, p.stop = context.WithCancel(context.Background())
	return p, nil
}

// Close ends all spaces at once. What no relay has accepted is not said any more: call
// Space.Flush before. States stay as they are.
func (p *Publisher) Close() {
	p.mu.Lock()
	p.stop()
	p.mu.Unlock()
	p.running.Wait()
	if p.own {
		p.nc.Close()
	}
}

// Space returns the space with this name, the same for each call. One goroutine works
// for it until Close.
func (p *Publisher) Space(name string) (*Space, error) {
	if !subject.ValidToken(name) || name[0] == '_' {
		return nil, fmt.Errorf("space %q: want 1 to 64 letters, digits, _ or -, without _ in front", name)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ctx.Err() != nil {
		return nil, ErrClosed
	}
	if s, ok := p.spaces[name]; ok {
		return s, nil
	}
	s, err := newSpace(p, name)
	if err != nil {
		return nil, fmt.Errorf("space %s: %w", name, err)
	}
	p.spaces[name] = s
	p.running.Go(s.run)
	return s, nil
}
