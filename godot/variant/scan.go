package variant

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"unicode/utf8"
)

// Bounds of what is decoded. Godot has a depth of 1,024 in later versions and
// none in earlier ones, where a deep value overflows the stack.
const (
	DepthMax = 64       // containers inside each other
	SizeMax  = 16 << 20 // bytes of one value
)

// A scanner walks over an encoded value and finds what is wrong with it. It is the
// only parser: what is checked once is walked again, quietly, where an element
// begins has to be found. It allocates nothing but the error, and the sums of the
// keys of a large dictionary once it knows that they exist.
type scanner struct {
	d     Dialect
	p     []byte
	off   int
	quiet bool // no duplicates, no words about errors
	err   *Error
}

// errQuiet is the error of quiet scanners.
var errQuiet = new(Error)

// fail reports what is wrong with the value that begins at offset.
func (s *scanner) fail(offset int, format string, args ...any) {
	switch {
	case s.err != nil:
	case s.quiet:
		s.err = errQuiet
	default:
		s.err = &Error{Dialect: s.d, Offset: offset, Reason: fmt.Sprintf(format, args...)}
	}
}

// note tells an error where in its container it happened.
func (s *scanner) note(step int) {
	if !s.quiet {
		s.err.note(step)
	}
}

func (s *scanner) left() int { return len(s.p) - s.off }

// uint32 reads the word called what of the value at start. After an error it is 0.
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

// skip passes n bytes.
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

// padded passes n bytes and what fills them up to a multiple of four. What that
// is does not matter: Godot leaves it uninitialised in places.
func (s *scanner) padded(start int, n uint64, what string) { s.skip(start, (n+3)&^3, what) }

// count reads the length of a list whose elements have at least size bytes, and
// refuses one that the rest of the input cannot hold.
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
	maskShared = 1<<31 - 1 // bit 31 of a container's count says that Godot 2 shared it
)

// text passes a length, UTF-8 and padding. A NUL ends the text early. Godot
// swallows a byte order mark, so that a text with two would change each time.
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

// header reads a header and says what it announces.
func (s *scanner) header(start int) (t Type, h uint32) {
	if h = s.uint32(start, "header"); s.err != nil {
		return Nil, h
	}
	id := h & idMask
	if s.d == Godot2 {
		id = h // the whole word is compared
	}
	t, ok := typeOf(s.d, id)
	switch {
	case !ok && s.d == Godot2 && h > idMask:
		s.fail(start, "header 0x%08x: godot2 has no flags, godot3 and godot4 have", h)
	case !ok:
		s.fail(start, "header 0x%08x: %v has no type %d", h, s.d, id)
	case h&flagWide != 0 && (types[t].wide == never || s.d < types[t].wide):
		// Godot ignores the flag here, but it only comes from another dialect, or from nowhere.
		s.fail(start, "header 0x%08x: %v has no 64 bit form in %v", h, t, s.d)
	}
	return t, h
}

// value passes one value, inside of depth containers, and returns its type.
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
	case shapeArray:
		s.array(start, h, depth)
	case shapeDictionary:
		s.dictionary(start, h, depth)
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

// object passes the id of an object. A whole object names a class or script that
// the reader would have to make: it is refused, whatever it is.
func (s *scanner) object(start int, h uint32) {
	switch {
	case s.d == Godot2: // "unsupported": always null
	case h&flagWide == 0:
		s.fail(start, "a whole Object: only the id of an object is accepted, because a decoder would have to run what the object says")
	default:
		s.skip(start, 8, "Object")
	}
}

// event passes an input event of Godot 2 by the length that it gives, which
// counts from its type. Its body differs between versions.
func (s *scanner) event(start int) {
	s.skip(start, 8, "InputEvent")
	n := s.uint32(start, "InputEvent")
	const head = 12
	if s.err == nil && (n < head || n%4 != 0) {
		s.fail(start, "InputEvent: a length of %d, want a multiple of 4 from %d on", n, head)
	}
	s.skip(start, uint64(n)-head, "InputEvent")
}
