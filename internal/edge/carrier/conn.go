package carrier

import (
	"errors"
	"net/netip"
	"sync"
	"time"

	"github.com/dnprelay/dnprelay/internal/turn"
)

// Bounds of one connection.
const (
	// DatagramMax is the largest datagram in bytes.
	DatagramMax = 65_535

	// outMax is how many bytes wait for the writer at most; what does not fit is dropped, as by a full socket.
	// Beyond outFull the worker is told to wait until all are written.
	outMax  = 64 << 10
	outFull = 16 << 10

	// inMax is how many bytes wait for the worker before the reader stops reading.
	inMax = 64 << 10

	// WriteTimeout is how long a client may take nothing.
	WriteTimeout = 10 * time.Second
)

// ErrEnded is the error of a connection that has ended.
var ErrEnded = errors.New("carrier: the connection has ended")

// A Transport is one connection as its listener made it.
type Transport interface {
	// Write sends datagrams in order. It may block, for WriteTimeout at most, and is called by one goroutine.
	Write(list [][]byte) error

	// Close ends the connection and tells the client why. Write is not called after it, but may be
	// under way. It ends whatever reads from the connection, and is called once.
	Close(r Reason)
}

// A Marker is a Transport whose client confirms what has arrived.
type Marker interface {
	Transport

	// Mark has the next Write, which may have no datagrams, ask the client to confirm this mark, behind its datagrams.
	// Conn.Confirmed is called when the client does. The goroutine of Write calls it.
	Mark(mark uint32)
}

// A Conn is a connection of one client. Its listener calls Receive and then Lost; workers call the rest.
type Conn struct {
	hub       *Hub
	kind      Kind
	addr      netip.AddrPort
	home      netip.Addr
	order     uint64 // of the requests of clients
	resumes   bool   // the client had a token
	transport Transport
	marker    Marker // the transport, or nil
	receiver  Receiver
	ready     turn.Wake     // the writer has something to do
	taken     turn.Wake     // the worker took something
	done      chan struct{} // closed when the writer is gone

	// mu guards the rest. Workers fill the buffer that the writer empties, and neither may wait for the other.
	mu      sync.Mutex
	out     [][]byte // datagrams for the writer
	outSize int
	spare   [][]byte // empty buffers
	in      int      // bytes that wait for the worker
	flow    flow     // what is on its way
	full    bool     // the worker waits until all is written, and less is on its way
	told    bool     // the worker has a bounded room, and waits when it is used up
	writing bool
	ended   bool
	reason  Reason
	sent    time.Time // when something was sent last, or the connection began
}

// spareMax is how many buffers a connection keeps, for the datagrams of one flush; spareSize is their size at most.
const (
	spareMax  = 4
	spareSize = 2048
)

// Addr returns the address under which workers know the client.
func (c *Conn) Addr() netip.AddrPort { return c.addr }

// Home returns the address that the client comes from.
func (c *Conn) Home() netip.Addr { return c.home }

// Resumes reports whether the client came with the token of an earlier connection, so that it may have a session.
func (c *Conn) Resumes() bool { return c.resumes }

// Ended reports whether the connection has ended.
func (c *Conn) Ended() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ended
}

// Room returns how many bytes the worker may send until it is told of more by Receiver.Writable; a negative number is no bound.
func (c *Conn) Room() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.full {
		return 0
	}
	room := c.flow.room()
	c.told = room >= 0
	return room
}

// Receive hands a datagram to the worker, which owns it then. It blocks while too much waits there, and
// returns ErrEnded when the connection has ended.
func (c *Conn) Receive(p []byte) error {
	for {
		c.mu.Lock()
		room := c.in == 0 || c.in+len(p) <= inMax
		if room {
			c.in += len(p)
		}
		ended := c.ended
		c.mu.Unlock()
		switch {
		case ended:
			return ErrEnded
		case room:
			c.receiver.Arrived(c, p)
			return nil
		}
		select {
		case <-c.taken:
		case <-c.done:
		}
	}
}

// Taken notes that the worker has handled, or lost, a datagram of this size.
func (c *Conn) Taken(size int) {
	c.mu.Lock()
	c.in -= size
	c.mu.Unlock()
	c.taken.Wake()
}

// Lost ends the connection because its listener cannot read from it any more, or because of a rule that the client
// broke, and waits until the writer is gone.
func (c *Conn) Lost(r Reason) {
	c.End(r)
	<-c.done
}

