package lludp

import (
	"cmp"
	"context"
	crand "crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"runtime"
	"sync"
	"time"

	"github.com/dnprelay/dnprelay/client"
	"github.com/dnprelay/dnprelay/dnp/udp"
	"github.com/dnprelay/dnprelay/internal/edge/carrier"
	"github.com/dnprelay/dnprelay/internal/edge/lludp/viewer"
	"github.com/dnprelay/dnprelay/internal/telemetry"
	"github.com/dnprelay/dnprelay/lludp/wire"
)

// Config is what a Server is made of.
type Config struct {
	Hub    *carrier.Hub
	Socket *udp.Socket // which the Server owns
	Region string

	// Auth is how clients identify themselves: open, token or callout.
	Auth string

	// Local has viewers of this machine open circuits without a login.
	Local bool

	// Public is the address that viewers are told at login. If it is not valid, it is that of the socket, or the one at which the
	// login came.
	Public netip.AddrPort

	// LoginLife is how long a login waits for its circuit; 0 = 30 s.
	LoginLife time.Duration

	Origins carrier.Origins
	Proxies carrier.Proxies
	Log     *slog.Logger
}

// A Server is a listener for viewers.
type Server struct {
	cfg     Config
	socket  *udp.Socket
	addr    netip.AddrPort
	scratch wire.Scratch     // of the goroutine of the socket
	writers chan *udp.Writer // those that no viewer uses
	serving sync.WaitGroup
	ctx     context.Context // ends with the Server; of logins by UDP
	cancel  context.CancelFunc

	counting sync.Mutex // guards counts, to which the goroutines of HTTP, of the socket and of viewers add
	counts   counters

	// mu guards the rest. Viewers come and go in goroutines of their own; the goroutine of the socket looks addresses up.
	mu      sync.RWMutex
	peers   map[netip.AddrPort]*peer
	logins  logins
	joining map[netip.AddrPort]bool
	seeds   seeds
	past    viewer.Stats // of viewers that are gone
	closed  bool
}

// joiningMax is how many viewers may log in by UDP at once, from this machine.
const joiningMax = 32

// joinTimeout bounds a login. It is less than an answer by HTTP may take.
const joinTimeout = 8 * time.Second

// Listen opens the socket of a Server.
func Listen(addr netip.AddrPort) (*udp.Socket, error) {
	return udp.Open(udp.Config{Addr: addr, DatagramMax: wire.ReceiveMax + 1}) // a circuit counts what is longer
}

// New returns a Server for a socket.
func New(cfg Config) *Server {
	ctx, cancel := context.WithCancel(context.Background())
	s := &Server{
		cfg: cfg, socket: cfg.Socket, addr: cfg.Socket.LocalAddr(), ctx: ctx, cancel: cancel,
		peers: map[netip.AddrPort]*peer{}, logins: logins{byCode: map[uint32]*peer{}}, joining: map[netip.AddrPort]bool{}, seeds: newSeeds(),
	}
	// A Writer has 140 KB, so viewers share as many as there are goroutines that run.
	s.writers = make(chan *udp.Writer, runtime.GOMAXPROCS(0))
	for range cap(s.writers) {
		s.writers <- s.socket.NewWriter()
	}
	return s
}

// Addr returns the address that is served.
func (s *Server) Addr() netip.AddrPort { return s.addr }

// farewellTime is how long viewers may take to confirm that they know that the edge ends.
const farewellTime = 500 * time.Millisecond

// Run serves until ctx ends. It waits for all viewers.
func (s *Server) Run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, s.close)
	defer stop()
	err := s.read()
	s.close()
	s.serving.Wait()
	if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
		return nil
	}
	return fmt.Errorf("lludp: %w", err)
}

// close tells all viewers that they have to go, and closes the socket when they know.
func (s *Server) close() {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return
	}
	s.closed = true
	s.cancel()
	var list []*peer
	for _, p := range s.peers {
		list = append(list, p)
	}
	for _, p := range s.logins.byCode {
		list = append(list, p)
	}
	s.mu.Unlock()
	deadline := time.NewTimer(farewellTime)
	defer deadline.Stop()
	for _, p := range list {
		p.kick("The region restarts. Please log in again.")
	}
	for _, p := range list {
		select {
		case <-p.gone:
		case <-deadline.C:
			deadline.Reset(0)
			p.cut()
		}
	}
	_ = s.socket.Close() // read returns
}

// batchMax is how many datagrams are read at once.
const batchMax = 64

// read hands datagrams to viewers until the socket closes.
func (s *Server) read() error {
	batch := make([]udp.Datagram, batchMax)
	for {
		n, err := s.socket.ReadBatch(batch)
		if err != nil && !errors.Is(err, udp.ErrWoken) {
			return err
		}
		for _, d := range batch[:n] {
			s.received(d.From, d.Data)
		}
	}
}

