package variant

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"unicode/utf8"
)

// Bounds of decoded values. Later versions of Godot have a depth of 1,024; earlier ones have
// none, and a deep value overflows their stack.
const (
	DepthMax = 64       // containers inside each other
	SizeMax  = 16 << 20 // bytes of one value
)

// A scanner checks an encoded value. It is the only parser: to find an element in checked
// bytes, a quiet scanner reads them again. It allocates only the error, and the key hashes of a
// large dictionary, after the dictionary was read.
type scanner struct {
	d     Dialect
	p     []byte
	off   int
	quiet bool // no search for duplicate keys, no text of errors
	err   *Error
}

// errQuiet is the error of quiet scanners.
var errQuiet = new(Error)

// fail records an error of the value that begins at offset.
func (s *scanner) fail(offset int, format string, args ...any) {
	switch {
	case s.err != nil:
	case s.quiet:
		s.err = errQuiet
	default:
		s.err = &Error{Dialect: s.d, Offset: offset, Reason: fmt.Sprintf(format, args...)}
	}
}

// note adds a step to the path of an error.
func (s *scanner) note(step int) {
	if !s.quiet {
		s.err.note(step)
	}
}

func (s *scanner) left() int { return len(s.p) - s.off }

// uint32 reads the word that errors call what, of the value at start. After an error it returns
// 0.
func (s *scanner) uint32(start int, what string) uint32 {
	if s.err != nil {
		return 0
	}
	if s.left() < 4 {
		s.fail(start, "%s: needs 4 bytes, %d are left", what, s.left())
		return 0
	}
	u := binary.LittleEndian.Uint32(s.p[s.off:])
	s.off += 4
	return u
}

// skip skips n bytes.
func (s *scanner) skip(start int, n uint64, what string) {
	if s.err != nil {
		return
	}
	if n > uint64(s.left()) {
		s.fail(start, "%s: needs %d bytes, %d are left", what, n, s.left())
		return
	}
	s.off += int(n)
}

// padded skips n bytes and their padding to a multiple of four. Its content does not matter,
// because Godot leaves some of it uninitialised.
func (s *scanner) padded(start int, n uint64, what string) { s.skip(start, (n+3)&^3, what) }

// count reads the length of a list whose elements have at least size bytes, and refuses a
// length that the rest of the input cannot hold.
func (s *scanner) count(start, size int, mask uint32, what string) int {
	n := s.uint32(start, what) & mask
	if s.err == nil && uint64(n)*uint64(size) > uint64(s.left()) {
		s.fail(start, "%s: %d elements of at least %d bytes, but %d bytes are left", what, n, size, s.left())
		return 0
	}
	return int(n)
}

const (
	maskAll    = 1<<32 - 1
	maskShared = 1<<31 - 1 // in Godot 2, bit 31 of the count of a container marks it as shared
)

// text skips a length, UTF-8 and padding. A NUL ends the text early. It refuses a byte order
// mark: Godot drops one, so that a text with two would change at each reading.
func (s *scanner) text(start int, what string) {
	n := s.uint32(start, what)
	at := s.off
	s.padded(start, uint64(n), what)
	if s.err != nil {
		return
	}
	switch text := upToNUL(s.p[at : at+int(n)]); {
	case !utf8.Valid(text):
		s.fail(start, "%s: not UTF-8", what)
	case bytes.HasPrefix(text, byteOrderMark):
		s.fail(start, "%s: begins with a byte order mark", what)
	}
}

var byteOrderMark = []byte("\ufeff")

func upToNUL(p []byte) []byte {
	if i := bytes.IndexByte(p, 0); i >= 0 {
		return p[:i]
	}
	return p
}

// header reads a header.
func (s *scanner) header(start int) (t Type, h uint32) {
	if h = s.uint32(start, "header"); s.err != nil {
		return Nil, h
	}
	id := h & idMask
	if s.d == Godot2 {
		id = h // Godot 2 compares the whole word
	}
	t, ok := typeOf(s.d, id)
	switch {
	case !ok && s.d == Godot2 && h > idMask:
		s.fail(start, "header 0x%08x: godot2 has no flags, godot3 and godot4 have", h)
	case !ok:
		s.fail(start, "header 0x%08x: %v has no type %d", h, s.d, id)
	case h&flagWide != 0 && (types[t].wide == never || s.d < types[t].wide):
		// Godot ignores the flag here, but only another dialect writes it.
		s.fail(start, "header 0x%08x: %v has no 64 bit form in %v", h, t, s.d)
	}
	return t, h
}

