package webtransport_test

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dnprelay/dnprelay/internal/edge/carrier"
	"github.com/dnprelay/dnprelay/internal/edge/carrier/carriertest"
	"github.com/dnprelay/dnprelay/internal/edge/certificate"
	"github.com/dnprelay/dnprelay/internal/edge/webtransport"
	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
	"github.com/quic-go/quic-go/testutils/simnet"
	client "github.com/quic-go/webtransport-go"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bubble runs a test in a bubble of its own time.
func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, f)
}

// pass lets time pass in the bubble.
func pass(d time.Duration) { time.Sleep(d) }

const (
	latency = 5 * time.Millisecond // of a datagram
	mtu     = 1400                 // of the path: what is longer is lost
)

// A network is a router in memory whose links take time. It loses nothing unless cut says so.
type network struct {
	simnet.PerfectRouter
	t testing.TB

	mu  sync.Mutex // endpoints and the test use it
	cut func(simnet.Packet) bool
}

// SendPacket implements simnet.Router.
func (n *network) SendPacket(p simnet.Packet) error {
	n.mu.Lock()
	lost := n.cut != nil && n.cut(p)
	n.mu.Unlock()
	if lost {
		return nil
	}
	return n.PerfectRouter.SendPacket(p)
}

// lose has the network lose packets from now on, none if cut is nil.
func (n *network) lose(cut func(simnet.Packet) bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cut = cut
}

// endpoint returns a socket with an address.
func (n *network) endpoint(addr string) *simnet.SimConn {
	link := &simnet.Simnet{Router: n}
	settings := simnet.LinkSettings{MTU: mtu}
	a := netip.MustParseAddrPort(addr)
	c := link.NewEndpoint(&net.UDPAddr{IP: a.Addr().AsSlice(), Port: int(a.Port())}, simnet.NodeBiDiLinkSettings{
		Downlink: settings, Uplink: settings, Latency: latency,
	})
	if err := link.Start(); err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() {
		if err := errors.Join(c.Close(), link.Close()); err != nil {
			n.t.Error(err)
		}
	})
	return c
}

const serverAddr = "203.0.113.1:3480"

// A server is a Server with its edge, in a network.
type server struct {
	*carriertest.Edge
	t    testing.TB
	net  *network
	from string // where the next client comes from
	asks int    // how many other requests the next client makes before that for its session
	cfg  webtransport.Config
	stop func() // ends it as the end of an edge does
}

// start runs a server until the test ends.
func start(t testing.TB, limit func(*carrier.Config), configure func(*webtransport.Config)) *server {
	t.Helper()
	s := &server{Edge: carriertest.New(t, limit), t: t, net: &network{t: t}, from: "192.0.2.1:5000"}
	cert, _, err := certificate.Own(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	s.cfg = webtransport.Config{
		Hub: s.Hub, TLS: &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS13},
		Key: []byte("secret of the edge"), Log: slog.New(slog.DiscardHandler),
	}
	if configure != nil {
		configure(&s.cfg)
	}
	s.run()
	return s
}

// run starts the server, and again after stop.
func (s *server) run() {
	s.t.Helper()
	s.cfg.Socket = s.net.endpoint(serverAddr)
	server, err := webtransport.New(s.cfg)
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx) }()
	s.stop = sync.OnceFunc(func() {
		s.Close()
		cancel()
		if err := <-done; err != nil {
			s.t.Errorf("the server ended with %v", err)
		}
	})
	stop := s.stop
	s.t.Cleanup(func() { // before that of the socket
		s.net.lose(nil)
		stop()
	})
}

// clientTLS trusts every server. A browser would know the hash of the certificate.
var clientTLS = &tls.Config{InsecureSkipVerify: true, NextProtos: []string{http3.NextProtoH3}}

// A peer is a client.
type peer struct {
	t       testing.TB
	quic    *quic.Transport
	conn    *quic.Conn
	session *client.Session
	stream  *client.Stream

	Token   string
	Resumed bool
}

// dial makes a session with a stream, on which nothing has been sent. The error is that of the request.
func (s *server) dial(origin string) (*peer, *http.Response, error) {
	s.t.Helper()
	p := &peer{t: s.t, quic: &quic.Transport{Conn: s.net.endpoint(s.from)}}
	s.t.Cleanup(func() {
		if err := p.quic.Close(); err != nil {
			s.t.Error(err)
		}
	})
	d := client.Transport{
		TLSClientConfig: clientTLS,
		QUICConfig:      &quic.Config{EnableDatagrams: true, EnableStreamResetPartialDelivery: true},
		DialAddr: func(ctx context.Context, _ string, t *tls.Config, cfg *quic.Config) (c *quic.Conn, err error) {
			p.conn, err = p.quic.DialEarly(ctx, net.UDPAddrFromAddrPort(netip.MustParseAddrPort(serverAddr)), t, cfg)
			for range s.asks {
				if err == nil {
					err = p.ask(ctx)
				}
			}
			return p.conn, err
		},
	}
	header := http.Header{}
	if origin != "" {
		header.Set("Origin", origin)
	}
	response, session, err := d.Dial(context.Background(), "https://"+serverAddr+"/dnp", header)
	if err != nil {
		return p, response, err
	}
	p.session = session
	p.stream, err = session.OpenStreamSync(context.Background())
	if err != nil {
		s.t.Fatal(err)
	}
	return p, response, nil
}

