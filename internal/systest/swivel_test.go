package systest

import (
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// A swivel is a balancer for one client: it sends what the client sends to one edge, or
// by turns to two, and what edges send to the client.
type swivel struct {
	front, back *net.UDPConn
	client      atomic.Pointer[netip.AddrPort]
	edge        atomic.Pointer[netip.AddrPort]
	second      atomic.Pointer[netip.AddrPort] // gets every second datagram of the client
	fromClient  atomic.Int64                   // datagrams that went to edges

	mu    sync.Mutex // of what one goroutine counts and tests look at
	froms map[netip.AddrPort]int
}

func newSwivel(t *testing.T) *swivel {
	t.Helper()
	s := &swivel{froms: map[netip.AddrPort]int{}}
	var err error
	if s.front, err = net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)}); err == nil {
		s.back, err = net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	}
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{}, 2)
	go func() { s.carry(s.front, &s.client, s.back, &s.edge); ended <- struct{}{} }()
	go func() { s.carry(s.back, nil, s.front, &s.client); ended <- struct{}{} }()
	t.Cleanup(func() {
		s.front.Close()
		s.back.Close()
		<-ended
		<-ended
	})
	return s
}

// carry brings what comes from one side to the other, until the sockets are closed.
func (s *swivel) carry(in *net.UDPConn, source *atomic.Pointer[netip.AddrPort], out *net.UDPConn, to *atomic.Pointer[netip.AddrPort]) {
	b := make([]byte, 65536)
	turn := 0
	for {
		n, from, err := in.ReadFromUDPAddrPort(b)
		if err != nil {
			if strings.Contains(err.Error(), "closed") {
				return
			}
			continue // the other end does not listen
		}
		a := to.Load()
		if source != nil {
			source.Store(&from)
			if other := s.second.Load(); other != nil && turn%2 == 1 {
				a = other
			}
			turn++
		}
		if a != nil {
			_, _ = out.WriteToUDPAddrPort(b[:n], *a) // it is lost
		}
		s.count(source != nil, from)
	}
}

// count counts a datagram that was brought to the other side.
func (s *swivel) count(ofClient bool, from netip.AddrPort) {
	if ofClient {
		s.fromClient.Add(1)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.froms[netip.AddrPortFrom(from.Addr().Unmap(), from.Port())]++
}

// fromEdge returns how many datagrams of an edge went to the client.
func (s *swivel) fromEdge(edge netip.AddrPort) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.froms[edge]
}

// behind returns the address of the client as edges see it.
func (s *swivel) behind() netip.AddrPort {
	a := s.back.LocalAddr().(*net.UDPAddr).AddrPort()
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
}

func (s *swivel) addr() netip.AddrPort { return s.front.LocalAddr().(*net.UDPAddr).AddrPort() }
