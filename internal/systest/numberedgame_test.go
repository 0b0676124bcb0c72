package systest

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dnprelay/dnprelay/bus"
	"github.com/dnprelay/dnprelay/dnp/dnptest"
	"github.com/dnprelay/dnprelay/dnp/netstate"
)

// A leverGame is a game server with levers, states of two numbers that a numberedClient may write, and the judge of what
// becomes of the writes. As soon as the game server hears of a value, also one of a client's own state, it may change it. It sets odd
// numbers; clients write even ones.
type leverGame struct {
	w          *world
	players    []*numberedPlayer
	correction uint16
	problems   []string
}

// A numberedPlayer is a numberedClient that writes to its lever and to states of its own.
type numberedPlayer struct {
	*numberedClient
	lever string                   // key and link message
	is    func(name string) bool   // whether game servers know the client by this name
	name  string                   // which relay and edge told
	own   *dnptest.Link            // nil for none
	next  uint16                   // what it writes next; even
	last  map[string]uint16        // what it wrote last, by place
	heard map[uint16]int           // how often relays told of a value that the client wrote
	terms map[uint64]*leverTerm    // what each relay told, by epoch
	told  map[string]time.Duration // when a relay told of a value last, by place
	fixed map[string]time.Duration // when the game server last changed what the client wrote, by place
	left  bool
}

// A leverTerm is what the relay of one epoch told of the writes of a client. The next relay does not know which numbers were
// applied.
type leverTerm struct {
	heard  map[uint16]int
	newest map[string]uint16 // by place
}

// corrects reports whether the game server changes a value that a client wrote.
func corrects(n uint16) bool { return n%8 == 0 }

// newLeverGame begins to judge what relays tell about writes, whether it gets lost or not.
func newLeverGame(w *world) *leverGame {
	g := &leverGame{w: w, correction: 1}
	events, before := w.subjects.Event("s"), w.hub.Tap
	w.hub.Tap = func(from string, m bus.Msg) {
		if before != nil {
			before(from, m)
		}
		if m.Subject == events {
			g.published(from, m.Data)
		}
	}
	w.on(events, func(m bus.Msg) { g.hear(m.Data) })
	return g
}

// put makes a lever, or changes who may write it.
func (g *leverGame) put(key, access string) string {
	return fmt.Sprintf(`{"op":"put","key":%q,"message":%[1]q,"access":%q,"values":[{"type":"uint16"},{"type":"uint16"}]}`, key, access)
}

// play adds a client.
func (g *leverGame) play(c *numberedClient, lever string, is func(name string) bool) *numberedPlayer {
	p := &numberedPlayer{
		numberedClient: c, lever: lever, is: is, last: map[string]uint16{}, heard: map[uint16]int{}, terms: map[uint64]*leverTerm{},
		told: map[string]time.Duration{}, fixed: map[string]time.Duration{},
	}
	g.players = append(g.players, p)
	return p
}

// connect adds a client that has an address of its own and speaks UDP with an edge.
func (g *leverGame) connect(e *simEdge, lever string, seed uint64) *numberedPlayer {
	w := g.w
	w.hosts++
	addr := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 2, byte(w.hosts >> 8), byte(w.hosts)}), 5000)
	c := newNumberedClient(numberedConfig{Net: w.net, Seed: seed, Server: e.addr, Wake: func() { w.net.Wake(addr) }, Send: func(d []byte) { w.net.Send(addr, e.addr, d) }})
	w.net.Attach(addr, c)
	c.Connect(w.net.Now())
	w.net.Wake(addr)
	return g.play(c, lever, func(name string) bool { return w.endings.names[name] == addr })
}

// offer has the client offer a state of its own, with so many values.
func (p *numberedPlayer) offer(values int) {
	layout, err := netstate.NewLayout(slices.Repeat([]netstate.Value{{Type: uint16Type}}, values))
	if err == nil {
		p.own, err = p.Offer(p.Net.Now(), netstate.NewState(layout), []byte("own"), false)
	}
	if err != nil {
		panic(err)
	}
	p.Wake()
}

// writeSome has the client write up to three numbers, which may go in one datagram, to its lever and its own state.
func (p *numberedPlayer) writeSome(rnd *rand.Rand) {
	for range 1 + rnd.IntN(3) {
		l, index := p.LinkNamed(p.lever), rnd.IntN(2)
		if p.own != nil && rnd.IntN(2) == 0 {
			l, index = p.own, index%p.own.State.Layout().Len()
		}
		if l != nil && l.Phase == dnptest.LinkIsUp {
			p.write(l, index)
		}
	}
}

// ready reports whether the client can write to its lever.
func (p *numberedPlayer) ready() bool { return p.granted && p.LinkNamed(p.lever) != nil }

// write has the client write the next number.
func (p *numberedPlayer) write(l *dnptest.Link, index int) {
	if p.next += 2; p.Set(l, index, u16(p.next)) {
		p.last[p.place(l, index)] = p.next
		p.Wake()
	}
}

// place names a value as events do.
func (p *numberedPlayer) place(l *dnptest.Link, index int) string {
	return fmt.Sprintf("%s#%d", p.key(l), index)
}

func (p *numberedPlayer) key(l *dnptest.Link) string {
	if l.Own {
		return fmt.Sprintf("client.%s.%d", p.name, l.ID)
	}
	return p.lever
}

// A writeEvent is an event as far as it is about writes.
type writeEvent struct {
	event
	Epoch uint64
}

