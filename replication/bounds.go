package replication

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"math"

	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/x448/float16"
)

// The range of Bounds.Rate.
const (
	WriteRateMin = 0.01
	WriteRateMax = 1_000
)

// Bounds limit what clients may write into a value. They do not limit game servers: a value may
// be outside of its bounds until a client writes it.
//
// Numbers must be finite unless Infinite is set, also in a value without Bounds.
type Bounds struct {
	Min, Max []byte  // of every component, encoded as one component; nil for none
	Infinite bool    // clients may write NaN and infinities
	Rate     float64 // writes a second by one session, in bursts of a second's worth and at least one; 0 for no limit
}

// A Refusal is the bound that a value of a client broke.
type Refusal uint8

const (
	refusedNot    Refusal = iota // the value is allowed
	RefusedMin                   // a component is below Min
	RefusedMax                   // a component is above Max
	RefusedFinite                // a component is NaN or infinite
	RefusedRate                  // the session writes the value too often
	refusals
)

// refusalTexts are the name of each bound in payloads, the code of the refused event, and what the client is told.
var refusalTexts = [refusals]struct {
	name   string
	event  Code
	client wire.RefusalCode
}{
	RefusedMin: {"min", CodeOutOfRange, wire.RefusedBounds}, RefusedMax: {"max", CodeOutOfRange, wire.RefusedBounds},
	RefusedFinite: {"finite", CodeOutOfRange, wire.RefusedBounds}, RefusedRate: {"rate", CodeTooOften, wire.RefusedRate},
}

// String returns the name of the bound in payloads.
func (r Refusal) String() string { return refusalTexts[r].name }

// Code returns the code of the refused event.
func (r Refusal) Code() Code { return refusalTexts[r].event }

// refuses reports which bound an encoded value of type t breaks, except for the rate. b may be
// nil.
func (b *Bounds) refuses(t wire.ValueType, enc []byte) Refusal {
	kind, width := t.Kind(), t.Width()
	if kind == wire.KindString || kind == wire.KindData {
		return refusedNot
	}
	for ; len(enc) > 0; enc = enc[width:] {
		c := enc[:width]
		switch {
		case kind == wire.KindFloat && (b == nil || !b.Infinite) && !finite(c):
			return RefusedFinite
		case b == nil:
		case b.Min != nil && !atLeast(kind, c, b.Min):
			return RefusedMin
		case b.Max != nil && !atLeast(kind, b.Max, c):
			return RefusedMax
		}
	}
	return refusedNot
}

func finite(c []byte) bool {
	x := Float(c)
	return !math.IsNaN(x) && !math.IsInf(x, 0)
}

// atLeast reports whether component a is b or more. A NaN is not.
func atLeast(kind wire.Kind, a, b []byte) bool {
	switch kind {
	case wire.KindFloat:
		return Float(a) >= Float(b)
	case wire.KindSint:
		return Int(a) >= Int(b)
	}
	return Uint(a) >= Uint(b)
}

// Check reports what is wrong with the bounds of a value of type t. The type must be valid.
func (b *Bounds) Check(t wire.ValueType) *Error {
	if b == nil {
		return nil
	}
	kind := t.Kind()
	if number := kind != wire.KindString && kind != wire.KindData; !number && (b.Min != nil || b.Max != nil) {
		return Errorf(CodeTypeMismatch, "min and max are for numbers, not for %v", t)
	}
	for _, c := range [][]byte{b.Min, b.Max} {
		if c != nil && (len(c) != t.Width() || kind == wire.KindFloat && !finite(c)) {
			return Errorf(CodeTypeMismatch, "min and max are one component of %v", t)
		}
	}
	switch {
	case b.Infinite && kind != wire.KindFloat:
		return Errorf(CodeTypeMismatch, "finite is for floating point numbers, not for %v", t)
	case b.Min != nil && b.Max != nil && !atLeast(kind, b.Max, b.Min):
		return Errorf(CodeOutOfRange, "min is above max")
	case b.Rate != 0 && !(b.Rate >= WriteRateMin && b.Rate <= WriteRateMax):
		return Errorf(CodeOutOfRange, "rate %v: want %v to %v writes a second", b.Rate, WriteRateMin, WriteRateMax)
	}
	return nil
}

