package webtransport

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/dnprelay/dnprelay/internal/edge/carrier"
	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
	"github.com/quic-go/webtransport-go"
)

// partialTimeout is how long a frame may take to arrive, once it has begun.
const partialTimeout = 10 * time.Second

// lingerTimeout is how long the server waits for a client that was told why its session ended. A client
// ends the connection then.
const lingerTimeout = 2 * time.Second

// connect answers a request. For a session, it returns when the session has ended.
func (s *Server) connect(w http.ResponseWriter, r *http.Request) {
	v := r.Context().Value(visitKey{}).(*visit)
	switch {
	case r.URL.Path != carrier.Path:
		http.NotFound(w, r)
		return
	case r.Method != http.MethodConnect:
		http.Error(w, "this is the address for WebTransport of DNP clients", http.StatusMethodNotAllowed)
		return
	case !s.cfg.Origins.Allow(r):
		s.cfg.Hub.Refused(carrier.BadOrigin)
		http.Error(w, "this page may not connect; see --websocket-origins", http.StatusForbidden)
		return
	case !v.began.CompareAndSwap(false, true):
		http.Error(w, "a connection has one session", http.StatusConflict)
		return
	}
	session, err := s.sessions.Upgrade(w, r)
	if err != nil { // it is no WebTransport, or the client is gone
		v.hangUp(carrier.Malformed)
		return
	}
	if s.session(v, session, w.(http3.HTTPStreamer).HTTPStream().StreamID()) {
		ctx, cancel := context.WithTimeout(v.conn.Context(), lingerTimeout)
		defer cancel()
		<-ctx.Done()
	}
	v.hangUp(carrier.Lost)
}

// session serves a session, whose request came on the given stream, until it ends. told reports whether the client is told why.
func (s *Server) session(v *visit, session *webtransport.Session, request quic.StreamID) (told bool) {
	stream, err := accept(session)
	if err != nil {
		return s.refuse(late(err), func(r carrier.Reason) bool { return tell(session, r) })
	}
	t := newTransport(v, session, request, stream)
	token, err := firstFrame(stream)
	if err != nil {
		return s.refuse(late(err), t.end)
	}
	seat, reason, ok := s.cfg.Hub.Reserve(carrier.WebTransport, v.home, token)
	if !ok {
		return t.end(reason)
	}
	if err := t.greet(seat.Greeting()); err != nil {
		seat.Release()
		return false
	}
	v.leave()
	c := seat.Open(t)
	v.read(c, session, stream)
	c.Lost(carrier.Lost) // it has ended; only the writer may be at work
	return t.told
}

// refuse ends a session that never began, by calling end, unless the client is gone. It reports whether the client may still have
// to learn why.
func (s *Server) refuse(r carrier.Reason, end func(carrier.Reason) (told bool)) (told bool) {
	if r == carrier.Lost {
		return false
	}
	s.cfg.Hub.Refused(r)
	return end(r)
}

// tell ends a session, and reports whether the client may have to learn why.
func tell(session *webtransport.Session, r carrier.Reason) (told bool) {
	return session.CloseWithError(webtransport.SessionErrorCode(r.Code()), r.Text()) == nil
}

// accept waits for the client's stream, which has to bring its first frame soon.
func accept(session *webtransport.Session) (*webtransport.Stream, error) {
	deadline := time.Now().Add(carrier.FirstTimeout)
	ctx, cancel := context.WithDeadline(session.Context(), deadline)
	defer cancel()
	stream, err := session.AcceptStream(ctx)
	if err != nil {
		return nil, err
	}
	return stream, stream.SetReadDeadline(deadline)
}

// errNoToken is that of a first frame that is neither empty nor a token.
var errNoToken = errors.New("webtransport: the first frame is no token")

// firstFrame returns the client's first frame, which is empty or a token.
func firstFrame(stream *webtransport.Stream) (token string, err error) {
	var frame [2 + carrier.TokenSize]byte
	if _, err := io.ReadFull(stream, frame[:2]); err != nil {
		return "", err
	}
	size := int(binary.LittleEndian.Uint16(frame[:]))
	if size != 0 && size != carrier.TokenSize {
		return "", errNoToken
	}
	_, err = io.ReadFull(stream, frame[2:2+size])
	return string(frame[2 : 2+size]), err
}

// late returns why a session ends whose client did not send something, or not in time.
func late(err error) carrier.Reason {
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		return carrier.Silent
	case errors.Is(err, errNoToken):
		return carrier.Malformed
	}
	return carrier.Lost
}

// read hands the datagrams of a client to the edge until the connection ends.
func (v *visit) read(c *carrier.Conn, session *webtransport.Session, stream *webtransport.Stream) {
	var datagrams sync.WaitGroup
	datagrams.Go(func() { c.End(v.why(readDatagrams(c, session))) })
	c.End(v.why(readFrames(c, stream))) // the other ends, too
	datagrams.Wait()
}

// why returns why a connection ends whose reader ended for reason r: this server may have hung up before.
func (v *visit) why(r carrier.Reason) carrier.Reason {
	if v.slow.Load() {
		return carrier.Slow
	}
	return r
}

func readDatagrams(c *carrier.Conn, session *webtransport.Session) carrier.Reason {
	for {
		p, err := session.ReceiveDatagram(session.Context())
		if err != nil || len(p) > 0 && c.Receive(p) != nil {
			return carrier.Lost
		}
	}
}

func readFrames(c *carrier.Conn, stream *webtransport.Stream) carrier.Reason {
	for {
		p, err := readFrame(stream)
		if err != nil {
			return late(err)
		}
		if len(p) > 0 && c.Receive(p) != nil {
			return carrier.Lost
		}
	}
}

// readFrame returns the next frame. A frame may begin at any time, but has to end then.
func readFrame(stream *webtransport.Stream) ([]byte, error) {
	if err := stream.SetReadDeadline(time.Time{}); err != nil {
		return nil, err
	}
	var size [2]byte
	n, err := io.ReadAtLeast(stream, size[:], 1)
	if err != nil {
		return nil, err
	}
	if err := stream.SetReadDeadline(time.Now().Add(partialTimeout)); err != nil {
		return nil, err
	}
	if _, err := io.ReadFull(stream, size[n:]); err != nil {
		return nil, err
	}
	p := make([]byte, binary.LittleEndian.Uint16(size[:]))
	if _, err := io.ReadFull(stream, p); err != nil {
		return nil, err
	}
	return p, nil
}
