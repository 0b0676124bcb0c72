package systest

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/bus"
	"github.com/dnprelay/dnprelay/dnp/dnptest"
	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/internal/edge"
	"github.com/dnprelay/dnprelay/internal/simnet"
)

// TestStorm lets clients write states, offer states of their own and take them back, while game
// servers write the same states, datagrams and messages are lost on both sides, the bus goes
// away, and relays are replaced. When all is quiet again, the authority and every client must
// have the same values.
func TestStorm(t *testing.T) {
	repeated(t, 8, storm)
}

type stormy struct {
	*world
	rng       *rand.Rand
	relay     *simRelay
	edges     []*simEdge
	players   []*player
	own       map[*player][]*dnptest.Link
	wrote     map[*dnptest.Link]wrote // the last quiet write to each
	offered   map[*dnptest.Link]*offer
	dialogues map[string]*dialogue  // by key
	left      map[string]bool       // names of clients that closed
	outages   []span                // no relay ran, or an edge did not reach the bus
	took      map[*player]time.Time // when it last took a state back
	next      uint16
}

var (
	badPath  = simnet.Path{Loss: 0.15, Delay: 20 * time.Millisecond, Jitter: 30 * time.Millisecond, Duplicate: 0.05}
	goodPath = simnet.Path{Delay: 10 * time.Millisecond}
)

func storm(t *testing.T, seed uint64) {
	s := &stormy{world: newWorld(t, seed), rng: rand.New(rand.NewPCG(seed, 3)), own: make(map[*player][]*dnptest.Link),
		wrote: make(map[*dnptest.Link]wrote), dialogues: make(map[string]*dialogue), offered: make(map[*dnptest.Link]*offer), left: make(map[string]bool), took: make(map[*player]time.Time)}
	h := newHerd(s.world, seed)
	s.relay = s.startRelay()
	s.edges = []*simEdge{s.startEdge(wire.Denetwork, inSpace), s.startEdge(wire.Denetwork, func(c *edge.Config) {
		inSpace(c)
		c.BytesPerSecond = 3000 // so that values wait
	})}
	s.putAll()
	for i := range 6 {
		b := []dnptest.Behaviour{dnptest.Cpp(), dnptest.Java(), dnptest.Python()}[i%3]
		s.players = append(s.players, s.join(s.edges[i%2], b, dnptest.App{Updated: s.flicker, LinkUp: s.inTime}))
	}
	x := s.attack(seed)
	s.within(5*time.Second, "all are linked", func() bool {
		for _, p := range s.players {
			if p.LinkNamed("k3") == nil {
				return false
			}
		}
		return true
	})
	s.hub.Loss, s.hub.Duplicate, s.hub.Jitter = 0.05, 0.05, 40*time.Millisecond
	s.net.SetPath(badPath)
	s.net.Lost = s.lost
	stopped := false
	if h != nil {
		h.blind = make(map[string]bool)
		for _, p := range s.players {
			// Python cannot cope with many offers where much is lost. A client that comes again has another name.
			h.blind[p.name] = p.Behaviour().DropsTail
		}
	}
	h.graze(func() bool { return stopped })
	for range 400 {
		s.step()
		s.net.Run(20 * time.Millisecond)
	}
	stopped = true
	s.calm()
	h.rest()
	s.net.Run(15 * time.Second)
	for _, p := range s.players {
		if !s.known(p) {
			continue
		}
		for _, problem := range h.check(p.Client, p.name) {
			t.Error(problem)
		}
	}
	s.compare("after the storm")
	s.writeQuietly()
	s.net.Run(5 * time.Second)
	s.hub.Loss = 0
	s.net.Run(10 * time.Second)
	s.compare("after quiet writes")
	s.compareWritten()
	s.net.Run(time.Minute)
	s.compareLeft()
	x.check(s.T)
	s.endings.check(s.T, "timeout", "stuck", "hole")
}

