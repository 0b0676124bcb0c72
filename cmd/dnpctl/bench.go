package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dnprelay/dnprelay/client"
	"github.com/dnprelay/dnprelay/cmd/dnpctl/progress"
	"github.com/dnprelay/dnprelay/internal/config"
	"github.com/dnprelay/dnprelay/internal/latency"
	"github.com/dnprelay/dnprelay/internal/turn"
	"github.com/dnprelay/dnprelay/publisher"
	"github.com/nats-io/nats.go"
)

type benchCommand struct {
	SpaceFlags `set:"space=Space in which to make states. Its other clients get them, too, so take one without players."`
	Edge       string        `arg:"" help:"HOST:PORT or URL (udp://, ws://, wss://, wt://) of an edge, whose clients join the space."`
	Clients    int           `default:"10" env:"-" want:"1..1000" help:"Clients to connect. Edges limit how many come from one address, and how fast: --sessions-per-address, --address-rate."`
	States     int           `default:"20" env:"-" want:"1..4096" help:"States to make. Every client gets all of them."`
	Rate       int           `default:"20" env:"-" want:"1..60" help:"How often each state changes a second."`
	For        time.Duration `default:"10s" env:"-" placeholder:"TIME" want:"1s..24h" help:"How long states change."`
	Tokens     string        `env:"-" placeholder:"FILE" want:"file" help:"File with tokens, one on a line, in place of --token: each client logs in with its own."`

	DNPLogin
	JSON bool `name:"json" env:"-" help:"Print one JSON object: space, edge, clients, links, states, rate, seconds, published, expected, delivered, lost, behind, latency_ms {p50,p90,p99,max}, client_bytes_per_s, clients_closed, warnings."`
}

// Bounds of a bench: they protect this program, which is at most one machine.
const (
	benchLinksMax = 500_000   // clients × states
	benchRateMax  = 1_000_000 // updates of all clients in a second
)

// Problems lists the invalid flags of c.
func (c *benchCommand) Problems() (list config.Problems) {
	if links := c.Clients * c.States; links > benchLinksMax {
		list.Add("--clients", "want at most %d with all states, got %d × %d", benchLinksMax, c.Clients, c.States)
	} else if links*c.Rate > benchRateMax {
		list.Add("--rate", "want at most %d updates a second for all clients, got %d × %d × %d", benchRateMax, c.Clients, c.States, c.Rate)
	}
	switch {
	case c.Tokens != "" && c.Token != "":
		list.Add("--tokens", "conflicts with --token")
	case c.Token != "" && c.Clients > 1:
		list.Add("--clients", "want 1 with --token, got %d: an edge ends older sessions of a client; --tokens has a token for each", c.Clients)
	case c.Tokens != "":
		if logins, err := c.logins(); err != nil {
			list.Add("--tokens", "%v", err)
		} else if len(logins) < c.Clients {
			list.Add("--tokens", "want a token for each of %d clients, got %d", c.Clients, len(logins))
		}
	}
	return list
}

// Times of a bench. They are arbitrary.
const (
	benchLookPause = 20 * time.Millisecond
	benchSettleMax = 2 * time.Second  // for what is on its way after the last change
	benchTTL       = 30 * time.Second // of the states of a bench that is killed
)

const (
	benchDialsMax = 16  // clients that connect at once
	benchOpsMax   = 500 // in a publish, which stays far below the largest message of NATS
)

// A benchRun is one run of a bench.
type benchRun struct {
	*benchCommand
	prefix string // of the keys of the states
	space  *publisher.Space
	line   *progress.Line
	conns  []*client.Client
	failed error  // why a client could not connect
	sets   uint64 // of each state
	last   uint64 // stamp of the last one
	late   time.Duration

	linked    atomic.Int64
	delivered atomic.Uint64
	refused   atomic.Pointer[error] // why the relay or NATS refused a change last

	mu      sync.Mutex // all clients count in latency, each in its goroutine
	latency latency.Histogram
}

