package nearby

import (
	"math"
	"math/rand/v2"

	"github.com/x448/float16"
)

// historyTicks is how long a world remembers positions.
const historyTicks = 64

// A world is objects that wander about a square whose middle is 0. One goroutine steps it; others may read ticks that it has
// published to them.
type world struct {
	load    *Load
	rand    *rand.Rand
	walkers []walker
	tick    uint32
	history [historyTicks][]point
	index   index  // of the tick indexed, for near
	indexed uint32 // counted from 1
	ways    [headings]way
	texts   texts
}

// A walker is an object as it really is. Its way is a random walk: the heading turns a little in each tick.
type walker struct{ x, z, heading, speed float64 }

// A way is where a heading leads, as parts of 1. Walkers go in one of many directions, because to work out sine and cosine of each
// heading takes longer than everything else that a walker does.
type way struct{ sin, cos float64 }

// headings are the directions that walkers and rotations tell apart, a power of two.
const headings = 1024

// direction returns the number of the direction of a heading.
func (o *walker) direction() int {
	return int(math.Floor(o.heading*(headings/(2*math.Pi)))) & (headings - 1)
}

// A point is where clients see an object, in half floats.
type point struct{ x, z float32 }

// Speeds per second, and the most by which a heading turns in a tick, in radians. The first objects are the players.
const (
	objectSpeed = 4
	playerSpeed = 8
	turnMax     = 0.3
)

func newWorld(l *Load) *world {
	w := &world{load: l, rand: rand.New(rand.NewPCG(l.Seed, 0)), walkers: make([]walker, l.States)}
	for i := range w.ways {
		w.ways[i].sin, w.ways[i].cos = math.Sincos(2 * math.Pi * float64(i) / headings)
	}
	w.texts = newTexts(l.States)
	for i := range w.history {
		w.history[i] = make([]point, l.States)
	}
	for i := range w.walkers {
		speed := float64(objectSpeed)
		if i < l.Clients {
			speed = playerSpeed
		}
		w.walkers[i] = walker{(w.rand.Float64() - 0.5) * l.Side, (w.rand.Float64() - 0.5) * l.Side, w.rand.Float64() * 2 * math.Pi, speed}
	}
	w.show()
	return w
}

// step moves everything by one tick.
func (w *world) step() {
	half := w.load.Side / 2
	for i := range w.walkers {
		o := &w.walkers[i]
		o.heading += (2*w.rand.Float64() - 1) * turnMax
		to, length := &w.ways[o.direction()], o.speed/float64(w.load.Hz)
		o.x, o.z = o.x+length*to.cos, o.z+length*to.sin
		if math.Abs(o.x) > half || math.Abs(o.z) > half {
			o.x, o.z = min(max(o.x, -half), half), min(max(o.z, -half), half)
			o.heading += math.Pi
		}
	}
	w.tick++
	w.show()
}

// show writes positions as clients see them.
func (w *world) show() {
	at := w.history[w.tick%historyTicks]
	for i, o := range w.walkers {
		at[i] = point{half(o.x), half(o.z)}
	}
}

// near calls visit for at least the objects that are within reach of p in the newest tick.
func (w *world) near(p point, reach float64, visit func(i int, square float64)) {
	if w.indexed != w.tick+1 {
		w.index.build(w.history[w.tick%historyTicks], w.load.Side, w.load.reach())
		w.indexed = w.tick + 1
	}
	w.index.near(p, reach, visit)
}

func half(x float64) float32 { return float16.Fromfloat32(float32(x)).Float32() }

// at returns where an object was in one of the last ticks.
func (w *world) at(tick uint32, i int) point { return w.history[tick%historyTicks][i] }

func square(a, b point) float64 {
	x, z := float64(a.x-b.x), float64(a.z-b.z)
	return x*x + z*z
}

// An index finds the points near a place: points are sorted by the cell that they are in.
type index struct {
	side   float64
	cells  int     // along one axis
	begin  []int32 // of each cell in order
	order  []int32
	points []point
}

// cellsPerReach is how many cells lie along the distance at which things are in sight; cellsMax bounds a row of cells.
const (
	cellsPerReach = 4
	cellsMax      = 256
)

func (x *index) build(points []point, side, reach float64) {
	x.points, x.side = points, side
	x.cells = int(min(max(1, math.Ceil(side/reach*cellsPerReach)), cellsMax))
	if x.begin == nil {
		x.begin, x.order = make([]int32, x.cells*x.cells+2), make([]int32, len(points))
	}
	clear(x.begin)
	for _, p := range points {
		x.begin[x.cellOf(p)+2]++
	}
	for i := 2; i < len(x.begin); i++ {
		x.begin[i] += x.begin[i-1]
	}
	for i, p := range points { // begin[c+1] grows from the begin of c to its end, which is the begin of c+1
		c := x.cellOf(p)
		x.order[x.begin[c+1]] = int32(i)
		x.begin[c+1]++
	}
}

func (x *index) cellOf(p point) int { return x.row(float64(p.z))*x.cells + x.row(float64(p.x)) }

func (x *index) row(v float64) int {
	return min(max(0, int((v/x.side+0.5)*float64(x.cells))), x.cells-1)
}

// near calls visit for at least the points that are within reach of p.
func (x *index) near(p point, reach float64, visit func(i int, square float64)) {
	left, right := x.row(float64(p.x)-reach), x.row(float64(p.x)+reach)
	for r := x.row(float64(p.z) - reach); r <= x.row(float64(p.z)+reach); r++ {
		for _, i := range x.order[x.begin[r*x.cells+left]:x.begin[r*x.cells+right+1]] {
			visit(int(i), square(p, x.points[i]))
		}
	}
}
