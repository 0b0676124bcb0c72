package edge

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dnprelay/dnprelay/dnp"
	"github.com/dnprelay/dnprelay/dnp/admit"
	"github.com/dnprelay/dnprelay/dnp/udp"
	"github.com/dnprelay/dnprelay/internal/edge/fanout"
	"github.com/dnprelay/dnprelay/internal/edge/login"
	"github.com/dnprelay/dnprelay/internal/edge/takeover"
)

// An Edge is one edge node. Make it with New, then call Run once.
type Edge struct {
	cfg      Config
	workers  []*Worker
	sockets  []*udp.Socket // of the worker with the same index
	feeds    *feeds
	logins   *login.Authority
	sessions *registry
	inbox    string // subject below which this edge receives answers
	signals  signals

	locations sharedLocations // of durable sessions
	view      atomic.Pointer[takeover.View]
	draining  atomic.Bool // it hands its sessions over, and new ones begin elsewhere

	reached atomic.Bool // the bus was there once
	leaving atomic.Bool // the process is about to end
}

// New opens the sockets. The error names every problem of cfg, or says in one
// line which address could not be had.
func New(cfg Config) (*Edge, error) {
	cfg.setDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	e := &Edge{cfg: cfg, inbox: "_INBOX.dnp." + cfg.NewID(), sessions: newRegistry(cfg.SessionsMax, cfg.SessionsPerAddress), signals: newSignals(cfg.Telemetry, cfg.Subjects)}
	var err error
	e.logins, err = login.New(login.Config{
		Auth: cfg.Auth, TokenKeys: cfg.TokenKeys, OpenSpace: cfg.OpenSpace,
		Bus: cfg.Bus, Subjects: cfg.Subjects, Node: cfg.Node, NewID: cfg.NewID, Log: cfg.Log,
	})
	if err != nil {
		return nil, err
	}
	e.view.Store(takeover.NewView(cfg.Node))
	e.feeds = newFeeds(e)
	for _, l := range cfg.Listeners {
		if err := e.listen(l); err != nil {
			e.closeSockets()
			return nil, err
		}
	}
	return e, nil
}

// listen opens one socket per worker for l.
func (e *Edge) listen(l Listener) error {
	sockets, err := udp.Listen(udp.Config{Addr: l.Addr, Sockets: e.cfg.Workers, ReadBuffer: e.cfg.ReadBuffer})
	if err != nil {
		return err
	}
	e.sockets = append(e.sockets, sockets...)
	l.Addr = sockets[0].LocalAddr()
	for _, s := range sockets {
		if _, err := e.AddWorker(l, s.Writer(), s.Wake); err != nil {
			return err
		}
	}
	read, _ := sockets[0].Buffers()
	e.cfg.Log.Info("listening", "addr", sockets[0].LocalAddr(), "profile", l.Profile,
		"workers", len(sockets), "read_buffer", read)
	if read > 0 && read < e.cfg.ReadBuffer {
		e.cfg.Log.Warn("the kernel grants a smaller receive buffer than asked for; raise net.core.rmem_max",
			"asked", e.cfg.ReadBuffer, "granted", read)
	}
	return nil
}

// Addrs returns the addresses that are served, in the order of the listeners.
func (e *Edge) Addrs() []netip.AddrPort {
	var all []netip.AddrPort
	for i := 0; i < len(e.sockets); i += len(e.sockets) / len(e.cfg.Listeners) {
		all = append(all, e.sockets[i].LocalAddr())
	}
	return all
}

// Ready reports whether clients belong here: this edge has reached the bus at
// least once, and is not going away.
func (e *Edge) Ready() bool { return e.reached.Load() && !e.leaving.Load() }

// admit reports whether a new session can begin. Without the bus nobody would
// hear of it, and it would see nothing or something old.
func (e *Edge) admit(from netip.AddrPort) bool {
	return e.Ready() && !e.draining.Load() && e.cfg.Bus.Connected() && e.sessions.room(from.Addr())
}

// admit reports whether a new session can begin here. While the log is silent it would
// not get further than the answer to its request.
func (w *Worker) admit(from netip.AddrPort) bool {
	return w.edge.admit(from) && (w.takeover == nil || !w.takeover.LogAway())
}

