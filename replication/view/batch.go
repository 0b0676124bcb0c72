package view

import (
	"encoding/binary"
	"errors"

	"github.com/dnprelay/dnprelay/dnp/wire"
)

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

	// Only replicas that asked for such an answer receive these.
	FlagStates Flags = 16 // the answer has the states that were asked for, true at (epoch, seq)
	FlagSums   Flags = 32 // the answer has sums of groups of states instead of records
)

const flagsKnown = FlagTrace | FlagReply | FlagLast | FlagKeyframes | FlagStates | FlagSums

// A Header begins every batch:
//
//	version uint8 = 1
//	flags   uint8
//	epoch   uint64
//	seq     uint64
//	prev    uint64   of keyframes, states and sums: CRC-32 of the request that they answer
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
	r := wire.NewReader(p)
	known := r.Uint8() == version
	h.Flags = Flags(r.Uint8())
	position := r.Bytes(3 * 8)
	if h.Flags&FlagTrace != 0 {
		h.Trace = r.Bytes(TraceSize)
	}
	if h.Flags&FlagReply != 0 {
		h.Part = r.Uint16()
	}
	if !known || h.Flags&^flagsKnown != 0 || r.Err() != nil || len(p) > BatchMax {
		return Header{}, nil, ErrMalformed
	}
	h.Epoch = binary.LittleEndian.Uint64(position)
	h.Seq = binary.LittleEndian.Uint64(position[8:])
	h.Prev = binary.LittleEndian.Uint64(position[16:])
	return h, r.Rest(), nil
}

// A MessageID says what a record does. 1 to 9 are those of the views protocol. There, ids from
// 16 on are a view's own commands, so the additional messages begin at 16.
type MessageID uint8

const (
	Update       MessageID = 1  // changed values
	Checksum     MessageID = 2  // uint32 CRC-32 of the keyframe
	Keyframe     MessageID = 3  // all values
	Remove       MessageID = 6  // of view 0: the state ends
	RefIDAssign  MessageID = 9  // uint16, addressed by EntityID
	Describe     MessageID = 16 // description of the state, on view 0
	DescribePart MessageID = 17 // bytes in front of the next Describe
	StoredAt     MessageID = 18 // position up to which a stored state is complete; only in the durable store
)

// A Record is one message to one view.
type Record struct {
	Ref     RefID
	Entity  EntityID // if Ref is NoRef
	Message MessageID
	Data    []byte
}

// Append appends the record to b. It must not be larger than SizeMax.
func (r Record) Append(b []byte) []byte {
	b, start := Begin(b, r.Ref, r.Entity, r.Message)
	return End(append(b, r.Data...), start)
}

// Begin appends the head of a record and returns where the record begins. The caller appends
// the data and then calls [End].
func Begin(b []byte, ref RefID, e EntityID, m MessageID) (_ []byte, start int) {
	start = len(b)
	b = binary.LittleEndian.AppendUint16(append(b, 0), uint16(ref))
	if ref == NoRef {
		b = binary.LittleEndian.AppendUint64(b, uint64(e))
	}
	return append(b, byte(m)), start
}

// End writes the size of the record that begins at start. A record of 128 bytes or more moves
// by one byte, so that its size is minimal.
func End(b []byte, start int) []byte {
	n := len(b) - start - 1
	if n < 0x80 {
		b[start] = byte(n)
		return b
	}
	b = append(b, 0)
	copy(b[start+2:], b[start+1:len(b)-1])
	AppendSize(b[:start], n)
	return b
}

// AppendAssign appends the record that binds ref to a view.
func AppendAssign(b []byte, e EntityID, ref RefID) []byte {
	b, start := Begin(b, NoRef, e, RefIDAssign)
	return End(binary.LittleEndian.AppendUint16(b, uint16(ref)), start)
}

// AppendChecksum appends a checksum record.
func AppendChecksum(b []byte, ref RefID, crc uint32) []byte {
	b, start := Begin(b, ref, 0, Checksum)
	return End(binary.LittleEndian.AppendUint32(b, crc), start)
}

// Assigned returns the RefId in a RefIDAssign record.
func (r Record) Assigned() (RefID, error) {
	if len(r.Data) != 2 || r.Ref != NoRef {
		return 0, ErrMalformed
	}
	ref := RefID(binary.LittleEndian.Uint16(r.Data))
	if ref == 0 || ref == NoRef {
		return 0, ErrMalformed
	}
	return ref, nil
}

// CRC returns the sum in a Checksum record.
func (r Record) CRC() (uint32, error) {
	if len(r.Data) != 4 {
		return 0, ErrMalformed
	}
	return binary.LittleEndian.Uint32(r.Data), nil
}

// Records iterates over the records of a batch.
type Records struct {
	p   []byte
	err error
}

// NewRecords returns the records in p, which is a batch without its header.
func NewRecords(p []byte) Records { return Records{p: p} }

// Next returns the next record. It reports false at the end and at the first malformed record;
// Err tells which. The data aliases the batch.
func (r *Records) Next() (m Record, ok bool) {
	if len(r.p) == 0 || r.err != nil {
		return m, false
	}
	n, rest, ok := cutSize(r.p)
	if !ok || n > len(rest) || !m.parse(rest[:n:n]) {
		r.err = ErrMalformed
		return Record{}, false
	}
	r.p = rest[n:]
	return m, true
}

// Err returns ErrMalformed if the records do not end where the batch ends.
func (r *Records) Err() error { return r.err }

func (r *Record) parse(p []byte) bool {
	if len(p) < 3 {
		return false
	}
	r.Ref = RefID(binary.LittleEndian.Uint16(p))
	p = p[2:]
	if r.Ref == NoRef {
		if len(p) < 9 {
			return false
		}
		r.Entity = EntityID(binary.LittleEndian.Uint64(p))
		p = p[8:]
	}
	r.Message, r.Data = MessageID(p[0]), p[1:]
	return true
}

// ErrMalformed reports malformed bytes. It is a static value, because hostile input must not
// cost an allocation.
var ErrMalformed = errors.New("replication/view: malformed")

// SizeMax is the largest size of a record, which is the largest VLQ.
const SizeMax = 0x7FFF

// AppendSize appends n, at most SizeMax, as a VLQ: one byte below 0x80, otherwise the high 7
// bits with the top bit set, then the low 8 bits.
func AppendSize(b []byte, n int) []byte {
	if n < 0x80 {
		return append(b, byte(n))
	}
	if n > SizeMax {
		panic("replication/view: record larger than a VLQ can say")
	}
	return append(b, byte(n>>8)|0x80, byte(n))
}

// cutSize reads a VLQ. The original protocol writes small numbers in two bytes (8023 for 35),
// so they are accepted.
func cutSize(p []byte) (n int, rest []byte, ok bool) {
	switch {
	case len(p) >= 1 && p[0] < 0x80:
		return int(p[0]), p[1:], true
	case len(p) >= 2:
		return int(p[0]&0x7F)<<8 | int(p[1]), p[2:], true
	}
	return 0, nil, false
}
