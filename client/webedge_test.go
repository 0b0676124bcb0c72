package client

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/coder/websocket"
	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
	"github.com/quic-go/webtransport-go"

	"github.com/dnprelay/dnprelay/internal/edgetest"
)

// A webEdge brings what comes over WebSocket and WebTransport to an edge that speaks UDP: each token has a
// socket of its own, so its address stays the same. Tests end connections and change what it says.
type webEdge struct {
	edge   netip.AddrPort
	urls   map[string]string // by scheme
	roots  *x509.CertPool
	hash   string        // of the certificate
	events chan string   // "connect", "resume" and "refuse"
	heard  chan struct{} // one slot: a datagram came
	served sync.WaitGroup

	mu       sync.Mutex
	sessions map[string]*webSession
	refuse   func() (status int, retryAfter string) // nil or status 0 accepts
	greet    func(text string) string               // nil says text
	silent   bool                                   // it does not even greet
	deaf     bool                                   // it reads and writes nothing more
	byCode   bool                                   // it ends a WebTransport by the code of the session, and not by a frame
}

// A webSession is the session of a token.
type webSession struct {
	socket net.Conn
	peer   webPeer // guarded by webEdge.mu; nil if there is no connection
}

// A webPeer is a connection of a client.
type webPeer interface {
	greet(text string) error
	read() ([]byte, error)
	write(p []byte) error
	close(code int, reason string)
	cut()
}

func startWebEdge(t *testing.T, cfg edgetest.Config) *webEdge {
	t.Helper()
	e := &webEdge{
		edge: edgetest.Start(t, cfg), urls: map[string]string{}, sessions: map[string]*webSession{},
		events: make(chan string, 1000), heard: make(chan struct{}, 1),
	}
	plain, secure := httptest.NewServer(http.HandlerFunc(e.webSocket)), httptest.NewTLSServer(http.HandlerFunc(e.webSocket))
	e.roots = x509.NewCertPool()
	e.roots.AddCert(secure.Certificate())
	sum := sha256.Sum256(secure.Certificate().Raw)
	e.hash = hex.EncodeToString(sum[:])
	socket, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	wt := &webtransport.Server{H3: &http3.Server{TLSConfig: http3.ConfigureTLSConfig(secure.TLS)}}
	wt.H3.ConnContext = func(ctx context.Context, c *quic.Conn) context.Context { return context.WithValue(ctx, quicKey{}, c) }
	wt.H3.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { e.webTransport(wt, w, r) })
	e.served.Go(func() { _ = wt.Serve(socket) }) // until Close
	e.urls["ws"] = "ws://" + plain.Listener.Addr().String()
	e.urls["wss"] = "wss://" + secure.Listener.Addr().String()
	e.urls["wt"] = "wt://" + socket.LocalAddr().String()
	t.Cleanup(func() {
		_ = wt.Close()
		_ = socket.Close()
		plain.Close()
		secure.Close()
		e.forget()
		e.served.Wait()
	})
	return e
}

// set changes what the edge does.
func (e *webEdge) set(change func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	change()
}

func (e *webEdge) codes() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.byCode
}

// each calls do for every connection.
func (e *webEdge) each(do func(webPeer)) {
	e.mu.Lock()
	var peers []webPeer
	for _, s := range e.sessions {
		if s.peer != nil {
			peers = append(peers, s.peer)
		}
	}
	e.mu.Unlock()
	for _, p := range peers {
		do(p)
	}
}

func (e *webEdge) close(code int, reason string) {
	e.each(func(p webPeer) { p.close(code, reason) })
}

func (e *webEdge) cut() { e.each(webPeer.cut) }

// forget ends all sessions, and then the connections: a client that comes back must not find its session.
func (e *webEdge) forget() {
	e.mu.Lock()
	var peers []webPeer
	for token, s := range e.sessions {
		_ = s.socket.Close()
		if s.peer != nil {
			peers = append(peers, s.peer)
		}
		delete(e.sessions, token)
	}
	e.mu.Unlock()
	for _, p := range peers {
		p.cut()
	}
}

// refused writes a refusal.
func (e *webEdge) refused(w http.ResponseWriter, r *http.Request) bool {
	e.mu.Lock()
	refuse := e.refuse
	e.mu.Unlock()
	status, after := 0, ""
	if refuse != nil {
		status, after = refuse()
	}
	if r.URL.Path != "/dnp" {
		status = http.StatusNotFound
	}
	if status == 0 {
		return false
	}
	e.events <- "refuse"
	w.Header().Set("Retry-After", after)
	w.Header().Set("Location", "/dnp") // of a redirect, which clients do not follow
	w.WriteHeader(status)
	return true
}

