package dnp

import (
	"errors"
	"net/netip"
	"time"
)

// A Sender takes datagrams. It must not call the Endpoint.
type Sender interface {
	// Datagram returns an empty buffer with room for size bytes. The caller may
	// write to it until it calls Send.
	Datagram(size int) []byte

	// Send sends b, which the caller built in the buffer that Datagram returned
	// last, or discards it. It may transmit later, in a batch.
	Send(to netip.AddrPort, b []byte)
}

// Errors that callers branch on.
var (
	ErrClosed    = errors.New("dnp: connection is closed")
	ErrBacklog   = errors.New("dnp: reliable backlog is full")
	ErrEmpty     = errors.New("dnp: empty message")
	ErrTooLarge  = errors.New("dnp: message is too large")
	ErrLinks     = errors.New("dnp: no more links")
	ErrLinked    = errors.New("dnp: source is linked already")
	ErrNoLink    = errors.New("dnp: no such link was offered")
	ErrConnected = errors.New("dnp: address has a connection already")
	ErrConns     = errors.New("dnp: no more connections")
	ErrSnapshot  = errors.New("dnp: snapshot is damaged")
)

// An Endpoint holds the connections of one UDP socket. One goroutine owns it.
type Endpoint struct {
	core

	byAddr    map[netip.AddrPort]*Conn
	freeConns []uint32 // handles
	unproven  unprovenTable
	silent    unprovenTable // peers that have to log in and sent nothing since their request; see awaitLogin

	statelessUntil instant // until then, an answer to a hello that left no slot may arrive

	freeSources []uint32 // handles

	ready     []*Conn // connections that have something to send
	offers    offerQueue
	closed    closedPeers
	updateMax int    // bytes of the largest change in this Flush
	scratch   []byte // a copy of the datagram that is sent several times
}

// A core is what an Endpoint shares with its Sources and with the parts of its
// connections: configuration, counters, clock, tables, and the lists of events and
// of connections to flush.
type core struct {
	cfg    Config
	stats  Stats
	clock  clock
	timers timerHeap
	rate   rate // of every connection's budget

	conns   []*Conn   // by handle; nil is free
	sources []*Source // by handle; nil is free

	dirty    []*Source // Sources with changes that were not flushed
	flushing []*Conn   // connections with pending links

	// Repeats have time to wait for values that are sent anyway, with which they share datagrams.
	urgent    bool    // more than repeats waits for Flush
	repeatsBy instant // when a Flush for repeats alone is due; never without any

	driven  bool     // inside Receive or Advance
	events  []Event  // of this Receive or Advance
	later   []Event  // of calls between two of them
	lent    [][]byte // buffers that events may alias until the next Receive or Advance
	buffers [][]byte // free buffers for commands that arrive early

	forbidden []holdKey // what the LinkUpdate under way has for links that the peer may not write
}

// New returns an Endpoint, or an error that names every problem of cfg.
func New(cfg Config) (*Endpoint, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	return &Endpoint{
		core:     core{cfg: cfg, rate: newRate(cfg.BytesPerSecond, cfg.DatagramMax), repeatsBy: never},
		byAddr:   make(map[netip.AddrPort]*Conn),
		unproven: newUnprovenTable(&cfg),
		silent:   newSilentTable(&cfg),
		offers:   newOfferQueue(cfg.OfferBytesPerSecond),
	}, nil
}

// Receive handles one datagram. It sends acknowledgements at once; the next Advance
// sends everything else that the datagram causes. The events, and the slices in
// them, are valid until the next Receive or Advance; they may alias p.
func (e *Endpoint) Receive(now time.Time, from netip.AddrPort, p []byte, out Sender) []Event {
	t := e.begin(now)
	e.stats.DatagramsIn++
	e.stats.BytesIn += uint64(len(p))
	c := e.byAddr[from]
	switch {
	case len(p) == 0:
		e.drop(DropEmpty)
	case c == nil && e.closed.receive(&e.core, from, p, t, out):
	case c == nil:
		e.receiveStranger(from, p, t, out)
	case c.closing: // it ends soon
		e.drop(DropUnexpected)
	case e.limited(c, p, t): // which counted it
	case c.state == connConnecting:
		c.receiveConnecting(p, t)
		c.settle(t)
	default:
		c.receive(p, t, out)
		if c.life.heard == t {
			c.links.downs.resume(missedStep, t)
		}
		c.settle(t)
	}
	e.driven = false
	return e.events
}

