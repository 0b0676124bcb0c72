package client

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"

	"github.com/coder/websocket"
	"github.com/dnprelay/dnprelay/internal/cork"
)

// Subprotocols of WebSocket. A client presents its token as one, because a URL is no place for a secret, and
// browsers set no headers.
const (
	subprotocol       = "dnp.v1"
	resumeSubprotocol = "dnp.resume."
)

// A webSocket dials edges over WebSocket.
type webSocket struct {
	url *url.URL
	tls *tls.Config
}

// dial returns a connection and what the edge said first. ctx bounds only that.
func (s webSocket) dial(ctx context.Context, token string) (webConn, []byte, error) {
	tcp, err := s.connect(ctx)
	if err != nil {
		return nil, nil, err
	}
	c := &wsConn{tcp: &cork.Conn{Conn: tcp}}
	greeting, err := c.upgrade(ctx, s.url.String(), token)
	if err != nil {
		return nil, nil, errors.Join(err, c.tcp.Close())
	}
	return c, greeting, nil
}

// connect makes the TCP or TLS connection. The HTTP client would go on in the background when ctx has ended.
func (s webSocket) connect(ctx context.Context) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", s.url.Host)
	if err != nil || s.url.Scheme == "ws" {
		return conn, err
	}
	secure := tls.Client(conn, s.tls)
	if err := secure.HandshakeContext(ctx); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return secure, nil
}

// upgrade makes a WebSocket and reads the greeting.
func (c *wsConn) upgrade(ctx context.Context, address, token string) ([]byte, error) {
	ready := func(context.Context, string, string) (net.Conn, error) { return c.tcp, nil }
	transport := &http.Transport{DialContext: ready, DialTLSContext: ready}
	protocols := []string{subprotocol}
	if token != "" {
		protocols = append(protocols, resumeSubprotocol+token)
	}
	conn, response, err := websocket.Dial(ctx, address, &websocket.DialOptions{
		HTTPClient:   &http.Client{Transport: transport, CheckRedirect: refuseRedirect},
		Subprotocols: protocols,
	})
	switch {
	case err != nil && response == nil:
		return nil, err
	case err != nil && response.StatusCode != http.StatusSwitchingProtocols:
		return nil, &refusedError{status: response.StatusCode, retryAfter: response.Header.Get("Retry-After")}
	case err != nil:
		return nil, fmt.Errorf("%w: %w", errGreeting, err)
	}
	c.conn = conn
	conn.SetReadLimit(datagramLimit)
	kind, greeting, err := conn.Read(ctx)
	switch {
	case err != nil:
		return nil, errors.Join(wsError(err), conn.CloseNow())
	case kind != websocket.MessageText || conn.Subprotocol() != subprotocol:
		return nil, errors.Join(errGreeting, conn.CloseNow())
	}
	return greeting, nil
}

// refuseRedirect keeps the token from other servers.
func refuseRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// A wsConn is a WebSocket.
type wsConn struct {
	conn *websocket.Conn
	tcp  *cork.Conn
	buf  [datagramLimit + 1]byte // of receive
}

func (c *wsConn) remote() netip.AddrPort { return addrPort(c.tcp.RemoteAddr()) }

func (c *wsConn) receive(deliver func([]byte)) error {
	for {
		kind, r, err := c.conn.Reader(context.Background()) // abort ends it
		if err != nil {
			return wsError(err)
		}
		n, err := io.ReadFull(r, c.buf[:])
		switch {
		case err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF):
			return wsError(err)
		case kind == websocket.MessageBinary && n > 0:
			deliver(c.buf[:n])
		}
	}
}

// wsError returns what the edge said, if it said anything.
func wsError(err error) error {
	if e, ok := errors.AsType[websocket.CloseError](err); ok {
		return &closeError{code: int(e.Code), text: e.Reason}
	}
	return err
}

func (c *wsConn) send(b *batch) error {
	c.tcp.Cork()
	for p := range b.all {
		if err := c.conn.Write(context.Background(), websocket.MessageBinary, p); err != nil {
			return err
		}
	}
	return c.tcp.Uncork()
}

// check needs receive in another goroutine.
func (c *wsConn) check(ctx context.Context) (answered bool, err error) {
	err = c.conn.Ping(ctx)
	return err == nil, err
}

func (c *wsConn) goodbye() { _ = c.conn.Close(closeOver, "over") } // its failure changes nothing

// abort closes TCP, because CloseNow would wait for a Close under way.
func (c *wsConn) abort() {
	_ = c.tcp.Close()
	_ = c.conn.CloseNow()
}
