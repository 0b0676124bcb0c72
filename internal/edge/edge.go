// Package edge is the node that terminates DNP clients.
//
// An edge has workers, each with a socket of its own on every listener address
// (SO_REUSEPORT), its own connections and its own replicas. Workers share nothing on the
// path from a batch of changes to a datagram, so nothing on it is locked.
//
// What a worker does is a function of its inputs: datagrams, tasks and the time
// ([Worker.Turn]). Only the loop around it reads the socket and the clock, so a simulation
// can turn workers without either. The rules are in three packages below this one: login
// (who a client is), fanout (the spaces and sessions of a worker) and takeover (sessions
// that outlive their edge).
//
// An edge is the authority for nothing. Values come from the replicas, whose authority is
// a relay; what clients write goes to that relay and comes back.
package edge

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/dnp"
	"github.com/dnprelay/dnprelay/dnp/admit"
	"github.com/dnprelay/dnprelay/dnp/udp"
	"github.com/dnprelay/dnprelay/internal/edge/fanout"
	"github.com/dnprelay/dnprelay/internal/edge/login"
	"github.com/dnprelay/dnprelay/internal/edge/takeover"
	"github.com/dnprelay/dnprelay/internal/inspect/desk"
	"github.com/dnprelay/dnprelay/internal/turn"
	"github.com/dnprelay/dnprelay/subject"
	"golang.org/x/sync/errgroup"
)

// An Edge is one edge node. Make it with New, then call Run once.
type Edge struct {
	node
	sockets []*udp.Socket // of the worker with the same index
	feeds   *feeds
	look    inspector

	reached atomic.Bool // the bus was there once
	leaving atomic.Bool // the process is about to end
}

