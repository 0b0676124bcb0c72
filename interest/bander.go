package interest

import (
	"math"
	"time"

	"github.com/dnprelay/dnprelay/internal/turn/heap"
)

const (
	// lookInterval is the time between two looks at a sight. It is most of the time that a crossing of a border
	// takes to show. 300 ms are promised: the rest is for the tick of the relay, the step of the worker's turns, and
	// for nodes that do not get a core at once.
	lookInterval = 200 * time.Millisecond

	// jumpPause is the least time between two looks out of turn at one sight. An eye that always jumps, because
	// bands are small or because somebody makes it, costs at most four times as much as one that does not.
	jumpPause = 50 * time.Millisecond

	// jumpPart is the part of the nearest border of all rules by which an eye may move before its sight is looked
	// at out of turn.
	jumpPart = 0.25

	// EyesMax is the most eyes of a sight.
	EyesMax = 8
)

// A Change says that an object is in another band of a sight.
type Change struct {
	Sight    *Sight
	Object   *Object
	From, To Band
}

// A Sight is what one session sees. Others may change only Data.
type Sight struct {
	Data any // belongs to the caller

	phase    time.Duration // of its looks in lookInterval
	eyes     []Point
	lookedAt [EyesMax]Point // where the eyes were at the last look
	jumped   bool           // the next look is out of turn
	jumpedAt time.Time      // of the last look out of turn
	known    []known        // what was not beyond at the last look
	dueAt    time.Time
	place    int // in the heap; 0 for a sight that sees nothing
}

// A known object is one that a sight has in a band.
type known struct {
	object *Object
	band   Band
	square float64 // of its distance to the nearest eye; infinite until an eye found it
}

// Eyes returns where the eyes of the sight are at present. They belong to the Bander.
func (s *Sight) Eyes() []Point { return s.eyes }

// Seen returns how many objects are in a band of the sight.
func (s *Sight) Seen() int { return len(s.known) }

// A Bander keeps the bands of sights up to date. It looks at each sight with an eye every 200 ms, evenly spread
// over that time, and at once when an eye jumps.
type Bander struct {
	grid   *Grid
	sights *heap.Heap[*Sight] // that have eyes, or know objects, by dueAt
	made   int                // sights ever; spreads their looks
	marked *Sight             // whose objects have their index in it
	found  []hit              // of one eye
	looks  uint64
}

// NewBander returns a bander of the objects in g.
func NewBander(g *Grid) *Bander {
	return &Bander{grid: g, sights: heap.New(
		func(a, b *Sight) bool { return a.dueAt.Before(b.dueAt) },
		func(s *Sight) *int { return &s.place },
	)}
}

// Looks returns how often the bander has looked at a sight.
func (b *Bander) Looks() uint64 { return b.looks }

// NewSight returns a sight without eyes, which costs nothing and sees nothing.
func (b *Bander) NewSight(data any) *Sight {
	const golden = 0.6180339887498949 // its multiples are spread evenly, however many there are
	_, part := math.Modf(float64(b.made) * golden)
	b.made++
	return &Sight{Data: data, phase: time.Duration(part * float64(lookInterval))}
}

// Remove removes a sight. No change is told of it.
func (b *Bander) Remove(s *Sight) {
	b.sights.Remove(s)
	if b.marked == s {
		b.marked = nil
	}
	s.eyes, s.known = nil, nil
}

// SetEyes gives a sight these eyes, and has it looked at. Eyes beyond EyesMax are not used. Without eyes, everything
// is beyond.
func (b *Bander) SetEyes(now time.Time, s *Sight, eyes ...Point) {
	s.eyes = append(s.eyes[:0], eyes[:min(len(eyes), EyesMax)]...)
	if len(s.eyes)+len(s.known) == 0 {
		b.sights.Remove(s)
		return
	}
	b.hurry(now, s)
}

// MoveEye says where an eye is. The sight must have it.
func (b *Bander) MoveEye(now time.Time, s *Sight, eye int, to Point) {
	from := s.lookedAt[eye]
	s.eyes[eye] = to
	if from.finite() || to.finite() {
		// An eye that comes from nowhere or goes there jumps, because the comparison with NaN is false.
		if limit := b.grid.least() * jumpPart; !(square(from, to) <= limit*limit) {
			b.hurry(now, s)
		}
	}
}

// hurry has a sight looked at out of turn, at once if that did not happen just before.
func (b *Bander) hurry(now time.Time, s *Sight) {
	at := s.jumpedAt.Add(jumpPause)
	if at.Before(now) {
		at = now
	}
	if s.place > 0 && !at.Before(s.dueAt) {
		return
	}
	s.dueAt, s.jumped = at, true
	b.sights.Set(s)
}

