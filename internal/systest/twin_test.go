package systest

import (
	"encoding/binary"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/dnp/dnptest"
	"github.com/dnprelay/dnprelay/dnp/wire"
)

var hostileFlag = flag.String("hostile", "half", "in which rounds of the simulations a hostile twin forges datagrams: on, off or half")

// isHostile reports whether a round has a twin. The others are the control.
func isHostile(round uint64) bool {
	return *hostileFlag == "on" || *hostileFlag == "half" && round%2 == 1
}

// A twin is an attacker who is not on the path of any client. It knows the addresses and ports of
// all clients and edges, and no number: it sees no datagram of anyone. It sends datagrams to any
// edge in the name of any client, at a bounded rate, besides whatever else happens. No session
// may end, move, or get another return path because of it.
//
// What DNP cannot protect against is left out, by a truth that the simulation knows and an
// attacker does not; see truth.deceives.
type twin struct {
	w       *world
	rng     *rand.Rand
	truths  map[netip.AddrPort]*truth
	doors   func(client netip.AddrPort) []twinDoor // by which datagrams get to edges
	sent    map[string]int                         // by kind
	skipped int                                    // datagrams that would have deceived an edge
	stopped bool
}

// A twinDoor takes a datagram in the name of a client to an edge.
type twinDoor func(p []byte)

// The rates of a twin, for each client.
const (
	twinPerSecond = 20 // datagrams, besides bursts
	twinBursts    = 1  // per second
	twinBurst     = 12 // datagrams, more than a window has
	twinTick      = 10 * time.Millisecond
)

// twinLeast is how many datagrams of each kind a twin sends to each client in a round, at least.
const twinLeast = 3

// twinKinds are what a twin sends. Each makes a datagram.
var twinKinds = []struct {
	name string
	make func(r *rand.Rand) []byte
}{
	{"close", func(*rand.Rand) []byte { return []byte{byte(wire.CommandConnectionClose)} }},
	{"request", func(*rand.Rand) []byte { return wire.AppendConnectionRequest(nil) }},
	{"acceptance", func(r *rand.Rand) []byte { return wire.ConnectionAck{Result: wire.AckResult(r.IntN(4))}.Append(nil) }},
	{"login", func(r *rand.Rand) []byte {
		return wire.ReliableMessage{Seq: guess(r), Data: randomBytes(r, 30+r.IntN(60))}.Append(nil)
	}},
	{"unreliable message", func(*rand.Rand) []byte { return wire.AppendMessage(nil, []byte(twinText)) }},
	{"message", func(r *rand.Rand) []byte {
		return wire.ReliableMessage{Seq: guess(r), Data: []byte(twinText)}.Append(nil)
	}},
	{"part", func(r *rand.Rand) []byte {
		return wire.ReliableMessageLong{Seq: guess(r), Flags: wire.PartFlags(r.IntN(4)), Data: randomBytes(r, r.IntN(40))}.Append(nil)
	}},
	{"offer", func(r *rand.Rand) []byte {
		return wire.LinkState{Seq: guess(r), Link: wire.LinkID(r.IntN(0x10000)), ReadOnly: r.IntN(2) == 0, Message: []byte(twinText)}.Append(nil)
	}},
	{"part of an offer", func(r *rand.Rand) []byte {
		return append([]byte{byte(wire.CommandReliableLinkStateLong)}, randomBytes(r, 3+r.IntN(30))...)
	}},
	{"acknowledgement", func(r *rand.Rand) []byte {
		return wire.ReliableAck{Seq: guess(r), Code: wire.AckCode(r.IntN(3))}.Append(nil)
	}},
	{"link up", func(r *rand.Rand) []byte { return wire.LinkUp{Link: wire.LinkID(r.IntN(0x10000))}.Append(nil) }},
	{"link down", func(r *rand.Rand) []byte { return wire.LinkDown{Link: wire.LinkID(r.IntN(0x10000))}.Append(nil) }},
	{"update", func(r *rand.Rand) []byte {
		return append([]byte{byte(wire.CommandLinkUpdate), 1}, randomBytes(r, 2+r.IntN(12))...)
	}},
	{"unknown command", func(r *rand.Rand) []byte {
		return append([]byte{byte(0x0C + r.IntN(0xF4))}, randomBytes(r, r.IntN(8))...)
	}},
	{"random bytes", func(r *rand.Rand) []byte { return randomBytes(r, r.IntN(40)) }},
}

