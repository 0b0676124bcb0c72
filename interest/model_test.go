package interest

import (
	"flag"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

var (
	seed  = flag.Uint64("seed", 1, "of the random steps")
	steps = flag.Int("steps", 1_000_000, "of the model test")
)

// choices decide what a model test does: random numbers, or the bytes of a fuzzer.
type choices interface{ IntN(n int) int }

// A twinRule is a rule as a person would write it down.
type twinRule struct {
	axes   Axes
	within []float64
	rule   *Rule
}

type twinObject struct {
	rule twinRule
	at   Point
}

type twinSight struct {
	eyes   []Point
	bands  map[*Object]Band // by comparing everything with everything
	told   map[*Object]Band // from the changes
	looked time.Time
}

// A world is a Bander and its dumb twin, which compares every eye with every object.
type world struct {
	testing.TB
	choices
	now     time.Time
	rules   []twinRule
	grid    *Grid
	bander  *Bander
	objects []*Object
	sights  []*Sight
	object  map[*Object]*twinObject
	sight   map[*Sight]*twinSight
	step    int
}

func newWorld(t testing.TB, c choices) *world {
	w := &world{TB: t, choices: c, now: time.Unix(1000, 0), object: map[*Object]*twinObject{}, sight: map[*Sight]*twinSight{}}
	for _, r := range []twinRule{
		{axes: AxisX | AxisZ, within: []float64{100, 300, 600}},
		{axes: AllAxes, within: []float64{50}},
		{axes: AxisX | AxisY, within: []float64{0.5, 0.75, 4, 64, 512}},
		{axes: AxisY, within: []float64{256}},
		{axes: AllAxes, within: []float64{1e9, 1e12}},
	} {
		r.rule = mustRule(t, r.axes, r.within...)
		w.rules = append(w.rules, r)
	}
	w.grid = NewGrid(200)
	w.bander = NewBander(w.grid)
	return w
}

func mustRule(t testing.TB, axes Axes, within ...float64) *Rule {
	t.Helper()
	r, err := NewRule(axes, within...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// run does one random step, and compares.
func (w *world) run() {
	w.step++
	switch n := w.IntN(100); {
	case n < 45:
		w.walkObject()
	case n < 65:
		w.walkEye()
	case n < 90:
		w.advance()
	case n < 93:
		w.addOrRemove()
	case n < 95:
		w.setEyes()
	case n < 96:
		w.setRule()
	case n < 97:
		w.newSight()
	case n < 98:
		w.lose()
	case n < 99 && len(w.sights) > 0:
		i := w.IntN(len(w.sights))
		w.bander.Remove(w.sights[i])
		delete(w.sight, w.sights[i])
		w.sights = slices.Delete(w.sights, i, i+1)
	default:
		w.askBand()
	}
}

// place is somewhere: mostly in a field of 2,000 × 2,000, sometimes on a round number, nowhere, or very far away.
func (w *world) place() Point {
	one := func() float64 {
		switch n := w.IntN(60); {
		case n == 0:
			return math.NaN()
		case n == 1:
			return math.Inf(1 - 2*w.IntN(2))
		case n == 2:
			return math.Ldexp(float64(w.IntN(1000)-500), w.IntN(1000))
		case n == 3:
			return math.MaxFloat64 * float64(1-2*w.IntN(2))
		case n < 20:
			return float64(w.IntN(41)-20) * 50
		}
		return (float64(w.IntN(1<<20))/(1<<20) - 0.5) * 2000
	}
	return Point{one(), one(), one()}
}

// walk is a step from p, or a jump.
func (w *world) walk(p Point) Point {
	if w.IntN(12) == 0 {
		return w.place()
	}
	one := func() float64 { return (float64(w.IntN(1<<20))/(1<<20) - 0.5) * 30 }
	return Point{p.X + one(), p.Y + one(), p.Z + one()}
}

func (w *world) walkObject() {
	if len(w.objects) == 0 {
		return
	}
	o := w.objects[w.IntN(len(w.objects))]
	twin := w.object[o]
	twin.at = w.walk(twin.at)
	w.grid.Move(o, twin.at)
}

func (w *world) walkEye() {
	if len(w.sights) == 0 {
		return
	}
	s := w.sights[w.IntN(len(w.sights))]
	twin := w.sight[s]
	if len(twin.eyes) == 0 {
		return
	}
	i := w.IntN(len(twin.eyes))
	twin.eyes[i] = w.walk(twin.eyes[i])
	w.bander.MoveEye(w.now, s, i, twin.eyes[i])
	w.checkJump(s, i)
}

// checkJump wants the sight to be looked at soon if an eye is far from where it was at the last look.
func (w *world) checkJump(s *Sight, eye int) {
	twin := w.sight[s]
	if len(w.objects) == 0 || twin.looked.IsZero() || !s.lookedAt[eye].finite() && !twin.eyes[eye].finite() {
		return
	}
	least := math.Inf(1)
	for _, o := range w.object {
		least = min(least, o.rule.within[0])
	}
	if moved := far(s.lookedAt[eye], twin.eyes[eye], AllAxes); moved > least/4*1.001 && s.dueAt.After(w.now.Add(jumpPause)) {
		w.Fatalf("step %d: an eye moved by %v, the nearest border is %v, and the next look is in %v", w.step, moved, least, s.dueAt.Sub(w.now))
	}
}

// addOrRemove lets the number of objects grow to the limit and shrink to nothing in turn.
func (w *world) addOrRemove() {
	if growing := w.step/20_000%2 == 0; growing == (w.IntN(5) > 0) {
		w.add()
	} else {
		w.remove()
	}
}

func (w *world) add() {
	r := w.rules[w.IntN(len(w.rules))]
	o, ok := w.grid.Add(r.rule, nil)
	if ok != (len(w.objects) < 200) {
		w.Fatalf("step %d: adding to %d objects: %v", w.step, len(w.objects), ok)
	}
	if !ok {
		return
	}
	twin := &twinObject{rule: r, at: Point{math.NaN(), math.NaN(), math.NaN()}}
	if w.IntN(10) > 0 {
		twin.at = w.place()
		w.grid.Move(o, twin.at)
	}
	w.object[o] = twin
	w.objects = append(w.objects, o)
}

func (w *world) remove() {
	if len(w.objects) == 0 {
		return
	}
	i := w.IntN(len(w.objects))
	o := w.objects[i]
	w.grid.Remove(o)
	w.grid.Remove(o)
	w.grid.Move(o, Point{}) // has no effect
	delete(w.object, o)
	w.objects = slices.Delete(w.objects, i, i+1)
	for _, s := range w.sight {
		delete(s.bands, o)
		delete(s.told, o)
	}
}

func (w *world) setRule() {
	if len(w.objects) == 0 {
		return
	}
	o := w.objects[w.IntN(len(w.objects))]
	twin := w.object[o]
	twin.rule = w.rules[w.IntN(len(w.rules))]
	w.grid.SetRule(o, twin.rule.rule, twin.at)
}

func (w *world) newSight() {
	if len(w.sights) >= 8 {
		return
	}
	s := w.bander.NewSight(nil)
	w.sights = append(w.sights, s)
	w.sight[s] = &twinSight{bands: map[*Object]Band{}, told: map[*Object]Band{}}
}

func (w *world) setEyes() {
	if len(w.sights) == 0 {
		return
	}
	s := w.sights[w.IntN(len(w.sights))]
	twin := w.sight[s]
	twin.eyes = twin.eyes[:0]
	for range w.IntN(4) {
		twin.eyes = append(twin.eyes, w.place())
	}
	w.bander.SetEyes(w.now, s, twin.eyes...)
}

// lose compares an object that jumped with every sight at once.
func (w *world) lose() {
	if len(w.objects) == 0 {
		return
	}
	o := w.objects[w.IntN(len(w.objects))]
	w.object[o].at = w.place()
	w.grid.Move(o, w.object[o].at)
	w.grid.Jumped(o)
	if w.grid.Jumped(o) {
		w.Fatalf("step %d: an object that did not move jumps twice", w.step)
	}
	for _, s := range w.sights {
		twin, x := w.sight[s], w.object[o]
		d := math.Inf(1)
		for _, eye := range twin.eyes {
			d = min(d, far(x.at, eye, x.rule.axes))
		}
		was := twin.band(twin.told, o)
		lost := was != Beyond && x.rule.band(was, d) == Beyond
		if got := w.bander.Lose(s, o); got != lost {
			w.Fatalf("step %d: an object of band %d at distance %v of bands %v is lost: %v", w.step, was, d, x.rule.within, got)
		}
		if lost {
			twin.told[o], twin.bands[o] = Beyond, Beyond
		}
	}
}

// advance lets some time pass and compares the bands of each sight that is looked at.
func (w *world) advance() {
	w.now = w.now.Add(time.Duration(w.IntN(20)) * time.Millisecond)
	if w.IntN(500) == 0 {
		w.now = w.now.Add(time.Second)
	}
	var due []*Sight
	for _, s := range w.sights {
		if s.place > 0 && !s.dueAt.After(w.now) {
			due = append(due, s)
		}
	}
	next, ok := w.bander.Advance(w.now, w.told)
	if ok && !next.After(w.now) {
		w.Fatalf("step %d: Advance wants to be called again at %v, now is %v", w.step, next, w.now)
	}
	for _, s := range due {
		w.look(s)
	}
	for _, s := range w.sights {
		w.checkDue(s, next)
	}
}

func (w *world) told(c Change) {
	twin := w.sight[c.Sight]
	if was := twin.band(twin.told, c.Object); was != c.From || c.From == c.To {
		w.Fatalf("step %d: a change from band %d to %d is told, the one before it was to %d", w.step, c.From, c.To, was)
	}
	if w.object[c.Object] == nil {
		w.Fatalf("step %d: a change of a removed object is told", w.step)
	}
	twin.told[c.Object] = c.To
}

func (*twinSight) band(m map[*Object]Band, o *Object) Band {
	if b, ok := m[o]; ok {
		return b
	}
	return Beyond
}

// look compares every eye with every object.
func (w *world) look(s *Sight) {
	twin := w.sight[s]
	twin.looked = w.now
	seen := 0
	for _, o := range w.objects {
		x := w.object[o]
		d := math.Inf(1)
		for _, eye := range twin.eyes {
			d = min(d, far(x.at, eye, x.rule.axes))
		}
		want := x.rule.band(twin.band(twin.bands, o), d)
		twin.bands[o] = want
		if got := twin.band(twin.told, o); got != want {
			w.Fatalf("step %d: an object at distance %v of bands %v is told to be in band %d, want %d", w.step, d, x.rule.within, got, want)
		}
		if got := w.bander.Band(s, o); got != want {
			w.Fatalf("step %d: Band is %d, want %d", w.step, got, want)
		}
		if got := w.bander.Distance(s, o); !same(got, d) {
			w.Fatalf("step %d: Distance is %v, want %v", w.step, got, d)
		}
		if want != Beyond {
			seen++
		}
	}
	if s.Seen() != seen {
		w.Fatalf("step %d: the sight sees %d objects, want %d", w.step, s.Seen(), seen)
	}
}

// band is the rule in plain words: the first band whose border is not nearer than the object, or the one that the
// object had while it is at most a tenth outside of it.
func (r twinRule) band(was Band, d float64) Band {
	to := Beyond
	if i := slices.IndexFunc(r.within, func(border float64) bool { return d <= border }); i >= 0 {
		to = Band(i)
	}
	if int(was) < len(r.within) && to > was && d <= r.within[was]*1.1 {
		return was
	}
	return to
}

// far is the distance; infinite if either point is nowhere.
func far(p, q Point, axes Axes) float64 {
	d := 0.0
	for i, pair := range [3][2]float64{{p.X, q.X}, {p.Y, q.Y}, {p.Z, q.Z}} {
		if axes&(1<<i) == 0 {
			continue
		}
		for _, v := range pair {
			if math.IsNaN(v) || math.IsInf(v, 0) {
				return math.Inf(1)
			}
		}
		d = math.Hypot(d, pair[0]-pair[1])
	}
	return d
}

// same reports whether two distances are the same but for rounding. The squares of some are more than a float64 holds.
func same(got, want float64) bool {
	if want > 1e150 {
		return got > 1e150 && (got == want || !math.IsInf(want, 1))
	}
	return math.Abs(got-want) <= want*1e-9
}

// checkDue wants every sight with eyes to be looked at in time, and no other to cost anything.
func (w *world) checkDue(s *Sight, next time.Time) {
	twin := w.sight[s]
	if len(twin.eyes) == 0 {
		if (s.place > 0) != (s.Seen() > 0) || s.place > 0 && s.dueAt.After(w.now.Add(jumpPause)) {
			w.Fatalf("step %d: a sight without eyes, which sees %d objects, is looked at in %v", w.step, s.Seen(), s.dueAt.Sub(w.now))
		}
		return
	}
	if s.dueAt.Before(next) || s.dueAt.After(w.now.Add(lookInterval)) {
		w.Fatalf("step %d: a sight is looked at in %v, the next one in %v", w.step, s.dueAt.Sub(w.now), next.Sub(w.now))
	}
}

// askBand asks for bands in an order that makes the marks of one sight overwrite those of another.
func (w *world) askBand() {
	for range 4 {
		if len(w.sights) == 0 || len(w.objects) == 0 {
			return
		}
		s, o := w.sights[w.IntN(len(w.sights))], w.objects[w.IntN(len(w.objects))]
		twin := w.sight[s]
		if got, want := w.bander.Band(s, o), twin.band(twin.told, o); got != want {
			w.Fatalf("step %d: Band is %d, want %d as told", w.step, got, want)
		}
	}
}

// TestModel compares a Bander with a twin that compares every eye with every object.
func TestModel(t *testing.T) {
	t.Logf("-seed=%d -steps=%d", *seed, *steps)
	w := newWorld(t, rand.New(rand.NewPCG(*seed, 0)))
	n := *steps
	if testing.Short() {
		n /= 20
	}
	for range n {
		w.run()
	}
	t.Logf("%d looks, %d objects, %d sights, %d layers", w.bander.Looks(), len(w.objects), len(w.sights), len(w.grid.layers))
}

// bytesOf makes choices from bytes; zero when there are none left.
type bytesOf struct{ b []byte }

func (c *bytesOf) IntN(n int) int {
	v := 0
	for m := 1; m < n && len(c.b) > 0; m <<= 8 {
		v, c.b = v<<8|int(c.b[0]), c.b[1:]
	}
	return v % n
}

func FuzzBander(f *testing.F) {
	r := rand.New(rand.NewPCG(1, 1))
	for range 3 {
		b := make([]byte, 600)
		for i := range b {
			b[i] = byte(r.IntN(256))
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		c := &bytesOf{b}
		w := newWorld(t, c)
		for len(c.b) > 0 {
			w.run()
		}
		w.advance()
	})
}