// Advance sends what is ready (messages, offers, LinkUp and LinkDown, repeats,
// probes) and does what is due. The events are valid until the next Receive or
// Advance.
func (e *Endpoint) Advance(now time.Time, out Sender) []Event {
	t := e.begin(now)
	for e.timers.next() <= t {
		if due := e.timers.first(); due.conn != nil {
			due.conn.pump(t, out)
		} else {
			due.source.onTimer(t)
		}
	}
	e.sendProbes(t, out)
	e.closeSilent(t, out)
	e.closed.resend(&e.core, t, out)
	for i := 0; i < len(e.ready); i++ { // pump may append to the list
		c := e.ready[i]
		e.ready[i] = nil
		if c.inReady {
			c.pump(t, out)
		}
	}
	e.ready = e.ready[:0]
	e.sendOffers(t, out)
	e.driven = false
	return e.events
}

// begin starts a Receive or an Advance.
func (e *Endpoint) begin(now time.Time) instant {
	e.driven = true
	e.events = append(e.events[:0], e.later...)
	clear(e.later)
	e.later = e.later[:0]
	for i, b := range e.lent {
		if cap(b) <= bufferSizeMax && len(e.buffers) < buffersMax {
			e.buffers = append(e.buffers, b[:0])
		}
		e.lent[i] = nil
	}
	e.lent = e.lent[:0]
	before := e.clock.now
	t := e.clock.advance(now)
	if pause := t.sub(before); pause >= standstill && t.sub(e.timers.next()) >= standstill {
		e.stoodStill(pause)
	}
	return t
}

// The pool of buffers holds at most 512 KiB: buffersMax buffers of bufferSizeMax bytes.
const (
	bufferSizeMax = 2048
	buffersMax    = 256
)

// buffer returns an empty buffer for a command that arrived early.
func (e *core) buffer() []byte {
	n := len(e.buffers)
	if n == 0 {
		return nil
	}
	b := e.buffers[n-1]
	e.buffers = e.buffers[:n-1]
	return b
}

// NextTimeout returns when Advance must be called next: the zero time for at once.
// It reports false if nothing will ever be due. The owner asks again after every
// other call, because for example Conn.Send makes something due.
func (e *Endpoint) NextTimeout() (time.Time, bool) {
	if len(e.ready) > 0 || len(e.later) > 0 {
		return time.Time{}, true
	}
	at := min(e.timers.next(), e.unproven.nextTimeout(), e.silent.nextTimeout(), e.offers.nextTimeout(), e.closed.nextTimeout())
	if e.repeatsBy > e.clock.now { // else Pending says so
		at = min(at, e.repeatsBy)
	}
	return e.clock.time(at), at != never
}

// All yields every connection, in an order that depends only on what happened
// before. Connections may be closed meanwhile.
func (e *Endpoint) All(yield func(*Conn) bool) {
	for _, c := range e.conns {
		if c != nil && !yield(c) {
			return
		}
	}
}

// Undelivered returns how many bytes of reliable messages the peer of a connection has not acknowledged, and after
// its end, how many it had not.
func (e *Endpoint) Undelivered(c *Conn) int { return c.send.undelivered() }

// LinkIDs reports whether nine tenths of the LinkIds of a connection are used up, and whether all are.
func (e *Endpoint) LinkIDs(c *Conn) (few, none bool) {
	return c.links.ids.few(), len(c.links.ids.index) >= c.links.ids.usable()
}

// A Traffic is how many reliable commands a connection has seen.
type Traffic struct{ Sent, Received uint64 }

// Traffic returns the reliable commands of a connection, and whether none is under way: neither is
// sent and unacknowledged, or waits, nor has come in part or before its turn, or waits for the log.
func (e *Endpoint) Traffic(c *Conn) (t Traffic, idle bool) {
	idle = len(c.send.flight) == 0 && !c.send.waiting() && len(c.recv.early) == 0 && c.recv.long.dueAt() == never
	return Traffic{Sent: c.send.next, Received: c.recv.next}, idle
}

// Conn returns the connection with the peer at this address.
func (e *Endpoint) Conn(addr netip.AddrPort) (*Conn, bool) {
	c, ok := e.byAddr[addr]
	return c, ok
}

