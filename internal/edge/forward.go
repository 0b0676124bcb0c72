package edge

import (
	"net/netip"
	"time"
)

// hopsMax is over how many edges a datagram of a client may go. Two, because the first
// may know an owner that has just handed the session over.
const hopsMax = 2

// A Forwarder carries datagrams between edges. Its methods are called by all workers at
// the same time and must not block. Datagrams belong to the caller again when the call
// returns.
type Forwarder interface {
	// Forward sends a datagram of a client, which came to the port listener, to the edge
	// that serves the client. hops is how many edges it went over before, this one not
	// counted. It reports false for a node that is not known, or is silent for so long
	// that it counts as dead: then the caller takes the session over.
	Forward(node string, listener uint16, client netip.AddrPort, hops uint8, datagram []byte) bool

	// Return sends a datagram to a client through the edge to which the client's
	// datagrams come, so that it leaves by the address that the client knows. epoch is
	// that of the session: the edge at the other end sends nothing for an owner that was
	// replaced. It reports false if that edge cannot be reached; the caller then sends
	// the datagram by itself.
	Return(node string, listener uint16, client netip.AddrPort, epoch uint64, datagram []byte) bool
}

// Deliver takes a datagram of a client that another edge, via, forwarded with Forward.
// hops counts that edge, too. The datagram is the Edge's from then on.
func (e *Edge) Deliver(via string, hops uint8, listener uint16, client netip.AddrPort, datagram []byte) {
	w := e.workerFor(listener, client)
	if w == nil {
		return // another edge has another listener
	}
	w.post(len(datagram), func(w *Worker, now time.Time) { w.Deliver(now, via, hops, client, datagram) })
}

// Emit sends a datagram that another edge passed to this one with Return. The datagram
// is the Edge's from then on.
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

// Serves reports whether this edge has the session of a client, and in which epoch; 0
// while it is taken over. Any goroutine may ask.
func (e *Edge) Serves(listener uint16, client netip.AddrPort) (epoch uint64, ok bool) {
	l := e.directory.locate(place{client, listener})
	return l.epoch, l.worker != nil
}

// Overtaken takes the word of another edge that the session of a client is in a later
// epoch than this edge has it in. The log is asked.
func (e *Edge) Overtaken(listener uint16, client netip.AddrPort, epoch uint64) {
	if w := e.directory.worker(place{client, listener}); w != nil {
		w.post(0, func(w *Worker, _ time.Time) { w.keeper.overtaken(w.keeper.byAddr[client], epoch) })
	}
}

// Misled takes the word of another edge, node, that it does not serve a client whose
// datagrams this one forwards to it. The next one asks who does. Which worker's socket they
// come to only the kernel knows, so all are told.
func (e *Edge) Misled(listener uint16, client netip.AddrPort, node string) {
	for _, w := range e.workers {
		if w.listener == listener && w.keeper != nil {
			w.post(0, func(w *Worker, _ time.Time) { w.keeper.strays.misled(client, node) })
		}
	}
}

// moved has all workers send what came from a client, and comes, to the edge that has its
// session now.
func (e *Edge) moved(listener uint16, client netip.AddrPort, node string) {
	for _, w := range e.workers {
		if w.listener == listener {
			w.post(0, func(w *Worker, now time.Time) {
				w.keeper.strays.elsewhere(now, client, node, e.cfg.Node)
				w.keeper.forwardHeld(now, client, node)
			})
		}
	}
}

// Deliver handles a datagram of a client that came over another edge; via is empty if
// it came to another worker of this one.
func (w *Worker) Deliver(now time.Time, via string, hops uint8, client netip.AddrPort, datagram []byte) {
	if w.keeper != nil && w.keeper.takes(now, client, datagram, via, hops) {
		return
	}
	w.take(now, client, datagram, via)
}

// take gives a datagram to the endpoint.
func (w *Worker) take(now time.Time, client netip.AddrPort, datagram []byte, via string) {
	if w.keeper != nil {
		w.keeper.comesOver(now, client, via)
	}
	w.handle(now, w.ep.Receive(now, client, datagram, w.out))
}

// A returning sends what is for clients that come over other edges back over these.
type returning struct {
	Output
	k *keeper
}

// Send implements dnp.Sender.
func (r *returning) Send(to netip.AddrPort, b []byte) {
	if !r.k.direct() && r.k.sendOver(to, b) {
		return
	}
	r.Output.Send(to, b)
}

// sendOver sends a datagram over the edge that its client comes over. It reports false if it
// has to be sent directly. Where it may not be, because the client is unheard or the edge
// between cannot be reached, it is dropped.
func (k *keeper) sendOver(to netip.AddrPort, b []byte) bool {
	from, epoch := way{via: k.guests.via(to)}, uint64(0)
	if x := k.byAddr[to]; x != nil {
		from, epoch = x.way, x.core.Epoch()
	}
	switch {
	case from == way{}:
		return false
	case from.via != "" && k.d.Forward.Return(from.via, k.w.listener, to, epoch, b):
		return true
	}
	if k.d.AnswerOnly { // it will come another way, if it comes
		k.w.counts.Unheard++
	}
	return k.d.AnswerOnly
}
