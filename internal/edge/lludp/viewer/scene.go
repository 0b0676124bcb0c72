package viewer

import (
	"slices"
	"time"

	dnp "github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/lludp/wire"
)

// A State is a state as a Viewer reads it. Values are read when they are sent.
type State interface {
	Key() string
	ReadOnly() bool
	Len() int
	Name(i int) string
	Type(i int) dnp.ValueType

	// Floats returns the components of value i, of a number, point, vector or quaternion.
	Floats(i int) [4]float64

	// Text returns value i for people.
	Text(i int) string
}

// An Object is what the viewer sees of a state.
type Object struct {
	state              State
	id                 uint32
	full               wire.UUID
	position, rotation int  // indices of values; -1 is none
	player             bool // it is on the map
	gone               bool
	queued             uint8 // in which lists it is

	at           [3]float32 // where it is in the region, unless moved
	turned       [4]float32 // how it is rotated, unless turns
	moved, turns bool       // at, turned are to be read again

	version   uint64 // counts changes
	confirmed uint64 // the version whose position the viewer has, as far as it says
	textAt    uint64 // the version in which anything but the place changed last
	described uint64 // the version whose text the viewer has, as far as it says
	sentFull  uint64 // the version in the latest ObjectUpdate, 0 if there was none
}

// State returns the state that the object shows.
func (o *Object) State() State { return o.state }

// placed reports whether the object has a place in the region. The others are told as text.
func (o *Object) placed() bool { return o.position >= 0 }

// Lists of objects to send, as bits of Object.queued.
const (
	inFull  = 1 << iota // its text has changed, or the viewer may not know it
	inMoved             // it moved
	inQuiet             // it is at rest, and the viewer has not confirmed it
)

// A fifo is a list from whose front things are taken.
type fifo[T any] struct {
	l  []T
	at int
}

func (f *fifo[T]) add(x T) { f.l = append(f.l, x) }

// first returns what comes first, or the zero value.
func (f *fifo[T]) first() (x T) {
	if f.at == len(f.l) {
		f.l, f.at = f.l[:0], 0
		return x
	}
	return f.l[f.at]
}

// drop removes what comes first.
func (f *fifo[T]) drop() {
	clear(f.l[f.at : f.at+1])
	f.at++
	if f.at >= 64 && 2*f.at >= len(f.l) {
		n := copy(f.l, f.l[f.at:])
		clear(f.l[n:])
		f.l, f.at = f.l[:n], 0
	}
}

// A queue is a list of objects, in which each is once: mark says so in Object.queued. An object may leave it early by losing the mark.
type queue struct {
	mark uint8
	fifo[*Object]
}

func (q *queue) push(o *Object) {
	if o.queued&q.mark == 0 && !o.gone {
		o.queued |= q.mark
		q.add(o)
	}
}

// peek returns what pop will return, or nil.
func (q *queue) peek() *Object {
	for {
		o := q.first()
		if o == nil || o.queued&q.mark != 0 && !o.gone {
			return o
		}
		q.drop()
	}
}

// pop returns the next object, or nil.
func (q *queue) pop() *Object {
	o := q.peek()
	if o != nil {
		o.queued &^= q.mark
		q.drop()
	}
	return o
}

func (q *queue) empty() bool { return q.peek() == nil }

// An item is what a packet says about an object. A blind one is a move that left before the viewer had confirmed that it knows the
// object: it may confirm the packet and ignore the move.
type item struct {
	o       *Object
	version uint64
	blind   bool
}

// A parcel is a packet with values that left. It is repeated by sending the newest values of those of its objects that the viewer has
// not confirmed, when it is due.
type parcel struct {
	token uint64 // 0 if it asked for no acknowledgement
	at    time.Time
	due   time.Time
	full  bool
	open  int // 1 while due, 1 while in Viewer.asked
	items []item
}

// A shelf is parcels in the order in which they are due.
type shelf = fifo[*parcel]

// A kill is a KillObject that left. It is repeated, which does no harm.
type kill struct {
	token uint64
	due   time.Time
	ids   []uint32
}

// A scene is the objects of the region, and what the viewer lacks of them.
type scene struct {
	showing bool // objects are sent
	objects map[uint32]*Object
	all     []*Object // in order, with some that are gone
	seen    int       // index in all up to which the scrub came
	last    uint32    // id
	full    queue
	moved   queue
	quiet   queue
	rushed  shelf // parcels that asked for nothing
	waiting shelf // those that asked for an acknowledgement
	asked   map[uint64]*parcel
	spare   []*parcel
	killed  []uint32 // ids that the viewer must forget
	killing []kill
	told    []uint32 // those that were states without a place
}

func newScene() scene {
	return scene{
		objects: map[uint32]*Object{}, asked: map[uint64]*parcel{},
		full: queue{mark: inFull}, moved: queue{mark: inMoved}, quiet: queue{mark: inQuiet},
	}
}

func (s *scene) add(state State) *Object {
	s.last++
	o := &Object{state: state, id: s.last, full: objectUUID(state.Key()), version: 1, textAt: 1}
	o.position, o.rotation = roles(state)
	o.player = o.placed() && isPlayer(state.Key())
	o.moved, o.turns = true, true
	s.objects[o.id] = o
	if len(s.all) >= 64 && len(s.all) >= 2*len(s.objects) {
		s.all = slices.DeleteFunc(s.all, func(o *Object) bool { return o.gone })
		s.seen = 0
	}
	s.all = append(s.all, o)
	if s.showing {
		s.full.push(o)
	}
	return o
}

