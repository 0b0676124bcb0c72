package publisher

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/dnprelay/dnprelay/bus/natsconn"
	"github.com/dnprelay/dnprelay/subject"
	"github.com/nats-io/nats.go"
)

// ErrClosed reports that the Publisher was closed.
var ErrClosed = errors.New("publisher: closed")

// A Config says how to reach NATS, and bounds what a Publisher remembers. The zero value
// of each field stands for its default.
type Config struct {
	// URL is one NATS server or several, separated by commas; default
	// nats://127.0.0.1:4222. Options configure the connection: credentials, TLS and so on.
	// They come after those of [natsconn.Options], by which it leaves a server that stands still.
	URL     string
	Options []nats.Option

	// Conn replaces URL and Options if it is not nil. The caller closes it, after Close. It
	// should have [natsconn.Options].
	Conn *nats.Conn

	// Prefix begins all subjects; default dnp.v1.
	Prefix string

	// Timeout is how long a Space waits for an answer before it repeats a publish;
	// default 2 s.
	Timeout time.Duration

	// Retry is the pause before a Space repeats what failed; default 50 ms. It doubles up
	// to 1 s until an attempt succeeds.
	Retry time.Duration

	// Probe is how long a Space may hear nothing from its relay before it asks for the
	// epoch, in case the event about a new one was lost; default 5 s.
	Probe time.Duration

	// Window is how many publishes of a space may wait for their answers; default 64.
	// While the window is full, the Space collects changes, and the next publish carries
	// the newest values.
	Window int

	// StatesMax bounds how many states a Space remembers, and likewise for how many
	// clients it remembers groups; default 65,536. The Space refuses more: too_large.
	StatesMax int

	// Refused is called when the relay refuses a change for which no call waits. It must
	// not block. The default writes a line to Log.
	Refused func(space string, err error)

	// Status is called when a connection is lost and is there again, and when a space has no relay. It must
	// not block. The default writes a line to Log, and an outage never passes in silence.
	Status func(Status)

	// Log receives what an operator should know; default slog.Default().
	Log *slog.Logger
}

func (c Config) withDefaults() Config {
	c.URL = cmp.Or(c.URL, nats.DefaultURL)
	c.Timeout = cmp.Or(c.Timeout, 2*time.Second)
	c.Retry = cmp.Or(c.Retry, 50*time.Millisecond)
	c.Probe = cmp.Or(c.Probe, 5*time.Second)
	c.Window = cmp.Or(c.Window, 64)
	c.StatesMax = cmp.Or(c.StatesMax, 65_536)
	c.Log = cmp.Or(c.Log, slog.Default())
	log := c.Log
	if c.Status == nil {
		c.Status = func(st Status) { st.log(log) }
	}
	if c.Refused == nil {
		c.Refused = func(space string, err error) { log.Warn("relay refused a change", "space", space, "error", err) }
	}
	return c
}

// validate reports every field that is negative.
func (c Config) validate() error {
	var problems []error
	for _, field := range []struct {
		name  string
		value int64
	}{
		{"Timeout", int64(c.Timeout)}, {"Retry", int64(c.Retry)}, {"Probe", int64(c.Probe)},
		{"Window", int64(c.Window)}, {"StatesMax", int64(c.StatesMax)},
	} {
		if field.value < 0 {
			problems = append(problems, fmt.Errorf("publisher: %s: %d is negative", field.name, field.value))
		}
	}
	return errors.Join(problems...)
}

// A Publisher is a game server's connection. Its methods may be called from any
// goroutine.
type Publisher struct {
	cfg      Config
	nc       *nats.Conn
	own      bool // Close closes nc
	subjects subject.Names

	ctx     context.Context // of all spaces
	stop    context.CancelFunc
	running sync.WaitGroup

	mu     sync.Mutex // Space is called from any goroutine
	spaces map[string]*Space
}

// Connect connects to NATS. The connection outlives servers: when one stops, it looks for
// another until Close. The error names the servers if none of them can be reached at first, or
// is that of ctx, which is of this call only.
func Connect(ctx context.Context, cfg Config) (*Publisher, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	p := &Publisher{cfg: cfg, nc: cfg.Conn, subjects: subject.Names{Prefix: cfg.Prefix}, spaces: map[string]*Space{}}
	if p.nc == nil {
		options := append(natsconn.Options(), nats.Name("game server")) // without a buffer: the spaces repeat what NATS would buffer
		nc, err := dial(ctx, cfg.URL, append(options, cfg.Options...))
		if err != nil {
			return nil, fmt.Errorf("connect to NATS at %s: %w", cfg.URL, err)
		}
		p.nc, p.own = nc, true
	}
	p.ctx, p.stop = context.WithCancel(context.Background())
	p.running.Go(p.watch)
	return p, nil
}

// dial connects to NATS until ctx ends. The library takes no context, so that an attempt goes on behind it; its
// timeouts bound that.
func dial(ctx context.Context, url string, options []nats.Option) (*nats.Conn, error) {
	type result struct {
		nc  *nats.Conn
		err error
	}
	done := make(chan result, 1)
	go func() {
		nc, err := nats.Connect(url, options...)
		done <- result{nc, err}
	}()
	select {
	case r := <-done:
		return r.nc, r.err
	case <-ctx.Done():
		go func() {
			if r := <-done; r.nc != nil {
				r.nc.Close()
			}
		}()
		return nil, ctx.Err()
	}
}

// Close ends all spaces at once. It drops what no relay has accepted: call Space.Flush
// before. The states stay in the relays.
func (p *Publisher) Close() {
	p.mu.Lock()
	p.stop()
	spaces := slices.Collect(maps.Values(p.spaces))
	p.mu.Unlock()
	for _, s := range spaces {
		s.close()
	}
	p.running.Wait()
	if p.own {
		p.nc.Close()
	}
}

// forget lets the next call of Space make a new space of this name.
func (p *Publisher) forget(s *Space) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.spaces[s.name] == s {
		delete(p.spaces, s.name)
	}
}

// Space returns the space with this name, the same one for each call until its Close.
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
	s := newSpace(p, name)
	p.spaces[name] = s
	return s, nil
}
