package systest

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/dnprelay/dnprelay/bus"
	"github.com/dnprelay/dnprelay/dnp/dnptest"
	"github.com/dnprelay/dnprelay/dnp/netstate"
	"github.com/dnprelay/dnprelay/sessionlog"
	"github.com/dnprelay/dnprelay/subject"
)

// A takeoverPlayer is a client with an application that counts its messages, and the game to
// which the client talks.
type takeoverPlayer struct {
	library
	teller
	w      *takeoverWorld
	index  int
	addr   netip.AddrPort
	name   string
	route  *takeoverEdge // to which the balancer sends its datagrams
	routed time.Duration // since when
	next   *takeoverEdge // to which it sends them from the next datagram on; nil for no change

	said     int    // messages that the client sent
	consumed int    // of these, those that the game has
	cursor   uint64 // number of the newest consumed message, plus one
	got      int    // of the messages of its teller, those that arrived
	bursts   int    // messages that the game sent without waiting for an answer
	heard    int    // of these, those that arrived
	last     int    // ordinal of the newest of these

	wire     *carriedWire // nil for a client that speaks UDP
	spoke    *carriedConn // the connection by which it said something last
	commands takeoverCommands
	own      *dnptest.Link   // the state that the client offers
	wrote    []time.Duration // when the client wrote each value of it, which counts them
	broken   time.Duration   // since when its edge is dead; 0 if its edge lives
	numbered *numberedPlayer // the library; nil for a model of one without numbers
	frozen   bool            // interrupted
}

func newTakeoverPlayer(w *takeoverWorld, i int, b dnptest.Behaviour) *takeoverPlayer {
	p := &takeoverPlayer{w: w, index: i, commands: newTakeoverCommands(), addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(i + 1)}), uint16(40000+i))}
	p.teller = teller{w: w.world, name: func() string { return p.name }, payload: p.payload, refused: p.refuses, over: func() bool { return p.frozen }}
	send := func(d []byte) { w.net.Send(p.addr, balancerAddr, d) }
	if w.carried {
		p.carry()
		send = p.wire.send
	}
	app := dnptest.App{
		Closed:  p.closed,
		Message: p.message,
		Updated: func(l *dnptest.Link, i int) {
			if l == p.own && p.numbered == nil {
				p.undone(l.State.Value(i))
			}
		},
		LinkDown: func(l *dnptest.Link) {
			if !p.frozen && !w.excused && string(l.Message) != "h" && string(l.Message) != gate && string(l.Message) != lever && !ofHerd(string(l.Message)) { // a question of an edge is no link of the game; the access of gate and lever changes, and animals leave
				w.failf("player %d loses its link %x to %s", i, l.ID, l.Message)
			}
		},
	}
	sends := func(d []byte) {
		w.fromClient(p.addr, d)
		send(d)
	}
	if w.levers != nil && i == writer {
		p.number(app, sends)
	} else {
		p.library = dnptest.NewClient(dnptest.Config{Behaviour: b, Server: balancerAddr, Send: sends, App: app})
	}
	known := len(w.joined())
	w.net.Attach(p.addr, p)
	p.Connect(w.net.Now())
	w.net.Wake(p.addr)
	w.players = append(w.players, p) // the balancer looks for it
	w.within(6*time.Second, "the player joins", func() bool { return len(w.joined()) > known && p.Phase() == dnptest.Connected })
	w.players = w.players[:i]
	p.name = w.joined()[known]
	return p
}

func (w *takeoverWorld) player(addr netip.AddrPort) *takeoverPlayer {
	for _, p := range w.players {
		if p.addr == addr {
			return p
		}
	}
	panic("a stranger")
}

// log returns the name of the log of the client's session.
func (p *takeoverPlayer) log() string {
	return sessionlog.Key([]byte("secret"), p.addr, balancerAddr.Port())
}

// owner returns the living edge that claims the player's session, or nil.
func (p *takeoverPlayer) owner() *takeoverEdge {
	for _, e := range p.w.edges {
		if node, _ := p.w.claims.Claim(p.log()); e.alive && node == e.name {
			return e
		}
	}
	return nil
}

// broken records the players whose service ends with an edge.
func (w *takeoverWorld) broken(e *takeoverEdge) {
	for _, p := range w.players {
		if p.owner() == e && !p.frozen {
			p.broken = w.net.Elapsed()
		}
	}
}

// Receive implements simnet.Node.
func (p *takeoverPlayer) Receive(now time.Time, from netip.AddrPort, b []byte) {
	if o := p.owner(); p.broken != 0 && o != nil && o.alive {
		p.w.gaps = append(p.w.gaps, p.w.net.Elapsed()-p.broken)
		p.broken = 0
	}
	p.library.Receive(now, from, b)
}

// talks reports whether the client sends messages.
func (p *takeoverPlayer) talks() bool { return p.index < takeoverPlayers-1 }

