package systest

import (
	"encoding/binary"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/dnp/dnptest"
	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/internal/simnet"
)

const shipPut = `{"op":"put","key":"ship","message":"S","access":"read-write",
 "lod":[{"groups":["far"],"precision":8,"rate":5},{"groups":["gone"],"rate":0.5}],
 "values":[{"name":"x","type":"float32","value":0,"precision":0.5},{"name":"name","type":"uint16","value":1}]}`

// A lookout is a client that records the values 0 that it received.
type lookout struct {
	*player
	seen []float32
	at   []time.Time
}

func (w *world) lookout(e *simEdge, groups string) *lookout {
	l := &lookout{}
	l.player = w.join(e, dnptest.Cpp(), dnptest.App{Updated: func(k *dnptest.Link, i int) {
		if string(k.Message) == "S" && i == 0 {
			l.seen = append(l.seen, math.Float32frombits(binary.LittleEndian.Uint32(k.State.Value(0))))
			l.at = append(l.at, w.net.Now())
		}
	}})
	w.group(l.player, "join", groups)
	return l
}

func (w *world) group(p *player, verb, groups string) {
	if groups != "" {
		w.mustPublish("s", fmt.Sprintf(`{"op":"group","client":%q,%q:[%q]}`, p.name, verb, groups))
	}
}

// changes returns the values that l was shown, without repetitions.
func (l *lookout) changes() (all []float32) {
	for i, v := range l.seen {
		if i == 0 || v != l.seen[i-1] {
			all = append(all, v)
		}
	}
	return all
}

func shipyard(t *testing.T) (w *world, e *simEdge) {
	w = newWorld(t, *seed)
	w.startRelay()
	e = w.startEdge(wire.Denetwork, nil)
	w.net.SetPath(simnet.Path{Delay: 10 * time.Millisecond})
	return w, e
}

// sail moves the ship by step, 50 times a second, for d.
func (w *world) sail(from, step float64, d time.Duration) (x float64) {
	for x = from; d > 0; d -= 20 * time.Millisecond {
		x += step
		w.fire("s", fmt.Sprintf(`{"op":"set","key":"ship","values":{"x":%v}}`, x))
		w.net.Run(20 * time.Millisecond)
	}
	return x
}

func TestLevelOfDetail(t *testing.T) {
	w, e := shipyard(t)
	near, far, far2, gone := w.lookout(e, ""), w.lookout(e, "far"), w.lookout(e, "far"), w.lookout(e, "gone")
	w.mustPublish("s", shipPut)
	w.within(2*time.Second, "all are linked", func() bool {
		return near.has("S", 0, f32(0)) && far.has("S", 0, f32(0)) && far2.has("S", 0, f32(0)) && gone.has("S", 0, f32(0))
	})
	w.net.Run(5 * time.Second)
	if got := e.worker.Counts().Levels; got != 2 {
		t.Fatalf("%d levels, want 2", got)
	}
	near.seen, far.seen, gone.seen = nil, nil, nil
	x := w.sail(0, 0.6, 10*time.Second)
	if n := len(near.changes()); n < 450 {
		t.Errorf("without a level, %d of 500 changes were shown", n)
	}
	if n := len(far.changes()); n < 40 || n > 52 {
		t.Errorf("with at most 5 per second, %d changes were shown in 10 s", n)
	}
	if n := len(gone.changes()); n < 4 || n > 7 {
		t.Errorf("with one in two seconds, %d changes were shown in 10 s", n)
	}
	w.within(time.Second+500*time.Millisecond, "a second after the last change the far clients have it, too", func() bool {
		return far.has("S", 0, f32(float32(x))) && far2.has("S", 0, f32(float32(x)))
	})
	w.within(2*time.Second, "all clients have it when the rate allows", func() bool { return gone.has("S", 0, f32(float32(x))) })
	far.seen = far.seen[len(far.seen)-1:]              // its repeats are still to come
	for _, dx := range []float64{1, 2, 3, 2, 1, 3.9} { // within 8 × 0.5
		w.sail(x+dx-1, 1, 20*time.Millisecond)
		w.net.Run(300 * time.Millisecond)
	}
	if len(far.changes()) != 1 {
		t.Errorf("changes within the precision of the level were shown: %v", far.seen)
	}
	w.within(time.Second, "the change is shown when the state has been quiet for a second", func() bool { return far.has("S", 0, f32(float32(x+3.9))) })
	w.mustPublish("s", fmt.Sprintf(`{"op":"set","key":"ship","values":{"x":%v,"name":2}}`, x+8.6))
	w.within(250*time.Millisecond, "a change beyond the precision, and one of a value without precision, are shown at once", func() bool {
		return far.has("S", 0, f32(float32(x+8.6))) && far.has("S", 1, u16(2))
	})
}

