package socket

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dnprelay/dnprelay/cluster/forward"
	"github.com/dnprelay/dnprelay/dnp/udp"
	"github.com/dnprelay/dnprelay/internal/telemetry"
)

// Bounds of a turn of Run.
const (
	readMax  = 64 // datagrams per system call
	tasksMax = 64
)

// Config says what a Forwarder is made of.
type Config struct {
	// Router is the configuration of the router. An ID of zero means a random one.
	Router forward.Config

	// Listen is the address for datagrams of other edges. Without an IP address it is all
	// addresses of the machine, IPv4 and IPv6; port 0 means a free port.
	Listen netip.AddrPort

	// Handle takes deliveries in the order in which they came, on the goroutine of Run. It
	// must not block, and must not keep Data.
	Handle func(now time.Time, list []forward.Delivery)

	// Changed is called when the liveness of an edge changes, on the goroutine of Run. It
	// must not block. It may be nil.
	Changed func(forward.Change)

	// Log receives life-cycle events. nil means slog.Default().
	Log *slog.Logger
}

// A Forwarder carries datagrams of clients between edges. Its methods may be called
// from any goroutine.
type Forwarder struct {
	cfg    Config
	socket *udp.Socket
	router *forward.Router // belongs to Run

	queue queue
	spare *batch // belongs to Run
	tasks chan func(now time.Time)

	stats  atomic.Pointer[forward.Stats]
	living atomic.Pointer[map[string]forward.Liveness] // never changed once it is there

	deliveries []forward.Delivery
}

// Open opens the socket. The error says in one line which address is not available.
func Open(cfg Config) (*Forwarder, error) {
	if cfg.Handle == nil {
		return nil, errors.New("forward: no handler for deliveries")
	}
	cfg.Log = cmp.Or(cfg.Log, slog.Default())
	if cfg.Router.ID == 0 {
		cfg.Router.ID = newID()
	}
	router, err := forward.New(time.Now(), cfg.Router)
	if err != nil {
		return nil, err
	}
	s, err := udp.Open(udp.Config{Addr: cfg.Listen})
	if err != nil {
		return nil, fmt.Errorf("forward: %w", err)
	}
	f := &Forwarder{
		cfg: cfg, socket: s, router: router,
		queue: queue{filling: new(batch)}, spare: new(batch), tasks: make(chan func(time.Time), tasksMax),
	}
	f.stats.Store(&forward.Stats{})
	f.living.Store(&map[string]forward.Liveness{})
	return f, nil
}

// Addr returns the address for datagrams of other edges.
func (f *Forwarder) Addr() netip.AddrPort { return f.socket.LocalAddr() }

// ID returns the name of this process, which the other edges have to know.
func (f *Forwarder) ID() uint64 { return f.cfg.Router.ID }

