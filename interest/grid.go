package interest

import (
	"math"
	"slices"
)

// An Object is what a Grid places. Others may change only Data.
type Object struct {
	cell  uint64
	layer *layer
	rule  *Rule
	index int32 // among the known objects of the sight at which a Bander looks: see Bander.mark
	place int32 // in the bucket
	state placing

	anchor *Point // where it was when Jumped said so last, not finite if it was nowhere; nil since it has its rule

	Data any // belongs to the caller
}

// A spot is an entry of a bucket: a placed object, with what a look reads of objects that are too far away.
type spot struct {
	at     Point // with zero for the axes that the rule does not have
	cell   uint64
	object *Object
}

// A placing says whether an object is in a cell.
type placing uint8

const (
	nowhere placing = iota
	placed
	removed
)

// A layer has the objects whose rules have cells of one size. A rule that reaches far would visit very many
// of the small cells that suit another.
type layer struct {
	axes     Axes
	exponent int
	size     float64 // of a cell
	salt     uint64  // keeps the cells of different layers apart
	objects  int
	reach    float64 // the furthest of its rules since the layer has objects
	least    float64 // the nearest border of those
}

// A Grid is a uniform hash grid: objects are in buckets by the cell in which they are. Its memory is that
// of the objects and their buckets, whatever the size of the world. A Grid belongs to one Bander.
type Grid struct {
	most    int // objects
	count   int
	buckets [][]spot // by cell; the number is a power of two
	layers  []*layer // that have objects
}

const (
	bucketsMin = 64
	bucketLoad = 4  // objects for each bucket, at most
	spotsMin   = 16 // memory that a bucket keeps
)

// NewGrid returns a grid for at most so many objects.
func NewGrid(most int) *Grid { return &Grid{most: most, buckets: make([][]spot, bucketsMin)} }

// Len returns the number of objects.
func (g *Grid) Len() int { return g.count }

// Add returns a new object, which is nowhere until it is moved. It reports false if the grid is full.
func (g *Grid) Add(r *Rule, data any) (*Object, bool) {
	if g.count >= g.most {
		return nil, false
	}
	g.count++
	if g.count > bucketLoad*len(g.buckets) {
		g.resize(2 * len(g.buckets))
	}
	o := &Object{Data: data, rule: r}
	o.layer = g.join(r)
	return o, true
}

// Remove removes an object. No change is told of it: sights forget it with their next look.
func (g *Grid) Remove(o *Object) {
	if o.state == removed {
		return
	}
	g.unlink(o)
	g.leave(o.layer)
	o.state = removed
	g.count--
	if len(g.buckets) > bucketsMin && g.count < bucketLoad*len(g.buckets)/4 {
		g.resize(len(g.buckets) / 2)
	}
}

// SetRule gives an object another rule, and its place, of which the new rule may heed other axes.
func (g *Grid) SetRule(o *Object, r *Rule, at Point) {
	if o.state == removed {
		return
	}
	g.unlink(o)
	old := o.layer
	o.rule, o.layer, o.anchor = r, g.join(r), nil
	g.leave(old)
	g.Move(o, at)
}

// Move says where an object is. It allocates nothing, unless a bucket has more objects than before.
func (g *Grid) Move(o *Object, to Point) {
	if o.state == removed {
		return
	}
	to, ok := o.rule.axes.project(to)
	if !ok {
		g.unlink(o)
		return
	}
	cell := o.layer.cellOf(to)
	if o.state == placed {
		if cell == o.cell {
			(*g.bucket(cell))[o.place].at = to
			return
		}
		g.unlink(o)
	}
	o.cell = cell
	g.link(spot{to, cell, o})
}

// Jumped reports whether an object is away from where it was when Jumped said so last by more than a tenth of its furthest
// border, or is somewhere and was nowhere, or the other way round, or has another rule. So the caller may compare it with its sights at once.
func (g *Grid) Jumped(o *Object) bool {
	at := Point{X: math.NaN()}
	if o.state == placed {
		at = g.at(o)
	}
	if o.anchor == nil {
		o.anchor = new(Point) // not the variable above, which would be allocated for each call
		*o.anchor = at
		return true
	}
	limit := o.rule.most * hysteresis
	if square(at, *o.anchor) <= limit*limit || !at.finite() && !o.anchor.finite() {
		return false
	}
	*o.anchor = at
	return true
}

// join returns the layer of a rule for one more object.
func (g *Grid) join(r *Rule) *layer {
	exponent, size := cellSize(r.axes, r.most)
	for _, l := range g.layers {
		if l.axes == r.axes && l.exponent == exponent {
			l.objects++
			l.reach, l.least = max(l.reach, r.reach()), min(l.least, r.least)
			return l
		}
	}
	l := &layer{axes: r.axes, exponent: exponent, size: size, objects: 1, reach: r.reach(), least: r.least}
	l.salt = mix(mix(0, int64(r.axes)), int64(exponent))
	g.layers = append(g.layers, l)
	return l
}

