package udp

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"sync/atomic"
	"time"
)

// ErrWoken reports that ReadBatch ended because of Wake. It may be reported once
// too often, never too seldom.
var ErrWoken = errors.New("udp: woken")

// A Datagram is one that was received.
type Datagram struct {
	From netip.AddrPort // never IPv4-mapped

	// Data aliases the socket's buffers and is valid until its next ReadBatch.
	Data []byte
}

// packetConn is the system's side of a Socket: recvmmsg and sendmmsg on Linux,
// the net package elsewhere.
type packetConn interface {
	// receive receives at least one datagram. When it would have to wait, it returns
	// os.ErrDeadlineExceeded after the deadline, for which the zero time means never,
	// and ErrWoken after wake.
	receive(ds []Datagram, deadline time.Time) (n int, err error)

	// wake ends the receive that waits, or else the next that would. Any goroutine.
	wake()

	// send transmits all of batch; it waits at most writeWait for room.
	send(batch []outgoing) error

	localAddr() netip.AddrPort
	buffers() (read, write int)
	overflows() uint64
	close() error
}

// A Socket is a UDP socket that moves datagrams in batches.
type Socket struct {
	conn     packetConn
	counters *counters
	writer   Writer
	deadline time.Time   // of ReadBatch; belongs to the reader
	woken    atomic.Bool // Wake was called since ReadBatch last returned
	closed   atomic.Bool
}

func newSocket(conn packetConn, c *counters) *Socket {
	s := &Socket{conn: conn, counters: c}
	s.writer.init(s)
	return s
}

// SetReadDeadline sets when a ReadBatch without datagrams gives up; the zero
// time means never. It belongs to the goroutine that reads.
func (s *Socket) SetReadDeadline(t time.Time) { s.deadline = t }

// ReadBatch receives up to len(ds) datagrams, at most Config.ReadSlots. When
// there is none it waits until one comes, and returns 0 with ErrWoken after
// Wake, with os.ErrDeadlineExceeded after the deadline and with net.ErrClosed
// after Close. Datagrams go first: those that have arrived are returned even if
// the deadline has passed or the socket was woken, without an error. So the
// caller looks at the clock and at its inbox after every return.
func (s *Socket) ReadBatch(ds []Datagram) (n int, err error) {
	n, err = s.conn.receive(ds, s.deadline)
	s.woken.Store(false) // what was posted before this line, the caller will find
	return n, s.closedError(err)
}

// Wake makes the ReadBatch that is waiting, or else the next one that would
// wait, return. It may be called by any goroutine, after it has put what it has
// for the reader where the reader looks. No datagram is lost by it. It does not
// block; while one Wake is on its way more of them cost next to nothing.
func (s *Socket) Wake() {
	if s.woken.Load() || s.woken.Swap(true) {
		return
	}
	s.conn.wake()
}

// Writer returns the socket's writer. It belongs to one goroutine.
func (s *Socket) Writer() *Writer { return &s.writer }

// LocalAddr returns the address that the socket is bound to.
func (s *Socket) LocalAddr() netip.AddrPort { return s.conn.localAddr() }

// Buffers returns the sizes of the kernel's buffers as granted, in bytes; 0
// where the system does not tell.
func (s *Socket) Buffers() (read, write int) { return s.conn.buffers() }

// Stats returns the socket's counters.
func (s *Socket) Stats() Stats {
	st := s.counters.stats()
	st.Overflows = s.conn.overflows()
	return st
}

// Close closes the socket. A waiting ReadBatch returns net.ErrClosed.
func (s *Socket) Close() error {
	if s.closed.Swap(true) {
		return net.ErrClosed
	}
	return s.conn.close()
}

// closedError turns the many ways in which a closed socket fails into one.
func (s *Socket) closedError(err error) error {
	if err != nil && err != ErrWoken && err != os.ErrDeadlineExceeded && s.closed.Load() {
		return net.ErrClosed
	}
	return err
}