// TestLevelMoves moves clients between groups and changes the levels: links stay, and
// no client gets older values than it has seen.
func TestLevelMoves(t *testing.T) {
	w, e := shipyard(t)
	p, other := w.lookout(e, ""), w.lookout(e, "far")
	w.mustPublish("s", shipPut)
	w.within(2*time.Second, "both are linked", func() bool { return p.has("S", 0, f32(0)) && other.has("S", 0, f32(0)) })
	w.net.Run(2 * time.Second)
	links, id := w.count("linked"), p.LinkNamed("S").ID
	p.seen = nil
	x, levels := w.sail(0, 0.6, time.Second), []int64{} // so that the level is behind
	move := func(f func()) {
		f()
		x = w.sail(x, 0.6, time.Second)
		levels = append(levels, e.worker.Counts().Levels)
	}
	move(func() { w.group(p.player, "join", "far") })
	move(func() { w.group(other.player, "leave", "far") })
	move(func() { w.group(p.player, "leave", "far") })
	move(func() { w.group(p.player, "join", "gone") })
	move(func() {
		w.mustPublish("s", `{"op":"audience","key":"ship","lod":[{"clients":["`+p.name+`"],"precision":100}]}`)
	})
	move(func() { w.mustPublish("s", `{"op":"audience","key":"ship","lod":[]}`) })
	w.net.Run(3 * time.Second)
	if !p.has("S", 0, f32(float32(x))) || !other.has("S", 0, f32(float32(x))) {
		t.Errorf("the clients have %x and %x, want %x", p.Value("S", 0), other.Value("S", 0), f32(float32(x)))
	}
	if got := w.count("linked"); got != links || p.LinkNamed("S").ID != id {
		t.Errorf("%d links were made again, want none", got-links)
	}
	for i := 1; i < len(p.seen); i++ {
		if p.seen[i] < p.seen[i-1] {
			t.Fatalf("the client was shown %v after %v", p.seen[i], p.seen[i-1])
		}
	}
	if got := e.worker.Counts().Levels; got != 0 {
		t.Errorf("%d levels are left (%v before), want none: no client has one", got, levels)
	}
	w.group(p.player, "join", "far") // the group has no level yet
	w.mustPublish("s", `{"op":"audience","key":"ship","lod":[{"groups":["far"],"rate":1}]}`)
	w.net.Run(time.Second)
	p.do(p.Close)
	w.net.Run(5 * time.Second)
	if got := e.worker.Counts().Levels; got != 0 {
		t.Errorf("%d levels are left after their client left, want none", got)
	}
}

// TestLevelWriter lets a client write that is shown less than everything. It must never see its
// own write undone, and in the end all clients see the same.
func TestLevelWriter(t *testing.T) {
	w, e := shipyard(t)
	far, near := w.lookout(e, "gone"), w.lookout(e, "")
	w.mustPublish("s", shipPut)
	w.within(2*time.Second, "both are linked", func() bool { return far.has("S", 0, f32(0)) && near.has("S", 0, f32(0)) })
	w.net.Run(3 * time.Second)
	for n := range 20 {
		far.seen = nil
		x := float32(n+1) * 10
		far.do(func(time.Time) { far.Set(far.LinkNamed("S"), 0, f32(x)) })
		w.within(time.Second, "the other client sees the write", func() bool { return near.has("S", 0, f32(x)) })
		w.net.Run(700 * time.Millisecond)
		for _, v := range far.seen {
			if v != x {
				t.Fatalf("the writer of %v was shown %v", x, v)
			}
		}
	}
	near.do(func(time.Time) { near.Set(near.LinkNamed("S"), 0, f32(7)) })
	w.within(4*time.Second, "the writes of others are shown at the level's rate", func() bool { return far.has("S", 0, f32(7)) })
	w.mustPublish("s", `{"op":"put","key":"ship","access":"read-only","values":[{"name":"x","type":"float32","precision":0.5},{"name":"name","type":"uint16"}]}`)
	w.net.Run(time.Second)
	w.within(time.Second, "both are linked again", func() bool { return far.LinkNamed("S") != nil && far.LinkNamed("S").ReadOnly })
	if !far.has("S", 0, f32(7)) {
		t.Errorf("the new link has %x", far.Value("S", 0))
	}
}
