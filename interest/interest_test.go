package interest

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// A field is a Bander with one sight, whose changes are a transcript.
type field struct {
	*testing.T
	now    time.Time
	grid   *Grid
	bander *Bander
	sight  *Sight
}

func newField(t *testing.T, eyes ...Point) *field {
	g := NewGrid(1000)
	f := &field{T: t, now: time.Unix(1000, 0), grid: g, bander: NewBander(g)}
	f.sight = f.bander.NewSight("sight")
	f.bander.SetEyes(f.now, f.sight, eyes...)
	return f
}

func (f *field) add(r *Rule, at Point) *Object {
	f.Helper()
	o, ok := f.grid.Add(r, "object")
	if !ok {
		f.Fatal("the grid is full")
	}
	f.grid.Move(o, at)
	return o
}

// want lets some time pass and wants these bands of changes.
func (f *field) want(why string, after time.Duration, bands ...Band) {
	f.Helper()
	f.now = f.now.Add(after)
	var got []Band
	f.bander.Advance(f.now, func(c Change) { got = append(got, c.To) })
	if string(bytesFrom(got)) != string(bytesFrom(bands)) {
		f.Fatalf("%s: changes to bands %v, want %v", why, got, bands)
	}
}

func bytesFrom(bands []Band) (b []byte) {
	for _, x := range bands {
		b = append(b, byte(x))
	}
	return b
}

func TestHysteresis(t *testing.T) {
	f := newField(t, Point{})
	o := f.add(mustRule(t, AxisX|AxisZ, 100, 300), Point{X: 301})
	for _, c := range []struct {
		why  string
		x    float64
		want []Band
	}{
		{"an object outside of the last border is not seen", 301, nil},
		{"at the border it is inside", 300, []Band{1}},
		{"a little outside it stays", 329, nil},
		{"a tenth outside it leaves", 331, []Band{Beyond}},
		{"a little outside it does not come back", 301, nil},
		{"inside it comes back", 299, []Band{1}},
		{"the inner border is reached", 100, []Band{0}},
		{"a little outside of the inner border it stays", 109, nil},
		{"a tenth outside of the inner border it goes to the next band", 111, []Band{1}},
		{"the inner border counts when it comes back, too", 101, nil},
		{"it comes back", 99, []Band{0}},
		{"a jump goes past the bands between", 1000, []Band{Beyond}},
	} {
		f.grid.Move(o, Point{X: c.x, Y: 1e6}) // y does not count
		f.want(c.why, lookInterval, c.want...)
	}
}

func TestSeveralEyes(t *testing.T) {
	f := newField(t, Point{X: -1000}, Point{X: 1000})
	o := f.add(mustRule(t, AllAxes, 10, 100), Point{X: 1050})
	f.want("the nearer eye counts", lookInterval, 1)
	f.grid.Move(o, Point{X: -1005})
	f.want("the other eye is the nearer one", lookInterval, 0)
	f.bander.SetEyes(f.now, f.sight, Point{X: 1000})
	f.want("the eye that saw it is gone", jumpPause, Beyond)
	f.grid.Move(o, Point{X: 1000})
	f.want("the other eye sees it", lookInterval, 0)
	f.bander.SetEyes(f.now, f.sight)
	f.want("no eye sees nothing", jumpPause, Beyond)
}

func TestNowhere(t *testing.T) {
	f := newField(t, Point{})
	o, _ := f.grid.Add(mustRule(t, AllAxes, 10), nil)
	f.want("an object that was never placed is nowhere", lookInterval)
	f.grid.Move(o, Point{1, 1, 1})
	f.want("it has a place", lookInterval, 0)
	f.grid.Move(o, Point{1, math.NaN(), 1})
	f.want("NaN is nowhere", lookInterval, Beyond)
	f.grid.Move(o, Point{1, 1, 1})
	f.want("it has a place again", lookInterval, 0)
	f.bander.MoveEye(f.now, f.sight, 0, Point{0, 0, math.Inf(1)})
	f.want("an eye that is nowhere sees nothing", jumpPause, Beyond)
}

