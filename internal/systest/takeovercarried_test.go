package systest

import (
	"encoding/json"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/internal/edge"
	"github.com/dnprelay/dnprelay/internal/edge/carrier"
)

// Times of a simulated carrier.
const (
	carriedDelay = 5 * time.Millisecond   // of each direction, which keeps the order
	carriedLook  = 50 * time.Millisecond  // how often a client looks after its connection
	carriedRetry = 100 * time.Millisecond // until the next attempt
	carriedStall = time.Second            // after which a client that waits for something gives its connection up
)

var carriedPlans = []takeoverPlan{
	{name: "carried, kill", kills: true, carried: true},
	{name: "carried, drain", drains: true, carried: true},
	{name: "carried, broken", breaks: true, carried: true},
	{name: "carried, pause", pauses: true, carried: true},
	{name: "carried, unsure log", kills: true, breaks: true, lost: 0.02, late: 0.01, busy: 0.05, old: 0.05, carried: true},
	{name: "carried, everything", kills: true, pauses: true, drains: true, pursuits: true, breaks: true, lost: 0.02, late: 0.02, busy: 0.05, old: 0.05,
		lies: 0.05, away: 0.05, carried: true, excused: true},
}

// TestTakeoverCarried plays clients that come by a carrier: their connections end with their edges, or break, and they
// come back with their tokens to any edge. All that TestTakeover wants holds for them.
func TestTakeoverCarried(t *testing.T) {
	playSeeds(t, max(*takeoverSeeds/3, min(*takeoverSeeds, 2*len(carriedPlans))), carriedPlans)
}

// carriers returns what the edge needs for carried clients, nil if there are none.
func (e *takeoverEdge) carriers() *edge.Carriers {
	if !e.w.carried {
		return nil
	}
	return &edge.Carriers{Secret: []byte("secret"), Now: e.w.net.Now, Start: func(*carrier.Conn) {}}
}

// stepCarried has what workers sent to carried clients written.
func (e *takeoverEdge) stepCarried() {
	if e.alive && !e.paused {
		e.carried = slices.DeleteFunc(e.carried, func(c *carriedConn) bool { return c.conn.Step() })
	}
}

// A carriedConn is one connection of a client. It implements carrier.Transport for the edge.
type carriedConn struct {
	wire  *carriedWire
	e     *takeoverEdge
	start int // of the process
	conn  *carrier.Conn
}

// Write implements carrier.Transport.
func (c *carriedConn) Write(list [][]byte) error {
	w, p := c.e.w, c.wire.p
	for _, b := range list {
		w.toClient(p.addr, b)
		if !c.e.passes(p.addr, b) {
			w.fence.sends(c.e, p.addr, b)
		}
		b = slices.Clone(b)
		w.net.Schedule(carriedDelay, func() {
			if c.wire.now == c {
				c.wire.heard = w.net.Elapsed()
				p.Receive(w.net.Now(), balancerAddr, b)
				w.net.Wake(p.addr)
			}
		})
	}
	return nil
}

// Close implements carrier.Transport.
func (c *carriedConn) Close(r carrier.Reason) {
	c.e.w.net.Schedule(carriedDelay, func() { c.wire.closed(c, r) })
}

// lost reports whether the process at the other end is gone.
func (c *carriedConn) lost() bool { return c.e.start != c.start || !c.e.alive }

// A carriedWire is the client's side: it holds a connection, and makes another one when that ends.
type carriedWire struct {
	p     *takeoverPlayer
	token string
	now   *carriedConn  // nil while there is none
	next  time.Duration // of the next attempt
	heard time.Duration
	last  carrier.Reason // for which an edge closed the latest connection
}

func newCarriedWire(p *takeoverPlayer) *carriedWire {
	c := &carriedWire{p: p}
	c.dial()
	if p.addr = c.now.conn.Addr(); !carrier.Carried(p.addr.Addr()) {
		p.w.Fatalf("%v is no address of a carried client", p.addr)
	}
	p.w.net.Every(carriedLook, func() bool {
		c.look()
		return true
	})
	return c
}

// dial connects to one of the edges that do not count as dead.
func (c *carriedWire) dial() {
	w, e := c.p.w, c.p.w.living()
	c.now, c.heard, c.next = nil, w.net.Elapsed(), w.net.Elapsed()+carriedRetry
	if !e.alive || e.paused {
		return
	}
	seat, _, ok := e.edge.Hub().Reserve(carrier.WebSocket, netip.AddrFrom4([4]byte{192, 0, 2, byte(c.p.index + 1)}), c.token)
	if !ok {
		return
	}
	var greeting struct {
		Token   string
		Resumed bool
	}
	if err := json.Unmarshal(seat.Greeting(), &greeting); err != nil || c.token != "" && (!greeting.Resumed || greeting.Token != c.token) {
		w.Fatalf("the edge greets with %s: %v", seat.Greeting(), err)
	}
	c.token = greeting.Token
	c.now = &carriedConn{wire: c, e: e, start: e.start}
	e.carried = append(e.carried, c.now)
	c.now.conn = seat.Open(c.now)
	w.print("player %d is connected to %s", c.p.index, e.name)
}

// look notices that the connection is lost, or carries nothing.
func (c *carriedWire) look() {
	now := c.p.w.net.Elapsed()
	switch {
	case c.now == nil && now >= c.next:
		c.dial()
	case c.now == nil:
	case c.now.lost():
		c.dial()
	case c.p.Queued() > 0 && now-c.heard > carriedStall:
		c.breakOff()
	}
}

// breakOff ends the connection without a word. The edge hears of it a little later.
func (c *carriedWire) breakOff() {
	w, old := c.p.w, c.now
	if old == nil || w.healed {
		return
	}
	w.tell("the connection of player %d to %s breaks", c.p.index, old.e.name)
	c.now, c.next = nil, w.net.Elapsed()
	w.net.Schedule(carriedDelay, func() {
		if !old.lost() {
			old.conn.End(carrier.Lost)
		}
	})
}

// closed handles that the edge closed a connection.
func (c *carriedWire) closed(old *carriedConn, r carrier.Reason) {
	if c.now != old {
		return
	}
	c.p.w.print("%s closes the connection of player %d: %s", old.e.name, c.p.index, r.Text())
	c.now, c.next, c.last = nil, c.p.w.net.Elapsed(), r
	if r == carrier.Unknown {
		c.p.closed("no edge has the session")
	}
}

// send sends a datagram of the client.
func (c *carriedWire) send(d []byte) {
	w, to := c.p.w, c.now
	if to == nil {
		return
	}
	p := slices.Clone(d)
	w.net.Schedule(carriedDelay, func() {
		if !to.lost() && !to.e.cut.active {
			to.e.heard[c.p.addr] = w.net.Elapsed()
			_ = to.conn.Receive(p) // the connection may have ended
		}
	})
}