// serve serves a connection that presented a token, or none.
func (e *webEdge) serve(token string, p webPeer) {
	e.mu.Lock()
	greet, silent := e.greet, e.silent
	e.mu.Unlock()
	if silent {
		_, _ = p.read() // until the client goes
		return
	}
	text, resumed := "connect", token != ""
	if resumed {
		text = "resume"
	} else if token = e.begin(); token == "" {
		p.cut()
		return
	}
	greeting := fmt.Sprintf(`{"token":%q,"resumed":%v}`, token, resumed)
	if greet != nil {
		greeting = greet(greeting)
	}
	e.mu.Lock()
	s := e.sessions[token]
	err := p.greet(greeting) // with mu, so that a client that was greeted is one that cut finds
	if err == nil && s != nil {
		s.peer = p
	}
	e.mu.Unlock()
	if err != nil {
		return
	}
	e.events <- text
	if s == nil {
		p.close(4000, "unknown")
		return
	}
	e.forward(s, p)
}

// begin makes a session.
func (e *webEdge) begin() (token string) {
	socket, err := net.Dial("udp4", e.edge.String())
	if err != nil {
		return ""
	}
	s := &webSession{socket: socket}
	e.mu.Lock()
	token = fmt.Sprintf("%064x", len(e.sessions)+1)
	e.sessions[token] = s
	e.mu.Unlock()
	e.served.Go(func() { e.answer(s) }) // until forget
	return token
}

// answer brings datagrams of the edge to the client.
func (e *webEdge) answer(s *webSession) {
	buf := make([]byte, 65536)
	for {
		n, err := s.socket.Read(buf)
		if err != nil {
			return
		}
		e.mu.Lock()
		peer, deaf := s.peer, e.deaf
		e.mu.Unlock()
		if peer != nil && !deaf {
			_ = peer.write(buf[:n]) // the client asks again
		}
	}
}

// forward brings datagrams of the client to the edge.
func (e *webEdge) forward(s *webSession, p webPeer) {
	for {
		b, err := p.read()
		e.mu.Lock()
		deaf := e.deaf
		if err != nil && s.peer == p {
			s.peer = nil
		}
		e.mu.Unlock()
		if err != nil || deaf {
			return
		}
		wake(e.heard)
		_, _ = s.socket.Write(b)
	}
}

func (e *webEdge) webSocket(w http.ResponseWriter, r *http.Request) {
	if e.refused(w, r) {
		return
	}
	token := ""
	for _, p := range strings.Split(r.Header.Get("Sec-WebSocket-Protocol"), ",") {
		if rest, ok := strings.CutPrefix(strings.TrimSpace(p), "dnp.resume."); ok {
			token = rest
		}
	}
	conn, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{"dnp.v1"}})
	if err != nil {
		return
	}
	conn.SetReadLimit(65535)
	e.serve(token, wsPeer{conn})
}

type wsPeer struct{ conn *websocket.Conn }

func (p wsPeer) greet(text string) error {
	return p.conn.Write(context.Background(), websocket.MessageText, []byte(text))
}

func (p wsPeer) read() ([]byte, error) {
	_, b, err := p.conn.Read(context.Background())
	return b, err
}

func (p wsPeer) write(b []byte) error {
	return p.conn.Write(context.Background(), websocket.MessageBinary, b)
}

func (p wsPeer) close(code int, reason string) { _ = p.conn.Close(websocket.StatusCode(code), reason) }
func (p wsPeer) cut()                          { _ = p.conn.CloseNow() }

func (e *webEdge) webTransport(server *webtransport.Server, w http.ResponseWriter, r *http.Request) {
	if e.refused(w, r) {
		return
	}
	conn := r.Context().Value(quicKey{}).(*quic.Conn)
	session, err := server.Upgrade(w, r)
	if err != nil {
		return
	}
	stream, err := session.AcceptStream(r.Context())
	if err != nil {
		return
	}
	p := &wtPeer{edge: e, session: session, stream: stream, end: func() { _ = conn.CloseWithError(0, "") }, in: make(chan []byte, 1000)}
	token, err := p.frame()
	if err != nil {
		return
	}
	var reading sync.WaitGroup
	reading.Go(p.datagrams)
	reading.Go(p.frames)
	e.serve(string(token), p)
	<-session.Context().Done()
	reading.Wait()
}