func TestNewRule(t *testing.T) {
	f := newField(t, Point{})
	o := f.add(mustRule(t, AxisX, 10, 20, 30), Point{X: 25, Z: 15})
	f.want("the third band", lookInterval, 2)
	f.grid.SetRule(o, mustRule(t, AxisZ, 20), Point{X: 25, Z: 15})
	f.want("the new rule has one band and another axis", lookInterval, 0)
	f.grid.Remove(o)
	f.want("no change of a removed object is told", lookInterval)
	if n := f.sight.Seen(); n != 0 {
		t.Errorf("the sight knows %d objects after all were removed", n)
	}
}

// TestJump wants an eye that jumps to see at once, one that walks to wait, and one that always jumps to cost little.
func TestJump(t *testing.T) {
	f := newField(t, Point{})
	rule := mustRule(t, AllAxes, 100)
	f.add(rule, Point{X: 120})
	f.want("the first look", 0)
	f.bander.MoveEye(f.now.Add(time.Second), f.sight, 0, Point{X: 26})
	f.want("a quarter of the band is a jump", time.Second, 0)
	f.want("nothing is left", lookInterval)
	at := f.now
	next, _ := f.bander.Advance(f.now, nil)
	f.bander.MoveEye(f.now, f.sight, 0, Point{X: 2}) // less than a quarter, and further than the border and a tenth
	f.want("a step waits", next.Sub(at)-1)
	f.want("a step is seen with the look in turn", 1, Beyond)

	looks := f.bander.Looks()
	for i := range 1000 {
		f.now = f.now.Add(time.Millisecond)
		f.bander.MoveEye(f.now, f.sight, 0, Point{Y: float64(i%2) * 1000})
		f.bander.Advance(f.now, func(Change) {})
	}
	if n := f.bander.Looks() - looks; n < 15 || n > 25 {
		t.Errorf("an eye that jumps all the time is looked at %d times a second, want about 20 and 5", n)
	}
}

// TestSpread wants the looks of many sights to be spread over the interval.
func TestSpread(t *testing.T) {
	f := newField(t)
	f.add(mustRule(t, AllAxes, 10), Point{})
	for range 500 {
		f.bander.SetEyes(f.now, f.bander.NewSight(nil), Point{})
	}
	f.bander.Advance(f.now, func(Change) {})
	for range 2 {
		for i := range 50 {
			looks := f.bander.Looks()
			f.now = f.now.Add(lookInterval / 50)
			f.bander.Advance(f.now, func(Change) {})
			if n := f.bander.Looks() - looks; n < 8 || n > 12 {
				t.Errorf("part %d of the interval has %d looks of 500, want 10", i, n)
			}
		}
	}
}

func TestRuleErrors(t *testing.T) {
	for _, c := range []struct {
		axes   Axes
		within []float64
		want   string
	}{
		{AxisX, nil, "0 bands"},
		{AxisX, []float64{1, 2, 3, 4, 5, 6, 7, 8, 9}, "9 bands"},
		{0, []float64{1}, "no axes"},
		{8, []float64{1}, "no axes"},
		{AxisX, []float64{0}, "band 0"},
		{AxisX, []float64{math.NaN()}, "band 0"},
		{AxisX, []float64{1, math.Inf(1)}, "band 1"},
		{AxisX, []float64{1, 1}, "not more"},
	} {
		if _, err := NewRule(c.axes, c.within...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("rule %v %v: %v, want an error about %q", c.axes, c.within, err, c.want)
		}
	}
	for s, want := range map[string]Axes{"xz": AxisX | AxisZ, "xyz": AllAxes, "y": AxisY} {
		if a, ok := ParseAxes(s); !ok || a != want || a.String() != s {
			t.Errorf("axes %q are %v, %v", s, a, ok)
		}
	}
	for _, s := range []string{"", "zx", "xx", "w", "xyzw"} {
		if a, ok := ParseAxes(s); ok {
			t.Errorf("axes %q are %v, want an error", s, a)
		}
	}
}