// Run makes states, connects clients, changes the states, and prints what the clients received.
func (c *benchCommand) Run(ctx context.Context, _ *slog.Logger) error {
	logins, err := c.logins()
	if err != nil {
		return err
	}
	nc, err := c.connect()
	if err != nil {
		return err
	}
	defer nc.Close()
	r := &benchRun{benchCommand: c, prefix: "bench." + rand.Text() + ".", line: progress.Start(!c.JSON)}
	defer r.line.End()
	nc.SetErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
		if errors.Is(err, nats.ErrPermissionViolation) {
			r.refused.Store(&err) // other errors are events that a bench does not need
		}
	})
	p, err := publisher.Connect(ctx, publisher.Config{
		Conn: nc, Prefix: c.subjects().Prefix, Log: slog.New(slog.DiscardHandler),
		Refused: func(_ string, err error) { r.refused.Store(&err) },
	})
	if err != nil {
		return err
	}
	defer p.Close()
	if r.space, err = p.Space(c.Space); err != nil {
		return err
	}
	figures, err := r.measure(ctx, logins)
	r.line.End()
	switch {
	case figures != nil:
		return errors.Join(figures.print(c.JSON), figures.fatal())
	case ctx.Err() != nil:
		return errors.New("interrupted")
	}
	return err
}

// logins returns how each client logs in, or how all do.
func (c *benchCommand) logins() (list []DNPLogin, err error) {
	if c.Tokens == "" {
		return []DNPLogin{c.DNPLogin}, nil
	}
	text, err := os.ReadFile(c.Tokens)
	for token := range strings.FieldsSeq(string(text)) {
		login := c.DNPLogin
		login.Token = token
		list = append(list, login)
	}
	return list, err
}

// measure returns figures, or why there are none. An interrupt ends the changes early.
func (r *benchRun) measure(ctx context.Context, logins []DNPLogin) (*benchFigures, error) {
	defer r.remove(ctx)
	r.line.Set(progress.Status{Text: fmt.Sprintf("making %d states", r.States)})
	if err := r.publish(ctx, r.put); err != nil {
		if refused := r.refused.Load(); refused != nil {
			err = *refused
		}
		return nil, fmt.Errorf("no relay accepted the states of space %s within %v: %w", r.Space, r.Timeout, err)
	}
	defer r.closeAll()
	r.connectAll(ctx, logins)
	if len(r.conns) == 0 {
		return nil, fmt.Errorf("no client could connect: %w", r.failed)
	}
	r.awaitLinks(ctx)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	before, begun, links := r.bytes(), time.Now(), r.linked.Load()
	if err := r.change(ctx); err != nil {
		return nil, err
	}
	wall := time.Since(begun)
	received := r.bytes() - before
	r.settle()
	f := &benchFigures{
		Space: r.Space, Edge: r.Edge, Clients: len(r.conns), Links: links, States: r.States, Rate: r.Rate, Seconds: wall.Seconds(),
		Published: r.sets * uint64(r.States), Delivered: r.delivered.Load(),
	}
	f.Expected = f.Published * uint64(f.Clients)
	f.Lost = f.Expected - min(f.Delivered, f.Expected)
	f.BytesPerClient = float64(received) / wall.Seconds() / float64(f.Clients)
	r.look(f)
	r.warn(f)
	return f, nil
}

// publish publishes an op about each state and waits until a relay accepts them.
func (r *benchRun) publish(ctx context.Context, op func(key string) publisher.Op) error {
	ctx, cancel := context.WithTimeout(ctx, r.Timeout)
	defer cancel()
	for ops := range r.batches(op) {
		if _, err := r.space.Publish(ctx, ops...); err != nil {
			return err
		}
	}
	return nil
}

// batches yields an op about each state, as many at a time as one publish may have.
func (r *benchRun) batches(op func(key string) publisher.Op) iter.Seq[[]publisher.Op] {
	ops := make([]publisher.Op, r.States)
	for i := range ops {
		ops[i] = op(fmt.Sprint(r.prefix, i))
	}
	return slices.Chunk(ops, benchOpsMax)
}

// put makes a state: the time of its last change, in microseconds, and a position.
func (r *benchRun) put(key string) publisher.Op {
	return publisher.Put{Key: key, TTL: benchTTL, Values: []publisher.Value{
		{Name: "sent", Type: publisher.Uint64, Value: uint64(0)}, {Name: "pos", Type: publisher.Vector3f32, Value: [3]float32{}},
	}}
}

// remove removes the states, also after an interrupt.
func (r *benchRun) remove(ctx context.Context) {
	if r.space.Stats().Accepted == 0 {
		return // what no relay answered ends with its time to live
	}
	err := r.publish(context.WithoutCancel(ctx), func(key string) publisher.Op { return publisher.Remove{Key: key} })
	if err != nil {
		r.line.Fprintln(os.Stderr, fmt.Sprintf("the states %s* were not removed, and end within %v: %v", r.prefix, benchTTL, err))
	}
}

