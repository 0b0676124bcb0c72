package systest

import (
	"errors"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"testing"

	"github.com/dnprelay/dnprelay/dnp/wire"
)

// A balancer carries the datagrams of one client to edges, and those of edges to the client.
type balancer struct {
	front, back *net.UDPConn

	mu     sync.Mutex // two goroutines carry datagrams while tests change and read the rest
	pick   func() netip.AddrPort
	loss   float64 // of datagrams, both ways
	client netip.AddrPort
	sent   int                    // datagrams of the client
	known  map[netip.AddrPort]int // datagrams of each edge that the client has sent to
}

// newBalancer starts a balancer that asks pick for the edge of each datagram.
func newBalancer(t *testing.T, pick func() netip.AddrPort) *balancer {
	t.Helper()
	b := &balancer{pick: pick, known: map[netip.AddrPort]int{}}
	b.front, b.back = loopbackSocket(t), loopbackSocket(t)
	pumpUntilEnd(t, b.front, b.toEdge)
	pumpUntilEnd(t, b.back, b.toClient)
	return b
}

func loopbackSocket(t *testing.T) *net.UDPConn {
	t.Helper()
	c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// pumpUntilEnd pumps until the test ends, and closes the socket.
func pumpUntilEnd(t *testing.T, c *net.UDPConn, each func(from netip.AddrPort, p []byte)) {
	var wait sync.WaitGroup
	wait.Go(func() { pump(c, each) })
	t.Cleanup(func() {
		c.Close()
		wait.Wait()
	})
}

// moveClient gives the client another address, as a change of its network does. What comes for the former one is lost.
func (b *balancer) moveClient(t *testing.T) {
	t.Helper()
	next := loopbackSocket(t)
	b.mu.Lock()
	b.back.Close()
	b.back = next
	b.mu.Unlock()
	pumpUntilEnd(t, next, b.toClient)
}

// pump passes datagrams to each until the socket is closed.
func pump(c *net.UDPConn, each func(from netip.AddrPort, p []byte)) {
	buf := make([]byte, 65536)
	for {
		n, from, err := c.ReadFromUDPAddrPort(buf)
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err == nil: // otherwise the other end does not listen
			each(netip.AddrPortFrom(from.Addr().Unmap(), from.Port()), buf[:n])
		}
	}
}

func (b *balancer) toEdge(from netip.AddrPort, p []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if begins(p) {
		b.client = from
	}
	if from != b.client {
		return // an edge of another test, for a client that had this port before
	}
	to := b.pick()
	b.known[to] += 0 // an entry lets answers pass
	b.sent++
	if rand.Float64() < b.loss {
		return
	}
	_, _ = b.back.WriteToUDPAddrPort(p, to) // a datagram that is not sent is lost
}

// begins reports whether a datagram is the first of a client: a ConnectionRequest, or QUIC's Initial.
func begins(p []byte) bool {
	return len(p) > 0 && (wire.Command(p[0]) == wire.CommandConnectionRequest || p[0]&0xf0 == 0xc0)
}

// toClient passes on a datagram of an edge to which the client has sent, as a NAT does.
func (b *balancer) toClient(from netip.AddrPort, p []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, ok := b.known[from]; !ok {
		return
	}
	b.known[from]++
	if rand.Float64() < b.loss {
		return
	}
	_, _ = b.front.WriteToUDPAddrPort(p, b.client)
}

// anyOf picks one of these edges at random for each datagram.
func anyOf(to []netip.AddrPort) func() netip.AddrPort {
	return func() netip.AddrPort { return to[rand.IntN(len(to))] }
}

// spread sends each further datagram to one of these edges.
func (b *balancer) spread(to []netip.AddrPort) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pick = anyOf(to)
}

// alternate sends further datagrams to these edges in turn.
func (b *balancer) alternate(to []netip.AddrPort) {
	b.mu.Lock()
	defer b.mu.Unlock()
	turn := 0
	b.pick = func() netip.AddrPort {
		turn++
		return to[turn%len(to)]
	}
}

// route sends all further datagrams to one edge.
func (b *balancer) route(to netip.AddrPort) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pick = func() netip.AddrPort { return to }
}

// routeOnly is route with a balancer that lets no answer of other edges in any more.
func (b *balancer) routeOnly(to netip.AddrPort) {
	b.route(to)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.known = map[netip.AddrPort]int{to: 0}
}

// fromClient returns how many datagrams of the client went to edges.
func (b *balancer) fromClient() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.sent
}

// fromEdge returns how many datagrams of an edge went to the client.
func (b *balancer) fromEdge(edge netip.AddrPort) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.known[edge]
}

// addr returns the address that the client knows.
func (b *balancer) addr() netip.AddrPort { return b.front.LocalAddr().(*net.UDPAddr).AddrPort() }

// behind returns the address of the client as edges see it.
func (b *balancer) behind() netip.AddrPort {
	a := b.back.LocalAddr().(*net.UDPAddr).AddrPort()
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
}