// compareLeft wants no states of clients that left. The event that says so may have been lost;
// then the relay needs four questions to find out.
func (s *stormy) compareLeft() {
	for key := range s.truth() {
		if client, ok := strings.CutPrefix(key, "client."); ok && s.left[strings.Split(client, ".")[0]] {
			s.Errorf("the authority has %s, whose client left", key)
		}
	}
}

// step does something at random.
func (s *stormy) step() {
	p := s.players[s.rng.IntN(len(s.players))]
	s.next++
	switch r := s.rng.IntN(1000); {
	case r < 8:
		s.replaceRelay()
	case r < 12 && s.mayOffer(p): // and the holder dies as soon as it has accepted the offer
		s.offer(p)
		s.hub.Loss = 0.5
		s.net.Run(time.Duration(60+s.rng.IntN(100)) * time.Millisecond)
		s.hub.Loss = 0.05
		s.replaceRelay()
	case r < 16:
		bus := s.hub.Node(s.edges[s.rng.IntN(2)].node)
		bus.SetConnected(false)
		away := time.Duration(s.rng.IntN(2000)) * time.Millisecond
		s.away(s.net.Now(), s.net.Now().Add(away))
		s.net.Schedule(away, func() { bus.SetConnected(true) })
	case r < 18:
		if s.alive(p) && len(s.left) == 0 && len(s.own[p]) > 0 {
			s.left[p.name] = true
			p.do(p.Close)
		}
	case r < 42:
		s.fire("s", fmt.Sprintf(`{"op":"group","client":%q,%q:["far"]}`, p.name, []string{"join", "leave"}[s.rng.IntN(2)]))
	case !s.alive(p):
	case r < 65 && s.mayOffer(p):
		s.offer(p)
	case r < 95 && len(s.own[p]) > 0 && s.own[p][0].Phase == dnptest.LinkIsUp:
		l := s.own[p][0]
		s.own[p] = s.own[p][1:]
		l.Phase = dnptest.LinkIsDown
		s.took[p] = s.net.Now()
		for i := range 10 { // LinkDown is not acknowledged
			s.net.Schedule(time.Duration(i)*50*time.Millisecond, func() {
				s.net.Send(p.addr, s.edgeOf(p).addr, wire.LinkDown{Link: l.ID}.Append(nil))
			})
		}
	case r < 400:
		links := p.Links()
		if l := links[s.rng.IntN(len(links))]; l.State != nil && l.Phase == dnptest.LinkIsUp && string(l.Message) != "text" && !ofHerd(string(l.Message)) {
			p.write(l, s.next)
		}
	default:
		s.fire("s", fmt.Sprintf(`{"op":"set","key":"k%d","values":{"0":%d}}`, s.rng.IntN(4), s.next))
	}
}

// upWithin is how long a client may wait for the LinkUp of a link that it offered: some
// repetitions of the offer, and some of LinkUp. If the network loses all of these, the scrub
// repeats LinkUp, within scrubWithin.
const (
	upWithin    = 4 * time.Second
	upsAtLeast  = 5
	scrubWithin = 10 * time.Second
)

// An offer is a link that a client offered.
type offer struct {
	at  time.Time
	ups int // LinkUps that the network lost
}

// offer lets a client offer a state of its own.
func (s *stormy) offer(p *player) {
	l := p.offer("own"+strconv.Itoa(int(s.next)), s.next)
	s.offered[l] = &offer{at: s.net.Now()}
	s.own[p] = append(s.own[p], l)
}

// inTime wants a client to learn soon that a link that it offered is up, if a relay and its edge
// could take the offer most of the time.
func (s *stormy) inTime(l *dnptest.Link) {
	o := s.offered[l]
	if o == nil {
		return
	}
	within := upWithin
	if o.ups >= upsAtLeast {
		within = scrubWithin
	}
	if late := s.net.Now().Sub(o.at); late > within && s.outage(o.at) < late/8 {
		s.Errorf("%s was offered, and the client learned %v later that the link is up; %d LinkUps were lost", l.Message, late, o.ups)
	}
}

