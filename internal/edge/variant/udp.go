package variant

import (
	"context"
	crand "crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/dnprelay/dnprelay/dnp/admit"
	"github.com/dnprelay/dnprelay/internal/edge/variant/protocol"
)

// datagramMax is the longest datagram that is read; UDP has none that is longer.
const datagramMax = 65_535

// A datagramDrop says why a datagram belongs to no session.
type datagramDrop uint8

const (
	dropMalformed datagramDrop = iota // it is no Array of the right form
	dropUnknown                       // no session has its cookie
	dropLimited                       // there are too many newcomers, in all or of one network

	numDatagramDrops = int(iota)
)

// String returns the name of d in metrics.
func (d datagramDrop) String() string {
	return [numDatagramDrops]string{"malformed", "unknown", "limited"}[d]
}

// A Server is a listener for Variants by UDP.
type Server struct {
	adapter *Adapter
	socket  *net.UDPConn
	cookies *protocol.Cookies // of the reader
	gate    *admit.Gate       // of the reader
	serving sync.WaitGroup
	ctx     context.Context // of Run

	// mu guards peers: the reader adds them, and each removes itself.
	mu    sync.Mutex
	peers map[netip.AddrPort]*udpPeer
}

// ListenUDP returns a Server for a socket, which it owns. The admission bounds new peers.
func (a *Adapter) ListenUDP(socket *net.UDPConn, admission admit.Config) (*Server, error) {
	gate, err := admit.New(admission)
	if err != nil {
		return nil, fmt.Errorf("variant: %w", err)
	}
	return &Server{
		adapter: a, socket: socket, gate: gate, peers: make(map[netip.AddrPort]*udpPeer),
		cookies: protocol.NewCookies([]byte(crand.Text()), time.Now()),
	}, nil
}

// Addr returns the address that is served.
func (s *Server) Addr() net.Addr { return s.socket.LocalAddr() }

// Run serves until ctx ends.
func (s *Server) Run(ctx context.Context) error {
	s.ctx = ctx
	stop := context.AfterFunc(ctx, func() { _ = s.socket.SetReadDeadline(time.Unix(1, 0)) }) // the reader returns
	defer stop()
	err := s.read()
	s.serving.Wait() // peers get their last word
	if closed := s.socket.Close(); err == nil && closed != nil {
		err = closed
	}
	if err != nil {
		return fmt.Errorf("variant: %w", err)
	}
	return nil
}

func (s *Server) read() error {
	buf := make([]byte, datagramMax)
	for {
		n, from, err := s.socket.ReadFromUDPAddrPort(buf)
		switch {
		case s.ctx.Err() != nil:
			return nil
		case errors.Is(err, net.ErrClosed):
			return err
		case err != nil: // about one peer, such as a port that is closed
			continue
		}
		if drop, ok := s.receive(time.Now(), netip.AddrPortFrom(from.Addr().Unmap(), from.Port()), buf[:n]); !ok {
			s.adapter.dropped(drop)
		}
	}
}

func (a *Adapter) dropped(d datagramDrop) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.past.Datagrams[d]++
}

// receive handles a datagram. It reports false and why if it belongs to no session.
func (s *Server) receive(now time.Time, from netip.AddrPort, p []byte) (datagramDrop, bool) {
	f, ok := protocol.ParseFrame(p)
	if !ok {
		return dropMalformed, false
	}
	s.mu.Lock()
	known := s.peers[from]
	s.mu.Unlock()
	if known != nil && known.channel.Owns(&f) {
		known.mu.Lock()
		known.channel.Receive(now, &f)
		known.mu.Unlock()
		known.wake.Wake()
		return 0, true
	}
	if !f.Begins() {
		return dropUnknown, false
	}
	k, valid := s.cookies.Valid(now, from, f.Cookie)
	switch {
	case !valid:
		return s.challenge(now, from, &f)
	case known != nil && !known.channel.Precedes(&k):
		return dropUnknown, false // late, of an earlier session
	case !s.adapter.enter(from.Addr()):
		return dropLimited, false
	}
	if known != nil {
		known.end(protocol.Gone) // its peer began anew
	}
	s.open(now, from, k, &f)
	return 0, true
}

// challenge gives a peer a cookie. The answer is shorter than what it answers, because the address may be forged.
func (s *Server) challenge(now time.Time, to netip.AddrPort, f *protocol.Frame) (datagramDrop, bool) {
	if s.gate.Judge(now, to, admit.Request) > admit.Stateless {
		return dropLimited, false
	}
	answer := protocol.Challenge(nil, f.Dialect, s.cookies.New(now, to))
	_, _ = s.socket.WriteToUDPAddrPort(answer, to) // the peer asks again
	return 0, true
}

// open begins a session with its first datagram.
func (s *Server) open(now time.Time, from netip.AddrPort, k protocol.Cookie, f *protocol.Frame) {
	p := s.adapter.newPeer(from.Addr())
	p.udp = true
	u := &udpPeer{peer: p, server: s, addr: from, channel: protocol.NewChannel(protocol.Config{Dialect: f.Dialect, Client: p}, k, now)}
	p.core = u.channel.Core()
	s.adapter.add(p)
	s.mu.Lock()
	s.peers[from] = u
	s.mu.Unlock()
	p.mu.Lock()
	u.channel.Receive(now, f)
	p.mu.Unlock()
	s.serving.Go(u.run)
}

// A udpPeer is a peer by UDP.
type udpPeer struct {
	*peer
	server  *Server
	addr    netip.AddrPort
	channel *protocol.Channel
}

// run sends what is due until the peer has ended.
func (u *udpPeer) run() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	var out batch
	for over := false; !over; {
		u.mu.Lock()
		now := time.Now()
		if u.server.ctx.Err() != nil {
			u.core.End(protocol.Leaving, "")
		}
		out.reset()
		u.channel.Advance(now, out.add)
		over = u.channel.Over(now) || u.server.ctx.Err() != nil
		if last := u.channel.LastWord(); over && last != nil {
			out.add(last)
		}
		due := u.channel.NextTimeout(now)
		u.mu.Unlock()
		for _, d := range out.list() {
			_, _ = u.server.socket.WriteToUDPAddrPort(d, u.addr) // what gets lost is repeated
		}
		if over {
			break
		}
		timer.Reset(time.Until(due))
		select {
		case <-timer.C:
		case <-u.wake:
		case <-u.server.ctx.Done():
		}
	}
	u.server.forget(u)
	u.close()
}

func (s *Server) forget(u *udpPeer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.peers[u.addr] == u {
		delete(s.peers, u.addr)
	}
}
