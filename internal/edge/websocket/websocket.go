// Package websocket serves clients that bring their datagrams by WebSocket (RFC 6455): browsers, and
// all for whom UDP is closed. One binary message is one datagram. INTERFACES.md has the rules.
package websocket

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"
	"github.com/dnprelay/dnprelay/internal/cork"
	"github.com/dnprelay/dnprelay/internal/edge/carrier"
)

// Limits of an HTTP request. A token fits into a hundredth of the headers.
const (
	headerBytesMax = 8 << 10
	idleTimeout    = 30 * time.Second // of a connection between two requests
	infoAge        = 60               // seconds that a browser may keep the answer about cross-origin requests
)

// sendBuffer is the size in bytes that is requested for the send buffer of each socket: what is in it cannot be replaced by newer
// values.
const sendBuffer = 32 << 10

// Sizes of the buffers of a connection in bytes, for most of the time an idle one. Clients send short messages, and what an
// edge writes is in a corked connection.
const (
	readBuffer  = 1 << 10
	writeBuffer = 256
)

// Config is what a Server is made of.
type Config struct {
	Hub     *carrier.Hub
	Socket  net.Listener
	TLS     *tls.Config // nil for plain text, behind a proxy that ends TLS or on loopback
	Origins carrier.Origins
	Proxies carrier.Proxies

	// Info returns what is told at carrier.InfoPath, besides what this listener knows about itself.
	Info func() carrier.Info

	// Adapters serve clients that offer another subprotocol.
	Adapters []Adapter

	// Page, if set, is served at /.
	Page fs.FS

	// Routes are served, too, by pattern of http.ServeMux.
	Routes map[string]http.Handler

	Log *slog.Logger
}

// A Server is a listener for WebSockets.
type Server struct {
	cfg      Config
	http     *http.Server
	listener *carrier.Listener
	scratch  sync.Pool // of *[carrier.DatagramMax + 1]byte
	serving  sync.WaitGroup
}

// New returns a Server for a socket, which it owns.
func New(cfg Config) *Server {
	s := &Server{cfg: cfg, listener: cfg.Hub.Listen(cfg.Socket)}
	s.scratch.New = func() any { return new([carrier.DatagramMax + 1]byte) }
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+carrier.Path, s.connect)
	mux.HandleFunc("GET "+carrier.InfoPath, s.info)
	for pattern, h := range cfg.Routes {
		mux.Handle(pattern, h)
	}
	if cfg.Page != nil {
		mux.Handle("GET /", http.FileServerFS(cfg.Page))
	}
	s.http = &http.Server{
		Handler: mux, ConnState: s.listener.State, TLSConfig: cfg.TLS,
		ReadHeaderTimeout: carrier.FirstTimeout, WriteTimeout: carrier.WriteTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: headerBytesMax,
		ErrorLog: slog.NewLogLogger(cfg.Log.Handler(), slog.LevelDebug), // failed handshakes, which anybody can cause
	}
	return s
}

// Addr returns the address that is served.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// Run serves until ctx ends. Connections end when the Hub closes them; Run waits for them.
func (s *Server) Run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { _ = s.http.Close() }) // Serve returns
	defer stop()
	var err error
	if s.cfg.TLS != nil {
		err = s.http.ServeTLS(s.listener, "", "")
	} else {
		err = s.http.Serve(s.listener)
	}
	s.serving.Wait()
	if ctx.Err() != nil || errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("websocket: %w", err)
}

