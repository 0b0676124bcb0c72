package systest

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/internal/edge"
	"github.com/dnprelay/dnprelay/internal/edge/carrier"
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
	return simCarriers(e.w.net)
}

// carry lets the new process take carried clients.
func (e *takeoverEdge) carry() {
	e.process = nil
	if e.w.carried {
		e.process = &carriedProcess{name: e.name, hub: e.edge.Hub(), rests: func() bool { return e.paused }}
	}
}

// carry connects the client by a carrier.
func (p *takeoverPlayer) carry() {
	w := p.w
	p.wire = newCarriedWire(netip.AddrFrom4([4]byte{192, 0, 2, byte(p.index + 1)}), carriedConfig{
		Net: w.net, Kind: carrier.WebSocket, Wrong: w.failf,
		Choose: func() *carriedProcess { return w.living().process }, // one that does not count as dead
		Waits:  func() bool { return p.library != nil && p.Queued() > 0 },
		Opened: func(c *carriedConn) {
			w.print("player %d is connected to %s", p.index, c.process.name)
			if p.numbered != nil {
				p.numbered.resume()
			}
		},
		Refused: func(x *carriedProcess) { w.failf("%s does not take the token of player %d", x.name, p.index) },
		FromEdge: func(c *carriedConn, b []byte) {
			w.toClient(p.addr, b)
			if e := w.edgeOf(c); !e.passes(p.addr, b) {
				w.fence.sends(e, p.addr, b)
			}
		},
		ToClient: func(b []byte) {
			p.Receive(w.net.Now(), balancerAddr, b)
			w.net.Wake(p.addr)
		},
		ToEdge: func(c *carriedConn, b []byte) {
			if e := w.edgeOf(c); !e.cut.active {
				e.heard[p.addr], p.spoke = w.net.Elapsed(), c
				_ = c.conn.Receive(b) // the connection may have ended
			}
		},
		Closed: func(c *carriedConn, r carrier.Reason) {
			w.print("%s closes the connection of player %d: %s", c.process.name, p.index, r.Text())
			if r == carrier.Unknown {
				p.closed("no edge has the session")
			}
		},
	})
	p.wire.dial()
	if p.wire.now == nil || !carrier.Carried(p.wire.now.conn.Addr().Addr()) {
		w.Fatalf("player %d is not connected by a carrier", p.index)
	}
	p.addr = p.wire.now.conn.Addr()
}

// edgeOf returns the edge of a connection.
func (w *takeoverWorld) edgeOf(c *carriedConn) *takeoverEdge {
	return w.edges[slices.IndexFunc(w.edges, func(e *takeoverEdge) bool { return e.name == c.process.name })]
}

// breaks breaks the connection of a client.
func (p *takeoverPlayer) breaks() {
	if c := p.wire.now; c != nil && !p.w.healed {
		p.w.tell("the connection of player %d to %s breaks", p.index, c.process.name)
		p.wire.breakOff(0, carriedDelay)
	}
}

// elsewhere breaks the connection of a client until it comes to an edge that did not have the connection and does not have
// the session.
func (p *takeoverPlayer) elsewhere() {
	p.w.Helper()
	before := p.w.edgeOf(p.wire.now)
	for try := 0; p.w.edgeOf(p.wire.now) == before || p.w.edgeOf(p.wire.now) == p.owner(); try++ {
		if try == 40 {
			p.w.Fatalf("the client comes to %s each time", p.wire.now.process.name)
		}
		p.wire.breakOff(0, carriedDelay)
		p.w.within(time.Second, "the client is connected again", func() bool { return p.wire.now != nil })
	}
}

// away has the connection of a client break, and the client make none for a while.
func (p *takeoverPlayer) away(d time.Duration) {
	p.wire.breakOff(0, carriedDelay)
	p.wire.next += d
}

// TestCarriedMoves has a client that only listens make connections to edges that do not have its session. It gets values at
// once.
func TestCarriedMoves(t *testing.T) {
	w, p, _ := silentClientOf(carriedAlone(t))
	for i := range 10 {
		p.elsewhere()
		w.value++
		w.mustPublish("s", fmt.Sprintf(`{"op":"set","key":"tower","values":{"n":%d}}`, w.value))
		w.net.Run(500 * time.Millisecond)
		if got := p.Value("T", 0); string(got) != string(u16(w.value)) {
			t.Fatalf("connection %d, to %s: the client sees % x, want % x", i, w.edgeOf(p.wire.now).name, got, u16(w.value))
		}
		w.net.Run(2 * time.Second)
	}
}

// TestCarriedAway: a client that only listens, and comes over an edge that does not have its session, is away while a state
// ends, for longer than its edge says so.
func TestCarriedAway(t *testing.T) {
	w, p, _ := silentClientOf(carriedAlone(t))
	p.elsewhere()
	key := herdKey + "away"
	w.mustPublish("s", fmt.Sprintf(`{"op":"put","key":%q,"values":[{"name":"n","type":"uint16","value":0}]}`, key))
	w.within(time.Second, "the client has the state", func() bool { return p.LinkNamed(key) != nil })
	w.net.Run(5 * time.Second) // its edge has heard of the link
	p.away(8 * time.Second)
	w.mustPublish("s", fmt.Sprintf(`{"op":"remove","key":%q}`, key))
	w.net.Run(7 * time.Second)
	if p.LinkNamed(key) == nil {
		t.Fatal("the client, which is away, knows that the state has ended")
	}
	w.within(2*time.Second, "the client knows that the state has ended", func() bool { return p.LinkNamed(key) == nil })
}
