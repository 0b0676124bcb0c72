package client

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"sync"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/webtransport-go"
)

// Pauses at the end of WebTransport, which has no way to ask whether datagrams have left, and brings the reason of
// an end on another stream than data.
const (
	departure  = 50 * time.Millisecond
	reasonWait = 250 * time.Millisecond
)

// A webTransport dials edges over WebTransport.
type webTransport struct {
	url   string
	tls   *tls.Config
	times patienceTimes
}

// dial returns a connection and what the edge said first. ctx bounds only that.
func (s webTransport) dial(ctx context.Context, token string) (webConn, []byte, error) {
	c := &wtConn{}
	transport := &webtransport.Transport{
		TLSClientConfig: s.tls,
		QUICConfig: &quic.Config{
			EnableDatagrams: true, EnableStreamResetPartialDelivery: true,
			KeepAlivePeriod: s.times.check, MaxIdleTimeout: s.times.check + s.times.answer,
		},
		// Not the early one of the library: the token must not be in data that can be replayed.
		DialAddr: func(ctx context.Context, address string, t *tls.Config, q *quic.Config) (conn *quic.Conn, err error) {
			c.quic, err = quic.DialAddr(ctx, address, t, q)
			return c.quic, err
		},
	}
	response, session, err := transport.Dial(ctx, s.url, nil)
	_ = transport.Close() // it ends only what waits for the session
	if err != nil {
		if response != nil && response.StatusCode >= 300 {
			err = &refusedError{status: response.StatusCode, retryAfter: response.Header.Get("Retry-After")}
		}
		return nil, nil, err
	}
	c.session = session
	unstop := context.AfterFunc(ctx, c.abort)
	greeting, err := c.greet(ctx, token)
	if !unstop() {
		err = errors.Join(context.Cause(ctx), err)
	}
	if err != nil {
		err = c.why(err)
		c.abort()
		return nil, nil, err
	}
	return c, greeting, nil
}

// A wtConn is a WebTransport session on a QUIC connection of its own.
type wtConn struct {
	quic    *quic.Conn
	session *webtransport.Session
	stream  *webtransport.Stream // for what does not fit into a datagram
	frames  *bufio.Reader        // of stream
	frame   []byte               // of sendFrame
}

// greet opens the stream, presents the token, and returns the greeting.
func (c *wtConn) greet(ctx context.Context, token string) (greeting []byte, err error) {
	if c.stream, err = c.session.OpenStreamSync(ctx); err != nil {
		return nil, err
	}
	if err := c.sendFrame([]byte(token)); err != nil {
		return nil, err
	}
	c.frames = bufio.NewReaderSize(c.stream, 4096)
	greeting, err = c.readFrame(make([]byte, greetingMax))
	if errors.Is(err, io.ErrShortBuffer) {
		return nil, errGreeting
	}
	if closed := parseClosing(greeting); closed != nil {
		return nil, closed
	}
	return greeting, err
}

func (c *wtConn) remote() netip.AddrPort { return addrPort(c.session.RemoteAddr()) }

func (c *wtConn) receive(deliver func([]byte)) error {
	var reading sync.WaitGroup
	failed := make(chan error, 2)
	reading.Go(func() { failed <- c.receiveFrames(deliver) })
	reading.Go(func() { failed <- c.receiveDatagrams(deliver) })
	err := c.why(<-failed)
	c.abort()
	reading.Wait()
	return err
}

func (c *wtConn) receiveFrames(deliver func([]byte)) error {
	buf := make([]byte, datagramLimit)
	for {
		p, err := c.readFrame(buf)
		if err != nil {
			return err
		}
		if closed := parseClosing(p); closed != nil {
			return closed
		}
		if len(p) > 0 {
			deliver(p)
		}
	}
}

// parseClosing returns what the last frame of an edge says, `{"code":1012,"reason":"leaving"}`: why the connection ends, which
// the client need not wait for. It returns nil for other frames. No datagram of DNP begins as JSON does.
func parseClosing(p []byte) error {
	if len(p) == 0 || p[0] != '{' {
		return nil
	}
	var m struct {
		Code   *int    `json:"code"`
		Reason *string `json:"reason"`
	}
	if len(p) > greetingMax || json.Unmarshal(p, &m) != nil || m.Code == nil || m.Reason == nil {
		return nil
	}
	return &closeError{code: *m.Code, text: *m.Reason}
}

// readFrame reads a frame of the stream: a length uint16, and the data.
func (c *wtConn) readFrame(buf []byte) ([]byte, error) {
	var head [2]byte
	if _, err := io.ReadFull(c.frames, head[:]); err != nil {
		return nil, err
	}
	n := int(binary.LittleEndian.Uint16(head[:]))
	if n > len(buf) {
		return nil, io.ErrShortBuffer
	}
	_, err := io.ReadFull(c.frames, buf[:n])
	return buf[:n], err
}

func (c *wtConn) receiveDatagrams(deliver func([]byte)) error {
	for {
		p, err := c.session.ReceiveDatagram(c.session.Context())
		if err != nil {
			return err
		}
		if len(p) > 0 {
			deliver(p)
		}
	}
}

// why returns what the edge said about the end of the session, or else err. It may come a little later than err.
func (c *wtConn) why(err error) error {
	if _, said := errors.AsType[*closeError](err); said {
		return err
	}
	select {
	case <-c.session.Context().Done():
	case <-time.After(reasonWait):
		return err
	}
	_, reason := c.session.OpenStream() // which fails for this reason
	if e, ok := errors.AsType[*webtransport.SessionError](reason); ok && e.Remote {
		return &closeError{code: int(e.ErrorCode), text: e.Message[:min(len(e.Message), closeTextMax)]}
	}
	return fmt.Errorf("the session ended: %w", err)
}

func (c *wtConn) send(b *batch) error {
	for p := range b.all {
		err := c.session.SendDatagram(p)
		if _, large := errors.AsType[*quic.DatagramTooLargeError](err); large {
			err = c.sendFrame(p)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *wtConn) sendFrame(p []byte) error {
	c.frame = binary.LittleEndian.AppendUint16(c.frame[:0], uint16(len(p)))
	c.frame = append(c.frame, p...)
	_, err := c.stream.Write(c.frame)
	return err
}

// check relies on QUIC, which asks by itself, and ends the connection without an answer.
func (c *wtConn) check(context.Context) (answered bool, err error) { return false, nil }

func (c *wtConn) goodbye() {
	select {
	case <-time.After(departure):
	case <-c.session.Context().Done():
	}
	_ = c.session.CloseWithError(closeOver, "over") // its failure changes nothing
}

func (c *wtConn) abort() { _ = c.quic.CloseWithError(0, "") } // an end has no failure that matters
