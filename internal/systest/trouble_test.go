package systest

import (
	"fmt"
	"math/rand/v2"
	"slices"
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

// settle is how long values may take to be equal everywhere after the last change, with a
// third of all datagrams lost.
const settle = 6 * time.Second

// levelDelay is how long a level of detail of this test may hold the last change back: a second
// of quiet, and a period.
const levelDelay = 1200 * time.Millisecond

// TestTrouble changes states at random while datagrams and bus messages are lost, doubled and
// reordered, and wants every client to end with the values that were published last.
func TestTrouble(t *testing.T) {
	worlds, served, all := 0, 0, 0
	repeated(t, 6, func(t *testing.T, seed uint64) {
		s, n := trouble(t, seed)
		worlds, served, all = worlds+1, served+s, all+n
	})
	if worlds > 1 && served < all/3 {
		t.Errorf("only %d of %d clients were served, so little was tested", served, all)
	}
}

func trouble(t *testing.T, seed uint64) (servedInTheEnd, clients int) {
	w := newWorld(t, seed)
	rng := rand.New(rand.NewPCG(seed, 2))
	w.startRelay()
	edges := []*simEdge{
		w.startEdge(wire.Denetwork, nil),
		w.startEdge(wire.Denetwork, func(c *edge.Config) { c.BytesPerSecond = 8000 }), // so that values wait
		w.startEdge(wire.Spec, nil),
	}
	slow := func(p *player) bool { return p.edge == edges[1] }
	w.hub.Loss, w.hub.Duplicate, w.hub.Jitter = 0.05, 0.05, 20*time.Millisecond
	w.net.SetPath(simnet.Path{
		Loss: 0.3, Delay: 20 * time.Millisecond, Jitter: 30 * time.Millisecond, Duplicate: 0.05,
		Reorder: 0.05, ReorderBy: 100 * time.Millisecond,
	})
	game := newMirror(w, rng)
	game.level = `"priority":4,"lod":[{"groups":["far"],"rate":5}],`
	for range 10 {
		game.change()
	}
	var players []*player
	for i := range 12 {
		b := dnptest.Presets()[i%len(dnptest.Presets())]
		e := edges[i%2]
		if b.Profile == wire.Spec {
			e = edges[2]
		}
		players = append(players, w.connect(e, b, dnptest.App{}))
	}
	w.hub.Tap = w.inOrder
	x := w.attack(seed)
	for turn := range 400 {
		game.change()
		if turn%100 == 50 {
			for _, p := range players {
				p.say(3)
			}
		}
		if names := w.joined(); turn%10 == 0 && len(names) > 0 {
			verb := []string{"join", "leave"}[rng.IntN(2)]
			w.fire("s", fmt.Sprintf(`{"op":"group","client":%q,%q:["far"]}`, names[rng.IntN(len(names))], verb))
		}
		w.net.Run(20 * time.Millisecond)
	}
	game.repeat()
	w.net.Run(levelDelay)
	w.net.Run(settle)
	served, received, wrong := 0, make(map[*player]int), make(map[*player][]string)
	for i, p := range players {
		// With so much loss the protocol fails some clients: their own timers expire, or
		// every proof of a passive client's address is lost, after which it never sends
		// again (dnp/PROTOCOL.md, Connection and proof).
		if p.Phase() != dnptest.Connected || !p.served() {
			continue
		}
		served++
		received[p] = p.Stats.Received
		if !slow(p) {
			wrong[p] = game.wrong(p, i)
		}
	}
	// An offer that was in flight when its state was removed must arrive before its LinkDown
	// can, and reliable commands take long when so much is lost.
	w.net.Run(20 * time.Second)
	for i, p := range players {
		if received[p] == 0 {
			continue
		}
		if p.gaveUp = p.Stats.Received == received[p] || p.Phase() != dnptest.Connected || w.endings.over[p.addr] || w.truth(p.addr).closed; p.gaveUp {
			continue // no acknowledgement reached its edge; the edge's ConnectionClose, or its event, may be lost, too
		}
		for _, problem := range wrong[p] {
			t.Error(problem)
		}
		if p.served() {
			game.check(t, p, i) // clients with a small budget take longer
			game.checkGone(t, p, i)
		}
	}
	w.blackout(edges, slices.DeleteFunc(slices.Clone(players), slow), game)
	x.check(t)
	w.endings.check(t, "timeout", "stuck", "hole")
	t.Logf("%d of %d clients are served at the end", served, len(players))
	if served < 2 { // TestTrouble judges the sum over all seeds
		t.Errorf("only %d of %d clients are served, so little was tested", served, len(players))
	}
	return served, len(players)
}

// say sends the client's next messages, which are their ordinals. Python sends none: it can lose
// its messages, and then its edge gives it up.
func (p *player) say(n int) {
	for range n {
		if p.Phase() != dnptest.Connected || p.Behaviour().DropsTail {
			return
		}
		p.said++
		p.do(func(now time.Time) { _ = p.Send(now, []byte(strconv.Itoa(p.said))) })
	}
}

// inOrder wants the messages of a client to arrive once and in order.
func (w *world) inOrder(_ string, m bus.Msg) {
	client, ok := strings.CutPrefix(m.Subject, w.subjects.From("s", "")+".")
	if !ok || string(m.Data) == twinText {
		return
	}
	n, _ := strconv.Atoi(string(m.Data))
	if last := w.heard[client]; n != last+1 {
		w.Errorf("message %d of %s arrived after message %d", n, client, last)
	}
	w.heard[client] = n
}

// blackout changes all states while no client can be reached, and does nothing more. When the
// clients can be reached, every repetition of the values is over, except for the scrub.
func (w *world) blackout(edges []*simEdge, players []*player, game *mirror) {
	w.hub.Loss = 0
	w.net.SetPath(simnet.Path{Delay: 10 * time.Millisecond})
	w.net.Run(3 * time.Second)
	dark := func(on bool) {
		for _, p := range players {
			for _, e := range edges {
				w.net.Partition(p.addr, e.addr, on)
			}
		}
	}
	var reached []*player
	for _, p := range players {
		if p.Phase() == dnptest.Connected && p.served() && !p.gaveUp && !w.endings.over[p.addr] && !w.truth(p.addr).closed && p.Behaviour().Profile == wire.Denetwork {
			reached = append(reached, p)
		}
	}
	dark(true)
	for _, key := range game.keys() {
		s := game.states[key]
		s.number, s.other = game.count(), game.count()
		w.fire("s", s.put())
	}
	w.net.Run(2500 * time.Millisecond)
	dark(false)
	w.net.Run(settle)
	for i, p := range reached {
		if p.Phase() == dnptest.Connected && !w.endings.over[p.addr] && !w.truth(p.addr).closed {
			game.check(w.T, p, i)
		}
	}
}

// served reports whether the client was offered a state. The edge's probe "h" is none.
func (p *player) served() bool {
	return slices.ContainsFunc(p.Links(), func(l *dnptest.Link) bool { return string(l.Message) != "h" })
}

// TestNewHolder replaces the relay. The publisher publishes everything again, as it must without
// a durable store.
func TestNewHolder(t *testing.T) {
	w := newWorld(t, *seed)
	old := w.startRelay()
	e := w.startEdge(wire.Denetwork, nil)
	p := w.join(e, dnptest.Cpp(), dnptest.App{})
	w.mustPublish("s", towerPut)
	w.within(time.Second, "linked", func() bool { return p.has("T", 0, f32(93.5)) })
	old.kill()
	w.net.Run(5 * time.Second)
	if !p.has("T", 0, f32(93.5)) {
		t.Error("the client lost a state because the relay died")
	}
	w.startRelay()
	w.mustPublish("s", strings.Replace(towerPut, "93.5", "12", 1))
	w.within(2*time.Second, "the client sees what the new relay has", func() bool { return p.has("T", 0, f32(12)) })
}

// TestLateJoin connects a client to a space of 1,000 states that change all the time.
func TestLateJoin(t *testing.T) {
	const states, window = 1000, 10 // offers under way at a time
	w, e := newWorldWithEdge(t, nil)
	w.net.SetPath(simnet.Path{Delay: 10 * time.Millisecond})
	for first := 0; first < states; first += 250 {
		var ops []string
		for i := first; i < first+250; i++ {
			ops = append(ops, fmt.Sprintf(`{"op":"put","key":"k%d","values":[{"type":"uint16","value":0}]}`, i))
		}
		w.mustPublish("s", `{"ops":[`+strings.Join(ops, ",")+`]}`)
	}
	turn, stop := 0, false
	w.net.Every(time.Second/60, func() bool {
		turn++
		var ops []string
		for i := turn % 10; i < states; i += 10 {
			ops = append(ops, fmt.Sprintf(`{"op":"set","key":"k%d","values":{"0":%d}}`, i, turn))
		}
		w.fire("s", `{"ops":[`+strings.Join(ops, ",")+`]}`)
		return !stop
	})
	p := w.join(e, dnptest.Cpp(), dnptest.App{})
	start := w.net.Now()
	w.within(10*time.Second, "all states are linked", func() bool { return len(p.Links()) == states })
	took, turns := w.net.Now().Sub(start), states/window
	t.Logf("%d states were linked in %v: %v for each of %d windows, with a round trip of 20 ms and a tick of %v",
		states, took, took/time.Duration(turns), turns, p.Behaviour().Tick)
	if most := time.Duration(turns) * (20*time.Millisecond + p.Behaviour().Tick); took > most {
		t.Errorf("more than %v: the window was idle while links were pending", most)
	}
	stop = true
	w.net.Run(2 * time.Second)
	for i := range states {
		want := turn
		for want%10 != i%10 {
			want--
		}
		if !p.has(fmt.Sprintf("k%d", i), 0, u16(uint16(want))) {
			t.Fatalf("k%d is % x, want %d", i, p.Value(fmt.Sprintf("k%d", i), 0), want)
		}
	}
}

// TestJoinWhileChanging offers a client states that change faster than the edge flushes. A
// change between the offer and the flush must arrive with the flush, not with the first
// repetition 60 ms later.
func TestJoinWhileChanging(t *testing.T) { repeated(t, 10, joinWhileChanging) }

func joinWhileChanging(t *testing.T, seed uint64) {
	const states, flush = 20, 200 * time.Millisecond
	w := newWorld(t, seed)
	w.startRelay()
	e := w.startEdge(wire.Denetwork, func(c *edge.Config) { c.Flush = flush })
	p := w.connect(e, dnptest.Cpp(), dnptest.App{})
	w.net.SetPath(simnet.Path{Delay: 20 * time.Millisecond})
	value := 0
	change := func() {
		value++
		for i := range states {
			w.fire("s", fmt.Sprintf(`{"op":"put","key":"k%d","values":[{"type":"uint16","value":%d}]}`, i, value))
		}
		w.net.Run(15 * time.Millisecond)
	}
	for len(p.Links()) < states && value < 100 {
		change()
	}
	change()
	flushed := func() (any bool) {
		for i := range states {
			any = any || p.has(fmt.Sprintf("k%d", i), 0, u16(uint16(value)))
		}
		return any
	}
	w.within(flush+100*time.Millisecond, "some value arrives", flushed)
	w.net.Run(p.Behaviour().Tick)
	for i := range states {
		if key := fmt.Sprintf("k%d", i); !p.has(key, 0, u16(uint16(value))) {
			t.Fatalf("%s is % x, want %d with the flush", key, p.Value(key, 0), value)
		}
	}
}
