package udp

import (
	"net/netip"
	"time"
)

const (
	writeBatch = 64 // datagrams per system call
	writeArena = 2 * 65536

	// writeWait is how long a flush waits, in all, for a socket whose buffer is
	// full. What has no room then is dropped, since newer values follow anyway.
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
	arena  []byte // the bytes of the batch, then free room
	used   int
	batch  []outgoing
	err    error // of a flush that Send or Datagram made, for the next Flush
}

func (w *Writer) init(s *Socket) { w.socket = s }

// Datagram returns an empty buffer of at least size bytes for the next
// datagram. It is valid until Send, or until Datagram is called again. It
// flushes when the batch has no room for so much.
func (w *Writer) Datagram(size int) []byte {
	if w.arena == nil { // sockets that only read have none
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

// Send takes a datagram that was built in the buffer of the last Datagram. It is
// transmitted by the next Flush, or earlier when the batch is full. A datagram
// that outgrew its buffer is taken as it is; its bytes must not change until
// then.
func (w *Writer) Send(to netip.AddrPort, b []byte) {
	if w.inArena(b) {
		w.used += len(b)
	}
	w.batch = append(w.batch, outgoing{to, b})
	if len(w.batch) == writeBatch {
		w.keep(w.flush())
	}
}

// Flush transmits what was sent. It returns net.ErrClosed, or a failure of the
// socket itself; datagrams that could not be sent are in the counters.
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
	err := w.socket.closedError(w.socket.conn.send(w.batch))
	clear(w.batch) // do not hold what was not in the arena
	w.batch, w.used = w.batch[:0], 0
	return err
}

func (w *Writer) inArena(b []byte) bool {
	return len(b) > 0 && w.used < len(w.arena) && &b[0] == &w.arena[w.used]
}