// SetKeys sets the keys, see forward.Router. Run carries it out. It waits until Run has done
// so, or until ctx ends.
func (f *Forwarder) SetKeys(ctx context.Context, secrets [][]byte) error {
	answer := make(chan error, 1)
	f.do(ctx, func(time.Time) { answer <- f.router.SetKeys(secrets) })
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// SetPeers sets the edges that are there. It waits for room in the queue of Run, or until
// ctx ends.
func (f *Forwarder) SetPeers(ctx context.Context, list []forward.Peer) {
	f.do(ctx, func(now time.Time) { f.router.SetPeers(now, list) })
}

func (f *Forwarder) do(ctx context.Context, task func(now time.Time)) {
	select {
	case f.tasks <- task:
		f.socket.Wake()
	case <-ctx.Done():
	}
}

// Liveness returns the liveness of a node, as of the last heartbeat of this one.
func (f *Forwarder) Liveness(node string) forward.Liveness { return (*f.living.Load())[node] }

// Close closes the socket. A running Run returns an error.
func (f *Forwarder) Close() { _ = f.socket.Close() }

// Run carries datagrams until ctx ends. Then it closes the socket.
func (f *Forwarder) Run(ctx context.Context) error {
	defer f.socket.Close()
	defer context.AfterFunc(ctx, f.socket.Wake)()
	batch := make([]udp.Datagram, readMax)
	out := f.socket.Writer()
	for ctx.Err() == nil {
		f.socket.SetReadDeadline(f.router.NextTimeout())
		n, err := f.socket.ReadBatch(batch)
		if err != nil && !errors.Is(err, udp.ErrWoken) && !errors.Is(err, os.ErrDeadlineExceeded) {
			return fmt.Errorf("forward: %w", err)
		}
		f.turn(time.Now(), batch[:n], out)
		if err := out.Flush(); err != nil {
			return fmt.Errorf("forward: %w", err)
		}
	}
	return nil
}

// turn does what is due at the time now.
func (f *Forwarder) turn(now time.Time, came []udp.Datagram, out *udp.Writer) {
	if due := f.router.NextTimeout(); !now.Before(due) {
		f.tell(f.router.Advance(now, out))
		stats := f.router.Stats(now)
		f.stats.Store(&stats)
	}
	for range len(f.tasks) {
		(<-f.tasks)(now)
	}
	f.deliveries = f.deliveries[:0]
	for _, d := range came {
		if d := f.router.Receive(now, d.Data, out); d.Kind != forward.Nothing || d.Overtaken {
			f.deliveries = append(f.deliveries, d)
		}
	}
	if len(f.deliveries) > 0 {
		f.cfg.Handle(now, f.deliveries)
	}
	f.carry(now, out)
}

// Forward sends a datagram of a client to the edge that serves the client; hops is how often
// it was forwarded before. It copies data. It reports false if the node is not known, or
// suspected. Datagrams that it accepts may still be lost, as in any network.
func (f *Forwarder) Forward(node string, c forward.Client, hops uint8, data []byte) bool {
	if is := f.Liveness(node); is != forward.Alive && is != forward.Unwatched {
		return false
	}
	f.put(op{node: node, client: c, hops: hops, data: data})
	return true
}

// Return sends an answer to a client by the node that the client speaks to, in the epoch of
// its session. It copies data. It reports false if the node is gone.
func (f *Forwarder) Return(node string, c forward.Client, epoch uint64, data []byte) bool {
	if f.Liveness(node) == forward.Gone {
		return false
	}
	f.put(op{back: true, node: node, client: c, epoch: epoch, data: data})
	return true
}

func (f *Forwarder) put(o op) {
	f.queue.put(o)
	f.socket.Wake()
}

// carry sends the datagrams of the workers.
func (f *Forwarder) carry(now time.Time, out *udp.Writer) {
	b := f.queue.take(f.spare)
	for i := range b.ops {
		o := &b.ops[i]
		if o.back {
			f.router.Out(now, o.node, o.client, o.epoch, o.data, out)
			continue
		}
		f.router.In(now, o.node, o.client, o.hops, o.data, out)
	}
	b.reset()
	f.spare = b
}

// tell publishes changes of liveness.
func (f *Forwarder) tell(changes []forward.Change) {
	if len(changes) == 0 {
		return
	}
	old := *f.living.Load()
	living := maps.Clone(old)
	for _, c := range changes {
		living[c.Node] = c.Is
		if c.Is == forward.Gone {
			delete(living, c.Node)
		}
		if was := old[c.Node]; c.Is == forward.Suspect || was == forward.Suspect {
			f.cfg.Log.Info("liveness of an edge changed", "edge", c.Node, "was", was, "is", c.Is)
		}
	}
	f.living.Store(&living)
	if f.cfg.Changed != nil {
		for _, c := range changes {
			f.cfg.Changed(c)
		}
	}
}

// newID returns a name for a process that no other process has had.
func newID() (id uint64) {
	for id == 0 {
		var b [8]byte
		rand.Read(b[:]) // never fails
		id = binary.LittleEndian.Uint64(b[:])
	}
	return id
}

// Bounds of a batch. A datagram that does not fit is dropped and counted.
const (
	batchOps   = 8192
	batchBytes = 4 << 20
)

// An op is a datagram of a worker: to be forwarded to a node, or returned by it.
type op struct {
	back   bool
	hops   uint8
	node   string
	client forward.Client
	epoch  uint64
	data   []byte // in the batch
}

// A batch is the datagrams of the workers between two turns of Run.
type batch struct {
	ops   []op
	bytes []byte
}

// add copies o into the batch. It reports whether there was room.
func (b *batch) add(o op) bool {
	if len(b.ops) >= batchOps || len(b.bytes)+len(o.data) > batchBytes {
		return false
	}
	at := len(b.bytes)
	b.bytes = append(b.bytes, o.data...)
	o.data = b.bytes[at:] // stays valid when bytes moves
	b.ops = append(b.ops, o)
	return true
}

func (b *batch) reset() {
	clear(b.ops)
	b.ops, b.bytes = b.ops[:0], b.bytes[:0]
}

// A queue brings datagrams of workers to the goroutine of Run.
//
// The mutex is there because all workers put datagrams into the same batch: with a batch
// for each, they would have to say when a turn of theirs is over. It is held for one copy.
type queue struct {
	mu      sync.Mutex
	filling *batch
	lost    atomic.Uint64
}

func (q *queue) put(o op) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.filling.add(o) {
		q.lost.Add(1)
	}
}

