package systest

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/dnp/dnptest"
	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/internal/edge"
	"github.com/dnprelay/dnprelay/internal/inspect"
	"github.com/dnprelay/dnprelay/internal/relay"
	"github.com/dnprelay/dnprelay/internal/simnet"
	"github.com/dnprelay/dnprelay/replication"
)

// shownWithin is how long a crossing of a border may take until the client has it.
const shownWithin = 300 * time.Millisecond

const walkerBands = `"at":"pos","axes":"xz","bands":[{"within":100},{"within":300,"rate":5,"precision":4},{"within":600,"rate":1,"precision":16}]`

// A watcher is a client that records what it gets of each state, by link message.
type watcher struct {
	*player
	shown map[string][]showing
	ups   map[string]int
	downs map[string]int
	said  []string // by messages
}

// A showing is the first component of value 0, and when it came.
type showing struct {
	x  float32
	at time.Time
}

func (w *world) watcher(e *simEdge) *watcher {
	w.Helper()
	c := &watcher{shown: make(map[string][]showing), ups: make(map[string]int), downs: make(map[string]int)}
	c.player = w.join(e, dnptest.Cpp(), dnptest.App{
		Updated: func(l *dnptest.Link, i int) {
			if i == 0 {
				x := math.Float32frombits(binary.LittleEndian.Uint32(l.State.Value(0)))
				c.shown[string(l.Message)] = append(c.shown[string(l.Message)], showing{x, w.net.Now()})
			}
		},
		LinkUp:   func(l *dnptest.Link) { c.ups[string(l.Message)]++ },
		LinkDown: func(l *dnptest.Link) { c.downs[string(l.Message)]++ },
		Message:  func(m dnptest.Message) { c.said = append(c.said, string(m.Data)) },
	})
	return c
}

// sees wants the client to be shown a state at x within the time that a crossing may take.
func (c *watcher) sees(why, key string, x float32) {
	c.world.Helper()
	c.world.within(shownWithin, why, func() bool {
		all := c.shown[key]
		return len(all) > 0 && all[len(all)-1].x == x
	})
}

// gets returns how often the client gets a state while that moves to and fro, 20 times a second, and how many
// changes it is shown by that.
func (c *watcher) gets(key string, x float64, d time.Duration) (times, changes int) {
	before := len(c.shown[key])
	for step := 0; d > 0; d -= 50 * time.Millisecond {
		step++
		c.world.fire("s", move(key, x+float64(step%2)/8))
		c.world.net.Run(50 * time.Millisecond)
	}
	all := c.shown[key][before:]
	for i := range all {
		if i == 0 || all[i].x != all[i-1].x {
			changes++
		}
	}
	return len(all), changes
}

// put makes a state at x with an interest, which is empty or a text of JSON.
func put(key string, x float64, interest string) string {
	if interest != "" {
		interest = `,"interest":` + interest
	}
	return fmt.Sprintf(`{"op":"put","key":%q,"farewell":"bye","values":[{"name":"pos","type":"vector3f32","value":[%v,0,0]}]%s}`, key, x, interest)
}

func move(key string, x float64) string {
	return fmt.Sprintf(`{"op":"set","key":%q,"values":{"pos":[%v,0,0]}}`, key, x)
}

// newField starts a relay that gives every client an eye at its player, and an edge.
func newField(t *testing.T, change func(*edge.Config)) (*world, *simEdge) {
	w := newWorld(t, *seed)
	w.startRelayWith(func(c *relay.Config) { c.Eye = replication.Eye{Key: "player.{client}", Value: "pos"} })
	e := w.startEdge(wire.Denetwork, change)
	w.net.SetPath(simnet.Path{Delay: 10 * time.Millisecond})
	return w, e
}