// Advance looks at the sights that are due, calls tell for each change, and returns when it must be called
// again; false if no sight has eyes. tell must not call the Bander or its Grid.
func (b *Bander) Advance(now time.Time, tell func(Change)) (next time.Time, ok bool) {
	for s, ok := b.sights.First(); ok && !s.dueAt.After(now); s, ok = b.sights.First() {
		if s.jumped {
			s.jumped, s.jumpedAt = false, now
		}
		b.look(s, tell)
		if len(s.eyes) == 0 {
			b.sights.Remove(s)
			continue
		}
		s.dueAt = s.nextLook(now)
		b.sights.Set(s)
	}
	return b.Next()
}

// Next returns when Advance has something to do; false if no sight has eyes.
func (b *Bander) Next() (time.Time, bool) {
	s, ok := b.sights.First()
	if !ok {
		return time.Time{}, false
	}
	return s.dueAt, true
}

// nextLook returns the next look in turn, whose phase does not depend on looks out of turn.
func (s *Sight) nextLook(now time.Time) time.Time {
	since := time.Duration(now.UnixNano()-int64(s.phase)) % lookInterval
	if since < 0 {
		since += lookInterval
	}
	return now.Add(lookInterval - since)
}

// look brings the bands of a sight up to date.
func (b *Bander) look(s *Sight, tell func(Change)) {
	b.looks++
	b.mark(s)
	copy(s.lookedAt[:], s.eyes)
	for _, eye := range s.eyes {
		b.found = b.grid.near(eye, b.found[:0])
		for _, h := range b.found {
			if k := s.find(h.object); k != nil {
				k.square = min(k.square, h.square)
				continue
			}
			h.object.index = int32(len(s.known))
			s.known = append(s.known, known{h.object, Beyond, h.square})
		}
	}
	clear(b.found)
	stay := s.known[:0]
	for _, k := range s.known {
		if k.object.state == removed {
			continue
		}
		from := k.band
		if k.band = k.object.rule.band(from, k.square); k.band != from {
			tell(Change{s, k.object, from, k.band})
		}
		if k.band != Beyond {
			stay = append(stay, k)
		}
	}
	clear(s.known[len(stay):])
	s.known = stay
	s.shrink()
	b.marked = nil
}

// Lose puts an object beyond all bands of a sight at once, without a look, if it has left them. It reports whether the object
// was in a band. The Sight is told no Change of it, unless it comes back.
func (b *Bander) Lose(s *Sight, o *Object) bool {
	out := b.Distance(s, o)
	if out *= out; out <= o.rule.enter[o.rule.n-1] {
		return false
	}
	for i := range s.known {
		k := &s.known[i]
		if k.object != o || k.band == Beyond {
			continue
		}
		if o.rule.band(k.band, out) != Beyond {
			return false
		}
		k.band = Beyond
		return true
	}
	return false
}

// shrink gives memory back that the sight needed in a crowd.
func (s *Sight) shrink() {
	if n := len(s.known); cap(s.known) > 64 && n < cap(s.known)/4 {
		s.known = append(make([]known, 0, 2*n), s.known...)
	}
}

// mark makes the objects that a sight knows findable in it, each in a few nanoseconds and without a table for
// each sight.
func (b *Bander) mark(s *Sight) {
	b.marked = s
	for i := range s.known {
		k := &s.known[i]
		k.square = math.Inf(1)
		k.object.index = int32(i)
	}
}

// find returns what a marked sight knows of an object; nil for nothing. The index of an object that the sight does
// not know is from another sight, so it proves nothing.
func (s *Sight) find(o *Object) *known {
	if int(o.index) < len(s.known) && s.known[o.index].object == o {
		return &s.known[o.index]
	}
	return nil
}

// Band returns the band that an object had at the last look at a sight. Calls for many objects of one sight, one
// after the other, are fast.
func (b *Bander) Band(s *Sight, o *Object) Band {
	if b.marked != s {
		b.mark(s)
	}
	if k := s.find(o); k != nil && o.state != removed {
		return k.band
	}
	return Beyond
}

// Distance returns how far an object is from the nearest eye of a sight at present; infinite without eyes, and
// for an object that is nowhere.
func (b *Bander) Distance(s *Sight, o *Object) float64 {
	if o.state != placed {
		return math.Inf(1)
	}
	return o.rule.axes.Distance(b.grid.at(o), s.eyes...)
}
