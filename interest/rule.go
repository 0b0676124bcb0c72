package interest

import (
	"errors"
	"fmt"
	"math"
	"strings"
)

// A Point is a place. Components that are NaN or infinite make it nowhere for rules that heed them.
type Point struct{ X, Y, Z float64 }

// Axes are the components of points between which distances are measured.
type Axes uint8

// The axes, and all of them.
const (
	AxisX Axes = 1 << iota
	AxisY
	AxisZ
	AllAxes = AxisX | AxisY | AxisZ
)

// ParseAxes returns the axes that a text such as "xz" names, each of them at most once and in order.
func ParseAxes(s string) (a Axes, ok bool) {
	for a := AxisX; a <= AllAxes; a++ {
		if a.String() == s {
			return a, true
		}
	}
	return 0, false
}

// String returns the axes as ParseAxes reads them.
func (a Axes) String() string {
	var b strings.Builder
	for i, name := range "xyz" {
		if a&(1<<i) != 0 {
			b.WriteRune(name)
		}
	}
	return b.String()
}

// project returns p with zero for the components that a does not have, and whether the others are finite.
func (a Axes) project(p Point) (Point, bool) {
	if a&AxisX == 0 {
		p.X = 0
	}
	if a&AxisY == 0 {
		p.Y = 0
	}
	if a&AxisZ == 0 {
		p.Z = 0
	}
	return p, p.finite()
}

// Distance returns how far a point is from the nearest of some eyes; infinite without eyes, and for a point that is
// nowhere.
func (a Axes) Distance(p Point, eyes ...Point) float64 {
	least := math.Inf(1)
	p, ok := a.project(p)
	if !ok {
		return least
	}
	for _, eye := range eyes {
		if eye, ok := a.project(eye); ok {
			least = min(least, square(p, eye))
		}
	}
	return math.Sqrt(least)
}

// finite reports whether all components are numbers. The difference of an infinity or NaN with itself
// is NaN.
func (p Point) finite() bool { return p.X-p.X == 0 && p.Y-p.Y == 0 && p.Z-p.Z == 0 }

// square returns the square of the distance of two finite points. It is infinite where a float64
// cannot hold it, and never NaN.
func square(p, q Point) float64 {
	x, y, z := p.X-q.X, p.Y-q.Y, p.Z-q.Z
	return x*x + y*y + z*z
}

// A Band is a range of distances: 0 is the nearest.
type Band uint8

// Beyond is the band of objects that are further away than every band of their rule, or nowhere.
const Beyond Band = 255

// Limits of a rule. The distances are so far from what a float64 can hold that squares of them are exact
// enough, and the number of layers of a Grid is small.
const (
	BandsMax  = 8
	WithinMin = 1e-6
	WithinMax = 1e15
)

// hysteresis is the part of its distance by which an object has to be further away than the border of
// its band before it leaves the band. It enters at the border itself, because "within 100" is a promise.
const hysteresis = 0.1

// A Rule says how far objects are seen. It does not change after NewRule.
type Rule struct {
	axes  Axes
	n     int
	enter [BandsMax]float64 // squares of distances
	leave [BandsMax]float64
	least float64 // distances of the nearest and furthest borders
	most  float64
}

// NewRule returns the rule whose bands end at the given distances, which ascend.
func NewRule(axes Axes, within ...float64) (*Rule, error) {
	switch {
	case axes == 0 || axes > AllAxes:
		return nil, errors.New("no axes")
	case len(within) == 0 || len(within) > BandsMax:
		return nil, fmt.Errorf("%d bands, want 1 to %d", len(within), BandsMax)
	}
	r := &Rule{axes: axes, n: len(within), least: within[0], most: within[len(within)-1]}
	for i, w := range within {
		if !(w >= WithinMin && w <= WithinMax) {
			return nil, fmt.Errorf("band %d: within %v, want %v to %v", i, w, WithinMin, WithinMax)
		}
		if i > 0 && w <= within[i-1] {
			return nil, fmt.Errorf("band %d: within %v is not more than the %v of the band before it", i, w, within[i-1])
		}
		out := w * (1 + hysteresis)
		r.enter[i], r.leave[i] = w*w, out*out
	}
	return r, nil
}

// reach returns the distance beyond which the rule knows no object, and a little more, because squares are rounded.
func (r *Rule) reach() float64 { return r.most * (1 + hysteresis) * (1 + 1e-9) }

// band returns the band of an object at a distance, of which it gets the square, that was in the band was.
func (r *Rule) band(was Band, square float64) Band {
	to := Beyond
	for i := range r.n {
		if square <= r.enter[i] {
			to = Band(i)
			break
		}
	}
	if was < to && int(was) < r.n && square <= r.leave[was] {
		return was
	}
	return to
}

// cellSize returns the edge of the cells in which a Grid keeps objects that are seen from at most this
// far, and the exponent that it shares with all rules with such cells. It is a power of two, so that the
// number of a cell is exact. A look has to visit at most ten cells along each of one or two axes, or six along
// each of three.
func cellSize(axes Axes, most float64) (exponent int, size float64) {
	fraction, exponent := math.Frexp(most)
	if fraction == 0.5 { // most is a power of two itself
		exponent--
	}
	if axes == AllAxes {
		return exponent, math.Ldexp(1, exponent-1)
	}
	return exponent, math.Ldexp(1, exponent-2)
}