// twinText is the content of forged messages.
const twinText = "forged"

// twinBurstKinds are the datagrams that come in bursts: the same numbers again and again, which
// are impossible in every connection of the simulations.
var twinBurstKinds = []string{"04 3075 78", "05 3075 0010 00 0100 68", "06 3005 00", "0a 3075 03 78"}

func randomBytes(r *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// guess returns a number. Numbers count from 0, so small ones are more likely.
func guess(r *rand.Rand) wire.Seq {
	if r.IntN(2) == 0 {
		return wire.Seq(r.IntN(1000))
	}
	return wire.Seq(r.IntN(0x10000))
}

// attack begins to attack the clients of these edges in a hostile round. Otherwise it returns nil.
// Each of these edges has an address of its own and knows nothing of the others' sessions, so
// anyone may begin a session at the others; the twin sends to the edge of the client only.
func (w *world) attack(seed uint64) *twin {
	if !isHostile(seed) {
		return nil
	}
	return newTwin(w, seed, func(client netip.AddrPort) []twinDoor {
		return []twinDoor{func(p []byte) { w.net.Send(client, w.endings.clients[client].edge.addr, p) }}
	})
}

// newTwin begins to attack all clients for whom the simulation keeps a truth.
func newTwin(w *world, seed uint64, doors func(client netip.AddrPort) []twinDoor) *twin {
	x := &twin{w: w, rng: rand.New(rand.NewPCG(seed, 6)), truths: w.truths, doors: doors, sent: make(map[string]int)}
	w.net.Every(twinTick, func() bool {
		x.turn()
		return !x.stopped
	})
	return x
}

// turn sends what is due to each client.
func (x *twin) turn() {
	for _, client := range slices.SortedFunc(x.clients, netip.AddrPort.Compare) {
		if x.rng.Float64() < twinPerSecond*twinTick.Seconds() {
			kind := twinKinds[x.rng.IntN(len(twinKinds))]
			x.send(client, kind.name, kind.make(x.rng), x.door(client))
		}
		if x.rng.Float64() < twinBursts*twinTick.Seconds() {
			p, door := unhex(twinBurstKinds[x.rng.IntN(len(twinBurstKinds))]), x.door(client)
			for range twinBurst {
				x.send(client, "burst", p, door)
			}
		}
	}
}

func (x *twin) clients(yield func(netip.AddrPort) bool) {
	for client := range x.truths {
		if !yield(client) {
			return
		}
	}
}

func (x *twin) door(client netip.AddrPort) twinDoor {
	doors := x.doors(client)
	return doors[x.rng.IntN(len(doors))]
}

func (x *twin) send(client netip.AddrPort, kind string, p []byte, door twinDoor) {
	if x.truths[client].deceives(p) {
		x.skipped++
		return
	}
	x.sent[kind]++
	if kind == "close" {
		x.w.endings.closed[client] = x.w.net.Elapsed()
	}
	door(p)
}

// stop ends the attack.
func (x *twin) stop() {
	if x != nil {
		x.stopped = true
	}
}

// check fails if the twin did little.
func (x *twin) check(t *testing.T) {
	t.Helper()
	if x == nil {
		return
	}
	if least := twinLeast * len(x.truths); x.sent["burst"] < least*twinBurst {
		t.Errorf("the twin sent only %d datagrams in bursts", x.sent["burst"])
	} else {
		for _, kind := range twinKinds {
			if x.sent[kind.name] < least {
				t.Errorf("the twin sent only %d datagrams of kind %q, less than %d", x.sent[kind.name], kind.name, least)
			}
		}
	}
}

// String returns what the twin sent.
func (x *twin) String() string {
	all, list := 0, []string{}
	for _, n := range x.sent {
		all += n
	}
	for _, kind := range twinKinds {
		list = append(list, fmt.Sprintf("%d of kind %s", x.sent[kind.name], kind.name))
	}
	return fmt.Sprintf("the twin sent %d datagrams and left out %d: %d in bursts, %s", all, x.skipped, x.sent["burst"], strings.Join(list, ", "))
}

// patientFor is for how long a close that nothing contradicts can wait.
const patientFor = 10 * time.Second

// endings are the sessions that ended although their clients took themselves for connected.
type endings struct {
	served   netip.AddrPort            // the client whose datagram an edge handles; invalid for none
	names    map[string]netip.AddrPort // of clients without a login: an edge makes their names
	clients  map[netip.AddrPort]*player
	over     map[netip.AddrPort]bool          // clients whose session ended, for whatever reason
	closed   map[netip.AddrPort]time.Duration // when a twin said last that they end it
	misnamed bool                             // a session ended as "peer" that its edge may have given up
	list     []event
}

func newEndings() *endings {
	return &endings{over: make(map[netip.AddrPort]bool), closed: make(map[netip.AddrPort]time.Duration), names: make(map[string]netip.AddrPort), clients: make(map[netip.AddrPort]*player)}
}

// name notes an id that an edge made.
func (n *endings) name(id string) { n.names["c-"+id] = n.served }

// note notes an event.
func (n *endings) note(e event) {
	addr := n.names[e.Client]
	p := n.clients[addr]
	if e.Type != "left" || p == nil {
		return
	}
	n.over[addr] = true
	p.world.print("the session of %v has ended: %s", addr, e.Reason)
	if p.Phase() == dnptest.Connected && (p.carried == nil || !p.carried.missed) {
		if at, ok := n.closed[addr]; ok && e.Reason == "peer" && p.world.net.Elapsed()-at < patientFor && !n.misnamed {
			// An edge that gives a client up names a forged close that is pending as the reason (dnp, liveness.endOf). That is rare:
			// of a second one in the same world the close itself is the reason.
			n.misnamed, e.Reason = true, "timeout"
		}
		n.list = append(n.list, e)
	}
}

// check fails if a session ended for another reason than these. Where much is lost, the edge
// and the client give each other up, with a twin and without one.
func (n *endings) check(t *testing.T, reasons ...string) {
	t.Helper()
	for _, e := range n.list {
		if !slices.Contains(reasons, e.Reason) {
			t.Errorf("the session of %v ended as %q, but the client did not end it", n.names[e.Client], e.Reason)
		}
	}
}

// doors are the ways to the edges of durable sessions: by the balancer, and to each edge. Where
// the balancer tracks connections, a forged datagram has the addresses of a tracked one, and
// goes where the client's go.
func (w *takeoverWorld) doors(client netip.AddrPort) []twinDoor {
	late := func(receive func(p []byte)) twinDoor {
		return func(p []byte) {
			w.net.Schedule(time.Duration(w.twin.rng.IntN(30))*time.Millisecond, func() { receive(p) })
		}
	}
	doors := []twinDoor{late(func(p []byte) { takeoverBalancer{w}.Receive(w.net.Now(), client, p) })}
	if w.tracked {
		return doors
	}
	for _, e := range w.edges {
		doors = append(doors, late(func(p []byte) { e.receive(client, p) }))
	}
	return doors
}

// takeoverSettle is how long after the last fault every session has one owner.
const takeoverSettle = 6 * time.Second

// settled reports whether nothing has failed, moved or started for so long that nothing of a
// client may change.
func (w *takeoverWorld) settled(p *takeoverPlayer) bool {
	since := w.net.Elapsed() - takeoverSettle
	return w.playing && !p.frozen && p.talks() && w.spray == 0 && p.routed < since && (w.disturbed < since || w.still())
}

// still reports whether the plan has no faults.
func (p *takeoverPlan) still() bool {
	return !p.kills && !p.pauses && !p.outages && !p.drains && !p.pursuits && !p.breaks
}

// leaves wants values to leave by the edge to which the balancer sends the client, in the plans
// without faults. In the others a client that falls silent right after its balancer moved it
// keeps its old return path until it sends again.
func (w *takeoverWorld) leaves(e *takeoverEdge, to netip.AddrPort, b []byte) {
	if p := w.player(to); b[0] == byte(wire.CommandLinkUpdate) && p.route != e && w.still() && w.settled(p) {
		w.failf("values for player %d leave by %s, but the client is sent to %s, and nothing failed lately", p.index, e.name, p.route.name)
	}
}

// moves wants a session to stay where it is while nothing fails.
func (f *fence) moves(log, from, to string) {
	for _, p := range f.w.players {
		if p.log() == log && from != to && f.w.settled(p) {
			f.w.failf("%s takes the session of player %d from %s, and nothing failed lately", to, p.index, from)
		}
	}
}

// A truth is what a simulation knows of the connection of a client.
type truth struct {
	client, edge int                  // the highest reliable numbers of the two that were sent; -1 before the first
	links        map[wire.LinkID]bool // that either side offered
	closed       bool                 // the edge ended it once
}

// A datagram may wait in front of an edge that is stopped, or on a slow path, and the windows
// move meanwhile.
const (
	truthBehind = 32  // numbers behind the highest that may be in a window
	truthAhead  = 300 // and numbers before it, of commands and links
)

// note notes a datagram of the connection.
func (t *truth) note(highest *int, p []byte) {
	if len(p) < 5 {
		return
	}
	n, link := int(binary.LittleEndian.Uint16(p[1:])), wire.LinkID(binary.LittleEndian.Uint16(p[3:]))
	switch wire.Command(p[0]) {
	case wire.CommandReliableLinkState, wire.CommandReliableLinkStateLong:
		t.links[link] = true
	case wire.CommandReliableMessage, wire.CommandReliableMessageLong:
	default:
		return
	}
	*highest = max(*highest, n)
}

// deceives reports whether a datagram would deceive an edge although the edge does what it can.
// In DNP these need no secret but luck, or nothing:
//
//   - a reliable command with a number in the receive window, 16 of 65,535, and an
//     acknowledgement of a number in flight, 24 at most: an attacker has to guess them;
//   - LinkUp, LinkDown and values of a link, whose LinkIds count from 0 and from 0x8000;
//   - the content of an unreliable message. It is sent, and the simulations ignore the content.
func (t *truth) deceives(p []byte) bool {
	if len(p) == 0 {
		return false
	}
	le := func(i int) int {
		if len(p) < i+2 {
			return 0
		}
		return int(binary.LittleEndian.Uint16(p[i:]))
	}
	switch wire.Command(p[0]) {
	case wire.CommandMessage:
		return string(p[1:]) != twinText
	case wire.CommandReliableMessage, wire.CommandReliableMessageLong, wire.CommandReliableLinkState, wire.CommandReliableLinkStateLong:
		return near(le(1), t.client)
	case wire.CommandReliableAck:
		return near(le(1), t.edge)
	case wire.CommandLinkUp, wire.CommandLinkDown:
		return t.mayBeLink(wire.LinkID(le(1)))
	case wire.CommandLinkUpdate:
		return t.mayBeLink(wire.LinkID(le(2)))
	}
	return false
}

// near reports whether a number may be in a window, now or when the datagram arrives.
func near(n, highest int) bool {
	d := (n - highest + truthBehind + 65535) % 65535
	return d <= truthBehind+truthAhead
}

// mayBeLink reports whether a link with this id exists, or may exist soon.
func (t *truth) mayBeLink(id wire.LinkID) bool {
	for back := range wire.LinkID(truthAhead) {
		if t.links[id-back] {
			return true
		}
	}
	return id < truthAhead || id >= 0x8000 && id < 0x8000+truthAhead
}

// truth returns the truth about a client.
func (w *world) truth(client netip.AddrPort) *truth {
	if w.truths[client] == nil {
		w.truths[client] = &truth{client: -1, edge: -1, links: make(map[wire.LinkID]bool)}
	}
	return w.truths[client]
}

// fromClient and toClient note the datagrams that a client and an edge send.
func (w *world) fromClient(client netip.AddrPort, p []byte) {
	t := w.truth(client)
	t.note(&t.client, p)
}

func (w *world) toClient(client netip.AddrPort, p []byte) {
	if t := w.truths[client]; t != nil {
		t.note(&t.edge, p)
		t.closed = t.closed || wire.Command(p[0]) == wire.CommandConnectionClose
	}
}
