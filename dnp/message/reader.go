package message

import (
	"encoding/binary"
	"math"
)

// A Reader reads a message. The first failure sticks: later reads return zero values, and Err and Done report
// it, so a program reads all values and checks once.
type Reader struct {
	p   []byte
	err error
}

// NewReader returns a Reader of p, which the Reader does not change.
func NewReader(p []byte) Reader { return Reader{p: p} }

// Err returns the first failure.
func (r *Reader) Err() error { return r.err }

// Rest returns what was not read.
func (r *Reader) Rest() []byte { return r.p }

// Done returns the first failure, or ErrTrailing if not everything was read.
func (r *Reader) Done() error {
	if r.err == nil && len(r.p) > 0 {
		return ErrTrailing
	}
	return r.err
}

func (r *Reader) fail(err error) {
	if r.err == nil {
		r.err = err
	}
	r.p = nil
}

// take reads n bytes, which alias the message; nil if there are fewer.
func (r *Reader) take(n int) []byte {
	if r.err != nil || n > len(r.p) {
		r.fail(ErrTruncated)
		return nil
	}
	p := r.p[:n:n]
	r.p = r.p[n:]
	return p
}

// bits reads an integer of n bytes.
func (r *Reader) bits(n int) uint64 {
	var all [8]byte
	copy(all[:], r.take(n))
	return binary.LittleEndian.Uint64(all[:])
}

// Char reads a signed integer of 8 bits.
func (r *Reader) Char() int8 { return int8(r.bits(1)) }

// Byte reads an unsigned integer of 8 bits.
func (r *Reader) Byte() uint8 { return uint8(r.bits(1)) }

// Short reads a signed integer of 16 bits.
func (r *Reader) Short() int16 { return int16(r.bits(2)) }

// UShort reads an unsigned integer of 16 bits.
func (r *Reader) UShort() uint16 { return uint16(r.bits(2)) }

// Int reads a signed integer of 32 bits.
func (r *Reader) Int() int32 { return int32(r.bits(4)) }

// UInt reads an unsigned integer of 32 bits.
func (r *Reader) UInt() uint32 { return uint32(r.bits(4)) }

// Long reads a signed integer of 64 bits.
func (r *Reader) Long() int64 { return int64(r.bits(8)) }

// ULong reads an unsigned integer of 64 bits.
func (r *Reader) ULong() uint64 { return r.bits(8) }

// Float reads a number of 32 bits.
func (r *Reader) Float() float32 { return math.Float32frombits(r.UInt()) }

// Double reads a number of 64 bits.
func (r *Reader) Double() float64 { return math.Float64frombits(r.ULong()) }

// String8 reads a text of at most 255 bytes, which need not be valid UTF-8.
func (r *Reader) String8() string { return string(r.take(int(r.Byte()))) }

// String16 reads a text of at most 65,535 bytes, which need not be valid UTF-8.
func (r *Reader) String16() string { return string(r.take(int(r.UShort()))) }

// Vector reads x, y and z.
func (r *Reader) Vector() (v [3]float32) { r.floats(v[:]); return v }

// Vector2 reads x and y.
func (r *Reader) Vector2() (v [2]float32) { r.floats(v[:]); return v }

// Quaternion reads x, y, z and w.
func (r *Reader) Quaternion() (v [4]float32) { r.floats(v[:]); return v }

// Point reads x and y.
func (r *Reader) Point() (v [2]int32) { r.ints(v[:]); return v }

// Point3 reads x, y and z.
func (r *Reader) Point3() (v [3]int32) { r.ints(v[:]); return v }

// DVector reads x, y and z.
func (r *Reader) DVector() (v [3]float64) {
	for i := range v {
		v[i] = r.Double()
	}
	return v
}

// Color reads red, green, blue and alpha.
func (r *Reader) Color() (v [4]float32) { r.floats(v[:]); return v }

// Color3 reads red, green and blue.
func (r *Reader) Color3() (v [3]float32) { r.floats(v[:]); return v }

func (r *Reader) floats(v []float32) {
	for i := range v {
		v[i] = r.Float()
	}
}

func (r *Reader) ints(v []int32) {
	for i := range v {
		v[i] = r.Int()
	}
}