// lost counts the lost LinkUps that clients wait for.
func (s *stormy) lost(_, to netip.AddrPort, b []byte) {
	if len(b) != 3 || wire.Command(b[0]) != wire.CommandLinkUp {
		return
	}
	for _, p := range s.players {
		for _, l := range s.own[p] {
			if p.addr == to && l.ID == wire.LinkID(binary.LittleEndian.Uint16(b[1:])) {
				s.offered[l].ups++
			}
		}
	}
}

// A span is the time between two moments.
type span struct{ from, to time.Time }

// away records an outage. Outages are in order and do not overlap.
func (s *stormy) away(from, to time.Time) {
	if n := len(s.outages); n > 0 && s.outages[n-1].to.After(from) {
		from = s.outages[n-1].to
	}
	if to.After(from) {
		s.outages = append(s.outages, span{from, to})
	}
}

// outage returns the total length of the outages since a moment.
func (s *stormy) outage(since time.Time) (sum time.Duration) {
	for _, o := range s.outages {
		if o.from.Before(since) {
			o.from = since
		}
		if o.to.After(s.net.Now()) {
			o.to = s.net.Now()
		}
		sum += max(0, o.to.Sub(o.from))
	}
	return sum
}

// mayOffer reports whether p may offer a state. LinkIDs are used again, and this test sends
// LinkDowns late.
func (s *stormy) mayOffer(p *player) bool {
	return s.alive(p) && len(s.own[p]) < 3 && s.net.Now().Sub(s.took[p]) > time.Second
}

func (s *stormy) replaceRelay() {
	from := s.net.Now()
	s.relay.kill()
	s.net.Run(time.Duration(s.rng.IntN(1000)) * time.Millisecond)
	s.relay = s.startRelay()
	s.putAll()
	s.away(from, s.net.Now())
}

func (s *stormy) edgeOf(p *player) *simEdge {
	for i, x := range s.players {
		if x == p {
			return s.edges[i%2]
		}
	}
	return nil
}

// known reports whether the client is connected and its edge agrees: a silent client never
// learns that its edge gave it up.
func (s *stormy) known(p *player) bool {
	return s.alive(p) && s.ask(s.subjects.To("s", p.name), "there?") != "error: no responders"
}

func (s *stormy) alive(p *player) bool { return p.Phase() == dnptest.Connected && len(p.Links()) > 0 }

// putAll publishes all states to a new relay, each until it is accepted.
func (s *stormy) putAll() {
	for i := range 5 {
		body := `{"op":"put","key":"text","access":"read-write","values":[{"type":"string","value":"short"}]}`
		if i < 4 {
			body = fmt.Sprintf(`{"op":"put","key":"k%d","access":"read-write","priority":%d,"lod":[{"groups":["far"],"rate":%d}],"values":[{"type":"uint16","value":%d}]}`, i, 1+i*5, 1+i, s.next)
		}
		s.net.RunUntil(time.Second, func() bool { return s.hub.Node("game").Connected() })
		for {
			if a := s.publish("s", body); len(a) > 8 && a[:8] == `{"epoch"` {
				break
			}
		}
	}
}

// calm ends the storm. The game server writes every state last, because the last write of a
// client may have been lost on its way.
func (s *stormy) calm() {
	s.hub.Loss, s.hub.Duplicate, s.hub.Jitter = 0, 0, 0
	s.net.SetPath(goodPath)
	for _, e := range s.edges {
		s.hub.Node(e.node).SetConnected(true)
	}
	s.net.Run(12 * time.Second) // broken connections end
	s.putAll()
	for key := range s.truth() {
		if key == "text" {
			continue
		}
		s.next++
		s.mustPublish("s", fmt.Sprintf(`{"op":"set","key":%q,"values":{"0":%d}}`, key, s.next))
	}
}

// A told is a state as get reports it.
type told struct {
	Key, Message string
	Values       []struct{ Value json.RawMessage }
}

