package edge

import (
	"encoding/json"
	"errors"
	"hash/fnv"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dnprelay/dnprelay/bus"
	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/internal/edge/takeover"
	"github.com/dnprelay/dnprelay/subject"
)

// A Forwarder carries datagrams between edges. All workers call its methods, which must not
// block. Datagrams belong to the caller again when a call returns.
type Forwarder interface {
	// Forward sends a datagram of a client, which came to the port listener, to the edge
	// that serves the client. hops is how often it was forwarded before. It reports false
	// for a node that is not known, or that counts as dead because it was silent for too
	// long: then the caller takes the session over.
	Forward(node string, listener uint16, client netip.AddrPort, hops uint8, datagram []byte) bool

	// Return sends a datagram to a client through the edge to which the client's datagrams
	// come, so that it leaves by the address that the client knows. epoch is that of the
	// session: the other edge sends nothing for an owner that was replaced. It reports
	// false if the other edge cannot be reached; the caller then sends the datagram itself.
	Return(node string, listener uint16, client netip.AddrPort, epoch uint64, datagram []byte) bool
}

// sharedLocations is the location table that the workers of an edge share. The mutex is
// there because no worker can own it: each may get the datagrams of any client. Workers
// take it when sessions begin or end, and for datagrams of clients that they do not serve.
type sharedLocations struct {
	mu    sync.Mutex
	table takeover.Locations
}

// Serves reports whether this edge has the session of a client, and in which epoch; 0
// while it is taken over. Any goroutine may ask.
func (e *Edge) Serves(listener uint16, client netip.AddrPort) (epoch uint64, ok bool) {
	_, epoch, ok = e.server(listener, client)
	return epoch, ok
}

func (e *Edge) server(listener uint16, client netip.AddrPort) (w *Worker, epoch uint64, ok bool) {
	e.locations.mu.Lock()
	defer e.locations.mu.Unlock()
	i, epoch, ok := e.locations.table.Server(takeover.Client{Addr: client, Listener: listener})
	if !ok {
		return nil, 0, false
	}
	return e.workers[i], epoch, true
}

// workerFor returns the worker that has the session of a client, or else one that may
// take it; nil if there is no such listener.
func (e *Edge) workerFor(listener uint16, client netip.AddrPort) *Worker {
	if w, _, ok := e.server(listener, client); ok {
		return w
	}
	h := fnv.New32a()
	b, _ := client.MarshalBinary() // it has no error
	h.Write(b)
	return e.workerOf(listener, h.Sum32())
}

// workerOf returns one of the workers of a listener, the same for the same number; nil if
// there is no such listener.
func (e *Edge) workerOf(listener uint16, number uint32) *Worker {
	all := slices.DeleteFunc(slices.Clone(e.workers), func(w *Worker) bool { return w.listener != listener })
	if len(all) == 0 {
		return nil
	}
	return all[number%uint32(len(all))]
}

// Deliver handles a datagram of a client that was forwarded hops times. via is the edge to
// which it came first, or empty if that is this one. The Edge owns the datagram from then on.
func (e *Edge) Deliver(via string, hops uint8, listener uint16, client netip.AddrPort, datagram []byte) {
	if w := e.workerFor(listener, client); w != nil { // another edge may have another listener
		w.post(len(datagram), func(w *Worker, now time.Time) { w.Deliver(now, via, hops, client, datagram) })
	}
}

// Emit sends a client a datagram that another edge passed to this one with Return. The Edge
// owns the datagram from then on.
func (e *Edge) Emit(listener uint16, client netip.AddrPort, datagram []byte) {
	w := e.workerFor(listener, client)
	if w == nil {
		return
	}
	w.post(len(datagram), func(w *Worker, _ time.Time) {
		out := w.out
		if r, ok := out.(*returning); ok {
			out = r.Output
		}
		out.Send(client, append(out.Datagram(len(datagram)), datagram...))
	})
}

// Overtaken handles news from another edge: the session of a client is in a later epoch than
// the one in which this edge serves it. The session reads its log.
func (e *Edge) Overtaken(listener uint16, client netip.AddrPort, epoch uint64) {
	if w, _, ok := e.server(listener, client); ok {
		w.post(0, func(w *Worker, _ time.Time) { w.takeover.Overtaken(client, epoch) })
	}
}

// Misled handles news from the edge node: it does not serve a client whose datagrams this
// edge forwards to it. The next datagram of the client has this edge look again.
func (e *Edge) Misled(listener uint16, client netip.AddrPort, node string) {
	e.locations.mu.Lock()
	defer e.locations.mu.Unlock()
	e.locations.table.Withdraw(takeover.Client{Addr: client, Listener: listener}, node)
}

// SetRoster tells the edge which nodes are there. The edge takes over sessions of edges that
// left. One goroutine at a time calls it.
func (e *Edge) SetRoster(r cluster.Roster) {
	view, left := e.view.Load().With(r)
	e.view.Store(view)
	for _, node := range left {
		e.Gone(node)
	}
}

// Gone takes over, with the other edges that are ready, the sessions of a dead edge. The name
// of a session decides which edge takes it over.
func (e *Edge) Gone(node string) {
	if e.cfg.Durable == nil || e.cfg.Durable.Affinity == nil {
		return
	}
	e.cfg.Log.Info("taking over sessions of an edge that is gone", "edge", node)
	e.takeOver(node)
}

// Answers of edges. An edge consents to take a session when the log says that it has it:
// before, it may die, and no edge would look after a client that says nothing.
var (
	answerDone    = []byte(`{}`)
	answerRefused = []byte(`{"refused":true}`)
	errRefused    = errors.New("edge: the other edge refuses")
)

// reply answers another edge, if it waits.
func (e *Edge) reply(to string, ok bool) {
	answer := answerRefused
	if ok {
		answer = answerDone
	}
	if to != "" {
		_ = e.cfg.Bus.Publish(bus.Msg{Subject: to, Data: answer}) // without an answer, it asks the next edge
	}
}

// asked handles a request of another edge.
func (e *Edge) asked(m bus.Msg) {
	var r takeover.Request
	switch {
	case json.Unmarshal(m.Data, &r) != nil:
	case e.draining.Load():
		e.reply(m.Reply, false)
	case r.Adopt != "":
		client, _ := netip.ParseAddrPort(r.Client) // a hint; the log has the address
		w := e.workerFor(r.Listener, client)
		if w == nil || !w.post(len(m.Data), func(w *Worker, _ time.Time) { w.takeover.Give(r.Adopt, r.Path(), m.Reply) }) {
			e.reply(m.Reply, false)
		}
	default:
		e.prepare(r.Prepare, m.Reply)
	}
}

// prepare has every worker follow spaces, and answers when all have their states.
func (e *Edge) prepare(names []string, reply string) {
	names = slices.DeleteFunc(names, func(name string) bool { return !subject.ValidToken(name) })
	p := &preparation{edge: e, reply: reply}
	p.left.Store(int32(len(e.workers)))
	for _, w := range e.workers {
		if !w.post(0, func(w *Worker, now time.Time) { w.takeover.Prepare(now, names, p.answer) }) {
			p.answer(false)
		}
	}
}

// A preparation is a request to prepare that all workers have to answer.
type preparation struct {
	left    atomic.Int32
	refused atomic.Bool
	edge    *Edge
	reply   string
}

// answer handles the answer of a worker. The last worker answers the request.
func (p *preparation) answer(ok bool) {
	if !ok {
		p.refused.Store(true)
	}
	if p.left.Add(-1) == 0 {
		p.edge.reply(p.reply, !p.refused.Load())
	}
}
