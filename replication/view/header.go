package view

import "encoding/binary"

// BatchMax is the most bytes of a batch.
const BatchMax = 256 << 10

// TraceSize is the size of a trace block: version, trace id, span id, flags.
const TraceSize = 1 + 16 + 8 + 1

const version = 1

// Flags describe a batch.
type Flags uint8

const (
	FlagTrace     Flags = 1 // a trace block follows the positions
	FlagReply     Flags = 2 // a part of the answer to a repair request; the part number follows
	FlagLast      Flags = 4 // no part with a higher number follows
	FlagKeyframes Flags = 8 // the parts are keyframes, true at (epoch, seq), not batches
)

const flagsKnown = FlagTrace | FlagReply | FlagLast | FlagKeyframes

// A Header begins every batch:
//
//	version uint8 = 1
//	flags   uint8
//	epoch   uint64
//	seq     uint64
//	prev    uint64   of keyframes: CRC-32 of the request that they answer
//	trace   26 bytes if FlagTrace
//	part    uint16   if FlagReply
type Header struct {
	Flags Flags
	Epoch uint64
	Seq   uint64
	Prev  uint64
	Trace []byte
	Part  uint16
}

// HeaderMax is the size of the largest header.
const HeaderMax = 2 + 3*8 + TraceSize + 2

// Append appends the header to b. Trace has TraceSize bytes if FlagTrace is set.
func (h Header) Append(b []byte) []byte {
	b = append(b, version, byte(h.Flags))
	b = binary.LittleEndian.AppendUint64(b, h.Epoch)
	b = binary.LittleEndian.AppendUint64(b, h.Seq)
	b = binary.LittleEndian.AppendUint64(b, h.Prev)
	if h.Flags&FlagTrace != 0 {
		b = append(b, h.Trace[:TraceSize]...)
	}
	if h.Flags&FlagReply != 0 {
		b = binary.LittleEndian.AppendUint16(b, h.Part)
	}
	return b
}

// Trace returns the trace block of a batch, or nil if it has none. The result aliases p, which
// need not be well-formed.
func Trace(p []byte) []byte {
	const at = 2 + 3*8
	if len(p) < at+TraceSize || Flags(p[1])&FlagTrace == 0 {
		return nil
	}
	return p[at : at+TraceSize : at+TraceSize]
}

// Parse reads a batch: its header, and the records behind it. A batch with an unknown
// flag is malformed, because the flag could move the records.
func Parse(p []byte) (h Header, records []byte, err error) {
	if len(p) < 26 || len(p) > BatchMax || p[0] != version {
		return h, nil, ErrMalformed
	}
	h.Flags = Flags(p[1])
	h.Epoch = binary.LittleEndian.Uint64(p[2:])
	h.Seq = binary.LittleEndian.Uint64(p[10:])
	h.Prev = binary.LittleEndian.Uint64(p[18:])
	p = p[26:]
	if h.Flags&^flagsKnown != 0 {
		return Header{}, nil, ErrMalformed
	}
	if h.Flags&FlagTrace != 0 {
		if len(p) < TraceSize {
			return Header{}, nil, ErrMalformed
		}
		h.Trace, p = p[:TraceSize:TraceSize], p[TraceSize:]
	}
	if h.Flags&FlagReply != 0 {
		if len(p) < 2 {
			return Header{}, nil, ErrMalformed
		}
		h.Part, p = binary.LittleEndian.Uint16(p), p[2:]
	}
	return h, p, nil
}
