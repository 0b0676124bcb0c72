package udp

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"sync/atomic"
	"time"
)

// ErrWoken reports that ReadBatch ended because of Wake. One Wake may end two calls of
// ReadBatch, but never none.
var ErrWoken = errors.New("udp: woken")

// A Datagram is a received datagram.
type Datagram struct {
	From netip.AddrPort // never IPv4-mapped

	// Data aliases the socket's buffers and is valid until its next ReadBatch.
	Data []byte
}

// packetConn is the system's side of a Socket: recvmmsg and sendmmsg on Linux,
// the net package elsewhere.
type packetConn interface {
	// receive receives at least one datagram. It waits if there is none, and returns
	// os.ErrDeadlineExceeded after the deadline, for which the zero time means never,
	// and ErrWoken after wake.
	receive(ds []Datagram, deadline time.Time) (n int, err error)

	// wake ends the receive that waits, or else the next that would wait. Any goroutine
	// may call it.
	wake()

	// sender returns what sends for one more Writer.
	sender() batchSender

	buffers() (read, write int)
	overflows() uint64
	close() error
}

// A batchSender sends the datagrams of one Writer.
type batchSender interface {
	// send transmits all of batch; it waits at most writeWait for room.
	send(batch []outgoing) error
}

// A Socket is a UDP socket that moves datagrams in batches.
type Socket struct {
	conn     packetConn
	addr     netip.AddrPort
	counters *counters
	writer   Writer
	deadline time.Time   // of ReadBatch; belongs to the reader
	woken    atomic.Bool // Wake was called since ReadBatch last returned
	closed   atomic.Bool
}

func newSocket(conn packetConn, addr netip.AddrPort, c *counters) *Socket {
	s := &Socket{conn: conn, addr: addr, counters: c}
	s.writer = Writer{socket: s, sender: conn.sender()}
	return s
}

// SetReadDeadline sets when a ReadBatch without datagrams gives up; the zero time means
// never. Only the goroutine that reads may call it.
func (s *Socket) SetReadDeadline(t time.Time) { s.deadline = t }

// ReadBatch receives up to len(ds) datagrams, at most Config.ReadSlots. If there is none
// it waits until one arrives, and returns 0 with ErrWoken after Wake, with
// os.ErrDeadlineExceeded after the deadline and with net.ErrClosed after Close.
// Datagrams have priority: ReadBatch returns those that have arrived, without an error,
// even if the deadline has passed or the socket was woken. So the caller checks the clock
// and its inbox after every return.
func (s *Socket) ReadBatch(ds []Datagram) (n int, err error) {
	n, err = s.conn.receive(ds, s.deadline)
	s.woken.Store(false) // the caller finds what was posted before this line
	return n, s.closedError(err)
}

// Wake makes the ReadBatch that is waiting, or else the next one that would wait,
// return. Any goroutine may call it, after it has posted what it has for the reader. It
// loses no datagram and does not block; further calls before ReadBatch returns cost next
// to nothing.
func (s *Socket) Wake() {
	if s.woken.Load() || s.woken.Swap(true) {
		return
	}
	s.conn.wake()
}

// Writer returns the socket's writer. One goroutine owns it.
func (s *Socket) Writer() *Writer { return &s.writer }

// NewWriter returns a writer besides that of Writer, for another goroutine.
func (s *Socket) NewWriter() *Writer { return &Writer{socket: s, sender: s.conn.sender()} }

// LocalAddr returns the address that the socket is bound to.
func (s *Socket) LocalAddr() netip.AddrPort { return s.addr }

// Buffers returns the granted sizes of the kernel's buffers in bytes, 0 where the system
// does not tell.
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

// closedError replaces every error of a closed socket by net.ErrClosed.
func (s *Socket) closedError(err error) error {
	if err != nil && err != ErrWoken && err != os.ErrDeadlineExceeded && s.closed.Load() {
		return net.ErrClosed
	}
	return err
}

const (
	writeBatch = 64 // datagrams per system call
	writeArena = 2 * 65536

	// writeWait is how long a flush waits, in all, for a socket whose buffer is
	// full. It drops datagrams that then have no room, since newer values follow anyway.
	// The number is arbitrary: half of the default flush interval of an edge.
	writeWait = 2500 * time.Microsecond
)

// An outgoing datagram waits for Flush.
type outgoing struct {
	to   netip.AddrPort
	data []byte
}

// A Writer collects datagrams and transmits them together. It implements
// dnp.Sender.
type Writer struct {
	socket *Socket
	sender batchSender
	arena  []byte // the bytes of the batch, then free room
	used   int
	batch  []outgoing
	err    error // of a flush by Send or Datagram, for the next Flush
}

// Datagram returns an empty buffer of at least size bytes for the next
// datagram. It is valid until Send, or until Datagram is called again. Datagram flushes
// if the batch has no room for so much.
func (w *Writer) Datagram(size int) []byte {
	if w.arena == nil { // a socket that only reads needs none
		w.arena = make([]byte, writeArena)
		w.batch = make([]outgoing, 0, writeBatch)
	}
	if size > len(w.arena)-w.used {
		w.keep(w.flush())
	}
	if size > len(w.arena) { // too long for UDP; the kernel will say so
		return make([]byte, 0, size)
	}
	return w.arena[w.used : w.used : w.used+size]
}

// Send adds a datagram that was built in the buffer of the last Datagram. The next Flush
// transmits it, or Send itself if the batch is full. A datagram that outgrew its buffer
// is not copied; its bytes must not change until then.
func (w *Writer) Send(to netip.AddrPort, b []byte) {
	if w.inArena(b) {
		w.used += len(b)
	}
	w.batch = append(w.batch, outgoing{to, b})
	if len(w.batch) == writeBatch {
		w.keep(w.flush())
	}
}

// Flush transmits the batch. It returns net.ErrClosed, or a failure of the socket
// itself; the counters count datagrams that could not be sent.
func (w *Writer) Flush() error {
	w.keep(w.flush())
	err := w.err
	w.err = nil
	return err
}

// keep remembers the first error.
func (w *Writer) keep(err error) {
	if w.err == nil {
		w.err = err
	}
}

func (w *Writer) flush() error {
	if len(w.batch) == 0 {
		return nil
	}
	err := w.socket.closedError(w.sender.send(w.batch))
	clear(w.batch) // release buffers outside the arena
	w.batch, w.used = w.batch[:0], 0
	return err
}

func (w *Writer) inArena(b []byte) bool {
	return len(b) > 0 && w.used < len(w.arena) && &b[0] == &w.arena[w.used]
}
