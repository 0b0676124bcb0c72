package message

import (
	"encoding/binary"
	"math"
)

// A Writer writes a message. The zero Writer is ready. The first failure sticks, and Bytes reports it.
type Writer struct {
	b   []byte
	err error
}

// Bytes returns the message, which belongs to the caller until the Writer writes again.
func (w *Writer) Bytes() ([]byte, error) {
	switch {
	case w.err != nil:
		return nil, w.err
	case len(w.b) > SizeMax:
		return nil, ErrTooLarge
	}
	return w.b, nil
}

// Char writes a signed integer of 8 bits.
func (w *Writer) Char(v int8) { w.Byte(uint8(v)) }

// Byte writes an unsigned integer of 8 bits.
func (w *Writer) Byte(v uint8) { w.b = append(w.b, v) }

// Short writes a signed integer of 16 bits.
func (w *Writer) Short(v int16) { w.UShort(uint16(v)) }

// UShort writes an unsigned integer of 16 bits.
func (w *Writer) UShort(v uint16) { w.b = binary.LittleEndian.AppendUint16(w.b, v) }

// Int writes a signed integer of 32 bits.
func (w *Writer) Int(v int32) { w.UInt(uint32(v)) }

// UInt writes an unsigned integer of 32 bits.
func (w *Writer) UInt(v uint32) { w.b = binary.LittleEndian.AppendUint32(w.b, v) }

// Long writes a signed integer of 64 bits.
func (w *Writer) Long(v int64) { w.ULong(uint64(v)) }

// ULong writes an unsigned integer of 64 bits.
func (w *Writer) ULong(v uint64) { w.b = binary.LittleEndian.AppendUint64(w.b, v) }

// Float writes a number of 32 bits.
func (w *Writer) Float(v float32) { w.UInt(math.Float32bits(v)) }

// Double writes a number of 64 bits.
func (w *Writer) Double(v float64) { w.ULong(math.Float64bits(v)) }

// String8 writes a text of at most 255 bytes. The engine's own strings end at a zero byte.
func (w *Writer) String8(text string) { w.text(text, 1) }

// String16 writes a text of at most 65,535 bytes. The engine's own strings end at a zero byte.
func (w *Writer) String16(text string) { w.text(text, 2) }

// text writes a text behind its length, which has size bytes.
func (w *Writer) text(text string, size int) {
	switch {
	case w.err != nil:
	case len(text)>>(8*size) > 0:
		w.err = ErrTooLong
	case len(w.b) > SizeMax: // what is beyond need not be kept
		w.err = ErrTooLarge
	default:
		length := binary.LittleEndian.AppendUint16(nil, uint16(len(text)))
		w.b = append(append(w.b, length[:size]...), text...)
	}
}

// Vector writes x, y and z.
func (w *Writer) Vector(v [3]float32) { w.floats(v[:]) }

// Vector2 writes x and y.
func (w *Writer) Vector2(v [2]float32) { w.floats(v[:]) }

// Quaternion writes x, y, z and w.
func (w *Writer) Quaternion(v [4]float32) { w.floats(v[:]) }

// Point writes x and y.
func (w *Writer) Point(v [2]int32) { w.ints(v[:]) }

// Point3 writes x, y and z.
func (w *Writer) Point3(v [3]int32) { w.ints(v[:]) }

// DVector writes x, y and z.
func (w *Writer) DVector(v [3]float64) {
	for _, c := range v {
		w.Double(c)
	}
}

// Color writes red, green, blue and alpha.
func (w *Writer) Color(v [4]float32) { w.floats(v[:]) }

// Color3 writes red, green and blue.
func (w *Writer) Color3(v [3]float32) { w.floats(v[:]) }

func (w *Writer) floats(v []float32) {
	for _, c := range v {
		w.Float(c)
	}
}

func (w *Writer) ints(v []int32) {
	for _, c := range v {
		w.Int(c)
	}
}