// RoomMax is the most room that SetRoom can give.
const RoomMax = roomless - 1

// SetRoom says how many bytes the way to the peer at an address takes until the next SetRoom, up to RoomMax; a negative
// number is no bound, as at first. Without room, values, offers, messages and LinkDowns wait, as for a peer that is over its budget: the peer
// is sent the newest when there is room again. Acknowledgements, and commands that were sent before, do not wait.
func (e *Endpoint) SetRoom(addr netip.AddrPort, bytes int) {
	room := uint16(roomless)
	if bytes >= 0 {
		room = uint16(min(bytes, RoomMax))
	}
	c := e.byAddr[addr]
	if c == nil || c.budget.crowd.room == room {
		return
	}
	c.budget.crowd.room = room
	c.wake()
}

// SignOfLife returns a datagram which says only that the peer is there: a LinkUpdate without links. A node to which a peer is
// connected that does not come by UDP may send it to the one that has the connection, for the peer.
func (e *Endpoint) SignOfLife() []byte { return e.cfg.Profile.AppendUpdateHead(nil, 0) }

// Stats returns the counters, which go on counting.
func (e *Endpoint) Stats() *Stats { return &e.stats }

// add makes a connection. EventConnected has not been reported yet.
func (e *Endpoint) add(addr netip.AddrPort, now instant) *Conn {
	c := &Conn{
		e: e, state: connEstablished,
		path: path{core: &e.core, addr: addr, budget: newBudget(&e.rate, now), loss: newLossEstimate(), disorder: disorderMemory, headers: uint8(headersTo(addr))},
		life: liveness{heard: now, sure: now, closeAt: never, restartAt: never},
	}
	c.carried = e.cfg.Proven != nil && e.cfg.Proven(addr)
	c.timer.conn = c
	c.handle = addHandle(&e.conns, &e.freeConns, c)
	c.links = newLinkTable(&e.core, &c.send, c.handle)
	e.byAddr[addr] = c
	e.closed.remove(addr)
	return c
}

// addHandle puts v into a free place of list, or a new one, and returns the place.
func addHandle[T any](list *[]*T, free *[]uint32, v *T) uint32 {
	n := len(*free)
	if n == 0 {
		*list = append(*list, v)
		return uint32(len(*list) - 1)
	}
	handle := (*free)[n-1]
	*free = (*free)[:n-1]
	(*list)[handle] = v
	return handle
}

// established announces a connection.
func (e *Endpoint) established(c *Conn, now instant) {
	c.life.heard, c.life.sure = now, now
	c.links.startScrub(now)
	e.stats.Connects++
	e.startJournal(c)
	e.event(c.handle, Event{Kind: EventConnected})
	c.settle(now)
}

// startJournal makes the connection of a peer that connected to us wait for a log, with
// Config.Logged.
func (e *Endpoint) startJournal(c *Conn) {
	if e.cfg.Logged && !c.client {
		c.log = &journal{core: &e.core, conn: c.handle, restored: never}
		c.links.log, c.life.alarms = c.log, true
	}
}

func (e *Endpoint) remove(c *Conn) {
	for _, held := range c.recv.early {
		e.lent = append(e.lent, held.buf)
	}
	c.state = connClosed
	c.send = sendWindow{bytes: int32(c.send.undelivered())} // Undelivered goes on telling what was lost
	c.recv, c.unreliable = recvWindow{}, unreliableLane{}
	c.links = newLinkTable(&e.core, &c.send, c.handle)
	e.timers.remove(&c.timer)
	if !c.client {
		e.cfg.Gate.Closed(e.clock.time(e.clock.now), c.addr)
	}
	delete(e.byAddr, c.addr)
	e.conns[c.handle] = nil
	e.freeConns = append(e.freeConns, c.handle)
}

func (e *core) event(conn uint32, v Event) {
	v.Conn = e.conns[conn]
	if e.driven {
		e.events = append(e.events, v)
		return
	}
	e.later = append(e.later, v)
}

func (e *core) drop(r DropReason) { e.stats.Drops[r]++ }

func (e *core) send(to netip.AddrPort, b []byte, out Sender) {
	e.stats.DatagramsOut++
	e.stats.BytesOut += uint64(len(b))
	out.Send(to, b)
}
