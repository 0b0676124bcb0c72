package protocol

import (
	"encoding/binary"
	"math"

	"github.com/dnprelay/dnprelay/godot/variant"
)

// DatagramMax is the longest datagram that an edge sends, in bytes.
const DatagramMax = 1200

// A Frame is a datagram: an Array of
//
//	cookie   PackedByteArray, or null before the edge gave one
//	ack      int, the number of the last numbered message that arrived with all before it; 0 for none
//	number   int, of the first message, if it is above 0: the others count on. Messages with a number arrive in order, and
//	         are repeated until the other side acknowledges them. If it is 0 or below, the messages have no numbers. Then
//	         -1, -2, … count the datagrams, so that one that another overtook is known
//	messages any number of them
type Frame struct {
	Dialect     variant.Dialect
	Cookie      []byte // nil for null
	Ack, Number int64
	Size        int // of the datagram
	messages    variant.Cursor
}

// arrays has the header of an Array in each dialect. They differ, so the first datagram of a peer tells its dialect.
var arrays = [...]struct {
	header  uint32
	dialect variant.Dialect
}{{21, variant.Godot2}, {19, variant.Godot3}, {28, variant.Godot4}}

// ParseFrame parses a datagram. The Frame refers to its bytes.
func ParseFrame(p []byte) (f Frame, ok bool) {
	if len(p) < 4 {
		return f, false
	}
	for _, a := range arrays {
		if binary.LittleEndian.Uint32(p) == a.header {
			f.Dialect = a.dialect
		}
	}
	if !f.Dialect.Valid() {
		return f, false
	}
	v, err := variant.Decode(f.Dialect, p)
	if err != nil || v.Len() < 3 {
		return f, false
	}
	c := v.Elements()
	c.Next()
	switch cookie := c.Value(); cookie.Type() {
	case variant.PackedByteArray:
		f.Cookie = cookie.Bytes()
	case variant.Nil:
	default:
		return f, false
	}
	f.Size = len(p)
	if f.Ack, ok = parseNumber(&c); !ok || f.Ack < 0 {
		return f, false
	}
	f.Number, ok = parseNumber(&c)
	f.messages = c
	return f, ok
}

// numberMax is the largest number of a message: Godot 2 has no larger int. A session that gets so far ends.
const numberMax = math.MaxInt32

func parseNumber(c *variant.Cursor) (int64, bool) {
	if !c.Next() || c.Value().Type() != variant.Int {
		return 0, false
	}
	n := c.Value().Integer(0)
	return n, n >= -numberMax && n <= numberMax
}

// Begins reports whether a Frame is the first of a session.
func (f *Frame) Begins() bool {
	c := f.messages
	if f.Number != 1 || !c.Next() {
		return false
	}
	m, ok := parseCall(c.Value())
	return ok && m.name == "hello" && m.wants(variant.Dictionary)
}

// Challenge appends the datagram that gives a peer a cookie: it has no messages, and is shorter than every Frame that Begins.
func Challenge(b []byte, d variant.Dialect, k Cookie) []byte {
	w := newFrame(b, d, &k, 0, 0)
	return w.done()
}

// frameOverhead is how many bytes a datagram takes besides its messages.
const frameOverhead = 8 + 8 + CookieSize + 8 + 8

// A frameWriter writes a datagram.
type frameWriter struct {
	b     []byte
	start int
	n     uint32 // elements
}

func newFrame(b []byte, d variant.Dialect, k *Cookie, ack, number int64) frameWriter {
	f := frameWriter{start: len(b), n: 3}
	w := variant.NewWriter(d, b)
	w.Begin(variant.Array)
	w.Data(k[:])
	w.Int(ack)
	w.Int(number)
	f.b = w.Bytes()
	return f
}

// add adds an encoded message. A Variant has the same bytes wherever it is.
func (f *frameWriter) add(p []byte) {
	f.b = append(f.b, p...)
	f.n++
}

// room returns how many bytes more fit.
func (f *frameWriter) room() int { return DatagramMax - (len(f.b) - f.start) }

func (f *frameWriter) empty() bool { return f.n == 3 }

func (f *frameWriter) done() []byte {
	binary.LittleEndian.PutUint32(f.b[f.start+4:], f.n)
	return f.b
}