// number returns the first value; 0 for a text.
func (t told) number() (n uint16) {
	_ = json.Unmarshal(t.Values[0].Value, &n)
	return n
}

// bytes returns the first value as a client has it.
func (t told) bytes() []byte {
	var text string
	if json.Unmarshal(t.Values[0].Value, &text) == nil {
		return append(u16(uint16(len(text))), text...)
	}
	return u16(t.number())
}

// truth returns the states of the authority by key.
func (s *stormy) truth() map[string]told {
	var listing struct{ States []told }
	answer := s.ask(s.subjects.Get("s", ""), "")
	if err := json.Unmarshal([]byte(answer), &listing); err != nil {
		s.Fatalf("get: %v: %s", err, answer)
	}
	all := make(map[string]told)
	for _, st := range listing.States {
		if !ofHerd(st.Key) { // clients get less than everything
			all[st.Key] = st
		}
	}
	return all
}

// compare wants every client to have exactly what the authority has.
func (s *stormy) compare(when string) {
	s.Helper()
	truth, alive := s.truth(), 0
	for i, p := range s.players {
		if !s.known(p) {
			continue
		}
		alive++
		up := 0
		for _, st := range truth {
			if l := p.LinkNamed(st.Message); l != nil && l.Own && l.Phase != dnptest.LinkIsUp {
				continue
			}
			want := st.bytes()
			if p.has(st.Message, 0, want) {
				continue
			}
			if _, ok := s.truth()[st.Key]; ok { // unless the edge gave the state's client up meanwhile
				s.Errorf("%s: client %d (%s): %s %q is % x, the authority has % x", when, i, p.Behaviour().Name, st.Key, st.Message, p.Value(st.Message, 0), want)
			}
		}
		for _, l := range p.Links() {
			if l.Phase == dnptest.LinkIsUp && string(l.Message) != "h" {
				up++
			}
		}
		for _, l := range s.own[p] {
			if l.Phase != dnptest.LinkIsUp && !p.Behaviour().DropsTail { // Python can lose its offers
				s.Errorf("%s: client %d offers %s and never learned that the link is up", when, i, l.Message)
			}
			if _, ok := truth[p.key(l)]; !ok && l.Phase == dnptest.LinkIsUp {
				s.Errorf("%s: client %d offers %s, which the authority does not know", when, i, l.Message)
			}
		}
	}
	if alive < len(s.players)/2 {
		s.Errorf("%s: %d clients left, so little was tested", when, alive)
	}
}

// After the storm all is quiet except for the bus: it is so slow that every write is repeated
// before it can be answered, it loses some of the messages, and answers come before or after
// the batch. Now the test knows what must become of each write.

// A wrote is what a client wrote to a link when all was quiet.
type wrote struct {
	value uint16
	at    time.Time
}

// crossing is how long after a write an earlier value may still arrive, because it was under
// way: two trips of 10 ms and two ticks of a client.
const crossing = 60 * time.Millisecond

// writeQuietly lets one client write each state. The game server answers some writes, as soon as
// it hears of them, with another value, which must stay. The other writes must stay, and their
// writers must not see any other value meanwhile. One client writes what the holder refuses.
func (s *stormy) writeQuietly() {
	known := make(map[*player]bool)
	for _, p := range s.players {
		known[p] = s.known(p)
	}
	s.hub.Delay, s.hub.Jitter, s.hub.Duplicate, s.hub.Loss = 60*time.Millisecond, 50*time.Millisecond, 0.05, 0.3
	s.on(s.subjects.Event("s"), s.reply)
	s.refuse()
	written := make(map[string]bool)
	for _, p := range s.players {
		for _, l := range p.Links() {
			key := string(l.Message)
			mayWrite := (l.Own || !l.ReadOnly) && key != "text"
			if !known[p] || l.State == nil || l.Phase != dnptest.LinkIsUp || !mayWrite || written[key] || s.rng.IntN(2) == 0 {
				continue
			}
			written[key] = true
			if !l.Own && s.rng.IntN(3) > 0 {
				s.dialogues[key] = &dialogue{key: key, p: p, l: l, left: 5}
				s.dialogues[key].write(s)
				continue
			}
			for i := range 3 {
				s.net.Schedule(time.Duration(i*(150+s.rng.IntN(200)))*time.Millisecond, func() {
					s.next++
					s.wrote[l] = wrote{s.next, s.net.Now()}
					p.write(l, s.next)
				})
			}
		}
	}
}

