package systest

import (
	"encoding/json"
	"net/netip"
	"slices"
	"time"

	"github.com/dnprelay/dnprelay/internal/edge"
	"github.com/dnprelay/dnprelay/internal/edge/carrier"
	"github.com/dnprelay/dnprelay/internal/simnet"
)

// Times of a simulated carrier.
const (
	carriedDelay = 5 * time.Millisecond   // of each direction, which keeps the order
	carriedLook  = 50 * time.Millisecond  // how often a client looks after its connection
	carriedRetry = 100 * time.Millisecond // until the next attempt
	carriedStall = time.Second            // after which a client that waits for something gives its connection up
)

// carriedWhole is the size above which WebTransport sends a datagram on its stream, which loses nothing.
const carriedWhole = 1200

// simCarriers returns what an edge of a simulation needs for carried clients.
func simCarriers(n *simnet.Net) *edge.Carriers {
	return &edge.Carriers{Secret: []byte("secret"), Now: n.Now, Start: func(*carrier.Conn) {}}
}

// A carriedProcess is the process of an edge as carriers see it.
type carriedProcess struct {
	name  string
	hub   *carrier.Hub
	conns []*carriedConn
	gone  bool        // it has ended, and all connections with it
	rests func() bool // it is stopped
}

// step has what workers sent to carried clients written. It does nothing for a process without carriers, which is nil.
func (x *carriedProcess) step() {
	if x != nil && !x.gone && !x.rests() {
		x.conns = slices.DeleteFunc(x.conns, func(c *carriedConn) bool { return c.conn.Step() })
	}
}

// end ends the process.
func (x *carriedProcess) end() {
	if x != nil {
		x.gone = true
	}
}

// A carriedConn is one connection of a client. It implements carrier.Transport for the edge.
type carriedConn struct {
	wire    *carriedWire
	process *carriedProcess
	conn    *carrier.Conn
	home    netip.Addr
	broken  bool     // nothing arrives, in either direction
	held    []func() // what arrived while the client took nothing
}

// A markedConn is a connection whose client confirms what has arrived, as by WebSocket.
type markedConn struct {
	*carriedConn
	mark uint32
}

// Mark implements carrier.Marker.
func (c *markedConn) Mark(mark uint32) { c.mark = mark }

// Write implements carrier.Transport.
func (c *markedConn) Write(list [][]byte) error {
	err := c.carriedConn.Write(list)
	if mark := c.mark; mark != 0 {
		c.mark = 0
		c.later(func() { c.confirm(mark) })
	}
	return err
}

// confirm has the client confirm a mark.
func (c *carriedConn) confirm(mark uint32) {
	c.wire.Net.Schedule(carriedDelay, func() {
		if c.reaches() {
			c.conn.Confirmed(mark)
			c.process.step() // there may be another mark to write
		}
	})
}

// Write implements carrier.Transport.
func (c *carriedConn) Write(list [][]byte) error {
	w := c.wire
	for _, b := range list {
		w.FromEdge(c, b)
		if w.loses(b) {
			continue
		}
		b = slices.Clone(b)
		c.later(func() {
			w.heard = w.Net.Elapsed()
			w.ToClient(b)
		})
	}
	return nil
}

// Close implements carrier.Transport.
func (c *carriedConn) Close(r carrier.Reason) {
	c.later(func() { c.wire.closed(c, r) })
}

// later has something arrive at the client, if it still has the connection.
func (c *carriedConn) later(arrives func()) {
	w := c.wire
	w.Net.Schedule(carriedDelay, func() {
		switch {
		case w.now != c || c.broken:
		case w.stalled:
			c.held = append(c.held, arrives)
		default:
			arrives()
		}
	})
}

// reaches reports whether something that the client sent reaches the process.
func (c *carriedConn) reaches() bool { return !c.process.gone && !c.broken }

// A carriedConfig is the client of a wire, and the simulation around it.
type carriedConfig struct {
	Net  *simnet.Net
	Kind carrier.Kind
	Loss float64 // of datagrams by WebTransport

	Choose   func() *carriedProcess  // to connect to; nil if none answers
	Waits    func() bool             // the client waits for an answer of its edge
	Opened   func(c *carriedConn)    // the edge has greeted
	Refused  func(x *carriedProcess) // the edge did not take the token
	Closed   func(c *carriedConn, r carrier.Reason)
	FromEdge func(c *carriedConn, p []byte)   // the edge sends a datagram, valid during the call
	ToClient func(p []byte)                   // it arrives
	ToEdge   func(c *carriedConn, p []byte)   // a datagram arrives at the edge, which owns it
	Wrong    func(format string, args ...any) // reports what must not happen
}