// clone returns a copy that shares no bytes with b, or nil if b limits nothing.
func (b *Bounds) clone() *Bounds {
	if b.none() {
		return nil
	}
	c := *b
	c.Min, c.Max = bytes.Clone(b.Min), bytes.Clone(b.Max)
	return &c
}

func (b *Bounds) none() bool { return b == nil || b.flags() == 0 }

// Flags of bounds in a description.
const (
	boundsMin = 1 << iota
	boundsMax
	boundsInfinite
	boundsRate
	boundsFlags = 1<<iota - 1
)

func (b *Bounds) flags() (flags byte) {
	for i, given := range [...]bool{b.Min != nil, b.Max != nil, b.Infinite, b.Rate != 0} {
		if given {
			flags |= 1 << i
		}
	}
	return flags
}

// appendBounds appends the bounds of the values that have some:
//
//	count   uint16
//	entries count × {index uint16, ascending; flags uint8 (1 min, 2 max, 4 infinite, 8 rate), not 0;
//	        min, max one component each, rate float64, each if its flag is set}
func appendBounds(b []byte, defs []ValueDef) []byte {
	start, n := len(b), 0
	b = append(b, 0, 0)
	for i := range defs {
		x := defs[i].Bounds
		if x.none() {
			continue
		}
		n++
		b = binary.LittleEndian.AppendUint16(b, uint16(i))
		b = append(b, x.flags())
		b = append(append(b, x.Min...), x.Max...)
		if x.Rate != 0 {
			b = binary.LittleEndian.AppendUint64(b, math.Float64bits(x.Rate))
		}
	}
	binary.LittleEndian.PutUint16(b[start:], uint16(n))
	return b
}

// readBounds reads bounds into defs, whose types must be valid. It refuses entries that
// appendBounds would not write.
func readBounds(r *wire.Reader, defs []ValueDef) error {
	next := 0
	for range readCount(r, 3) {
		i, flags := int(r.Uint16()), r.Uint8()
		if r.Err() != nil || i < next || i >= len(defs) || flags == 0 || flags > boundsFlags {
			return errMessage
		}
		d := &defs[i]
		next, d.Bounds = i+1, &Bounds{Infinite: flags&boundsInfinite != 0}
		if flags&(boundsMin|boundsMax) != 0 && d.Type.Variable() {
			return errMessage
		}
		if flags&boundsMin != 0 {
			d.Bounds.Min = bytes.Clone(r.Bytes(d.Type.Width()))
		}
		if flags&boundsMax != 0 {
			d.Bounds.Max = bytes.Clone(r.Bytes(d.Type.Width()))
		}
		if flags&boundsRate != 0 {
			d.Bounds.Rate = cmp.Or(readFloat(r), -1)
		}
		if r.Err() != nil || d.Bounds.Check(d.Type) != nil {
			return errMessage
		}
	}
	return nil
}

// bounded reports whether any value has bounds.
func bounded(defs []ValueDef) bool {
	for i := range defs {
		if !defs[i].Bounds.none() {
			return true
		}
	}
	return false
}

// within reports whether every component of the encoded value b is at most precision away from
// that of a. Only floating point types have a precision. A NaN is never within, so that it is
// always emitted.
func within(t wire.ValueType, precision float64, a, b []byte) bool {
	if t.Kind() != wire.KindFloat || !(precision > 0) {
		return false
	}
	width := t.Width()
	for i := 0; i < len(a); i += width {
		if d := math.Abs(Float(a[i:i+width]) - Float(b[i:i+width])); !(d <= precision) {
			return false
		}
	}
	return true
}

// Float returns the value of an encoded component of a floating point type.
func Float(c []byte) float64 {
	switch len(c) {
	case 2:
		return float64(float16.Frombits(binary.LittleEndian.Uint16(c)).Float32())
	case 4:
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(c)))
	}
	return math.Float64frombits(binary.LittleEndian.Uint64(c))
}

// Uint returns the value of an encoded component of an unsigned integer type.
func Uint(c []byte) (u uint64) {
	for i, x := range c {
		u |= uint64(x) << (8 * i)
	}
	return u
}

// Int returns the value of an encoded component of a signed integer type.
func Int(c []byte) int64 {
	shift := 64 - 8*len(c)
	return int64(Uint(c)<<shift) >> shift
}
