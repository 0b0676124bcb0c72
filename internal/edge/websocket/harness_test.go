package websocket_test

import (
	"bytes"
	"context"
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
	"time"

	client "github.com/coder/websocket"
	"github.com/dnprelay/dnprelay/internal/edge/carrier"
	"github.com/dnprelay/dnprelay/internal/edge/carrier/carriertest"
	"github.com/dnprelay/dnprelay/internal/edge/websocket"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A server is a Server with its edge, on a listener in memory. In a synctest bubble its timeouts take no time.
type server struct {
	*carriertest.Edge
	t        testing.TB
	listener *listener
	from     string // where the next clients come from

	onPing func(context.Context, []byte) bool // of the next clients
}

// start runs a server until the test ends.
func start(t testing.TB, limit func(*carrier.Config), configure func(*websocket.Config)) *server {
	s := &server{Edge: carriertest.New(t, limit), t: t, listener: newListener(), from: "192.0.2.1:5000"}
	cfg := websocket.Config{
		Hub: s.Hub, Socket: s.listener, Log: discard,
		Info: func() carrier.Info { return carrier.Info{Protocols: []string{carrier.Protocol}} },
	}
	if configure != nil {
		configure(&cfg)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- websocket.New(cfg).Run(ctx) }()
	t.Cleanup(func() {
		s.Close()
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the server ended with %v", err)
		}
	})
	return s
}

// header is header lines for a request, names and values in turn.
func header(lines ...string) http.Header {
	h := http.Header{}
	for i := 0; i < len(lines); i += 2 {
		h.Add(lines[i], lines[i+1])
	}
	return h
}

// client returns an HTTP client of the server, which keeps no connection.
func (s *server) client() *http.Client {
	from := netip.MustParseAddrPort(s.from)
	return &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext:       func(context.Context, string, string) (net.Conn, error) { return s.listener.dial(from) },
	}}
}

// A peer is a client that is connected.
type peer struct {
	*client.Conn
	t        testing.TB
	Token    string
	Resumed  bool
	protocol string
}

// connect has a client come that resumes the session of a token, or none. It fails the test if the edge refuses it.
func (s *server) connect(token string, h http.Header) *peer {
	s.t.Helper()
	c, response, err := s.dial(token, h)
	if err != nil {
		s.t.Fatalf("a client cannot connect: %v (%+v)", err, response)
	}
	s.t.Cleanup(func() { _ = c.CloseNow() })
	p := &peer{Conn: c, t: s.t, protocol: response.Header.Get("Sec-WebSocket-Protocol")}
	kind, greeting, err := c.Read(context.Background())
	if err != nil || kind != client.MessageText {
		s.t.Fatalf("the greeting is %v %q, %v; want a text message", kind, greeting, err)
	}
	if err := json.Unmarshal(greeting, p); err != nil {
		s.t.Fatal(err)
	}
	c.SetReadLimit(-1)
	return p
}

func (s *server) dial(token string, h http.Header) (*client.Conn, *http.Response, error) {
	protocols := []string{carrier.Protocol}
	if token != "" {
		protocols = append(protocols, "dnp.resume."+token)
	}
	return client.Dial(context.Background(), "ws://edge.example/dnp", &client.DialOptions{
		HTTPClient: s.client(), Subprotocols: protocols, HTTPHeader: h, OnPingReceived: s.onPing,
	})
}

// addr returns the address that the client of a token has for workers.
func (s *server) addr(p *peer) netip.AddrPort { return s.Tokens.Address(carrier.WebSocket, p.Token) }

// wantRefused has a client come that the edge refuses before the upgrade.
func (s *server) wantRefused(status int, retry, why string, h http.Header) {
	s.t.Helper()
	c, response, err := s.dial("", h)
	if err == nil {
		_ = c.CloseNow()
		s.t.Fatalf("the edge took a client, want %d: %s", status, why)
	}
	if response == nil || response.StatusCode != status || response.Header.Get("Retry-After") != retry {
		s.t.Errorf("the answer is %+v, want status %d with Retry-After %q: %s", response, status, retry, why)
	}
}

func (p *peer) send(datagrams ...string) {
	p.t.Helper()
	for _, d := range datagrams {
		if err := p.Write(context.Background(), client.MessageBinary, []byte(d)); err != nil {
			p.t.Fatalf("a client cannot send: %v", err)
		}
	}
}

func (p *peer) want(datagrams ...string) {
	p.t.Helper()
	for _, want := range datagrams {
		kind, got, err := p.Read(context.Background())
		if err != nil || kind != client.MessageBinary || string(got) != want {
			p.t.Fatalf("the client got %v %.40q, %v; want %.40q", kind, got, err, want)
		}
	}
}

// wantClosed has the edge end the connection.
func (p *peer) wantClosed(code client.StatusCode, reason, why string) {
	p.t.Helper()
	_, got, err := p.Read(context.Background())
	var closed client.CloseError
	if !errors.As(err, &closed) || closed.Code != code || closed.Reason != reason {
		p.t.Errorf("the client got %.40q, %v; want the end with %d %q: %s", got, err, code, reason, why)
	}
}

// A listener accepts connections in memory. What is written waits until it is read: such a connection has no buffers.
type listener struct {
	conns chan net.Conn
	end   chan struct{}
	once  sync.Once
}

func newListener() *listener { return &listener{conns: make(chan net.Conn), end: make(chan struct{})} }

// dial returns the client's end of a new connection from an address.
func (l *listener) dial(from netip.AddrPort) (net.Conn, error) {
	mine, its := net.Pipe()
	select {
	case l.conns <- &conn{Conn: its, from: net.TCPAddrFromAddrPort(from)}:
		return mine, nil
	case <-l.end:
		return nil, net.ErrClosed
	}
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.end:
		return nil, net.ErrClosed
	}
}

func (l *listener) Close() error {
	l.once.Do(func() { close(l.end) })
	return nil
}

func (l *listener) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 3480} }

type conn struct {
	net.Conn
	from net.Addr
}

func (c *conn) RemoteAddr() net.Addr { return c.from }

// kilobytes returns a datagram of n KiB.
func kilobytes(n int) string { return strings.Repeat("x", n<<10) }

// body returns what a response says.
func body(t testing.TB, r *http.Response) string {
	t.Helper()
	var b bytes.Buffer
	if _, err := io.Copy(&b, r.Body); err != nil {
		t.Fatal(err)
	}
	if err := r.Body.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

var discard = slog.New(slog.DiscardHandler)

// pass lets time pass in the bubble.
func pass(d time.Duration) { time.Sleep(d) }