// numbers returns the numbers that an event is about, by the names of the values, and the client that is judged; nil for none.
func (g *leverGame) numbers(data []byte) (e writeEvent, p *numberedPlayer, numbers map[string]uint16) {
	if err := json.Unmarshal(data, &e); err != nil {
		g.w.Fatal(err)
	}
	for _, q := range g.players {
		if e.Client != "" && q.is(e.Client) {
			p, q.name = q, e.Client
		}
	}
	if p == nil || e.Type != "changed" || e.Key != p.lever && !strings.HasPrefix(e.Key, "client.") {
		return e, p, nil
	}
	numbers = map[string]uint16{}
	for name, v := range e.Values {
		n, err := strconv.ParseUint(string(v), 10, 16)
		if err != nil {
			g.w.Fatalf("event %s: %v", data, err)
		}
		numbers[name] = uint16(n)
	}
	return e, p, numbers
}

// published judges an event of a relay or an edge.
func (g *leverGame) published(from string, data []byte) {
	e, p, numbers := g.numbers(data)
	if p == nil {
		return
	}
	if e.Type == "left" {
		p.left = true
	}
	term := p.terms[e.Epoch]
	if term == nil {
		term = &leverTerm{heard: map[uint16]int{}, newest: map[string]uint16{}}
		p.terms[e.Epoch] = term
	}
	for name, n := range numbers {
		place := e.Key + "#" + name
		p.heard[n]++
		term.heard[n]++
		switch {
		case p.writes[n] == nil:
			g.failf("the relay tells of %d, which the client did not write to %s", n, place)
		case p.left:
			g.failf("the relay applies %d, which the client wrote to %s, after it told that the client left", n, place)
		case term.heard[n] > 1:
			g.failf("the relay tells %d times of %d in epoch %d, which the client wrote once to %s", term.heard[n], n, e.Epoch, place)
		case n < term.newest[place]:
			g.failf("the relay applies %d after %d to %s in epoch %d", n, term.newest[place], place, e.Epoch)
		}
		term.newest[place], p.told[place] = n, g.w.net.Elapsed()
	}
}

// hear has the game server change what a client wrote.
func (g *leverGame) hear(data []byte) {
	e, p, numbers := g.numbers(data)
	for _, name := range []string{"0", "1"} {
		if n, ok := numbers[name]; ok && corrects(n) && !p.left {
			g.correction += 2
			p.fixed[e.Key+"#"+name] = g.w.net.Elapsed()
			g.w.fire("s", fmt.Sprintf(`{"op":"set","key":%q,"values":{%q:%d}}`, e.Key, name, g.correction))
		}
	}
}

func (g *leverGame) failf(format string, v ...any) {
	if len(g.problems) < 4 {
		g.problems = append(g.problems, fmt.Sprintf("at %v: ", g.w.net.Elapsed())+fmt.Sprintf(format, v...))
	}
}

// A leverRule says what the simulation around a numberedClient excuses.
type leverRule struct {
	told  bool // each confirmed write made an event: no relay died
	heard bool // the game server heard of each event, and nothing of what it said got lost
}

// judge wants all writes of a client to have ended, and the client to show what the relay has. It returns all that is wrong.
func (g *leverGame) judge(p *numberedPlayer, rule leverRule) (problems []string) {
	say := func(format string, v ...any) { problems = append(problems, fmt.Sprintf(format, v...)) }
	if p.undone != "" {
		say("the client shows that %s", p.undone)
	}
	if n := p.out.Len(); n > 0 {
		say("%d values that the client wrote have no answer", n)
	}
	for n := uint16(2); n <= p.next; n += 2 {
		if w := p.writes[n]; w != nil && w.confirmed && rule.told && p.heard[n] != 1 {
			say("the relay told %d times of %d, which it confirmed", p.heard[n], n)
		} else if w != nil && w.refused && p.heard[n] > 0 {
			say("the relay told of %d, which it refused", n)
		}
	}
	for _, l := range p.Links() {
		if string(l.Message) != p.lever && !l.Own {
			continue
		}
		for i := range l.State.Layout().Len() {
			place := p.place(l, i)
			last, holder := p.last[place], g.value(p.key(l), i)
			if shown := fmt.Sprint(int(l.State.Value(i)[0]) | int(l.State.Value(i)[1])<<8); shown != holder {
				say("the client shows %s as %s, the relay has %s; the client wrote %d last", shown, place, holder, last)
			}
			stands := holder == fmt.Sprint(last)
			if w := p.writes[last]; !rule.heard || w == nil || !w.confirmed {
				continue
			}
			if fixed := p.fixed[place] > 0 && p.fixed[place] > p.told[place]-leverCrossing; stands && corrects(last) || !stands && !fixed {
				say("the relay has %s as %s; the client wrote %d last, and the game server changed what it wrote at %v", holder, place, last, p.fixed[place])
			}
		}
	}
	return problems
}

// value returns what the relay has.
func (g *leverGame) value(key string, index int) string {
	answer := g.w.ask(g.w.subjects.Get("s", key), "{}")
	var got struct {
		States []struct{ Values []struct{ Value json.Number } }
	}
	if err := json.Unmarshal([]byte(answer), &got); err != nil || len(got.States) != 1 || len(got.States[0].Values) <= index {
		return answer
	}
	return got.States[0].Values[index].Value.String()
}

// leverCrossing is how long before a write the game server may have set what arrives behind it.
const leverCrossing = time.Second