// AddWorker adds a worker for clients that speak as l says, for a caller that
// moves the datagrams itself, as a simulation does. wake is called, from any
// goroutine, when the worker should be turned.
func (e *Edge) AddWorker(l Listener, out Output, wake func()) (*Worker, error) {
	w := newWorker(e, l.Addr.Port(), out, wake)
	cfg, err := e.endpointConfig(l, w)
	if err == nil {
		w.ep, err = dnp.New(cfg)
	}
	if err != nil {
		return nil, fmt.Errorf("edge: %w", err)
	}
	w.spaces = fanout.New(fanout.Config{
		Host: fanoutHost{w}, Endpoint: w.ep, Node: e.cfg.Node, Subjects: e.cfg.Subjects, Shards: e.cfg.Shards,
		Inbox: fmt.Sprintf("%s.%d", e.inbox, w.index), Linger: e.cfg.Linger, ClientStates: e.cfg.ClientStates,
	})
	if d := e.cfg.Durable; d != nil {
		w.makeDurable(d)
	}
	e.workers = append(e.workers, w)
	return w, nil
}

// Start subscribes to what every edge needs of the bus. Run does it by itself.
func (e *Edge) Start() error {
	e.cfg.Bus.OnChange(e.busChanged)
	if e.cfg.Bus.Connected() {
		e.busChanged(true)
	}
	if e.cfg.Durable != nil {
		e.startDurable()
	}
	return e.feeds.start()
}

// Run serves until ctx ends, then hands every session over, if a log knows them, or
// closes it, and returns. The error says what failed; it is nil after a shutdown that was
// asked for.
func (e *Edge) Run(ctx context.Context) error {
	defer e.closeSockets()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if err := e.Start(); err != nil {
		return err
	}
	defer e.feeds.stop()
	serving, stop := context.WithCancel(context.Background())
	defer stop()
	var running sync.WaitGroup
	failed := make(chan error, len(e.workers))
	for i, w := range e.workers {
		running.Go(func() {
			if err := loop(serving, w, e.sockets[i]); err != nil {
				failed <- fmt.Errorf("edge: worker %d: %w", i, err)
				cancel()
			}
		})
	}
	running.Go(func() { e.logins.Watch(ctx) })
	<-ctx.Done()
	if e.cfg.Durable != nil && len(failed) == 0 {
		e.drain()
	}
	e.leaving.Store(true)
	stop()
	for _, w := range e.workers {
		w.wake() // so that it notices
	}
	running.Wait()
	select {
	case err := <-failed:
		return err
	default:
		return nil
	}
}

// busChanged asks every replica to make sure that it missed nothing.
func (e *Edge) busChanged(connected bool) {
	if !connected {
		e.cfg.Log.Warn("bus lost; clients are served from the replicas")
		return
	}
	if e.reached.CompareAndSwap(false, true) {
		e.cfg.Log.Info("bus reached", "node", e.cfg.Node)
		return
	}
	e.cfg.Log.Info("bus reached again", "node", e.cfg.Node)
	for _, w := range e.workers {
		w.post(0, func(w *Worker, now time.Time) { w.spaces.Reconnected(now) })
	}
}

func (e *Edge) closeSockets() {
	for _, s := range e.sockets {
		_ = s.Close() // there is nobody left to tell
	}
}

// endpointConfig returns how the endpoint of a worker for l behaves.
func (e *Edge) endpointConfig(l Listener, w *Worker) (dnp.Config, error) {
	gate, err := admit.New(e.cfg.Auth.Admission(e.cfg.Admission))
	longMax := 0
	if e.cfg.Durable != nil {
		longMax = takeover.LongMessageMax
	}
	return dnp.Config{
		Profile: l.Profile,
		Listen:  true,
		Probe:   l.Probe,
		Gate:    gate,
		Admit:   w.admit,
		Login:   w.judge.Func(),
		Rand:    rand.New(rand.NewPCG(e.cfg.Seed(), e.cfg.Seed())),

		Logged:  e.cfg.Durable != nil,
		LongMax: longMax,

		RateDatagrams: e.cfg.RateDatagrams,
		RateBytes:     e.cfg.RateBytes,

		BytesPerSecond:      e.cfg.BytesPerSecond,
		OfferBytesPerSecond: e.cfg.OfferBytesPerSecond,

		// The table is shared out, so that an edge has one bound whatever its workers.
		UnprovenMax: max(1, unprovenMax/(e.cfg.Workers*max(1, len(e.cfg.Listeners)))),
	}, err
}

// unprovenMax is the number of unproven peers that an edge remembers.
const unprovenMax = 65536
