package edge

import (
	"context"
	"net/netip"
	"time"

	"github.com/dnprelay/dnprelay/cluster/forward"
	"github.com/dnprelay/dnprelay/dnp"
	"github.com/dnprelay/dnprelay/internal/edge/carrier"
	"github.com/dnprelay/dnprelay/internal/turn"
)

// Bounds of what arrives for a worker from carried clients, besides those of each connection. What does not fit is
// lost, as by a full socket.
const (
	arrivalsMax     = 8192
	arrivalBytesMax = 16 << 20
)

// An arrival is a datagram of a carried client.
type arrival struct {
	conn *carrier.Conn
	data []byte
}

// openHub makes the Hub, if clients may come otherwise than by UDP.
func (n *node) openHub() (err error) {
	if n.cfg.Carriers == nil {
		return nil
	}
	n.hub, err = carrier.NewHub(carrier.Config{
		Tokens: carrier.NewTokens(n.cfg.Carriers.Secret, n.cfg.NewID), ConnsMax: n.cfg.Carriers.ConnsMax, PerNetworkMax: n.cfg.SessionsPerAddress,
		Admission: n.cfg.Admission, Ready: func() bool { return !n.draining.Load() }, Now: n.cfg.Carriers.Now, Start: n.cfg.Carriers.Start,
		Receiver: func(client netip.AddrPort) carrier.Receiver { return &carriage{n.carriedBy(client)} },
	})
	return err
}

// Hub returns the Hub for listeners, nil without Config.Carriers.
func (e *Edge) Hub() *carrier.Hub { return e.hub }

// carriedBy returns the worker for a carried client: the one that has its session, or else one of the first listener.
func (n *node) carriedBy(client netip.AddrPort) *Worker {
	return n.workerFor(forward.Client{Addr: client, Listener: n.workers[0].listener})
}

// carriedClient reports whether a client does not speak UDP. Only who has its token can send in its name.
func carriedClient(client netip.AddrPort) bool { return carrier.Carried(client.Addr()) }

// home returns the address that a client comes from: for a carried one that of its connection, if this edge has it, with port 0.
func (n *node) home(client netip.AddrPort) netip.AddrPort {
	if n.hub != nil && carriedClient(client) {
		if c := n.hub.Conn(client); c != nil {
			return netip.AddrPortFrom(c.Home(), 0)
		}
	}
	return client
}

// sweep ends connections that no session needs, until ctx ends.
func (e *Edge) sweep(ctx context.Context) {
	if e.hub == nil {
		return
	}
	for range turn.After(ctx, carrier.SweepPause) {
		e.hub.Sweep()
	}
}

// closeHub ends all connections of carried clients, which other edges serve.
func (n *node) closeHub() {
	if n.hub != nil {
		n.hub.Close()
	}
}

// moved ends the connection of a carried client whose session another edge has taken from this one, which drains.
func (n *node) moved(client netip.AddrPort) {
	if n.hub != nil && n.draining.Load() && carriedClient(client) {
		n.hub.End(client, carrier.Leaving)
	}
}

// carry prepares a worker for carried clients.
func (n *node) carry(w *Worker) {
	if n.hub == nil {
		return
	}
	w.carried = &carrier.Output{UDP: w.direct, Hub: n.hub}
	w.direct, w.out = w.carried, w.carried
	w.arrivals = turn.NewInbox[arrival](arrivalsMax, arrivalBytesMax, w.wake)
}

// closeAdapted closes the connections of adapters, which no other edge can continue. Their peers come again, elsewhere.
func (w *Worker) closeAdapted() {
	for c := range w.ep.All {
		if carrier.Adapted(c.Addr()) {
			c.Close(dnp.CloseDrain)
		}
	}
}

// A carriage is a worker as a carrier.Conn sees it.
type carriage struct{ w *Worker }

// Arrived implements carrier.Receiver.
func (r *carriage) Arrived(c *carrier.Conn, p []byte) {
	if !r.w.arrivals.Post(arrival{c, p}, len(p)) {
		c.Taken(len(p))
	}
}