// leave takes an object from its layer. A layer without objects costs looks nothing.
func (g *Grid) leave(l *layer) {
	if l.objects--; l.objects > 0 {
		return
	}
	i, last := slices.Index(g.layers, l), len(g.layers)-1
	g.layers[i], g.layers[last] = g.layers[last], nil
	g.layers = g.layers[:last]
}

// least returns the nearest border of all rules that have objects.
func (g *Grid) least() float64 {
	least := math.Inf(1)
	for _, l := range g.layers {
		least = min(least, l.least)
	}
	return least
}

func (g *Grid) bucket(cell uint64) *[]spot { return &g.buckets[cell&uint64(len(g.buckets)-1)] }

// at returns where an object is that is placed.
func (g *Grid) at(o *Object) Point { return (*g.bucket(o.cell))[o.place].at }

func (g *Grid) link(s spot) {
	b := g.bucket(s.cell)
	s.object.place, s.object.state = int32(len(*b)), placed
	*b = append(*b, s)
}

// unlink takes an object out of its bucket, in which the last one takes its place.
func (g *Grid) unlink(o *Object) {
	if o.state != placed {
		return
	}
	b := g.bucket(o.cell)
	all, last := *b, len(*b)-1
	all[o.place] = all[last]
	all[o.place].object.place = o.place
	all[last] = spot{}
	*b = all[:last]
	if cap(all) > spotsMin && last < cap(all)/4 { // a crowd is gone
		*b = append(make([]spot, 0, cap(all)/2), *b...)
	}
	o.state = nowhere
}

func (g *Grid) resize(n int) {
	old := g.buckets
	g.buckets = make([][]spot, n)
	for _, b := range old {
		for _, s := range b {
			g.link(s)
		}
	}
}

// A hit is an object within the reach of its rule.
type hit struct {
	object *Object
	square float64 // of its distance
}

// near appends the objects that an eye at this point may see. An object can be among them twice if two cells
// have the same hash.
func (g *Grid) near(eye Point, found []hit) []hit {
	for _, l := range g.layers {
		if p, ok := l.axes.project(eye); ok {
			found = g.nearIn(l, p, found)
		}
	}
	return found
}

func (g *Grid) nearIn(l *layer, eye Point, found []hit) []hit {
	fromX, toX := l.numbers(eye.X, AxisX)
	fromY, toY := l.numbers(eye.Y, AxisY)
	fromZ, toZ := l.numbers(eye.Z, AxisZ)
	limit := l.reach * l.reach
	for x := fromX; x <= toX; x++ {
		dx := l.gap(eye.X, x, AxisX)
		hx := mix(l.salt, x)
		for y := fromY; y <= toY; y++ {
			dy := l.gap(eye.Y, y, AxisY)
			if dx+dy > limit {
				continue
			}
			hy := mix(hx, y)
			for z := fromZ; z <= toZ; z++ {
				if dx+dy+l.gap(eye.Z, z, AxisZ) <= limit {
					found = g.nearInCell(l, mix(hy, z), eye, found)
				}
			}
		}
	}
	return found
}

func (g *Grid) nearInCell(l *layer, cell uint64, eye Point, found []hit) []hit {
	limit := l.reach * l.reach
	for _, s := range *g.bucket(cell) {
		if s.cell != cell {
			continue
		}
		if d := square(s.at, eye); d <= limit && s.object.layer == l && d <= s.object.rule.leave[s.object.rule.n-1] {
			found = append(found, hit{s.object, d})
		}
	}
	return found
}

// cellMost is the largest number of a cell. Beyond it the numbers of cells would not be exact; everything
// there is in one cell, which costs time, and changes no band.
const cellMost = 1 << 52

// number returns the number of the cell at v along one axis.
func (l *layer) number(v float64) int64 {
	n := math.Floor(v / l.size)
	return int64(max(-cellMost, min(cellMost, n)))
}

// numbers returns the numbers of the first and the last cell along one axis that the layer reaches from v.
func (l *layer) numbers(v float64, axis Axes) (from, to int64) {
	if l.axes&axis == 0 {
		return 0, 0
	}
	return l.number(v - l.reach), l.number(v + l.reach)
}

// gap returns the square of the distance along one axis between v and the cell of this number, at least
// roughly: a little less, so that rounding excludes no cell.
func (l *layer) gap(v float64, n int64, axis Axes) float64 {
	if l.axes&axis == 0 || n <= -cellMost || n >= cellMost {
		return 0
	}
	low := float64(n) * l.size
	d := max(low-v, v-(low+l.size), 0) * (1 - 1e-9)
	return d * d
}

// cellOf returns the hash by which the cell of a point is known, which has zero for the axes that the layer does not have. Two cells with one hash cost time and change nothing,
// because the distance decides.
func (l *layer) cellOf(p Point) uint64 {
	return mix(mix(mix(l.salt, l.number(p.X)), l.number(p.Y)), l.number(p.Z))
}

// mix adds a number to a hash: the finalizer of MurmurHash3, so that neighbours go to different buckets.
func mix(h uint64, n int64) uint64 {
	h ^= uint64(n) * 0x9e3779b97f4a7c15
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	h *= 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}