// ask makes a request for another page, so that the next one has another stream.
func (p *peer) ask(ctx context.Context) error {
	<-p.conn.HandshakeComplete()
	stream, err := p.conn.OpenStreamSync(ctx)
	if err != nil {
		return err
	}
	// HEADERS of 8 bytes: GET, https, / and the host x, all from the static table of QPACK (RFC 9204, appendix A)
	if _, err = stream.Write([]byte("\x01\x08\x00\x00\xd1\xd7\xc1\x50\x01x")); err != nil {
		return err
	}
	if err = stream.Close(); err != nil {
		return err
	}
	_, err = io.ReadAll(stream)
	return err
}

// connect has a client come that resumes the session of a token, or none. It fails the test if the edge refuses it.
func (s *server) connect(token string) *peer {
	s.t.Helper()
	p := s.join(token)
	greeting, err := p.readFrame()
	if err != nil {
		s.t.Fatalf("the client got no greeting: %v", err)
	}
	if err := json.Unmarshal([]byte(greeting), p); err != nil {
		s.t.Fatal(err)
	}
	return p
}

// join has a client come whose greeting the test reads.
func (s *server) join(first string) *peer {
	s.t.Helper()
	p, _, err := s.dial("")
	if err != nil {
		s.t.Fatalf("a client cannot connect: %v", err)
	}
	p.sendFrame(first)
	return p
}

func frame(p string) []byte {
	return append(binary.LittleEndian.AppendUint16(nil, uint16(len(p))), p...)
}

func (p *peer) sendFrame(text string) {
	p.t.Helper()
	p.sendBytes(frame(text))
}

func (p *peer) sendBytes(b []byte) {
	p.t.Helper()
	if _, err := p.stream.Write(b); err != nil {
		p.t.Fatalf("a client cannot write to its stream: %v", err)
	}
}

func (p *peer) readFrame() (string, error) {
	var size [2]byte
	if _, err := io.ReadFull(p.stream, size[:]); err != nil {
		return "", err
	}
	b := make([]byte, binary.LittleEndian.Uint16(size[:]))
	_, err := io.ReadFull(p.stream, b)
	return string(b), err
}

func (p *peer) send(datagrams ...string) {
	p.t.Helper()
	for _, d := range datagrams {
		if err := p.session.SendDatagram([]byte(d)); err != nil {
			p.t.Fatalf("a client cannot send: %v", err)
		}
	}
}

func (p *peer) want(datagrams ...string) {
	p.t.Helper()
	for _, want := range datagrams {
		if got, err := p.session.ReceiveDatagram(context.Background()); err != nil || string(got) != want {
			p.t.Fatalf("the client got %.40q, %v; want %.40q", got, err, want)
		}
	}
}

func (p *peer) wantFrame(want string) {
	p.t.Helper()
	if got, err := p.readFrame(); err != nil || got != want {
		p.t.Fatalf("the client got a frame of %d bytes, %.40q, %v; want %d bytes, %.40q", len(got), got, err, len(want), want)
	}
}

// wantClosed has the edge end the session, and then the connection.
func (p *peer) wantClosed(code client.SessionErrorCode, reason, why string) {
	p.t.Helper()
	carriertest.Next(p.t, p.session.Context().Done(), why)
	_, err := p.session.AcceptStream(context.Background()) // tells why the session ended
	var closed *client.SessionError
	if !errors.As(err, &closed) || closed.ErrorCode != code || closed.Message != reason {
		p.t.Errorf("the session ended with %v, want %d %q: %s", err, code, reason, why)
	}
	carriertest.Next(p.t, p.conn.Context().Done(), "the connection ends after its session")
}

// wantHungUp has the edge end the connection without a word to the session.
func (p *peer) wantHungUp(why string) {
	p.t.Helper()
	carriertest.Next(p.t, p.conn.Context().Done(), why)
	var closed *quic.ApplicationError
	if err := context.Cause(p.conn.Context()); !errors.As(err, &closed) || !closed.Remote {
		p.t.Errorf("the connection ended with %v, want that the edge ended it: %s", err, why)
	}
}

// addr returns the address that the client of a token has for workers.
func (s *server) addr(p *peer) netip.AddrPort { return s.Tokens.Address(carrier.WebTransport, p.Token) }

// block sends copies of a datagram to a client that takes nothing until there is no room for more. The worker has to be told to
// wait then. It may have waited before, because the writer was behind.
func (s *server) block(to netip.AddrPort, datagram string) {
	s.t.Helper()
	full := 0
	for range 10_000 {
		before := s.Stats().OutLost
		s.Send(to, datagram)
		full += len(s.Output.Full())
		synctest.Wait() // the writer has done what it can
		if s.Stats().OutLost == before {
			continue
		}
		for ; len(s.Writable) > 0; full-- {
			<-s.Writable
		}
		if full != 1 {
			s.t.Errorf("the worker was told to wait %d times more than to go on, want 1", full)
		}
		return
	}
	s.t.Fatal("the edge takes datagrams without end for a client that takes nothing")
}

// to reports whether a packet goes to an address.
func to(addr string) func(simnet.Packet) bool {
	return func(p simnet.Packet) bool { return p.To.String() == addr }
}

func bytes(n int) string { return strings.Repeat("x", n) }