// quicKey is the key of the QUIC connection in the context of a request.
type quicKey struct{}

type wtPeer struct {
	edge    *webEdge
	session *webtransport.Session
	stream  *webtransport.Stream
	end     func()
	in      chan []byte
}

func (p *wtPeer) frame() ([]byte, error) {
	var head [2]byte
	if _, err := io.ReadFull(p.stream, head[:]); err != nil {
		return nil, err
	}
	b := make([]byte, binary.LittleEndian.Uint16(head[:]))
	_, err := io.ReadFull(p.stream, b)
	return b, err
}

func (p *wtPeer) frames() {
	for b, err := p.frame(); err == nil; b, err = p.frame() {
		p.hand(b)
	}
}

func (p *wtPeer) datagrams() {
	ctx := p.session.Context()
	for b, err := p.session.ReceiveDatagram(ctx); err == nil; b, err = p.session.ReceiveDatagram(ctx) {
		p.hand(b)
	}
}

func (p *wtPeer) hand(b []byte) {
	select {
	case p.in <- b:
	default:
	}
}

func (p *wtPeer) greet(text string) error { return p.writeFrame([]byte(text)) }

func (p *wtPeer) read() ([]byte, error) {
	select {
	case b := <-p.in:
		return b, nil
	case <-p.session.Context().Done():
		return nil, net.ErrClosed
	}
}

func (p *wtPeer) write(b []byte) error {
	if len(b) <= 1200 {
		return p.session.SendDatagram(b)
	}
	return p.writeFrame(b)
}

func (p *wtPeer) writeFrame(b []byte) error {
	_, err := p.stream.Write(append(binary.LittleEndian.AppendUint16(nil, uint16(len(b))), b...))
	return err
}

// close ends the session as an edge does, but leaves the end to a client that it tells with a frame.
func (p *wtPeer) close(code int, reason string) {
	if !p.edge.codes() {
		_ = p.writeFrame(fmt.Appendf(nil, `{"code":%d,"reason":%q}`, code, reason))
		return
	}
	_ = p.session.CloseWithError(webtransport.SessionErrorCode(code), reason)
}

func (p *wtPeer) cut() { p.end() }

// A middle is a NAT between clients and a UDP server. It can give a client another address, or lose everything.
type middle struct {
	inside *net.UDPConn
	server string

	mu      sync.Mutex
	client  net.Addr
	outside net.Conn
	holds   bool
	running sync.WaitGroup
}

func startMiddle(t *testing.T, server string) *middle {
	t.Helper()
	inside, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	m := &middle{inside: inside, server: server}
	m.move(t)
	m.running.Go(m.outwards) // until inside is closed
	t.Cleanup(func() {
		_ = inside.Close()
		m.mu.Lock()
		_ = m.outside.Close()
		m.mu.Unlock()
		m.running.Wait()
	})
	return m
}

func (m *middle) addr() string { return m.inside.LocalAddr().String() }

func (m *middle) hold(on bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.holds = on
}

// move gives the client another address.
func (m *middle) move(t *testing.T) {
	t.Helper()
	outside, err := net.Dial("udp4", m.server)
	if err != nil {
		t.Fatal(err)
	}
	m.mu.Lock()
	if m.outside != nil {
		_ = m.outside.Close()
	}
	m.outside = outside
	m.mu.Unlock()
	m.running.Go(func() { m.inwards(outside) }) // until it is closed
}

func (m *middle) outwards() {
	buf := make([]byte, 65536)
	for {
		n, from, err := m.inside.ReadFrom(buf)
		if err != nil {
			return
		}
		m.mu.Lock()
		if buf[0]&0xf0 == 0xc0 { // QUIC's Initial
			m.client = from
		}
		if m.client != nil && m.client.String() == from.String() && !m.holds { // others mean a client that had this port before
			_, _ = m.outside.Write(buf[:n])
		}
		m.mu.Unlock()
	}
}

func (m *middle) inwards(outside net.Conn) {
	buf := make([]byte, 65536)
	for {
		n, err := outside.Read(buf)
		if err != nil {
			return
		}
		m.mu.Lock()
		if client := m.client; client != nil && !m.holds {
			_, _ = m.inside.WriteTo(buf[:n], client)
		}
		m.mu.Unlock()
	}
}