// TestSight walks an object past a client, through every band and back.
func TestSight(t *testing.T) {
	w, e := newField(t, nil)
	c := w.watcher(e)
	w.mustPublish("s", put("player."+c.name, 0, ""))
	w.mustPublish("s", `{"op":"interest","name":"walker",`+walkerBands+`}`)
	w.mustPublish("s", put("npc", 1000, `"walker"`))
	w.mustPublish("s", put("rock", 5000, ""))
	c.sees("a state without an interest is seen from everywhere", "rock", 5000)
	w.net.Run(2 * time.Second)
	if c.ups["npc"] != 0 {
		t.Fatal("a state is linked that never came near")
	}
	w.mustPublish("s", move("npc", 500))
	c.sees("the state is in the outermost band", "npc", 500)
	if _, n := c.gets("npc", 500, 5*time.Second); n == 0 || n > 7 {
		t.Errorf("%d changes in 5 s in a band of one a second", n)
	}
	w.mustPublish("s", move("npc", 250))
	c.sees("in the second", "npc", 250)
	w.mustPublish("s", move("npc", 50))
	c.sees("in the nearest", "npc", 50)
	w.net.Run(shownWithin)
	if _, n := c.gets("npc", 50, 2*time.Second); n < 38 {
		t.Errorf("%d of 40 changes are shown in the nearest band", n)
	}
	w.mustPublish("s", move("npc", 700))
	w.net.Run(shownWithin)
	last := c.shown["npc"][len(c.shown["npc"])-1]
	if n, _ := c.gets("npc", 800, 20*time.Second); n != 0 {
		t.Errorf("%d updates beyond all bands, want none", n)
	}
	if l := c.LinkNamed("npc"); l == nil || c.downs["npc"] > 0 || len(c.said) > 0 {
		t.Errorf("the link is gone (%v, %d times down, %q), want that it sleeps", l, c.downs["npc"], c.said)
	}
	w.mustPublish("s", move("npc", 90))
	c.sees("it is back", "npc", 90)
	if c.ups["npc"] != 1 {
		t.Errorf("the link came up %d times, want once", c.ups["npc"])
	}
	if slices.Index(c.shown["npc"], last) < 0 {
		t.Errorf("the client has lost %v", last)
	}
	if counts := e.worker.Counts(); counts.Seeing != 1 || counts.BandMoves != 5 {
		t.Errorf("%d sessions have eyes, states came into other bands %d times; want 1 and 5", counts.Seeing, counts.BandMoves)
	}
}

// TestCrossings lets an object come near at 60 moments of a look.
func TestCrossings(t *testing.T) {
	w, e := newField(t, nil)
	c := w.watcher(e)
	w.mustPublish("s", put("player."+c.name, 0, ""))
	w.mustPublish("s", put("npc", 50, `{`+walkerBands+`}`))
	c.sees("the state appears", "npc", 50)
	for i := range 60 {
		w.mustPublish("s", move("npc", 1000))
		w.net.Run(time.Second + time.Duration(37*i%250)*time.Millisecond)
		x := float32(10 + i)
		w.mustPublish("s", move("npc", float64(x)))
		c.sees("the state comes near", "npc", x)
	}
	if c.ups["npc"] != 1 {
		t.Errorf("the link came up %d times, want once", c.ups["npc"])
	}
}

// TestUnlink: beyond its bands the link of a state ends with its farewell, and comes again with it.
func TestUnlink(t *testing.T) {
	w, e := newField(t, nil)
	c, blind := w.watcher(e), w.watcher(e)
	w.mustPublish("s", put("player."+c.name, 0, ""))
	w.mustPublish("s", put("npc", 50, `{`+walkerBands+`,"beyond":"unlink"}`))
	c.sees("the state appears", "npc", 50)
	w.net.Run(time.Second)
	w.explains("the state is near", c.name, "npc", inspect.InSight, inspect.Linked, inspect.UpToDate)
	w.explains("the client has no eye", blind.name, "npc", inspect.OutOfSight)
	for i := range 3 {
		w.mustPublish("s", move("npc", 900))
		w.within(time.Second, "the link ends, with the farewell", func() bool { return len(c.said) == i+1 && c.LinkNamed("npc") == nil })
		w.explains("the state is far away", c.name, "npc", inspect.InAudience, inspect.OutOfSight)
		got := len(c.shown["npc"])
		w.mustPublish("s", move("npc", 950+float64(i)))
		w.net.Run(5 * time.Second)
		if len(c.shown["npc"]) != got {
			t.Error("the client is shown where the state is")
		}
		w.mustPublish("s", move("npc", float64(60+i)))
		c.sees("the state is back", "npc", float32(60+i))
	}
	if len(blind.shown["npc"])+blind.ups["npc"] > 0 {
		t.Error("a client without an eye is shown the state")
	}
	if n := w.count("linked"); n != 2 {
		t.Errorf("%d links are told, want that of the player to either client: the interest asks for no events", n)
	}
}