// Opened implements carrier.Receiver.
func (r *carriage) Opened(c *carrier.Conn) {
	r.w.must(func(now time.Time) {
		if r.w.takeover != nil && r.w.node.hub.Conn(c.Addr()) == c { // it has not ended meanwhile
			r.w.takeover.DirectOpened(now, c.Addr(), c.Resumes())
		}
		r.w.setReachable(c.Addr())
	})
}

// Ended implements carrier.Receiver.
func (r *carriage) Ended(c *carrier.Conn, _ carrier.Reason) {
	r.w.must(func(now time.Time) {
		if r.w.node.hub.Conn(c.Addr()) != nil {
			return // a newer one took its place
		}
		if conn, ok := r.w.ep.Conn(c.Addr()); ok && carrier.Adapted(c.Addr()) {
			conn.Close(dnp.ClosePeer)
			return
		}
		if r.w.takeover != nil {
			r.w.takeover.DirectLost(now, c.Addr())
		}
		r.w.setReachable(c.Addr())
	})
}

// Writable implements carrier.Receiver.
func (r *carriage) Writable(c *carrier.Conn) {
	r.w.must(func(time.Time) { r.w.setReachable(c.Addr()) })
}

// setReachable tells the endpoint how much a carried client takes. A client that is connected to no edge takes nothing, so
// that it gets the newest values when it is. Whether a connection of another edge takes datagrams is not known here.
func (w *Worker) setReachable(client netip.AddrPort) {
	c, room := w.node.hub.Conn(client), 0
	switch {
	case w.takeover != nil && !w.takeover.Directly(client):
		room = -1
	case c != nil:
		room = c.Room()
	}
	w.ep.SetRoom(client, room)
}

// holdBack has the endpoint wait for clients that take nothing more.
func (w *Worker) holdBack() {
	if w.carried == nil {
		return
	}
	for _, client := range w.carried.Full() {
		w.ep.SetRoom(client, 0)
	}
}

func (w *Worker) takeArrivals(now time.Time) {
	if w.arrivals == nil {
		return
	}
	w.arrivals.Take(func(a arrival) {
		if w.counts(&a) {
			w.Deliver(now, "", 0, a.conn.Addr(), a.data)
		}
		a.conn.Taken(len(a.data))
	})
}

// counts reports whether to deliver a datagram. A client may close its connection behind the last of them, which the worker learns sooner. But
// nothing begins on a connection that has ended, and a newer one has all that matters: the client repeats on it what was not acknowledged.
func (w *Worker) counts(a *arrival) bool {
	if !a.conn.Ended() {
		return true
	}
	_, ok := w.ep.Conn(a.conn.Addr())
	newest := w.node.hub.Conn(a.conn.Addr())
	return ok && (newest == nil || newest == a.conn) // the hub forgets a connection a moment after its end
}

// handleCarried ends the connection of a carried client with its session, and follows its way.
func (w *Worker) handleCarried(ev *dnp.Event) {
	client := ev.Conn.Addr()
	if w.carried == nil || !carriedClient(client) {
		return
	}
	switch {
	case ev.Kind == dnp.EventAnswered, ev.Kind == dnp.EventConnected:
		w.setReachable(client)
	case ev.Kind != dnp.EventClosed, ev.Reason == dnp.CloseMoved, ev.Reason == dnp.CloseRestarted:
	case ev.Reason == dnp.CloseDrain:
		w.node.hub.End(client, carrier.Leaving)
	default:
		w.node.hub.End(client, carrier.Over)
	}
}

// endUnknown ends the connection of a carried client that goes on with a session which no edge has. A client without the
// token of an earlier connection has none to go on with: it may say more behind a login that is not judged yet.
func (w *Worker) endUnknown(now time.Time, client netip.AddrPort, datagram []byte) {
	if w.carried == nil || !carriedClient(client) || len(datagram) == 0 || w.ep.MayBegin(datagram) {
		return
	}
	if c := w.node.hub.Conn(client); c != nil && !c.Resumes() {
		return
	}
	if _, ok := w.ep.Conn(client); ok || w.takeover != nil && !w.takeover.Nowhere(now, client) {
		return
	}
	w.node.hub.End(client, carrier.Unknown)
}
