// Package webtransport serves clients that bring their datagrams by WebTransport (HTTP/3): browsers, for which UDP
// is open. A QUIC datagram is one datagram; a stream carries those that do not fit. INTERFACES.md has the rules.
//
// Each client has a QUIC connection with one session, and in it one stream, which the client opens. All else that HTTP/3 could do is
// closed. quic-go and webtransport-go do the protocols; this package bounds what a client can have them hold.
package webtransport

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dnprelay/dnprelay/internal/edge/carrier"
	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
	"github.com/quic-go/webtransport-go"
)

// Limits of a QUIC connection.
const (
	// beginTimeout is how long a connection may have no session. Its handshake may take the first half of it.
	beginTimeout = 2 * carrier.FirstTimeout

	// idleTimeout is how long a client may be silent on the level of QUIC, which asks it for signs of life.
	idleTimeout = 30 * time.Second

	headerBytesMax = 8 << 10 // of a request

	// streamsMax is for the CONNECT request and the stream of the session. HTTP/3 demands that its three streams in one direction
	// be allowed, and browsers may open one more to grease (RFC 9114, section 6.2).
	streamsMax    = 2
	uniStreamsMax = 4

	// window is how many bytes of streams a client may send before they are read.
	window = 128 << 10
)

// Config is what a Server is made of.
type Config struct {
	Hub     *carrier.Hub
	Socket  net.PacketConn
	TLS     *tls.Config // its protocols and oldest version are set here
	Origins carrier.Origins

	// Key, if set, is a secret of this edge that survives its restart: then it can tell clients of an earlier process at once that
	// their connections are gone. Two edges must not have the same, because one could be asked to end connections of the other
	// (RFC 9000, section 21.11).
	Key []byte

	Log *slog.Logger
}

// A Server is a listener for WebTransport sessions.
type Server struct {
	cfg       Config
	socket    packetSocket
	quic      *quic.Transport
	http      *http3.Server
	sessions  *webtransport.Server
	newcomers carrier.Newcomers
	serving   sync.WaitGroup
}

// New returns a Server for a socket, which it owns if there is no error.
func New(cfg Config) (*Server, error) {
	if cfg.TLS == nil {
		return nil, errors.New("webtransport: there is no certificate")
	}
	s := &Server{cfg: cfg, socket: newSocket(cfg.Socket)}
	s.quic = &quic.Transport{
		Conn: s.socket, ConnContext: s.arrive,
		VerifySourceAddress: func(net.Addr) bool { return s.newcomers.Crowded() },
	}
	if cfg.Key != nil {
		s.quic.StatelessResetKey = new(quic.StatelessResetKey(derive(cfg.Key, "stateless reset")))
		s.quic.TokenGeneratorKey = new(quic.TokenGeneratorKey(derive(cfg.Key, "address token")))
	}
	s.http = &http3.Server{
		Handler: http.HandlerFunc(s.connect), EnableDatagrams: true, MaxHeaderBytes: headerBytesMax, Logger: cfg.Log,
	}
	s.sessions = &webtransport.Server{
		H3: s.http, ReorderingTimeout: carrier.FirstTimeout,
		CheckOrigin: func(*http.Request) bool { return true }, // connect has verified it
	}
	return s, nil
}

func derive(key []byte, use string) [sha256.Size]byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte("dnprelay webtransport " + use))
	return [sha256.Size]byte(h.Sum(nil))
}

// Addr returns the address that is served.
func (s *Server) Addr() net.Addr { return s.cfg.Socket.LocalAddr() }

// Run serves until ctx ends. Connections end when the Hub closes them; Run waits for them.
func (s *Server) Run(ctx context.Context) error {
	var sending sync.WaitGroup
	sending.Go(s.socket.run)
	err := s.accept(ctx)
	s.serving.Wait()
	if e := errors.Join(s.sessions.Close(), s.quic.Close(), s.socket.Close()); ctx.Err() != nil {
		err = e
	}
	sending.Wait()
	if err != nil {
		return fmt.Errorf("webtransport: %w", err)
	}
	return nil
}

// accept starts to serve each QUIC connection until ctx or the socket ends.
func (s *Server) accept(ctx context.Context) error {
	listener, err := s.quic.ListenEarly(http3.ConfigureTLSConfig(s.cfg.TLS), &quic.Config{
		HandshakeIdleTimeout: carrier.FirstTimeout, MaxIdleTimeout: idleTimeout,
		InitialStreamReceiveWindow: window, MaxStreamReceiveWindow: window,
		InitialConnectionReceiveWindow: window, MaxConnectionReceiveWindow: window,
		MaxIncomingStreams: streamsMax, MaxIncomingUniStreams: uniStreamsMax,
		EnableDatagrams: true, EnableStreamResetPartialDelivery: true,
	})
	if err != nil {
		return err
	}
	for {
		conn, err := listener.Accept(ctx)
		if err != nil {
			return errors.Join(err, listener.Close())
		}
		s.serving.Go(func() { s.serve(ctx, conn) })
	}
}

// A visit is what the server knows of a QUIC connection, from its first datagram on.
type visit struct {
	home  netip.Addr // where it came from; the client may move
	conn  *quic.Conn
	began atomic.Bool // whether it has, or had, a session
	slow  atomic.Bool // whether the server hung up because the client takes nothing
	leave func()      // ends its time among the newcomers
}

type visitKey struct{}

// errCrowded is why a connection is refused. Only quic-go sees it.
var errCrowded = errors.New("webtransport: too many connections without a session")

// arrive begins the visit of a connection whose client may be anybody. It is the ConnContext of the quic.Transport.
func (s *Server) arrive(ctx context.Context, client *quic.ClientInfo) (context.Context, error) {
	home := address(client.RemoteAddr)
	if !s.newcomers.Enter(home) {
		s.cfg.Hub.Refused(carrier.TooMany)
		return nil, errCrowded
	}
	v := &visit{home: home, leave: sync.OnceFunc(func() { s.newcomers.Leave(home) })}
	context.AfterFunc(ctx, v.leave) // the connection ended
	return context.WithValue(ctx, visitKey{}, v), nil
}

// address returns the IP address of a client.
func address(a net.Addr) netip.Addr {
	if u, ok := a.(*net.UDPAddr); ok {
		return u.AddrPort().Addr().Unmap().WithZone("")
	}
	return netip.IPv6Unspecified() // not of a UDP socket
}

// serve serves a QUIC connection until it ends. Without a session, it ends soon, and with ctx.
func (s *Server) serve(ctx context.Context, conn *quic.Conn) {
	v := conn.Context().Value(visitKey{}).(*visit)
	v.conn = conn
	ctx, cancel := context.WithTimeout(ctx, beginTimeout)
	defer cancel()
	stop := context.AfterFunc(ctx, func() {
		if !v.began.Load() {
			v.hangUp(carrier.Silent)
		}
	})
	defer stop()
	if err := s.sessions.ServeQUICConn(conn); err != nil { // the connection ended before it could be served
		v.hangUp(carrier.Lost)
	}
}

// hangUp ends a QUIC connection without a word to a session.
func (v *visit) hangUp(r carrier.Reason) {
	_ = v.conn.CloseWithError(quic.ApplicationErrorCode(http3.ErrCodeNoError), r.Text()) // the first reason counts
}