// TestLayer wants rules with cells of one size to share a layer, which reaches as far as the furthest of them.
func TestLayer(t *testing.T) {
	f := newField(t, Point{})
	axes := AxisX | AxisZ
	f.add(mustRule(t, axes, 40), Point{X: 1e3})
	f.add(mustRule(t, axes, 64), Point{X: 63, Z: 1})
	f.add(mustRule(t, axes, 33), Point{X: 1e3})
	f.add(mustRule(t, axes, 65), Point{X: 1e3})
	f.want("the second rule reaches further than the first one", lookInterval, 0)
	if n := len(f.grid.layers); n != 2 {
		t.Errorf("there are %d layers, want one for 33, 40 and 64, and one for 65", n)
	}
	f.bander.MoveEye(f.now, f.sight, 0, Point{X: 9})
	if f.sight.dueAt.After(f.now.Add(jumpPause)) {
		t.Error("a quarter of the nearest border is no jump")
	}
	l := f.grid.layers[0]
	if a, b := l.number(math.MaxFloat64), l.number(-math.MaxFloat64); a != cellMost || b != -cellMost {
		t.Errorf("the cells at the ends of numbers are %d and %d, want %d", b, a, int64(cellMost))
	}
}

// TestBounds wants a grid through which many objects went to be as small as one that had few, a crowd to leave nothing
// behind, and a place that cells cannot number to change nothing.
func TestBounds(t *testing.T) {
	f := newField(t, Point{})
	rules := []*Rule{mustRule(t, AllAxes, 10), mustRule(t, AxisX, 1e6)}
	var all []*Object
	for i := range 1000 {
		all = append(all, f.add(rules[i%2], Point{X: float64(i % 5)}))
	}
	if _, ok := f.grid.Add(rules[0], nil); ok {
		t.Error("a full grid takes an object")
	}
	f.now = f.now.Add(time.Second)
	f.bander.Advance(f.now, func(Change) {})
	if n := f.sight.Seen(); n != 1000 {
		t.Fatalf("the sight sees %d of 1000 objects", n)
	}
	for _, o := range all[1:] {
		f.grid.Remove(o)
	}
	f.now = f.now.Add(time.Second)
	f.bander.Advance(f.now, func(Change) {})
	if n := cap(f.sight.known); n > 64 {
		t.Errorf("the sight has memory for %d objects and sees one", n)
	}
	if n := len(f.grid.buckets); n > bucketsMin {
		t.Errorf("the grid has %d buckets for one object", n)
	}
	for _, b := range f.grid.buckets {
		if cap(b) > spotsMin {
			t.Errorf("a bucket has memory for %d objects, and there is one", cap(b))
		}
	}
	if n := len(f.grid.layers); n != 1 {
		t.Errorf("there are %d layers, one has objects", n)
	}
	f.grid.Remove(all[0])

	rule := mustRule(t, AllAxes, WithinMin, WithinMax)
	o := f.add(rule, Point{X: math.MaxFloat64})
	f.want("an object at the end of numbers is beyond", time.Second)
	f.bander.SetEyes(f.now, f.sight, Point{X: math.MaxFloat64})
	f.want("an eye is beside it", time.Second, 0)
	f.grid.Move(o, Point{X: -math.MaxFloat64})
	f.want("their distance is no number", time.Second, Beyond)
}

// A crowd is the load of the benchmarks: 10,000 objects and 500 eyes in a field of 4,000 × 4,000.
type crowd struct {
	rand    *rand.Rand
	now     time.Time
	grid    *Grid
	bander  *Bander
	objects []*Object
	places  []Point
	sights  []*Sight
	eyes    []Point
}

func newCrowd(t testing.TB) *crowd {
	c := &crowd{rand: rand.New(rand.NewPCG(*seed, 0)), now: time.Unix(1000, 0), grid: NewGrid(10_000)}
	c.bander = NewBander(c.grid)
	rule := mustRule(t, AxisX|AxisZ, 100, 300, 600)
	somewhere := func() Point { return Point{X: c.rand.Float64() * 4000, Z: c.rand.Float64() * 4000} }
	for i := range 10_000 {
		o, _ := c.grid.Add(rule, nil)
		c.objects, c.places = append(c.objects, o), append(c.places, somewhere())
		c.grid.Move(o, c.places[i])
	}
	for i := range 500 {
		c.sights, c.eyes = append(c.sights, c.bander.NewSight(nil)), append(c.eyes, somewhere())
		c.bander.SetEyes(c.now, c.sights[i], c.eyes[i])
	}
	c.bander.Advance(c.now, func(Change) {})
	return c
}