// transmit sends what a viewer has put into a Writer, which is free then. What does not leave is lost, as on any network; the socket
// counts it.
func (s *Server) transmit(w *udp.Writer) {
	_ = w.Flush() // it fails when the socket is closed
	s.writers <- w
}

// received takes one datagram. Nobody but viewers that have logged in gets an answer.
func (s *Server) received(from netip.AddrPort, datagram []byte) {
	s.mu.RLock()
	p := s.peers[from]
	s.mu.RUnlock()
	if p != nil && !opens(datagram) {
		p.receive(datagram)
		return
	}
	m, err := wire.Parse(datagram, &s.scratch)
	if err != nil {
		s.ignore(malformed)
		return
	}
	if m.Number != wire.UseCircuitCode {
		s.ignore(stranger)
		return
	}
	o, err := wire.ParseOpening(m.Body)
	if err != nil {
		s.ignore(malformed)
		return
	}
	if p != nil && p.opening == o { // the acknowledgement got lost
		p.receive(datagram)
		return
	}
	s.open(from, o, datagram)
}

// opens reports whether a datagram may have a UseCircuitCode, which is not zero-coded.
func opens(b []byte) bool {
	return len(b) >= wire.HeaderSize+4 && binary.BigEndian.Uint32(b[wire.HeaderSize:]) == uint32(wire.UseCircuitCode)
}

// open opens a circuit, in the place of an older one from the same address.
func (s *Server) open(from netip.AddrPort, o wire.Opening, datagram []byte) {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return
	}
	p, why := s.logins.take(o, from.Addr())
	old := s.peers[from]
	if p != nil {
		s.peers[from] = p
	}
	direct := p == nil && old == nil && s.cfg.Local && from.Addr().IsLoopback() && !s.joining[from]
	if direct = direct && len(s.joining) < joiningMax; direct {
		s.joining[from] = true
		s.serving.Add(1)
	}
	s.mu.Unlock()
	switch {
	case p != nil:
		if old != nil {
			old.kick("The viewer has logged in again.")
		}
		p.begin(from, datagram)
	case direct:
		go s.joinDirectly(from, o, append([]byte(nil), datagram...))
	default:
		s.ignore(why)
	}
}

// begin opens the circuit with its first datagram.
func (p *peer) begin(from netip.AddrPort, datagram []byte) {
	p.mu.Lock()
	p.addr = from
	p.core.Receive(time.Now(), datagram, p)
	p.settle()
	p.server.cfg.Log.Debug("viewer opened its circuit", "name", p.first+" "+p.last)
}

// joinDirectly logs a viewer of this machine in that did not do so by HTTP.
func (s *Server) joinDirectly(from netip.AddrPort, o wire.Opening, datagram []byte) {
	defer s.serving.Done()
	p := s.newPeer(o, from.Addr(), "Viewer", fmt.Sprint(from.Port()))
	ctx, cancel := context.WithTimeout(s.ctx, joinTimeout)
	defer cancel()
	err := p.join(ctx, client.Config{})
	s.mu.Lock()
	delete(s.joining, from)
	fits := err == nil && !s.closed && s.peers[from] == nil
	if fits {
		s.peers[from] = p
	}
	s.mu.Unlock()
	s.judged(err)
	switch {
	case fits:
		s.serve(p)
		p.begin(from, datagram)
	case err == nil:
		p.leave()
	}
}

// serve starts the goroutine of a viewer.
func (s *Server) serve(p *peer) {
	p.mu.Lock()
	p.expires = time.Now().Add(cmp.Or(s.cfg.LoginLife, loginLife))
	p.mu.Unlock()
	s.serving.Go(p.run)
}

// expire ends a login that no circuit followed, and reports whether that is so.
func (s *Server) expire(p *peer) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.logins.remove(p) {
		return false
	}
	s.count(&s.counts.Expired)
	return true
}

// remove forgets a viewer that is gone.
func (s *Server) remove(p *peer) {
	p.mu.Lock()
	stats, addr := p.core.Stats(), p.addr
	p.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	telemetry.Sum(&s.past, &stats)
	if s.peers[addr] == p {
		delete(s.peers, addr)
	}
	s.logins.remove(p)
	s.seeds.end(p, time.Now())
}

// random returns random bytes as a UUID, version 4.
func random() (u wire.UUID) {
	_, _ = crand.Read(u[:]) // it never fails
	u[6] = u[6]&0x0F | 0x40
	u[8] = u[8]&0x3F | 0x80
	return u
}