// take returns the batch that was filled, and has empty filled next.
func (q *queue) take(empty *batch) *batch {
	q.mu.Lock()
	defer q.mu.Unlock()
	full := q.filling
	q.filling = empty
	return full
}

// Stats returns the counters of the router, as of the last heartbeat.
func (f *Forwarder) Stats() forward.Stats { return *f.stats.Load() }

// Metrics returns what an edge shows at /metrics about forwarding.
func (f *Forwarder) Metrics() []telemetry.Metric {
	type stats struct {
		forward.Stats
		lost uint64
	}
	of := telemetry.NewGroup("dnp.forward.", func() stats { return stats{f.Stats(), f.queue.lost.Load()} })
	socket := telemetry.NewGroup("dnp.forward.socket.", f.socket.Stats)
	s := &of.All
	return []telemetry.Metric{
		of.Gauge("peers", "{edge}", "Other edges that datagrams can be forwarded to.", &s.Peers),
		of.Gauge("suspects", "{edge}", "Other edges whose heartbeats are missing.", &s.Suspects),
		of.Gauge("routes", "{client}", "Clients of other edges whose highest epochs are remembered.", &s.Clients),
		of.CounterBy("datagrams", "{datagram}", "Datagrams between edges, by kind.", "kind", telemetry.Parts{
			"in_sent": &s.In, "out_sent": &s.Out, "in_taken": &s.Owner, "out_taken": &s.Client, "orphan": &s.Orphans, "relayed": &s.Relayed,
			"nack_sent": &s.NacksOut, "nack_taken": &s.NacksIn, "beat_sent": &s.HeartbeatsOut, "beat_taken": &s.HeartbeatsIn,
		}),
		of.CounterBy("drops", "{datagram}", "Datagrams that were not forwarded or not accepted, by reason.", "reason",
			telemetry.Named[forward.DropReason](s.Drops[:]), telemetry.Parts{"lost": &s.lost}),
		socket.CounterBy("drops", "{datagram}", "Datagrams that the operating system lost, by reason.", "reason",
			telemetry.Named[udp.DropReason](socket.All.Drops[:]), telemetry.Parts{"overflow": &socket.All.Overflows}),
		of.Counter("stalls", "{stall}", "Times that this process was stopped for longer than heartbeats allow.", &s.Stalls),
	}
}