// New opens the sockets. The error names every problem of cfg, or the address that cannot be
// opened.
func New(cfg Config) (*Edge, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	inbox := subject.Inbox("edge") + "." + cfg.NewID()
	e := &Edge{node: node{cfg: cfg}}
	logins, err := login.New(login.Config{
		Auth: cfg.Auth, TokenKeys: cfg.TokenKeys, OpenSpace: cfg.OpenSpace,
		Subjects: cfg.Subjects, Node: cfg.Node, NewID: cfg.NewID, Home: e.home, Address: cfg.LogAddresses.text, Log: cfg.Log,
	})
	if err != nil {
		return nil, err
	}
	e.logins = logins
	e.sessions, e.signals = &registry{sessionsMax: cfg.SessionsMax, perNetworkMax: cfg.SessionsPerAddress}, newSignals(cfg.Telemetry, cfg.Subjects)
	e.locations = takeover.NewLocations(&sync.Mutex{})
	if err := e.openHub(); err != nil {
		return nil, err
	}
	e.view.Store(takeover.NewView(cfg.Node))
	e.feeds, e.repairs = newFeeds(&e.node, inbox), newRepairs(&e.node, inbox)
	e.look = inspector{Desk: desk.New(cfg.Bus, cfg.Node, "edge"), edge: e, started: time.Now()}
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
	sockets, err := udp.Listen(udp.Config{Addr: l.Addr, Sockets: e.cfg.Workers, Shared: e.cfg.Shared, ReadBuffer: e.cfg.ReadBuffer})
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
		e.cfg.Log.Warn("the kernel grants a smaller receive buffer than requested; raise net.core.rmem_max",
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

// Ready reports whether a balancer should send clients here: this edge has reached the bus
// at least once, and is not about to end. An edge that hands sessions over has to be sent the
// datagrams of their clients; one that closes them rejects new clients.
func (e *Edge) Ready() bool {
	return e.reached.Load() && !e.leaving.Load() && (e.cfg.Durable != nil || !e.draining.Load())
}

// admit reports whether a new session can begin at a worker. Without the bus no game server
// would hear of it, and its client would see nothing or old states.
func (e *Edge) admit(w *Worker, from netip.AddrPort) dnp.AdmitVerdict {
	switch {
	case !e.Ready(), e.draining.Load(), !e.cfg.Bus.Connected(), !e.sessions.room(from.Addr()):
		return dnp.AdmitRefuse
	case w.takeover != nil:
		return w.takeover.Admission()
	}
	return dnp.AdmitAccept
}

// AddWorker adds a worker for the clients of a listener, for a caller that moves the
// datagrams itself, as a simulation does. wake is called, from any goroutine, when the
// worker should be turned.
func (e *Edge) AddWorker(l Listener, out Output, wake func()) (*Worker, error) {
	w := &Worker{
		node: &e.node, index: len(e.workers), direct: out, out: out, wake: wake, listener: l.Addr.Port(),
		tasks: turn.NewInbox[task](inboxTasks, inboxBytes, wake), mail: turn.NewQueue[func(time.Time)](wake),
		flushes: flushTrace{signals: &e.signals},
	}
	e.carry(w)
	w.judge = e.logins.Judge(loginHost{requester{w}})
	cfg, err := e.endpointConfig(l, w)
	if err == nil {
		w.ep, err = dnp.New(cfg)
	}
	if err != nil {
		return nil, fmt.Errorf("edge: %w", err)
	}
	w.spaces = fanout.New(fanout.Config{
		Host: fanoutHost{requester{w}, e.feeds}, Endpoint: w.ep, Node: e.cfg.Node, Subjects: e.cfg.Subjects, Shards: e.cfg.Shards,
		Linger: e.cfg.Linger, ClientStates: e.cfg.ClientStates, Recycle: e.cfg.Recycle, Describe: e.cfg.Describe,
	})
	if d := e.cfg.Durable; d != nil {
		e.makeDurable(w, d)
	}
	e.workers = append(e.workers, w)
	return w, nil
}

// Start makes the subscriptions that every edge has. Run does it by itself.
func (e *Edge) Start() error {
	e.cfg.Bus.OnChange(e.busChanged)
	if e.cfg.Bus.Connected() {
		e.busChanged(true)
	}
	if err := e.feeds.always(e.feeds.inbox+".*.*", e.feeds.reply); err != nil {
		return fmt.Errorf("edge: subscribe to answers: %w", err)
	}
	if err := e.look.subscribe(); err != nil {
		return fmt.Errorf("edge: subscribe to requests of people: %w", err)
	}
	if e.cfg.Durable == nil {
		return nil
	}
	e.startDurable()
	if err := e.feeds.always(e.cfg.Subjects.Edge(e.cfg.Node), e.asked); err != nil {
		return fmt.Errorf("edge: subscribe to other edges: %w", err)
	}
	return nil
}

// Run serves until ctx ends. Then it hands durable sessions over, or closes all sessions over a time,
// and returns. The error says what failed; it is nil after a shutdown through ctx.
func (e *Edge) Run(ctx context.Context) error {
	defer e.closeSockets()
	e.look.writing = make(chan func(), writingMax)
	if err := e.Start(); err != nil {
		return err
	}
	defer e.feeds.stop()
	serving, stop := context.WithCancel(context.Background())
	defer stop()
	running, working := errgroup.WithContext(ctx)
	for i, w := range e.workers {
		running.Go(func() error {
			if err := loop(serving, w, e.sockets[i]); err != nil {
				return fmt.Errorf("edge: worker %d: %w", i, err)
			}
			return nil
		})
	}
	run := func(ctx context.Context, f func(context.Context)) {
		running.Go(func() error {
			f(ctx)
			return nil
		})
	}
	run(serving, e.look.write)
	run(working, e.logins.Watch)
	run(working, e.report)
	run(working, e.sweep)
	<-working.Done()
	var undone error
	if ctx.Err() != nil { // else a worker failed
		undone = e.drain()
	}
	e.leaving.Store(true)
	e.closeHub()
	stop()
	for _, w := range e.workers {
		w.wake() // to notice that serving has ended
	}
	if err := running.Wait(); err != nil {
		return err
	}
	return undone
}

// busChanged has every replica ask whether it missed something while the bus was away.
func (e *Edge) busChanged(connected bool) {
	if !connected {
		if e.connection.Lost() {
			e.cfg.Log.Warn(e.lossWarning(), "node", e.cfg.Node)
		}
		return
	}
	e.connection.Restored(time.Now())
	if e.reached.CompareAndSwap(false, true) {
		e.cfg.Log.Info("bus reached", "node", e.cfg.Node)
		return
	}
	for _, w := range e.workers {
		w.post(0, func(w *Worker, now time.Time) { w.spaces.Reconnected(now) })
	}
}

// lossWarning says what the loss of the bus means.
func (e *Edge) lossWarning() string {
	if e.cfg.Durable == nil {
		return "bus lost; serving clients from the replicas"
	}
	return "bus lost; serving clients from the replicas. What clients say is not acknowledged, and new clients are not admitted"
}

// reportInterval is how often an edge looks whether the bus is back.
const reportInterval = time.Second

// report logs when the bus is back, until ctx ends.
func (e *Edge) report(ctx context.Context) {
	for now := range turn.After(ctx, reportInterval) {
		if e.connection.Back(now) {
			e.cfg.Log.Info("bus reached again", "node", e.cfg.Node)
		}
	}
}

func (e *Edge) closeSockets() {
	for _, s := range e.sockets {
		_ = s.Close() // the edge ends, whatever the error
	}
}

func (e *Edge) endpointConfig(l Listener, w *Worker) (dnp.Config, error) {
	gate, err := admit.New(e.cfg.Auth.Admission(e.cfg.Admission))
	unproven := unprovenMax
	if e.cfg.Auth != login.AuthOpen {
		unproven = greetedMax
	}
	longMax := 0
	if e.cfg.Durable != nil {
		longMax = takeover.LongMessageMax
	}
	return dnp.Config{
		Profile: l.Profile,
		Listen:  true,
		Probe:   l.Probe,
		Gate:    gate,
		Admit:   func(from netip.AddrPort) dnp.AdmitVerdict { return e.admit(w, from) },
		Proven:  carriedClient,
		Login:   w.judge.Func(),
		Rand:    rand.New(rand.NewPCG(e.cfg.Seed(), e.cfg.Seed())),

		LoginTimeout: e.cfg.LoginTimeout,

		Logged:  e.cfg.Durable != nil,
		LongMax: longMax,

		Rate: e.cfg.Rate,

		BytesPerSecond:      e.cfg.BytesPerSecond,
		OfferBytesPerSecond: e.cfg.OfferBytesPerSecond,

		// The workers divide the table, so that the bound of an edge does not depend on them.
		UnprovenMax: max(1, unproven/(e.cfg.Workers*max(1, len(e.cfg.Listeners)))),
	}, err
}

// An edge remembers unprovenMax peers that have not proven their address. Where peers log in, it
// remembers only those that have answered a greeting, until they log in half a second later.
const (
	unprovenMax = 65536
	greetedMax  = 16384
)

// makeDurable keeps the sessions of a worker in the log.
func (e *Edge) makeDurable(w *Worker, d *Durable) {
	seed := e.cfg.Seed
	w.takeover = takeover.New(takeover.Config{
		Host: &takeoverHost{w, d}, Node: e.cfg.Node, Worker: w.index, Listener: w.listener, Endpoint: w.ep,
		Rand: rand.New(rand.NewPCG(seed(), seed())), Locations: e.locations, Vouched: carriedClient, Ports: d.Ports,
	})
	if d.Forward != nil {
		w.out = &returning{w.out, w.takeover}
	}
}

// startDurable takes over the sessions of an earlier process of this node, and subscribes to
// later claims of other edges and to losses of the log.
func (e *Edge) startDurable() {
	if e.cfg.Durable.OnForgot != nil {
		e.cfg.Durable.OnForgot(func(lost func(string) bool) {
			for _, w := range e.workers {
				w.must(func(now time.Time) { w.takeover.Refresh(now, lost) })
			}
		})
	}
	if e.cfg.Durable.Affinity == nil {
		return
	}
	e.cfg.Durable.Affinity.OnReplaced(func(name string, by cluster.Served) {
		for _, w := range e.workers {
			w.post(0, func(w *Worker, _ time.Time) { w.takeover.Replaced(name, by.Epoch) })
		}
	})
	e.takeOver(e.cfg.Node)
}

// closeTime is the rest of the drain timeout when the last sessions are closed: the log has to store
// the ends of those that no edge took.
const closeTime = 2 * time.Second

// drain ends the sessions of the edge in order. The error says what was not done.
func (e *Edge) drain() (undone error) {
	if e.cfg.Durable != nil {
		return e.handOver(e.cfg.Durable)
	}
	e.cfg.Log.Info("closing sessions", "sessions", e.sessions.count(), "drain_timeout", e.cfg.DrainTimeout)
	e.BeginDrain()
	e.wait(e.cfg.DrainTimeout-closeTime, func() bool { return e.sessions.count() == 0 })
	return nil
}

// handOver hands every session of the edge over, closes those that no edge takes, and goes on
// to forward datagrams for a while. The error says what was not done.
func (e *Edge) handOver(d *Durable) (undone error) {
	e.cfg.Log.Info("handing sessions over", "sessions", e.DurableSessions())
	e.BeginDrain()
	if why := e.Stranded(); why != "" {
		e.cfg.Log.Warn("sessions will be closed: " + why)
	}
	ports := e.ports()
	var hope takeover.Hope
	e.wait(e.cfg.DrainTimeout-closeTime, func() bool {
		gossip, candidates := e.view.Load().MaySucceed(ports)
		return e.DurableSessions() == 0 || !hope.Update(time.Now(), gossip, candidates)
	})
	if n := e.DurableSessions(); n > 0 {
		e.cfg.Log.Warn("closing sessions: no edge takes them", "sessions", n)
		for _, w := range e.workers {
			w.must(func(time.Time) { w.takeover.CloseRest() })
		}
		e.wait(closeTime, func() bool { return e.DurableSessions() == 0 })
		if n := e.DurableSessions(); n > 0 {
			undone = fmt.Errorf("the drain timeout of %v is over: %d sessions were neither handed over nor closed in the session log", e.cfg.DrainTimeout, n)
		}
	}
	e.leaving.Store(true)
	e.closeHub() // other edges serve those that are left
	if d.Forward != nil {
		e.wait(d.DrainLinger, func() bool { return false })
	}
	return undone
}

// ports returns the ports of the listeners, each once.
func (e *Edge) ports() (ports []uint16) {
	for _, w := range e.workers {
		if !slices.Contains(ports, w.listener) {
			ports = append(ports, w.listener)
		}
	}
	return ports
}

// Stranded returns why no other edge can take sessions of this one over, although there are other
// edges; empty if one may.
func (e *Edge) Stranded() string {
	if e.cfg.Durable == nil {
		return ""
	}
	view := e.view.Load()
	for _, port := range e.ports() {
		if edges := view.Elsewhere(port); edges != nil {
			return fmt.Sprintf("no other edge listens on port %d, to which their clients talk (%s)", port, strings.Join(edges, ", "))
		}
	}
	return ""
}

// wait waits until done, which it asks a hundred times a second, but not for longer than d.
func (e *Edge) wait(d time.Duration, done func() bool) {
	for end := time.Now().Add(d); !done() && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond)
	}
}

// BeginDrain has the workers hand their sessions over, or close them if they are not durable, for a
// caller that turns them. The former is done when DurableSessions returns 0.
func (e *Edge) BeginDrain() {
	e.draining.Store(true)
	for _, w := range e.workers {
		w.must(w.drain)
	}
}

// DurableSessions returns how many durable sessions the edge has, looks at, or gave to an edge
// that has not consented: that edge may be leaving, too.
func (e *Edge) DurableSessions() (n int32) {
	for _, w := range e.workers {
		n += w.durable.Load()
	}
	return n
}