// A dialogue is a client that writes a state and a game server that answers each write with
// another value.
type dialogue struct {
	key     string
	p       *player
	l       *dnptest.Link
	answer  uint16 // to the write under way, whose value is one less
	setting bool   // the game server has heard of the write
	left    int    // remaining writes
}

// write begins the next write.
func (d *dialogue) write(s *stormy) {
	s.next += 2
	d.answer, d.setting = s.next, false
	d.left--
	d.p.write(d.l, s.next-1)
}

// reply makes the game server answer a client's write.
func (s *stormy) reply(m bus.Msg) {
	var e event
	if json.Unmarshal(m.Data, &e) != nil || e.Type != "changed" || s.dialogues[e.Key] == nil {
		return
	}
	d := s.dialogues[e.Key]
	var written uint16
	if json.Unmarshal(e.Values["0"], &written) == nil && written == d.answer-1 && !d.setting {
		d.setting = true
		s.insist(d)
	}
}

// insist sets the answer until that is acknowledged, which may be long after it was applied.
// From then on no repetition of the client's write may undo it.
func (s *stormy) insist(d *dialogue) {
	body := fmt.Sprintf(`{"op":"set","key":%q,"values":{"0":%d}}`, d.key, d.answer)
	s.game.Request(bus.Msg{Subject: s.subjects.Publish("s", ""), Data: []byte(body)}, time.Second, func(_ bus.Msg, err error) {
		if err != nil {
			s.insist(d)
			return
		}
		s.net.Schedule(500*time.Millisecond, func() { s.stays(d) })
	})
}

// stays wants the authority to have the answer, and continues the dialogue.
func (s *stormy) stays(d *dialogue) {
	list, err := s.relay.store("s").Get(d.key)
	if err != nil || !bytes.Equal(list.States[0].Values.Value(0), u16(d.answer)) {
		s.Errorf("the game server set %s to %d because a client had written %d, the authority has %d",
			d.key, d.answer, d.answer-1, binary.LittleEndian.Uint16(list.States[0].Values.Value(0)))
		return
	}
	if d.left > 0 {
		d.write(s)
	}
}

// flicker wants a client that is the only writer of a state to see nothing but its own writes.
func (s *stormy) flicker(l *dnptest.Link, i int) {
	w, ok := s.wrote[l]
	if ok && i == 0 && s.net.Now().Sub(w.at) > crossing && !bytes.Equal(l.State.Value(0), u16(w.value)) {
		s.Errorf("%v after a client wrote %d to %s, which no other client does, it is sent %d",
			s.net.Now().Sub(w.at), w.value, l.Message, binary.LittleEndian.Uint16(l.State.Value(0)))
	}
}

// refuse lets a client write a longer text than the holder accepts.
func (s *stormy) refuse() {
	for _, p := range s.players {
		if l := p.LinkNamed("text"); s.alive(p) && l != nil && l.State != nil && l.Phase == dnptest.LinkIsUp {
			long := append(binary.LittleEndian.AppendUint16(nil, 1100), strings.Repeat("x", 1100)...)
			p.do(func(time.Time) { p.Set(l, 0, long) })
			return
		}
	}
}

// compareWritten wants every state to have the value that was written last.
func (s *stormy) compareWritten() {
	truth := s.truth()
	for l, w := range s.wrote {
		for _, st := range truth {
			if st.Message == string(l.Message) && st.number() != w.value {
				s.Errorf("a client wrote %d to %s, where no other client writes, the authority has %d", w.value, l.Message, st.number())
			}
		}
	}
}