// scrub has the next objects sent again that the viewer knows, whatever it confirmed: a packet that the network kept may have come after
// newer ones.
func (s *scene) scrub(n int) {
	for range min(n, len(s.all)) {
		if s.seen >= len(s.all) {
			s.seen = 0
		}
		if o := s.all[s.seen]; o.placed() && o.described > 0 {
			s.moved.push(o)
		}
		s.seen++
	}
}

// remove forgets an object. The viewer has to forget it, too, if it may know it.
func (s *scene) remove(o *Object) {
	o.gone = true
	delete(s.objects, o.id)
	if o.sentFull > 0 {
		s.forget(o)
	}
}

// forget has the viewer told that an object is gone.
func (s *scene) forget(o *Object) {
	if o.placed() {
		s.killed = append(s.killed, o.id)
	} else {
		s.told = append(s.told, o.id)
	}
}

// changed notes which values changed.
func (s *scene) changed(o *Object, indices []int) {
	moved, other := false, false
	for _, i := range indices {
		switch i {
		case o.position:
			moved, o.moved = true, true
		case o.rotation:
			moved, o.turns = true, true
		default:
			other = true
		}
	}
	if !moved && !other {
		return
	}
	o.version++
	if other || !o.placed() {
		o.textAt = o.version
	}
	switch {
	case !s.showing:
	case o.textAt == o.version:
		s.full.push(o)
	default:
		s.moved.push(o)
	}
}

// everything begins to send objects, all of them as new ones.
func (s *scene) everything() {
	s.showing = true
	for _, o := range s.all {
		s.full.push(o)
	}
}

// parcel returns an empty one.
func (s *scene) parcel() *parcel {
	if n := len(s.spare); n > 0 {
		p := s.spare[n-1]
		s.spare = s.spare[:n-1]
		return p
	}
	return &parcel{}
}

// spareMax is how many parcels a scene keeps.
const spareMax = 64

func (s *scene) release(p *parcel) {
	if p.open--; p.open > 0 {
		return
	}
	clear(p.items)
	*p = parcel{items: p.items[:0]}
	if len(s.spare) < spareMax {
		s.spare = append(s.spare, p)
	}
}

// leave notes that a parcel left.
func (s *scene) leave(p *parcel) {
	for _, it := range p.items {
		if p.full {
			it.o.sentFull = it.version
		}
	}
	p.open = 1
	if p.token == 0 {
		s.rushed.add(p)
		return
	}
	p.open++
	s.asked[p.token] = p
	s.waiting.add(p)
}

// due has everything sent again that the viewer has not confirmed in time. It reports whether an acknowledgement is late.
func (s *scene) due(now time.Time) (late bool) {
	s.unkilled(now)
	for _, shelf := range []*shelf{&s.rushed, &s.waiting} {
		for p := shelf.first(); p != nil && !p.due.After(now); p = shelf.first() {
			shelf.drop()
			late = late || s.asked[p.token] == p
			for _, it := range p.items {
				s.again(it.o, it.version, p.full)
			}
			s.release(p)
		}
	}
	return late
}

// unkilled has the ids sent again for which the viewer did not confirm in time that it forgot them.
func (s *scene) unkilled(now time.Time) {
	s.killing = slices.DeleteFunc(s.killing, func(k kill) bool {
		late := !k.due.After(now)
		if late {
			s.killed = append(s.killed, k.ids...)
		}
		return late
	})
}

// buried notes that the viewer confirmed a KillObject.
func (s *scene) buried(token uint64) bool {
	n := len(s.killing)
	s.killing = slices.DeleteFunc(s.killing, func(k kill) bool { return k.token == token })
	return len(s.killing) < n
}

// again has an object sent again that left with this version, unless it is confirmed, or a newer version has left or will.
func (s *scene) again(o *Object, version uint64, full bool) {
	switch {
	case full && o.described < o.textAt && o.sentFull == version:
		s.full.push(o)
	case o.version == version && o.confirmed < version && o.described >= o.textAt && o.queued == 0:
		s.quiet.push(o)
	}
}

// outcome notes whether the parcel with a token arrived, as far as the viewer says. It returns when the parcel left.
func (s *scene) outcome(token uint64, arrived bool) (left time.Time, ok bool) {
	p := s.asked[token]
	if p == nil {
		return left, false
	}
	delete(s.asked, token)
	for _, it := range p.items {
		switch o := it.o; {
		case o.gone && p.full: // it may have come after the viewer was told that the object is gone
			s.forget(o)
		case arrived && !o.gone:
			s.arrived(it, p.full)
		}
	}
	left = p.at
	s.release(p)
	return left, true
}

func (s *scene) arrived(it item, full bool) {
	o := it.o
	if full || !it.blind {
		o.confirmed = max(o.confirmed, it.version)
	}
	if !full {
		return
	}
	o.described = max(o.described, it.version)
	if o.confirmed < o.version && o.described >= o.textAt && o.queued == 0 {
		s.quiet.push(o) // it moved before the viewer knew it
	}
}

// next returns when due has something to do.
func (s *scene) next() (at time.Time, ok bool) {
	for _, shelf := range []*shelf{&s.rushed, &s.waiting} {
		if p := shelf.first(); p != nil && (!ok || p.due.Before(at)) {
			at, ok = p.due, true
		}
	}
	for _, k := range s.killing {
		if !ok || k.due.Before(at) {
			at, ok = k.due, true
		}
	}
	return at, ok
}

// idle reports whether there is nothing to send.
func (s *scene) idle() bool {
	return s.full.empty() && s.moved.empty() && s.quiet.empty() && len(s.killed) == 0 && len(s.told) == 0
}
