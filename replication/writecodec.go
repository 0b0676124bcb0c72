package replication

import (
	"encoding/binary"
	"errors"

	"github.com/dnprelay/dnprelay/dnp/wire"
)

// codecVersion is the first byte of every message of this package.
const codecVersion = 1

// errMessage reports a message that is not what it should be. It is a plain
// value, because input from the network must not cost an allocation.
var errMessage = errors.New("replication: malformed message")

const writeReadOnly = 1 // flag of an assert

// AppendWrite appends a request:
//
//	version uint8 = 1, kind uint8
//	session, client, space {length uint8, bytes}
//	state uint64, epoch uint64, number uint32
//	kind 1: count uint16, count × {index uint16, type uint8, value}
//	kind 2: link uint16, flags uint8 (1 read-only), audience uint8 (0 nobody, 3 all but the client),
//	        message {length uint16, bytes}, count uint16, count × {type uint8, value}
//	kind 3: link uint16
func AppendWrite(b []byte, w *Write) []byte {
	b = append(b, codecVersion, byte(w.Kind))
	b = appendShort(b, w.Session)
	b = appendShort(b, w.Client)
	b = appendShort(b, w.Space)
	b = binary.LittleEndian.AppendUint64(b, w.State)
	b = binary.LittleEndian.AppendUint64(b, w.Epoch)
	b = binary.LittleEndian.AppendUint32(b, w.Number)
	switch w.Kind {
	case WriteValues:
		b = appendIndexedValues(b, w.Values)
	case WriteAssert:
		b = appendAssert(b, w)
	case WriteDrop:
		b = binary.LittleEndian.AppendUint16(b, w.Link)
	}
	return b
}

func appendIndexedValues(b []byte, values []WriteValue) []byte {
	b = binary.LittleEndian.AppendUint16(b, uint16(len(values)))
	for _, v := range values {
		b = binary.LittleEndian.AppendUint16(b, uint16(v.Index))
		b = wire.AppendTypedValue(b, v.Type, v.Value)
	}
	return b
}

func appendAssert(b []byte, w *Write) []byte {
	b = binary.LittleEndian.AppendUint16(b, w.Link)
	flags := byte(0)
	if w.ReadOnly {
		flags = writeReadOnly
	}
	b = append(b, flags, byte(w.Audience))
	b = appendLong(b, w.Message)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(w.Values)))
	for _, v := range w.Values {
		b = wire.AppendTypedValue(b, v.Type, v.Value)
	}
	return b
}

// ParseWrite parses a request. Byte slices of the result alias p.
func ParseWrite(p []byte) (Write, error) {
	r := wire.NewReader(p)
	if r.Uint8() != codecVersion {
		return Write{}, errMessage
	}
	w := Write{Kind: WriteKind(r.Uint8()), Session: readShort(&r), Client: readShort(&r), Space: readShort(&r)}
	w.State, w.Epoch, w.Number = readUint64(&r), readUint64(&r), readUint32(&r)
	switch w.Kind {
	case WriteValues:
		w.Values = readValues(&r, true)
	case WriteAssert:
		w.Link = r.Uint16()
		w.ReadOnly = r.Uint8()&writeReadOnly != 0
		w.Audience = AudienceKind(r.Uint8())
		w.Message = r.Bytes(int(r.Uint16()))
		w.Values = readValues(&r, false)
	case WriteDrop:
		w.Link = r.Uint16()
	default:
		return Write{}, errMessage
	}
	return finish(w, &r)
}

// readValues reads a counted list of typed values. The count is checked against
// the bytes that are left, so a lie costs no memory.
func readValues(r *wire.Reader, indexed bool) []WriteValue {
	n := int(r.Uint16())
	if n > len(r.Rest()) {
		r.Bytes(len(r.Rest()) + 1)
		return nil
	}
	values := make([]WriteValue, n)
	for i := range values {
		v := &values[i]
		v.Index = i
		if indexed {
			v.Index = int(r.Uint16())
		}
		v.Type = wire.ValueType(r.Uint8())
		v.Value = r.Value(v.Type)
	}
	return values
}

// AppendWriteResult appends an answer:
//
//	version uint8 = 1, code uint8, epoch uint64, seq uint64, state uint64
//	code 5: count uint16, count × index uint16
func AppendWriteResult(b []byte, r WriteResult) []byte {
	b = append(b, codecVersion, byte(r.Code))
	b = binary.LittleEndian.AppendUint64(b, r.Epoch)
	b = binary.LittleEndian.AppendUint64(b, r.Seq)
	b = binary.LittleEndian.AppendUint64(b, r.State)
	if r.Code != WritePartly {
		return b
	}
	b = binary.LittleEndian.AppendUint16(b, uint16(len(r.Refused)))
	for _, i := range r.Refused {
		b = binary.LittleEndian.AppendUint16(b, i)
	}
	return b
}

// ParseWriteResult parses an answer.
func ParseWriteResult(p []byte) (WriteResult, error) {
	r := wire.NewReader(p)
	if r.Uint8() != codecVersion {
		return WriteResult{}, errMessage
	}
	m := WriteResult{Code: WriteCode(r.Uint8()), Epoch: readUint64(&r), Seq: readUint64(&r), State: readUint64(&r)}
	if m.Code == WritePartly {
		m.Refused = make([]uint16, readCount(&r, 2))
		for i := range m.Refused {
			m.Refused[i] = r.Uint16()
		}
	}
	return finish(m, &r)
}

// finish returns m if everything was read and nothing is left.
func finish[T any](m T, r *wire.Reader) (T, error) {
	if r.Err() != nil || len(r.Rest()) > 0 {
		var none T
		return none, errMessage
	}
	return m, nil
}

func appendShort(b []byte, s string) []byte {
	return append(append(b, byte(len(s))), s...)
}

func appendLong(b, s []byte) []byte {
	b = binary.LittleEndian.AppendUint16(b, uint16(len(s)))
	return append(b, s...)
}

func readShort(r *wire.Reader) string { return string(r.Bytes(int(r.Uint8()))) }

func readUint64(r *wire.Reader) uint64 {
	if p := r.Bytes(8); p != nil {
		return binary.LittleEndian.Uint64(p)
	}
	return 0
}

func readUint32(r *wire.Reader) uint32 {
	if p := r.Bytes(4); p != nil {
		return binary.LittleEndian.Uint32(p)
	}
	return 0
}