// A carriedWire is the client's side: it holds a connection, and makes another one when that ends.
type carriedWire struct {
	carriedConfig
	home    netip.Addr // the real address of the client
	token   string
	now     *carriedConn  // nil while there is none
	next    time.Duration // of the next attempt
	heard   time.Duration
	last    carrier.Reason // for which an edge closed the latest connection
	stalled bool           // the client takes nothing, and does not look after its connection
	over    bool           // the client has left
}

func newCarriedWire(home netip.Addr, cfg carriedConfig) *carriedWire {
	w := &carriedWire{carriedConfig: cfg, home: home}
	w.Net.Every(carriedLook, func() bool {
		w.look()
		return !w.over
	})
	return w
}

// dial connects to an edge.
func (w *carriedWire) dial() {
	w.now, w.heard, w.next = nil, w.Net.Elapsed(), w.Net.Elapsed()+carriedRetry
	x := w.Choose()
	if x == nil || x.gone || x.rests() {
		return
	}
	seat, _, ok := x.hub.Reserve(w.Kind, w.home, w.token)
	if !ok {
		return
	}
	var greeting struct {
		Token   string
		Resumed bool
	}
	switch err := json.Unmarshal(seat.Greeting(), &greeting); {
	case err != nil, greeting.Resumed != (greeting.Token == w.token):
		w.Wrong("%s greets with %s: %v", x.name, seat.Greeting(), err)
	case w.token != "" && !greeting.Resumed:
		seat.Release()
		w.Refused(x)
		return
	}
	w.token = greeting.Token
	c := &carriedConn{wire: w, process: x, home: w.home}
	x.conns = append(x.conns, c)
	w.now = c
	if w.Kind == carrier.WebSocket {
		c.conn = seat.Open(&markedConn{carriedConn: c})
	} else {
		c.conn = seat.Open(c)
	}
	w.Opened(c)
}

// look notices that the connection is lost, or carries nothing.
func (w *carriedWire) look() {
	now := w.Net.Elapsed()
	switch {
	case w.over || w.stalled:
	case w.now == nil && now < w.next:
	case w.now == nil, w.now.process.gone:
		w.dial()
	case w.Waits() && now-w.heard > carriedStall:
		w.breakOff(0, carriedDelay)
	}
}

// breakOff ends the connection without a word, and what is on its way is lost. Client and edge notice after a while.
func (w *carriedWire) breakOff(client, edge time.Duration) {
	old := w.now
	if old == nil {
		return
	}
	old.broken = true
	lost := func() {
		if w.now == old {
			w.now, w.next = nil, w.Net.Elapsed()
		}
	}
	if client == 0 {
		lost()
	} else {
		w.Net.Schedule(client, lost)
	}
	w.Net.Schedule(edge, old.end)
}

// end has the edge notice that the connection is lost.
func (c *carriedConn) end() {
	if !c.process.gone {
		c.conn.End(carrier.Lost)
	}
}

// hangUp ends the connection of a client that leaves, behind what it sent.
func (w *carriedWire) hangUp() {
	w.over = true
	if old := w.now; old != nil && !old.broken {
		w.now = nil
		w.Net.Schedule(carriedDelay, old.end)
	}
}

// stall has the client take nothing for a while. Then it gets what has arrived meanwhile.
func (w *carriedWire) stall(d time.Duration) {
	w.stalled = true
	w.Net.Schedule(d, w.resume)
}

func (w *carriedWire) resume() {
	w.stalled = false
	w.heard = w.Net.Elapsed()
	for c := w.now; c != nil && w.now == c && len(c.held) > 0; {
		arrives := c.held[0]
		c.held = c.held[1:]
		arrives()
	}
}

// closed handles that the edge closed a connection.
func (w *carriedWire) closed(c *carriedConn, r carrier.Reason) {
	w.now, w.next, w.last = nil, w.Net.Elapsed(), r
	w.Closed(c, r)
}

// loses reports whether a datagram gets lost.
func (w *carriedWire) loses(p []byte) bool {
	return w.Kind == carrier.WebTransport && len(p) <= carriedWhole && w.Net.Rand().Float64() < w.Loss
}

// send sends a datagram of the client.
func (w *carriedWire) send(d []byte) {
	to := w.now
	if to == nil || w.loses(d) {
		return
	}
	p := slices.Clone(d)
	w.Net.Schedule(carriedDelay, func() {
		if to.reaches() {
			w.ToEdge(to, p)
		}
	})
}