// connectAll connects the clients. Those that cannot connect are missing.
func (r *benchRun) connectAll(ctx context.Context, logins []DNPLogin) {
	var mu sync.Mutex // guards conns and failed, to which the goroutines add
	var dialing sync.WaitGroup
	slots := make(chan struct{}, benchDialsMax)
	for i := range r.Clients {
		slots <- struct{}{}
		r.line.Set(progress.Status{Done: i, Total: r.Clients, Text: "clients connect"})
		dialing.Go(func() {
			defer func() { <-slots }()
			c, err := logins[i%len(logins)].dial(ctx, r.Edge, r.Timeout, client.Config{Link: r.link, Change: r.changed})
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				r.failed = err
				return
			}
			r.conns = append(r.conns, c)
		})
	}
	dialing.Wait()
}

func (r *benchRun) link(_ *client.Client, s *client.State) {
	if r.owns(s) {
		r.linked.Add(1)
	}
}

// changed counts an update. A value that arrives again is no change, and an older one does not replace a newer one.
func (r *benchRun) changed(_ *client.Client, s *client.State, indices []int) {
	if indices[0] != 0 || !r.owns(s) {
		return
	}
	age := time.Since(time.UnixMicro(int64(s.At(0).Uint())))
	r.delivered.Add(1)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.latency.Add(age)
}

// owns reports whether a state is of this run.
func (r *benchRun) owns(s *client.State) bool { return strings.HasPrefix(s.Key(), r.prefix) }

// awaitLinks waits until all clients have all states. Those that lack some stay without.
func (r *benchRun) awaitLinks(ctx context.Context) {
	want := len(r.conns) * r.States
	for end := time.Now().Add(r.Timeout); int(r.linked.Load()) < want && ctx.Err() == nil && time.Now().Before(end); time.Sleep(benchLookPause) {
		r.line.Set(progress.Status{Done: int(r.linked.Load()), Total: want, Text: "clients get the states"})
	}
}

// change changes all states at each tick until the time is over, or ctx ends. The times of ticks are fixed before, and a latency counts from
// when its tick was due, so what makes this program or NATS late counts, too.
func (r *benchRun) change(ctx context.Context) error {
	period, start := time.Second/time.Duration(r.Rate), time.Now()
	end := start.Add(r.For)
	for due := start; turn.Pause(ctx, time.Until(due)) && due.Before(end); due = due.Add(period) {
		r.line.Set(progress.Status{Done: int(due.Sub(start) / time.Second), Total: int(r.For / time.Second), Text: "states change"})
		r.late = max(r.late, time.Since(due))
		r.last = uint64(due.UnixMicro())
		pos := [3]float32{float32(r.sets % 1000), 0, float32(r.sets % 77)}
		for ops := range r.batches(func(key string) publisher.Op {
			return publisher.Set{Key: key, Values: publisher.Values{"sent": r.last, "pos": pos}}
		}) {
			if err := r.space.Post(ops...); err != nil {
				return fmt.Errorf("change the states: %w", err)
			}
		}
		r.sets++
	}
	return nil
}

// settle waits for what is on its way.
func (r *benchRun) settle() {
	want := r.sets * uint64(r.States*len(r.conns))
	for end := time.Now().Add(benchSettleMax); r.delivered.Load() < want && time.Now().Before(end); time.Sleep(benchLookPause) {
		r.line.Set(progress.Status{Text: "waiting for the last updates"})
	}
}

// bytes returns how many bytes of datagrams all clients have received.
func (r *benchRun) bytes() (sum uint64) {
	for _, c := range r.conns {
		sum += c.Stats().BytesIn
	}
	return sum
}

// look counts what clients show at the end.
func (r *benchRun) look(f *benchFigures) {
	f.Behind = len(r.conns) * r.States
	for _, c := range r.conns {
		if c.Err() != nil {
			f.Closed++
		}
		f.dropped += c.CarrierStats().DroppedIn
		for _, s := range c.States() {
			if r.owns(s) && s.At(0).Uint() == r.last {
				f.Behind--
			}
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	ms := func(q float64) float64 { return float64(r.latency.Quantile(q).Microseconds()) / 1000 }
	f.Latency = benchLatency{P50: ms(0.5), P90: ms(0.9), P99: ms(0.99), Max: ms(1)}
}

// closeAll ends the connections.
func (r *benchRun) closeAll() {
	var closing sync.WaitGroup
	for _, c := range r.conns {
		closing.Go(func() { _ = c.Close() }) // it sent no messages that could be lost
	}
	closing.Wait()
}