// value skips one value inside of depth containers, and returns its type.
func (s *scanner) value(depth int) Type {
	start := s.off
	t, h := s.header(start)
	if s.err != nil {
		return t
	}
	row := &types[t]
	switch row.shape {
	case shapeFixed:
		s.skip(start, uint64(row.n*width(t, h)), row.name)
	case shapeText:
		s.text(start, row.name)
	case shapePacked:
		size := row.n * width(t, h)
		s.padded(start, uint64(s.count(start, size, maskAll, row.name)*size), row.name)
	case shapeTexts:
		for i := range s.count(start, 4, maskAll, row.name) {
			if s.text(start, row.name); s.err != nil {
				s.note(i)
				return t
			}
		}
	case shapeImage:
		s.skip(start, 16, row.name)
		s.padded(start, uint64(s.uint32(start, row.name)), row.name)
	case shapePath:
		s.path(start)
	case shapeRID:
		if s.d == Godot4 {
			s.skip(start, 8, row.name)
		}
	case shapeObject:
		s.object(start, h)
	case shapeEvent:
		s.event(start)
	case shapeSignal:
		s.text(start, row.name)
		s.skip(start, 8, row.name)
	case shapeArray, shapeDictionary:
		s.container(start, t, h, depth)
	}
	return t
}

// width returns the bytes of a component of t behind header h.
func width(t Type, h uint32) int {
	if h&flagWide != 0 {
		return 8
	}
	return types[t].width
}

// object skips the id of an object. It refuses a whole object, which names a class or script
// that the reader would have to instantiate.
func (s *scanner) object(start int, h uint32) {
	switch {
	case s.d == Godot2: // "unsupported": always null
	case h&flagWide == 0:
		s.fail(start, "a whole Object: only the id of an object is accepted, because a decoder would have to run what the object says")
	default:
		s.skip(start, 8, "Object")
	}
}

// event skips an input event of Godot 2 by its length, which counts from its type. The body
// differs between versions.
func (s *scanner) event(start int) {
	s.skip(start, 8, "InputEvent")
	n := s.uint32(start, "InputEvent")
	const head = 12
	if s.err == nil && (n < head || n%4 != 0) {
		s.fail(start, "InputEvent: a length of %d, want a multiple of 4 from %d on", n, head)
	}
	s.skip(start, uint64(n)-head, "InputEvent")
}

// An elementType is the type of the elements in a typed container of Godot 4.4.
type elementType struct {
	t     Type
	typed bool
}

// accepts reports whether the container may hold an element of type t. An object may be null.
func (e elementType) accepts(t Type) bool {
	return !e.typed || t == e.t || e.t == Object && t == Nil
}

// elements skips the record of the element type, which precedes the count.
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

// element skips a value of a container.
func (s *scanner) element(e elementType, depth int) {
	start := s.off
	if t := s.value(depth); s.err == nil && !e.accepts(t) {
		s.fail(start, "%v in a container of %v", t, e.t)
	}
}

// container skips the elements of an array or the pairs of a dictionary.
func (s *scanner) container(start int, t Type, h uint32, depth int) {
	if depth >= DepthMax {
		s.fail(start, "more than %d containers inside each other", DepthMax)
		return
	}
	var keys elementType
	values, size := s.elements(start, kind(s.d, h, kindShift)), 4
	if t == Dictionary {
		keys, values, size = values, s.elements(start, kind(s.d, h, kindValueShift)), 8
	}
	n := s.count(start, size, maskShared, types[t].name)
	first := s.off
	for i := range n {
		step := i
		if t == Dictionary {
			step = ^s.off
			if s.element(keys, depth+1); s.err != nil {
				s.note(i)
				return
			}
		}
		if s.element(values, depth+1); s.err != nil {
			s.note(step)
			return
		}
	}
	if t == Dictionary && s.err == nil && !s.quiet {
		s.unique(start, first, n)
	}
}

// kind returns the bits of a header about element types.
func kind(d Dialect, h uint32, shift int) uint32 {
	if d < Godot4 {
		return kindAny
	}
	return h >> shift & kindMask
}

// unique refuses a dictionary with a repeated key, of which Godot would silently take the last.
// The n pairs at first were read, and a pair has at least eight bytes, so that the hashes of
// all dictionaries of an input are together not larger than the input.
//
// Two keys are equal if their canonical bytes have the same 64 bit hash. A dictionary of a
// thousand keys is refused by mistake once in 10¹³ times.
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

// path skips a node path.
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

// oldPath skips a path that is one text. No engine writes it. Godot 2 reads it but ignores its
// padding, and then misreads what follows.
func (s *scanner) oldPath(start int) {
	if s.d != Godot2 {
		s.fail(start, "NodePath: the form with one text is of godot2, %v does not have it", s.d)
		return
	}
	s.off -= 4
	s.text(start, "NodePath")
}

// valueAt returns the value at the beginning of checked bytes.
func valueAt(d Dialect, p []byte) Value {
	s := scanner{d: d, p: p, quiet: true}
	if s.value(0); s.err != nil {
		panic("variant: checked bytes do not begin with a value")
	}
	return Value{d, p[:s.off:s.off]}
}

func word(p []byte, at int) uint32 { return binary.LittleEndian.Uint32(p[at:]) }