// begin starts the traffic in both directions.
func (p *takeoverPlayer) begin() {
	switch p.index {
	case takeoverPlayers - 1:
		if p.w.tracked {
			break // only edges that heard it may send to it
		}
		return // it sends nothing, so no edge learns from it that it needs another one
	case writer:
		p.offer()
		p.w.net.Every(300*time.Millisecond, func() bool {
			p.writeNext()
			return !p.w.healed
		})
	}
	p.w.net.Schedule(0, p.talk)
	p.w.net.Schedule(0, p.listen)
}

// offer offers the client's own state.
func (p *takeoverPlayer) offer() {
	layout, err := netstate.NewLayout([]netstate.Value{{Type: uint16Type}})
	if err == nil {
		p.own, err = p.Offer(p.w.net.Now(), netstate.NewState(layout), []byte("own"), false)
	}
	if err != nil {
		p.w.Fatal(err)
	}
	p.w.net.Wake(p.addr)
	if p.numbered != nil {
		p.numbered.own = p.own
	}
}

// write writes to the client's own state.
func (p *takeoverPlayer) write(v uint16) {
	switch {
	case p.own.Phase != dnptest.LinkIsUp:
	case p.numbered != nil:
		p.numbered.next = v - 2
		p.numbered.write(p.own, 0)
	default:
		p.Set(p.own, 0, u16(v))
		p.w.net.Wake(p.addr)
	}
}

// writeNext writes how often the client has written to its own state, or, if it numbers its writes, to any of those it may.
func (p *takeoverPlayer) writeNext() {
	if p.numbered != nil {
		p.numbered.writeSome(p.w.net.Rand())
		return
	}
	p.wrote = append(p.wrote, p.w.net.Elapsed())
	p.write(uint16(len(p.wrote) - 1))
}

// undoneMax returns how old a value may be that an edge makes the newest one again. The edge may never have received
// what the client wrote since, while no edge served the client, for up to 5 s. An edge that is stopped, moreover, keeps
// datagrams for as long as the stop lasts, and nothing orders those of this client, whose library knows no numbers of
// writes.
func (w *takeoverWorld) undoneMax() time.Duration {
	if w.pauses {
		return 5*time.Second + takeoverStopMax
	}
	return 5 * time.Second
}

// undone judges a value of the client's own state that comes from an edge.
func (p *takeoverPlayer) undone(value []byte) {
	w := p.w
	i := int(binary.LittleEndian.Uint16(value))
	if w.excused || w.healed || i+1 >= len(p.wrote) { // when all has healed, a last write may have been lost
		return
	}
	if old := w.net.Elapsed() - p.wrote[i+1]; old > w.undoneMax() {
		w.failf("player %d gets back what it wrote to its own state as write %d of %d, %v after it wrote another", p.index, i, len(p.wrote), old)
	}
}

func (p *takeoverPlayer) talk() {
	w := p.w
	if w.healed && (!w.tracked || w.net.Elapsed() > w.healedAt+takeoverLeave) {
		return
	}
	if p.Phase() == dnptest.Connected && p.Queued() < 30 {
		text := fmt.Sprintf("c%d", p.said)
		if p.Behaviour().LongMessage == dnptest.LongWorks && w.net.Rand().IntN(50) == 0 {
			text += strings.Repeat(".", 3000)
		}
		if p.Send(w.net.Now(), []byte(text)) == nil {
			p.said++
			w.net.Wake(p.addr)
		}
	}
	if w.commands() && p.Phase() == dnptest.Connected && p.Queued() < 30 && w.net.Rand().IntN(2) == 0 {
		p.command()
	}
	w.net.Schedule(time.Duration(20+w.net.Rand().IntN(150))*time.Millisecond, p.talk)
}

// consume brings a client's message, which may be a repetition, from an edge to the game.
func (w *takeoverWorld) consume(e *takeoverEdge, client string, m sessionlog.Message) {
	for _, p := range w.players {
		if p.name != client {
			continue
		}
		if w.fence.consumes(e, p, m); m.Number < p.cursor {
			return
		}
		if m.Header[subject.HeaderRequest] != "" && m.Previous == p.cursor {
			p.cursor = m.Number + 1
			p.execute(m)
			return
		}
		want := fmt.Sprintf("c%d", p.consumed)
		if text, _, _ := strings.Cut(string(m.Data), "."); text != want || m.Previous != p.cursor {
			w.failf("the game gets %q of number %d after %d from player %d, want %q after %d", text, m.Number, m.Previous, p.index, want, p.cursor)
		}
		p.cursor = m.Number + 1
		p.consumed++
	}
}

// burst has the game send more than the window of the client's connection takes; its next
// messages wait behind these. The game does not ask for an answer, so some may get lost with
// an edge; the others arrive once and in order.
func (p *takeoverPlayer) burst() {
	if p.w.healed {
		return
	}
	for range 20 + p.w.net.Rand().IntN(80) {
		p.bursts++
		m := bus.Msg{Subject: p.w.subjects.To("s", p.name), Data: fmt.Appendf(nil, "b%d", p.bursts)}
		if err := p.w.game.Publish(m); err != nil {
			p.w.Fatal(err)
		}
	}
}

// listen makes the game send messages one after the other, each until it is answered.
func (p *takeoverPlayer) listen() {
	w := p.w
	if !p.telling && !w.healed {
		if w.net.Rand().IntN(20) == 0 {
			p.burst()
		}
		p.tell()
	}
	if !w.healed {
		w.net.Schedule(time.Duration(20+w.net.Rand().IntN(150))*time.Millisecond, p.listen)
	}
}