func (c *crowd) walk(p *Point) {
	p.X += (c.rand.Float64() - 0.5) * 2
	p.Z += (c.rand.Float64() - 0.5) * 2
}

// tick is a twentieth of a second, in which everything walks. It returns the number of changes.
func (c *crowd) tick() (changes int) {
	c.now = c.now.Add(50 * time.Millisecond)
	for i, o := range c.objects {
		c.walk(&c.places[i])
		c.grid.Move(o, c.places[i])
	}
	for i, s := range c.sights {
		c.walk(&c.eyes[i])
		c.bander.MoveEye(c.now, s, 0, c.eyes[i])
	}
	c.bander.Advance(c.now, func(Change) { changes++ })
	return changes
}

func TestAllocations(t *testing.T) {
	c := newCrowd(t)
	i := 0
	if n := testing.AllocsPerRun(1000, func() {
		i++
		c.grid.Move(c.objects[i%10_000], Point{X: float64(i) * 37})
		c.grid.Move(c.objects[i%10_000], Point{X: math.NaN()})
	}); n != 0 {
		t.Errorf("a move between cells allocates %v times", n)
	}
	if n := testing.AllocsPerRun(1000, func() {
		c.bander.MoveEye(c.now, c.sights[0], 0, c.eyes[0])
		c.bander.look(c.sights[0], func(Change) {})
	}); n != 0 {
		t.Errorf("a look allocates %v times", n)
	}
}

func BenchmarkMove(b *testing.B) {
	c := newCrowd(b)
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		c.grid.Move(c.objects[i], Point{X: float64(i) * 37, Z: float64(i)})
		i = (i + 7919) % len(c.objects)
	}
}

// BenchmarkLook looks at one sight of 500, among 10,000 objects of which it sees about 700.
func BenchmarkLook(b *testing.B) {
	c := newCrowd(b)
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		c.bander.look(c.sights[i], func(Change) {})
		i = (i + 1) % len(c.sights)
	}
	b.ReportMetric(float64(c.sights[0].Seen()), "seen")
}

// BenchmarkTick is a twentieth of a second of the whole crowd: 10,000 moves, 500 moves of eyes and about 100 looks.
func BenchmarkTick(b *testing.B) {
	c := newCrowd(b)
	b.ReportAllocs()
	changes := 0
	for b.Loop() {
		changes += c.tick()
	}
	b.ReportMetric(float64(changes)/float64(b.N), "changes/op")
}

// TestJumped: an object jumps when it is a tenth of its furthest border away from where it jumped to last.
func TestJumped(t *testing.T) {
	f := newField(t, Point{})
	o := f.add(mustRule(t, AxisX|AxisZ, 10, 100), Point{X: 50})
	for _, c := range []struct {
		why  string
		to   Point
		want bool
	}{
		{"it is new", Point{X: 50}, true}, {"a step", Point{X: 59}, false}, {"two steps", Point{X: 61}, true}, {"a step back", Point{X: 52}, false},
		{"height does not count", Point{X: 52, Y: 1e9}, false}, {"nowhere", Point{X: math.NaN()}, true}, {"nowhere again", Point{X: math.Inf(1)}, false},
		{"somewhere", Point{X: 52}, true},
	} {
		f.grid.Move(o, c.to)
		if got := f.grid.Jumped(o); got != c.want {
			t.Errorf("%s, at %v: jumped %v, want %v", c.why, c.to, got, c.want)
		}
	}
	f.grid.SetRule(o, mustRule(t, AxisX|AxisZ, 100), Point{X: 52})
	if !f.grid.Jumped(o) {
		t.Error("with another rule it does not jump")
	}
}
