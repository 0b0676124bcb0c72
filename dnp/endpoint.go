package dnp

import (
	"errors"
	"net/netip"
	"time"
)

// A Sender takes datagrams. It must not call the Endpoint.
type Sender interface {
	// Datagram returns an empty buffer with room for size bytes, which belongs to
	// the caller until Send.
	Datagram(size int) []byte

	// Send sends b, built in the buffer that Datagram returned last, or forgets
	// it. It may be transmitted later, in a batch.
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

// An Endpoint is the connections of one UDP socket. One goroutine owns it.
type Endpoint struct {
	cfg   Config
	stats Stats
	clock clock

	byAddr    map[netip.AddrPort]*Conn
	conns     []*Conn  // by handle; nil is free
	freeConns []uint32 // handles
	count     int
	unproven  unprovenTable

	statelessUntil instant // hellos of which nothing was kept can be answered before

	sources     []*Source // by handle; nil is free
	freeSources []uint32

	timers   timerHeap
	ready    []*Conn   // that have something to send
	dirty    []*Source // that have something to flush
	flushing []*Conn   // that have links in pending

	joins     joinLane
	tariff    tariff // of every connection's budget
	updateMax int    // bytes of the largest change that is being flushed

	driven  bool    // inside Receive or Advance
	events  []Event // of this Receive or Advance
	later   []Event // made between two of them
	lent    [][]byte
	buffers [][]byte // for commands that come early
	scratch []byte
}

// New returns an Endpoint, or an error that names every problem of cfg.
func New(cfg Config) (*Endpoint, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	return &Endpoint{
		cfg:      cfg,
		byAddr:   make(map[netip.AddrPort]*Conn),
		unproven: newUnprovenTable(cfg.tableSize(), cfg.Probe),
		joins:    newJoinLane(cfg.OfferBytesPerSecond),
		tariff:   newTariff(cfg.BytesPerSecond, cfg.DatagramMax),
	}, nil
}

// Receive handles one datagram. Acknowledgements are sent at once; all else that
// it causes is sent by the next Advance. The events, and the slices in them, are
// valid until the next Receive or Advance; they may alias p.
func (e *Endpoint) Receive(now time.Time, from netip.AddrPort, p []byte, out Sender) []Event {
	t := e.begin(now)
	e.stats.DatagramsIn++
	e.stats.BytesIn += uint64(len(p))
	c := e.byAddr[from]
	switch {
	case len(p) == 0:
		e.drop(DropEmpty)
	case c == nil:
		e.receiveStranger(from, p, t, out)
	case c.closing: // the next Advance ends it
		e.drop(DropUnexpected)
	case c.limited(p, t):
	case c.state == connConnecting:
		c.receiveConnecting(p, t, out)
		c.settle(t)
	default:
		c.receive(p, t, out)
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
		if due := e.timers.h[0]; due.conn != nil {
			due.conn.pump(t, out)
		} else {
			due.source.onTimer(t)
		}
	}
	e.proveSome(t, out)
	for i := 0; i < len(e.ready); i++ { // a connection may get ready meanwhile
		c := e.ready[i]
		e.ready[i] = nil
		if c.queued {
			c.pump(t, out)
		}
	}
	e.ready = e.ready[:0]
	e.offerSome(t, out)
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
	return e.clock.advance(now)
}

// The pool of buffers keeps no more than these, 512 KiB.
const (
	bufferSizeMax = 2048
	buffersMax    = 256
)

// buffer returns an empty buffer for a command that came early.
func (e *Endpoint) buffer() []byte {
	n := len(e.buffers)
	if n == 0 {
		return nil
	}
	b := e.buffers[n-1]
	e.buffers = e.buffers[:n-1]
	return b
}

// NextTimeout returns when Advance must be called next: the zero time for at
// once. It reports false if nothing is due ever. It is to be asked after every
// other call, because sending a message makes something due.
func (e *Endpoint) NextTimeout() (time.Time, bool) {
	if len(e.ready) > 0 || len(e.later) > 0 {
		return time.Time{}, true
	}
	at := min(e.timers.next(), e.unproven.nextTimeout(), e.joins.nextTimeout())
	return e.clock.time(at), at != never
}

// Conns returns the number of connections, including those that Connect is
// working on.
func (e *Endpoint) Conns() int { return e.count }

// All yields every connection, in an order that depends only on what happened
// before. Connections may be closed meanwhile.
func (e *Endpoint) All(yield func(*Conn) bool) {
	for _, c := range e.conns {
		if c != nil && !yield(c) {
			return
		}
	}
}

// Conn returns the connection with the peer at this address.
func (e *Endpoint) Conn(addr netip.AddrPort) (*Conn, bool) {
	c, ok := e.byAddr[addr]
	return c, ok
}

// Stats returns the counters, which go on counting.
func (e *Endpoint) Stats() *Stats { return &e.stats }

// add makes a connection that is not announced yet.
func (e *Endpoint) add(addr netip.AddrPort, now instant) *Conn {
	c := &Conn{
		loss: lossPrior, lossWeight: lossPriorWeight,
		e: e, addr: addr, state: connEstablished, speaksLong: e.cfg.SpeaksLong,
		heard: now, peerClosed: never, restart: never,
		ups: ladder{steps: linkUpSteps}, downs: ladder{steps: linkDownSteps}, catchUps: ladder{steps: e.cfg.Refresh},
		scrub: scrubber{at: never}, budget: newBudget(&e.tariff, addr, now),
	}
	c.timer.conn = c
	if n := len(e.freeConns); n > 0 {
		c.handle = e.freeConns[n-1]
		e.freeConns = e.freeConns[:n-1]
		e.conns[c.handle] = c
	} else {
		c.handle = uint32(len(e.conns))
		e.conns = append(e.conns, c)
	}
	e.byAddr[addr] = c
	e.count++
	return c
}

// established announces a connection.
func (e *Endpoint) established(c *Conn, now instant) {
	c.heard = now
	c.startScrub(now)
	e.stats.Connects++
	if e.cfg.Logged && !c.client {
		c.log = &logState{}
	}
	e.event(Event{Kind: EventConnected, Conn: c})
	c.settle(now)
}

// remove forgets a connection.
func (e *Endpoint) remove(c *Conn) {
	for _, held := range c.recv.early {
		e.lent = append(e.lent, held.buf)
	}
	c.state = connClosed
	c.send, c.recv, c.long, c.lane = sendWindow{}, recvWindow{}, longReceive{}, lane{}
	c.links, c.free, c.index, c.peer, c.holds = linkTable{}, nil, nil, nil, nil
	c.presumed, c.ups, c.downs, c.catchUps, c.pending, c.waiting = nil, ladder{}, ladder{}, ladder{}, nil, nil
	e.timers.remove(&c.timer)
	if !c.client {
		e.cfg.Gate.Closed(e.clock.time(e.clock.now), c.addr)
	}
	delete(e.byAddr, c.addr)
	e.conns[c.handle] = nil
	e.freeConns = append(e.freeConns, c.handle)
	e.count--
}

func (e *Endpoint) event(v Event) {
	if e.driven {
		e.events = append(e.events, v)
		return
	}
	e.later = append(e.later, v)
}

func (e *Endpoint) drop(r DropReason) { e.stats.Drops[r]++ }

func (e *Endpoint) send(to netip.AddrPort, b []byte, out Sender) {
	e.stats.DatagramsOut++
	e.stats.BytesOut += uint64(len(b))
	out.Send(to, b)
}