// info answers which carriers there are.
func (s *Server) info(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Vary", "Origin")
	if origin := r.Header.Get("Origin"); origin != "" && s.cfg.Origins.Allow(r) {
		w.Header().Set("Access-Control-Allow-Origin", origin)
		w.Header().Set("Access-Control-Max-Age", strconv.Itoa(infoAge))
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	info := s.cfg.Info()
	info.WebSocket = &carrier.WebSocketInfo{Path: carrier.Path, Protocols: s.protocols()}
	_, _ = w.Write(info.JSON()) // the client is gone
}

// protocols returns the subprotocols that clients may offer.
func (s *Server) protocols() []string {
	list := []string{carrier.Protocol}
	for _, a := range s.cfg.Adapters {
		list = append(list, a.Protocols()...)
	}
	return list
}

// resumePrefix stands before the token of an earlier connection in the list of subprotocols: browsers let a page
// set no other header.
const resumePrefix = "dnp.resume."

// presented returns the token that a client presents, or nothing.
func presented(r *http.Request) string {
	for _, name := range offered(r) {
		if token, ok := strings.CutPrefix(name, resumePrefix); ok {
			return token
		}
	}
	return ""
}

// offered returns the subprotocols of a request.
func offered(r *http.Request) []string {
	list := strings.Split(strings.Join(r.Header.Values("Sec-WebSocket-Protocol"), ","), ",")
	for i := range list {
		list[i] = strings.TrimSpace(list[i])
	}
	return list
}

// connect serves one client.
func (s *Server) connect(w http.ResponseWriter, r *http.Request) {
	s.serving.Add(1)
	defer s.serving.Done()
	switch {
	case !s.cfg.Origins.Allow(r):
		s.cfg.Hub.Refused(carrier.BadOrigin)
		http.Error(w, "this page may not connect; see --websocket-origins", http.StatusForbidden)
		return
	case !strings.EqualFold(r.Header.Get("Upgrade"), "websocket"):
		http.Error(w, "this is the address for WebSockets of DNP clients", http.StatusUpgradeRequired)
		return
	case !slices.Contains(offered(r), carrier.Protocol):
		if a, protocol := s.adapter(r); a != nil {
			s.adapt(w, r, a, protocol)
			return
		}
		http.Error(w, "the client does not offer the subprotocol "+carrier.Protocol, http.StatusBadRequest)
		return
	}
	seat, reason, ok := s.cfg.Hub.Reserve(carrier.WebSocket, s.cfg.Proxies.Home(r), presented(r))
	if !ok {
		refuse(w, reason)
		return
	}
	var c *carrier.Conn
	t, ok := accept(w, r, carrier.Protocol, func(payload []byte) { // by read
		if len(payload) == markSize {
			c.Confirmed(binary.LittleEndian.Uint32(payload))
		}
	})
	if !ok {
		seat.Release()
		return
	}
	if err := t.greet(seat.Greeting()); err != nil {
		seat.Release()
		_ = t.socket.CloseNow()
		return
	}
	c = seat.Open(t)
	s.serving.Go(func() { c.Lost(s.read(c, t)) }) // not in this goroutine, whose stack and request would remain
}

// refuse answers a client that has no place.
func refuse(w http.ResponseWriter, r carrier.Reason) {
	status := http.StatusServiceUnavailable
	if r == carrier.TooMany {
		status = http.StatusTooManyRequests
	}
	w.Header().Set("Retry-After", strconv.Itoa(r.RetryAfter()))
	http.Error(w, r.String(), status)
}

// read hands the messages of a client to the edge until the connection ends, and returns why.
func (s *Server) read(c *carrier.Conn, t *transport) carrier.Reason {
	for first := true; ; first = false {
		p, reason := s.next(t, first)
		if p == nil {
			return reason
		}
		if c.Receive(p) != nil {
			return carrier.Lost
		}
	}
}

// next returns the next message of a client, or nil and why there is none. The first one has to come soon.
func (s *Server) next(t *transport, first bool) ([]byte, carrier.Reason) {
	if first && t.conn.SetReadDeadline(time.Now().Add(carrier.FirstTimeout)) != nil {
		return nil, carrier.Lost
	}
	kind, message, err := t.socket.Reader(context.Background())
	switch {
	case first && errors.Is(err, os.ErrDeadlineExceeded):
		return nil, carrier.Silent
	case err != nil:
		return nil, carrier.Lost
	case kind != websocket.MessageBinary:
		return nil, carrier.Malformed
	}
	p, reason := s.readMessage(message)
	if p != nil && first && t.conn.SetReadDeadline(time.Time{}) != nil {
		return nil, carrier.Lost
	}
	return p, reason
}

// readMessage returns a message, or nil and why the connection ends.
func (s *Server) readMessage(message io.Reader) ([]byte, carrier.Reason) {
	scratch := s.scratch.Get().(*[carrier.DatagramMax + 1]byte)
	defer s.scratch.Put(scratch)
	for n := 0; n < len(scratch); {
		m, err := message.Read(scratch[n:])
		switch n += m; {
		case errors.Is(err, io.EOF) && n == 0:
			return nil, carrier.Malformed
		case errors.Is(err, io.EOF) && n <= carrier.DatagramMax:
			return slices.Clone(scratch[:n]), carrier.Lost
		case err != nil && n <= carrier.DatagramMax:
			return nil, carrier.Lost
		}
	}
	return nil, carrier.TooLong
}

// A transport is one WebSocket.
type transport struct {
	socket *websocket.Conn
	conn   *cork.Conn
	mark   uint32 // that the next Write sets, or 0
}

func (t *transport) greet(greeting []byte) error {
	return t.within(carrier.FirstTimeout, func() error {
		return t.socket.Write(context.Background(), websocket.MessageText, greeting)
	})
}

// Write implements carrier.Transport. All messages leave with one system call.
func (t *transport) Write(list [][]byte) error {
	return t.within(carrier.WriteTimeout, func() error {
		t.conn.Cork()
		for _, p := range list {
			if err := t.socket.Write(context.Background(), websocket.MessageBinary, p); err != nil {
				return errors.Join(err, t.conn.Uncork())
			}
		}
		if t.mark != 0 {
			// No frame of the library is under way: this goroutine writes those of messages, and others leave at once.
			if _, err := t.conn.Write(ping(t.mark)); err != nil {
				return errors.Join(err, t.conn.Uncork())
			}
			t.mark = 0
		}
		return t.conn.Uncork()
	})
}

// Mark implements carrier.Marker. Clients answer a ping after what came before it; most need not know that there are any.
func (t *transport) Mark(mark uint32) { t.mark = mark }

// markSize is the size of a mark in bytes.
const markSize = 4

// ping returns a frame with a mark (RFC 6455, section 5.5.2), which the library would wait for.
func ping(mark uint32) []byte {
	return binary.LittleEndian.AppendUint32([]byte{0x80 | 0x9, markSize}, mark)
}

// within calls write, which may take so long. The deadline must not remain: it would fail the library's own frames, such as
// the answer to a ping or the end, which have deadlines of their own.
func (t *transport) within(d time.Duration, write func() error) error {
	if err := t.conn.SetWriteDeadline(time.Now().Add(d)); err != nil {
		return err
	}
	if err := write(); err != nil {
		return err
	}
	return t.conn.SetWriteDeadline(time.Time{})
}

// Close implements carrier.Transport.
func (t *transport) Close(r carrier.Reason) {
	if r == carrier.Lost || r == carrier.Slow { // the client does not listen
		_ = t.socket.CloseNow()
		return
	}
	_ = t.socket.Close(websocket.StatusCode(r.Code()), r.Text()) // the client may be gone already
}

// A hijacker gives the connection of a request away, as one that can be corked.
type hijacker struct {
	http.ResponseWriter
	conn *cork.Conn
}

// Hijack implements http.Hijacker.
func (h *hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(h.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	raw := conn
	if t, ok := conn.(*tls.Conn); ok {
		raw = t.NetConn()
	}
	if t, ok := raw.(*net.TCPConn); ok {
		_ = t.SetWriteBuffer(sendBuffer) // a larger one only costs freshness
	}
	_ = conn.SetDeadline(time.Time{}) // those of the server; the first write notices a failure
	h.conn = &cork.Conn{Conn: conn}
	own := bufio.NewReadWriter(rw.Reader, bufio.NewWriterSize(h.conn, writeBuffer))
	if rw.Reader.Buffered() == 0 { // else the client did not wait for the answer
		own.Reader = bufio.NewReaderSize(h.conn, readBuffer)
	}
	return h.conn, own, nil
}
