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
		w.out.Send(client, append(w.out.Datagram(len(datagram)), datagram...))
	})
}

// Deliver handles a datagram of a client that came over another edge.
func (w *Worker) Deliver(now time.Time, via string, hops uint8, client netip.AddrPort, datagram []byte) {
	w.handle(now, w.ep.Receive(now, client, datagram, w.out))
}