func (p *takeoverPlayer) payload(i int) []byte {
	text := fmt.Sprintf("g%d", i)
	if longPayload(i) {
		text += strings.Repeat("-", 2500)
	}
	return []byte(text)
}

func longPayload(i int) bool { return i%40 == 17 }

// refuses reports whether the client does not take message i of the game, because it is Java.
func (p *takeoverPlayer) refuses(i int) bool {
	return longPayload(i) && p.Behaviour().LongMessage != dnptest.LongWorks
}

func (p *takeoverPlayer) message(m dnptest.Message) {
	if !m.Reliable {
		return
	}
	if p.answered(m) {
		return
	}
	if n, ok := strings.CutPrefix(string(m.Data), "b"); ok {
		if i, err := strconv.Atoi(n); err != nil || i <= p.last {
			p.w.failf("player %d gets %q after b%d", p.index, m.Data, p.last)
		} else {
			p.last = i
		}
		p.heard++
		return
	}
	for p.refuses(p.got) {
		p.got++
	}
	if want := p.payload(p.got); string(m.Data) != string(want) {
		p.w.failf("player %d gets %.20q, want %.20q", p.index, m.Data, want)
	}
	p.got++
}

func (p *takeoverPlayer) closed(reason string) {
	if p.frozen {
		return
	}
	p.frozen = true
	if p.w.excused || p.w.store.Starved(p.log()) {
		p.w.excusedFor++
		p.w.tell("player %d is interrupted: %s", p.index, reason)
		return
	}
	p.w.interrupted++
	p.w.failf("player %d is interrupted: %s", p.index, reason)
}

// judge compares what the client and the game have in the end.
func (p *takeoverPlayer) judge() {
	w := p.w
	if p.consumed != p.said || p.Queued() > 0 {
		w.failf("player %d sent %d messages, the game got %d; %d wait", p.index, p.said, p.consumed, p.Queued())
	}
	for p.got < p.told && p.refuses(p.got) {
		p.got++
	}
	if p.got != p.told {
		w.failf("the game sent %d messages, player %d got %d", p.told, p.index, p.got)
	}
	want := u16(w.value)
	if p.mayBeSought() && string(p.Value("T", 0)) != string(want) {
		w.net.Run(takeoverProbe)
	}
	if string(p.Value("T", 0)) != string(want) {
		w.failf("player %d sees % x, want % x", p.index, p.Value("T", 0), want)
	}
	if p.owners() != 1 {
		w.net.Run(takeoverProbe)
	}
	if n := p.owners(); n != 1 {
		w.failf("player %d has %d owners in the end", p.index, n)
	}
	p.judgeCommands()
	if p.own != nil {
		p.judgeOwn()
	}
	p.judgeNumbered()
}

// mayBeSought reports whether an edge other than the owner has the client's connection and may not have told the owner,
// because the affinity lied, and the client said nothing by it, or nothing but the answer to a question of the owner, which
// may have come a moment ago: a value that was lost before comes again with its next repetition.
func (p *takeoverPlayer) mayBeSought() bool {
	if p.wire == nil || p.wire.now == nil || !p.w.excused {
		return false
	}
	return (!p.talks() || p.spoke != p.wire.now) && p.w.edgeOf(p.wire.now) != p.owner()
}

// owners returns how many edges take the session for theirs.
func (p *takeoverPlayer) owners() (n int) {
	for _, e := range p.w.edges {
		for _, k := range e.workers {
			if k.worker.Serves(p.addr) {
				n++
			}
		}
	}
	return n
}

// judgeEnd wants the end of the session in the log. It is not written before all messages of the
// client were delivered. A twin may have begun another session in the name of the client since.
func (p *takeoverPlayer) judgeEnd() {
	if p.numbered != nil {
		for _, problem := range p.w.levers.problems {
			p.w.failf("player %d, which numbers its writes: %s", p.index, problem)
		}
	}
	if !p.w.fence.of(p.log()).ended {
		p.w.failf("the session of player %d did not end", p.index)
	}
}

// judgeOwn wants the holder to have what the client writes to its own state.
func (p *takeoverPlayer) judgeOwn() {
	w := p.w
	if p.own.Phase != dnptest.LinkIsUp {
		w.failf("player %d lost its own state", p.index)
		return
	}
	if w.alone { // a value is no evidence of the client, for which the edge takes the session from one that it cannot reach
		if err := p.Send(w.net.Now(), fmt.Appendf(nil, "c%d", p.said)); err != nil {
			w.failf("player %d cannot send: %v", p.index, err)
		}
		p.said++
		w.net.Wake(p.addr)
		w.net.Run(2 * time.Second)
	}
	p.write(4710)
	w.net.Run(2 * time.Second)
	got := w.ask(w.subjects.Get("s", p.ownKey()), "{}")
	if !strings.Contains(got, "4710") {
		w.failf("player %d wrote 4710 to its own state, the holder has %s", p.index, got)
	}
}
