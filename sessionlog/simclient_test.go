package sessionlog_test

import (
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/dnprelay/dnprelay/dnp/dnptest"
	"github.com/dnprelay/dnprelay/sessionlog"
)

// A simClient is a client whose application counts the messages that it sends and checks those that it
// receives, and the game that the client talks to.
type simClient struct {
	*dnptest.Client
	w     *world
	index int
	addr  netip.AddrPort
	log   string
	start uint64 // the first number of both directions

	connected bool
	sent      int // messages of the client
	got       int // messages of the game that the client received

	outLen        int             // messages that the game has for the client
	consumed      []string        // messages that the game got, each once
	cursor        uint64          // number of the newest of them, plus one
	wanted        [statesMax]bool // states in the client's audience
	owner         *simEdge        // according to the affinity
	route         *simEdge        // according to the balancer
	misrouted     *simEdge        // an edge that gets some datagrams of the client by mistake
	misroutedTill time.Duration
	broken        time.Duration // when the owner was killed; 0 if it was not
	adopted       bool          // since then
	handed        bool          // it was handed over instead
	frozen        bool          // interrupted
}

func newClient(w *world, i int, b dnptest.Behaviour, start uint64) *simClient {
	c := &simClient{w: w, index: i, start: start, addr: netip.AddrPortFrom(netip.MustParseAddr(fmt.Sprintf("192.0.2.%d", i+1)), 40000)}
	c.log = sessionlog.Key([]byte("secret"), c.addr, 3413)
	c.Client = dnptest.NewClient(dnptest.Config{
		Behaviour: b, Server: vip, Send: func(p []byte) { w.net.Send(c.addr, vip, p) },
		FirstSend: int(start % 65535), FirstReceive: int(start % 65535),
		App: dnptest.App{
			Connected: func() { c.connected = true },
			Closed:    func(reason string) { w.chk.closed(c, reason) },
			Message:   func(m dnptest.Message) { w.chk.toClient(c, m) },
		},
	})
	c.wanted = [statesMax]bool{true, true}
	return c
}

// Receive implements simnet.Node.
func (c *simClient) Receive(now time.Time, from netip.AddrPort, p []byte) {
	if c.broken != 0 && c.adopted {
		gap := c.w.net.Elapsed() - c.broken
		if c.handed {
			c.w.chk.handGaps = append(c.w.chk.handGaps, gap)
		} else {
			c.w.chk.gaps = append(c.w.chk.gaps, gap)
		}
		c.broken = 0
	}
	c.Client.Receive(now, from, p)
}

// begin connects, and starts the traffic of both sides.
func (c *simClient) begin() {
	w := c.w
	w.net.Attach(c.addr, c)
	c.route = w.edges[c.index%edgesMax]
	c.Connect(w.net.Now())
	w.net.Wake(c.addr)
	if c.start != 0 {
		w.net.Send(vip, c.addr, []byte{1, 0, 0, 0})
		e := w.edges[c.index%edgesMax]
		e.run(func() { e.install(c) })
		w.net.Every(100*time.Millisecond, func() bool { // the answer may get lost
			if !c.connected {
				w.net.Send(vip, c.addr, []byte{1, 0, 0, 0})
			}
			return !c.connected
		})
	}
	w.net.Schedule(0, c.talk)
	w.net.Schedule(0, c.listen)
	w.net.Every(2*time.Second, func() bool {
		c.wanted[w.net.Rand().IntN(statesMax)] = w.net.Rand().IntN(2) == 0
		return w.net.Elapsed() < playTime
	})
}

func (c *simClient) talk() {
	w := c.w
	if w.net.Elapsed() > playTime {
		return
	}
	if c.Phase() == dnptest.Connected && c.Queued() < 30 {
		text := fmt.Sprintf("c%d", c.sent)
		if c.Behaviour().LongMessage == dnptest.LongWorks && w.net.Rand().IntN(50) == 0 {
			text += strings.Repeat(".", 3000)
		}
		if c.Send(w.net.Now(), []byte(text)) == nil {
			c.sent++
			w.net.Wake(c.addr)
		}
	}
	w.net.Schedule(time.Duration(10+w.net.Rand().IntN(150))*time.Millisecond, c.talk)
}

func (c *simClient) listen() {
	if c.w.net.Elapsed() < playTime && (c.connected || c.start != 0) {
		c.outLen++
	}
	c.w.net.Schedule(time.Duration(10+c.w.net.Rand().IntN(150))*time.Millisecond, c.listen)
}

// payload is message i of the game.
func (c *simClient) payload(i int) []byte {
	text := fmt.Sprintf("g%d", i)
	if longPayload(i) {
		text += strings.Repeat("-", 2500)
	}
	return []byte(text)
}

func longPayload(i int) bool { return i%40 == 17 }

// refuses reports whether the edge refuses message i of the game, because the client does not take it.
func (c *simClient) refuses(i int) bool {
	return longPayload(i) && c.Behaviour().LongMessage != dnptest.LongWorks
}
