package variant

import (
	"encoding/binary"
	"slices"
)

// An elementType is what a typed container of Godot 4.4 holds.
type elementType struct {
	t     Type
	typed bool
}

// accepts reports whether an element of type t belongs. An object may be null.
func (e elementType) accepts(t Type) bool {
	return !e.typed || t == e.t || e.t == Object && t == Nil
}

// elements passes the record that says what the elements are, which comes before
// the count.
func (s *scanner) elements(start int, kind uint32) (e elementType) {
	switch kind {
	case kindBuiltin:
		id := s.uint32(start, "element type")
		t, ok := typeOf(s.d, id)
		if s.err == nil && !ok {
			s.fail(start, "element type: %v has no type %d", s.d, id)
		}
		return elementType{t, t != Nil}
	case kindClass, kindScript:
		s.text(start, "class of the elements")
		return elementType{Object, true}
	}
	return e
}

// element passes a value of a container.
func (s *scanner) element(e elementType, depth int) {
	start := s.off
	if t := s.value(depth); s.err == nil && !e.accepts(t) {
		s.fail(start, "%v in a container of %v", t, e.t)
	}
}

func (s *scanner) array(start int, h uint32, depth int) {
	if s.tooDeep(start, depth) {
		return
	}
	e := s.elements(start, kind(s.d, h, kindShift))
	for i := range s.count(start, 4, maskShared, "Array") {
		if s.element(e, depth+1); s.err != nil {
			s.note(i)
			return
		}
	}
}

func (s *scanner) dictionary(start int, h uint32, depth int) {
	if s.tooDeep(start, depth) {
		return
	}
	keys := s.elements(start, kind(s.d, h, kindShift))
	values := s.elements(start, kind(s.d, h, kindValueShift))
	n := s.count(start, 8, maskShared, "Dictionary")
	first := s.off
	for i := range n {
		key := s.off
		if s.element(keys, depth+1); s.err != nil {
			s.note(i)
			return
		}
		if s.element(values, depth+1); s.err != nil {
			s.note(^key)
			return
		}
	}
	if s.err == nil && !s.quiet {
		s.unique(start, first, n)
	}
}

func (s *scanner) tooDeep(start, depth int) bool {
	if depth >= DepthMax {
		s.fail(start, "more than %d containers inside each other", DepthMax)
	}
	return s.err != nil
}

// kind returns what a header says about elements.
func kind(d Dialect, h uint32, shift int) uint32 {
	if d < Godot4 {
		return kindAny
	}
	return h >> shift & kindMask
}

// unique refuses a dictionary that gives a key twice. Godot takes the last one, in
// silence. The n pairs at first are known to be there, and a pair has at least
// eight bytes, so that the sums of all dictionaries of an input are not larger
// than the input.
//
// Two keys are the same if their canonical bytes have the same sum of 64 bits. A
// dictionary of a thousand keys is refused for nothing once in 10¹³ times.
func (s *scanner) unique(start, first, n int) {
	if n < 2 {
		return
	}
	var few [32]uint64
	sums := few[:0]
	if n > len(few) {
		sums = make([]uint64, 0, n)
	}
	for rest, i := s.p[first:s.off], 0; i < n; i++ {
		key := valueAt(s.d, rest)
		sums = append(sums, key.sum())
		rest = rest[len(key.p):]
		rest = rest[len(valueAt(s.d, rest).p):]
	}
	slices.Sort(sums)
	for i := range sums[1:] {
		if sums[i] == sums[i+1] {
			s.fail(start, "Dictionary: a key is given twice")
			return
		}
	}
}

// path passes a node path.
func (s *scanner) path(start int) {
	const what = "NodePath"
	names := s.uint32(start, what)
	if s.err == nil && names&pathNew == 0 {
		s.oldPath(start)
		return
	}
	subnames := s.uint32(start, what)
	flags := s.uint32(start, what)
	n := uint64(names&^pathNew) + uint64(subnames)
	if flags&pathProperty != 0 {
		n++
	}
	if s.err == nil && n*4 > uint64(s.left()) {
		s.fail(start, "NodePath: %d names, but %d bytes are left", n, s.left())
	}
	for i := uint64(0); i < n && s.err == nil; i++ {
		s.text(start, what)
	}
}

// oldPath passes a path that is one text. Godot 2 reads it, and forgets the
// padding, so that it reads nonsense behind it; nobody writes it.
func (s *scanner) oldPath(start int) {
	if s.d != Godot2 {
		s.fail(start, "NodePath: the form with one text is of godot2, %v does not have it", s.d)
		return
	}
	s.off -= 4
	s.text(start, "NodePath")
}

// valueAt returns the value at the beginning of p, which is known to be one.
func valueAt(d Dialect, p []byte) Value {
	s := scanner{d: d, p: p, quiet: true}
	if s.value(0); s.err != nil {
		panic("variant: a checked value is none")
	}
	return Value{d, p[:s.off:s.off]}
}

func word(p []byte, at int) uint32 { return binary.LittleEndian.Uint32(p[at:]) }
