package webtransport

import (
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"time"

	"github.com/dnprelay/dnprelay/internal/edge/carrier"
	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/quicvarint"
	"github.com/quic-go/webtransport-go"
)

// closePause is the time between the last datagram and the end of a session. A session that ends takes with it what a browser has
// not given to its page yet, and the datagram that says why the DNP connection ends comes last. Longer would only
// delay the next connection.
const closePause = 100 * time.Millisecond

// closeTimeout is how long a client may take to end a session after it was told why. One that knows the closing frame ends it at once.
const closeTimeout = time.Second

// frameBufferMax is how much room a connection keeps for frames.
const frameBufferMax = 4 << 10

// A transport is one session.
type transport struct {
	visit    *visit
	session  *webtransport.Session
	stream   *webtransport.Stream
	stuck    *time.Timer // hangs up when a write takes too long: a datagram has no deadline
	datagram []byte      // room for one, behind the quarter of the session's ID
	prefix   int         // the size of that
	frame    []byte
	wrote    time.Time // the end of the last write
	told     bool      // the client is told why the session ended
}

// newTransport returns the transport of a session, whose request came on the given stream.
func newTransport(v *visit, session *webtransport.Session, request quic.StreamID, stream *webtransport.Stream) *transport {
	t := &transport{visit: v, session: session, stream: stream}
	t.datagram = quicvarint.Append(nil, uint64(request)/4) // RFC 9297, section 2.1
	t.prefix = len(t.datagram)
	t.stuck = time.AfterFunc(carrier.WriteTimeout, func() {
		v.slow.Store(true)
		v.hangUp(carrier.Slow)
	})
	t.stuck.Stop()
	return t
}

func (t *transport) greet(greeting []byte) error {
	return t.writeFrame(greeting, time.Now().Add(carrier.FirstTimeout))
}

// Write implements carrier.Transport. It blocks while QUIC has enough to send.
func (t *transport) Write(list [][]byte) error {
	t.stuck.Reset(carrier.WriteTimeout)
	defer t.stuck.Stop()
	deadline := time.Now().Add(carrier.WriteTimeout)
	if t.session.Context().Err() != nil { // QUIC would still take datagrams
		return errEnded
	}
	for _, p := range list {
		if err := t.write(p, deadline); err != nil {
			return err
		}
	}
	t.wrote = time.Now()
	return nil
}

// errEnded is the error of a write to a session that has ended.
var errEnded = errors.New("webtransport: the session has ended")

// write sends one datagram, on the stream if it does not fit. What fits changes as QUIC learns what the path takes,
// and few datagrams of DNP come near it, so the only way to find out is to try.
//
// The datagram goes to QUIC, which copies it, and not to the session, where http3 would copy it once more into memory of its own.
func (t *transport) write(p []byte, deadline time.Time) error {
	t.datagram = append(t.datagram[:t.prefix], p...)
	err := t.visit.conn.SendDatagram(t.datagram)
	if cap(t.datagram) > frameBufferMax {
		t.datagram = slices.Clone(t.datagram[:t.prefix])
	}
	if _, ok := errors.AsType[*quic.DatagramTooLargeError](err); ok {
		return t.writeFrame(p, deadline)
	}
	return err
}

func (t *transport) writeFrame(p []byte, deadline time.Time) error {
	if err := t.stream.SetWriteDeadline(deadline); err != nil {
		return err
	}
	t.frame = append(binary.LittleEndian.AppendUint16(t.frame[:0], uint16(len(p))), p...)
	_, err := t.stream.Write(t.frame)
	if cap(t.frame) > frameBufferMax {
		t.frame = nil
	}
	return err
}

// Close implements carrier.Transport.
func (t *transport) Close(r carrier.Reason) {
	if r == carrier.Lost || r == carrier.Slow { // the client does not listen
		t.visit.hangUp(r)
		return
	}
	t.wait(closePause - time.Since(t.wrote))
	t.told = t.end(r)
}

// end tells the client why the session ends, and ends it unless the client does. It reports whether the client may still
// have to learn it.
//
// The close code is told twice, because browsers miss the one of WebTransport: webtransport-go stops reading the stream of
// the CONNECT request as it sends the code (https://github.com/quic-go/webtransport-go/issues/242).
func (t *transport) end(r carrier.Reason) (told bool) {
	if t.writeFrame(r.Closing(), time.Now().Add(closeTimeout)) == nil {
		t.wait(closeTimeout)
	}
	return t.session.Context().Err() == nil && tell(t.session, r)
}

// wait waits for the client to end the session, but not for longer.
func (t *transport) wait(d time.Duration) {
	if d <= 0 {
		return
	}
	ctx, cancel := context.WithTimeout(t.session.Context(), d)
	defer cancel()
	<-ctx.Done()
}
