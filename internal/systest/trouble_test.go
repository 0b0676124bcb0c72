package systest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/dnp/dnptest"
	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/internal/edge"
	"github.com/dnprelay/dnprelay/internal/simnet"
)

// settle is how long values may take to be equal everywhere after the last
// change, with a third of all datagrams lost (DESIGN.md section 12: all <= 6 s).
const settle = 6 * time.Second

// levelDelay is how long a level of detail of trouble may keep the last change back: a
// second of quiet, and a period.
const levelDelay = 1200 * time.Millisecond

// TestTrouble changes states at random while datagrams and bus messages are lost,
// doubled and overtake each other, and wants every client to end with what was
// published last.
func TestTrouble(t *testing.T) {
	for round := range uint64(6) {
		t.Run(fmt.Sprint(round), func(t *testing.T) { trouble(t, *seed+round) })
	}
}

func trouble(t *testing.T, seed uint64) {
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
	w.net.SetDefault(simnet.Path{
		Loss: 0.3, Delay: 20 * time.Millisecond, Jitter: 30 * time.Millisecond, Duplicate: 0.05,
		Reorder: 0.05, ReorderBy: 100 * time.Millisecond,
	})
	game := newMirror(w, rng)
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
	for i := range 400 {
		game.change()
		if names := w.joined(); i%10 == 0 && len(names) > 0 {
			verb := []string{"join", "leave"}[rng.IntN(2)]
			w.fire("s", fmt.Sprintf(`{"op":"group","client":%q,%q:["far"]}`, names[rng.IntN(len(names))], verb))
		}
		w.net.Run(20 * time.Millisecond)
	}
	game.repeat()
	w.net.Run(levelDelay)
	w.net.Run(settle)
	served := 0
	for i, p := range players {
		// Where so much is lost the protocol lets some clients down: their own timers
		// give up, or every proof of a passive client's address is lost, after which
		// it never speaks again (dnp/PROTOCOL.md, Connection and proof).
		if p.Phase() != dnptest.Connected || !p.served() {
			continue
		}
		served++
		if !slow(p) {
			game.check(t, p, i)
		}
	}
	// An offer that was in flight when its state was removed has to arrive before its
	// LinkDown can, and reliable commands take their time where so much is lost.
	w.net.Run(20 * time.Second)
	for i, p := range players {
		if p.Phase() == dnptest.Connected && p.served() {
			game.check(t, p, i) // those whose budget is small take longer
			game.checkGone(t, p, i)
		}
	}
	t.Logf("%d of %d clients are served at the end", served, len(players))
	if served < len(players)/2 {
		t.Errorf("only %d of %d clients are served, so little was tested", served, len(players))
	}
}

// served reports whether the client was offered any state. The edge's probe "h" is
// none.
func (p *player) served() bool {
	return slices.ContainsFunc(p.Links(), func(l *dnptest.Link) bool { return string(l.Message) != "h" })
}

// A mirror is a game server that remembers what the truth must be.
type mirror struct {
	w      *world
	rng    *rand.Rand
	values map[string][2]uint16 // by key
	dead   []string
	next   int
}

func newMirror(w *world, rng *rand.Rand) *mirror {
	return &mirror{w: w, rng: rng, values: make(map[string][2]uint16)}
}

func (m *mirror) keys() (keys []string) {
	for i := range m.next {
		if k := fmt.Sprintf("k%d", i); m.has(k) {
			keys = append(keys, k)
		}
	}
	return keys
}

func (m *mirror) has(key string) bool { _, ok := m.values[key]; return ok }

// change publishes a random change. Publishes can be lost like everything on the
// bus, so what must stay is published again by repeat.
func (m *mirror) change() {
	keys := m.keys()
	if r := m.rng.IntN(100); len(keys) < 5 || r < 3 && len(keys) < 20 {
		key := fmt.Sprintf("k%d", m.next)
		m.next++
		m.values[key] = [2]uint16{uint16(m.rng.Uint32()), uint16(m.rng.Uint32())}
		m.put(key)
		return
	} else if r < 5 {
		key := keys[m.rng.IntN(len(keys))]
		delete(m.values, key)
		m.dead = append(m.dead, key)
		m.remove(key)
		return
	}
	key := keys[m.rng.IntN(len(keys))]
	v := m.values[key]
	i := m.rng.IntN(2)
	v[i] = uint16(m.rng.Uint32())
	m.values[key] = v
	m.w.fire("s", fmt.Sprintf(`{"op":"set","key":%q,"values":{"%d":%d}}`, key, i, v[i]))
}

func (m *mirror) put(key string) {
	v := m.values[key]
	m.w.fire("s", fmt.Sprintf(`{"op":"put","key":%q,"priority":4,"lod":[{"groups":["far"],"rate":5}],"values":[{"type":"uint16","value":%d},{"type":"uint16","value":%d}]}`, key, v[0], v[1]))
}

func (m *mirror) remove(key string) { m.w.fire("s", fmt.Sprintf(`{"op":"remove","key":%q}`, key)) }

// repeat makes sure that the relay has the truth. It asks, because a publish can
// be lost; an answer cannot be wrong.
func (m *mirror) repeat() {
	for _, key := range m.keys() {
		for try := 0; ; try++ {
			v := m.values[key]
			a := m.w.publish("s", fmt.Sprintf(`{"op":"put","key":%q,"priority":4,"lod":[{"groups":["far"],"rate":5}],"values":[{"type":"uint16","value":%d},{"type":"uint16","value":%d}]}`, key, v[0], v[1]))
			if strings.HasPrefix(a, `{"epoch"`) {
				break
			}
			m.patience(try, a)
		}
	}
	for _, key := range m.dead {
		for try := 0; ; try++ {
			a := m.w.publish("s", fmt.Sprintf(`{"op":"remove","key":%q}`, key))
			if strings.HasPrefix(a, `{"epoch"`) || strings.Contains(a, "unknown_state") {
				break
			}
			m.patience(try, a)
		}
	}
}

// patience ends when nobody answers for long although nothing is wrong any more.
func (m *mirror) patience(try int, answer string) {
	m.w.Helper()
	if try > 20 {
		m.w.Fatalf("a publish was not taken %d times: %s", try, answer)
	}
}

// check compares what a client sees with the truth.
func (m *mirror) check(t *testing.T, p *player, n int) {
	t.Helper()
	for key, v := range m.values {
		for i := range v {
			if !p.has(key, i, u16(v[i])) {
				t.Errorf("client %d (%s): %s[%d] is % x, want % x", n, p.Behaviour().Name, key, i, p.Value(key, i), u16(v[i]))
			}
		}
	}
}

// checkGone wants the client to have no link to a state that was removed.
func (m *mirror) checkGone(t *testing.T, p *player, n int) {
	t.Helper()
	if p.Behaviour().LinkDown == dnptest.DownWhileListening {
		return // the engine keeps links that are up for ever
	}
	for _, key := range m.dead {
		if p.LinkNamed(key) != nil {
			t.Errorf("client %d (%s): %s was removed and is linked", n, p.Behaviour().Name, key)
		}
	}
}

// TestNewHolder replaces the relay. The publisher says everything again, as it
// must without a durable store.
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

// TestLateJoin lets a client join a space of 1,000 states that change all the
// time.
func TestLateJoin(t *testing.T) {
	const states = 1000
	w := newWorld(t, *seed)
	w.startRelay()
	e := w.startEdge(wire.Denetwork, nil)
	w.net.SetDefault(simnet.Path{Delay: 10 * time.Millisecond})
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
	t.Logf("%d states were linked in %v with a round trip of 20 ms", states, w.net.Now().Sub(start))
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