// End ends the connection after what waits was written. Any goroutine may call it; the first reason counts.
func (c *Conn) End(r Reason) {
	c.mu.Lock()
	first := !c.ended
	if first {
		c.ended, c.reason = true, r
	}
	c.mu.Unlock()
	if first {
		c.hub.remove(c, r)
		c.receiver.Ended(c, r)
		c.ready.Wake()
		c.taken.Wake() // the reader may wait
	}
}

// send copies a datagram for the writer. It reports whether there was room, and whether the worker has to wait.
func (c *Conn) send(p []byte) (ok, full bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended || c.outSize+len(p) > outMax {
		return false, false
	}
	var b []byte
	if n := len(c.spare); n > 0 { // it grows if it is too small, so that no small one stays in the way of large datagrams
		b, c.spare = c.spare[n-1][:0], c.spare[:n-1]
	}
	c.out, c.outSize = append(c.out, append(b, p...)), c.outSize+len(p)
	c.flow.sent(len(p))
	if (c.outSize > outFull && c.writing || c.flow.full(c.hub.cfg.Now())) && !c.full {
		c.full, full = true, true
	}
	return true, full
}

// write is the goroutine that writes what workers send, until the connection ends.
func (c *Conn) write() {
	for ended := false; !ended; ended = c.Step() {
		<-c.ready
	}
}

// Step writes what waits, for a caller that writes instead of a goroutine. It reports true, once, after the last datagram
// of a connection that has ended.
func (c *Conn) Step() (over bool) {
	list, mark, ended := c.next(nil)
	for len(list) > 0 || mark != 0 {
		if mark != 0 {
			c.marker.Mark(mark)
		}
		if err := c.transport.Write(list); err != nil {
			c.End(c.failed()) // it may have ended before
			ended = true      // what else waits would fail, too, or take as long
			break
		}
		list, mark, ended = c.next(list)
	}
	if !ended {
		return false
	}
	c.mu.Lock()
	r := c.reason
	c.mu.Unlock()
	c.transport.Close(r)
	c.hub.leave(c.home)
	close(c.done)
	return true
}

// next returns the datagrams to write after list was written, and the mark to set behind them, or 0. Without either, the worker may
// send again if not too much is on its way.
func (c *Conn) next(list [][]byte) (next [][]byte, mark uint32, ended bool) {
	c.mu.Lock()
	for _, b := range list {
		if len(c.spare) < spareMax && cap(b) <= spareSize {
			c.spare = append(c.spare, b)
		}
	}
	clear(list)
	next, c.out, c.outSize = c.out, list[:0], 0
	if cap(c.out) > 4*spareMax {
		c.out = nil // a client that was offered much need not keep room for it
	}
	c.writing, ended = len(next) > 0, c.ended
	if c.writing {
		c.sent = c.hub.cfg.Now()
	}
	if now := c.hub.cfg.Now(); (c.writing || c.full) && !ended && c.flow.due(now) {
		mark = c.flow.set(now)
	}
	writable := c.relieve()
	c.mu.Unlock()
	if writable {
		c.receiver.Writable(c)
	}
	return next, mark, ended
}

// relieve reports whether the worker, which was told to wait, may send again. mu is held.
func (c *Conn) relieve() bool {
	if !c.full || c.writing || c.outSize > 0 || c.ended || c.flow.full(c.hub.cfg.Now()) {
		return false
	}
	c.full = false
	return true
}

// Confirmed notes that a mark, and what was written before it, came to the client. The listener calls it.
func (c *Conn) Confirmed(mark uint32) {
	c.mu.Lock()
	known := c.flow.confirmed(mark, c.hub.cfg.Now())
	writable := known && (c.relieve() || c.told && !c.full)
	waits := c.full
	c.mu.Unlock()
	switch {
	case writable:
		c.receiver.Writable(c)
	case known && waits:
		c.ready.Wake() // for the next mark
	}
}

// stuck reports whether the worker waits for a client that takes nothing.
func (c *Conn) stuck(now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.full && c.flow.stuck(now, WriteTimeout)
}

// failed returns why a write failed: the client took nothing for too long, or is gone.
func (c *Conn) failed() Reason {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.hub.cfg.Now().Sub(c.sent) >= WriteTimeout {
		return Slow
	}
	return Lost
}

// quiet returns for how long the edge has sent nothing.
func (c *Conn) quiet(now time.Time) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return now.Sub(c.sent)
}
