package replication

import (
	"encoding/binary"
	"errors"
	"math"
	"slices"

	"github.com/dnprelay/dnprelay/dnp/wire"
)

// codecVersion is the first byte of every message of this package.
const codecVersion = 1

// errMessage reports a malformed message. It is a static value, because input from the network
// must not cost an allocation.
var errMessage = errors.New("replication: malformed message")

// HeadBytesMax is the most that a head message should have. A holder with more spaces reports
// the quiet ones in rotation.
const HeadBytesMax = 64 << 10

// A SpaceHead is the last sequence number of one space.
type SpaceHead struct {
	Space string
	Seq   uint64
}

// Size returns the bytes that h takes in a head message.
func (h SpaceHead) Size() int { return 1 + len(h.Space) + 8 }

// AppendHead appends a head message, in which the holder reports the last sequence numbers of
// its spaces. At most 65,535 spaces fit.
//
//	version uint8 = 1, epoch uint64, count uint16
//	count × {space {length uint8, bytes}, seq uint64}
func AppendHead(b []byte, epoch uint64, spaces []SpaceHead) []byte {
	b = append(b, codecVersion)
	b = binary.LittleEndian.AppendUint64(b, epoch)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(spaces)))
	for _, s := range spaces {
		b = appendShort(b, s.Space)
		b = binary.LittleEndian.AppendUint64(b, s.Seq)
	}
	return b
}

// ParseHead parses a head message into the last sequence numbers by space.
func ParseHead(p []byte) (epoch uint64, seqs map[string]uint64, err error) {
	r := wire.NewReader(p)
	if r.Uint8() != codecVersion {
		return 0, nil, errMessage
	}
	epoch = r.Uint64()
	n := readCount(&r, SpaceHead{}.Size())
	seqs = make(map[string]uint64, n)
	for range n {
		space := readShort(&r)
		seqs[space] = r.Uint64()
	}
	seqs, err = finish(seqs, &r)
	return epoch, seqs, err
}

// HeadEpoch returns the epoch of a head message.
func HeadEpoch(p []byte) (epoch uint64, ok bool) {
	r := wire.NewReader(p)
	if r.Uint8() != codecVersion {
		return 0, false
	}
	epoch = r.Uint64()
	return epoch, r.Err() == nil
}

// finish returns m if the reader reached the end without an error.
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

// appendNames appends up to 255 names.
func appendNames(b []byte, names []string) []byte {
	b = append(b, byte(len(names)))
	for _, n := range names {
		b = appendShort(b, n)
	}
	return b
}

func readNames(r *wire.Reader) []string {
	names := make([]string, 0, 4)
	for range r.Uint8() {
		names = append(names, readShort(r))
	}
	return names
}

func readFloat(r *wire.Reader) float64 { return math.Float64frombits(r.Uint64()) }

// readCount reads a count of elements that take at least size bytes each. A count that the
// message cannot hold fails the reader, so that it costs no memory.
func readCount(r *wire.Reader, size int) int {
	n := int(r.Uint16())
	if n*size > len(r.Rest()) {
		r.Fail(errMessage)
		return 0
	}
	return n
}

// A WriteKind says what an edge asks for on behalf of a client.
type WriteKind uint8

const (
	WriteValues WriteKind = 1 // the client changed values of a state
	WriteAssert WriteKind = 2 // the client offers a state of its own, or still offers it in a new epoch
	WriteDrop   WriteKind = 3 // the client withdrew its state
	WriteJoin   WriteKind = 4 // the session is in the space; its client joins and leaves groups, as its login says
	WriteLeave  WriteKind = 5 // the session left the space
)

// A Write is one request of an edge to the holder.
type Write struct {
	Kind    WriteKind
	Session string
	Client  string
	Space   string
	State   uint64 // state number, of WriteValues; of WriteAssert that of a state which is only to be confirmed, with the values that it has
	Epoch   uint64 // that the edge follows

	// Number increases per session and state with every new content. The holder ignores a write
	// whose number is not above the last one of its session, because that write was applied or
	// overtaken, and answers ok.
	Number uint32
	Wide   uint64 // see WriteNumbers; not part of the message

	Values []WriteValue // WriteValues: by index. WriteAssert: all values in order

	// Of WriteAssert and WriteDrop.
	Link     uint16       // the client's LinkId
	ReadOnly bool         // game servers may not write the state either
	Audience AudienceKind // AudienceNone, or AudienceAllBut for all clients except this one
	Message  []byte

	// Of WriteJoin, at most 255 names each.
	Join, Leave []string

	Token uint64 // identifies the request in its WriteResult; not sent
}

// numbered is the kind in a message of a WriteValues whose values have numbers.
const numbered WriteKind = 6

// A WriteValue is one encoded value.
type WriteValue struct {
	Index int
	Type  wire.ValueType
	Value []byte

	// Number is that of the client's write, which the edge passes on; 0 if the client does not number its writes. The holder
	// applies a value of a session whose number is above the last one of that value, and no other: a client repeats a
	// write by another edge, too, and others may have written in between.
	Number uint32
}

// A WriteCode is the holder's answer to a Write.
type WriteCode uint8

const (
	WriteOK         WriteCode = 0 // applied in the batch that just left, or before
	WriteRefused    WriteCode = 1 // will never be applied
	WriteNoState    WriteCode = 2 // no state has that number
	WriteBusy       WriteCode = 3 // repeat later
	WriteWrongEpoch WriteCode = 4 // repeat after reaching the epoch in the answer
	WritePartly     WriteCode = 5 // ok except for the values in Refused

	// partlyNumbered is WritePartly in a message, to a request whose values have numbers.
	partlyNumbered WriteCode = 6
)

// A WriteResult answers a Write.
type WriteResult struct {
	Token uint64 // not sent
	Code  WriteCode
	Epoch uint64
	Seq   uint64 // a replica at this position has the written value or a newer one
	State uint64 // state number; of WriteAssert the number of the new state; of WriteJoin JoinAnnounced, or 0

	Refused []RefusedIndex // of WritePartly: the values that will never be applied
}

// Refusal returns why value index of WritePartly will never be applied, if so.
func (r *WriteResult) Refusal(index int) (code wire.RefusalCode, refused bool) {
	for _, v := range r.Refused {
		if int(v.Index) == index {
			return v.Code, true
		}
	}
	return 0, false
}

// A RefusedIndex is the index of a value that will never be applied. The code is known of values with numbers.
type RefusedIndex struct {
	Index uint16
	Code  wire.RefusalCode
}

// JoinAnnounced in the answer to a WriteJoin says that game servers heard that the session joined: the holder heard the
// event, too, or an edge named the session since.
const JoinAnnounced = 1

const writeReadOnly = 1 // flag of an assert

// AppendWrite appends a request:
//
//	version uint8 = 1, kind uint8
//	session, client, space {length uint8, bytes}
//	state uint64, epoch uint64, number uint32
//	kind 1: count uint16, count × {index uint16, type uint8, value}
//	kind 2: link uint16, flags uint8 (1 read-only), audience uint8 (0 none, 3 all but the client),
//	        message {length uint16, bytes}, count uint16, count × {type uint8, value}
//	kind 3: link uint16
//	kind 4: groups to join, groups to leave: count uint8, count × {length uint8, bytes}
//	kind 5: nothing
//	kind 6: as kind 1, with a number uvarint behind each index
func AppendWrite(b []byte, w *Write) []byte {
	kind := w.Kind
	if w.numbered() {
		kind = numbered
	}
	b = append(b, codecVersion, byte(kind))
	b = appendShort(b, w.Session)
	b = appendShort(b, w.Client)
	b = appendShort(b, w.Space)
	b = binary.LittleEndian.AppendUint64(b, w.State)
	b = binary.LittleEndian.AppendUint64(b, w.Epoch)
	b = binary.LittleEndian.AppendUint32(b, w.Number)
	switch kind {
	case WriteValues, numbered:
		b = appendValues(b, w.Values, kind)
	case WriteAssert:
		flags := byte(0)
		if w.ReadOnly {
			flags = writeReadOnly
		}
		b = binary.LittleEndian.AppendUint16(b, w.Link)
		b = append(b, flags, byte(w.Audience))
		b = appendLong(b, w.Message)
		b = appendValues(b, w.Values, kind)
	case WriteDrop:
		b = binary.LittleEndian.AppendUint16(b, w.Link)
	case WriteJoin:
		b = appendNames(appendNames(b, w.Join), w.Leave)
	}
	return b
}

// numbered reports whether the values have the numbers of the client. All have one or none.
func (w *Write) numbered() bool {
	return w.Kind == WriteValues && len(w.Values) > 0 && w.Values[0].Number != 0
}

func appendValues(b []byte, values []WriteValue, kind WriteKind) []byte {
	b = binary.LittleEndian.AppendUint16(b, uint16(len(values)))
	for _, v := range values {
		if kind != WriteAssert {
			b = binary.LittleEndian.AppendUint16(b, uint16(v.Index))
		}
		if kind == numbered {
			b = binary.AppendUvarint(b, uint64(v.Number))
		}
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
	w.State, w.Epoch, w.Number = r.Uint64(), r.Uint64(), uint32(Uint(r.Bytes(4)))
	switch w.Kind {
	case WriteValues, numbered:
		w.Values = readValues(&r, w.Kind)
		w.Kind = WriteValues
	case WriteAssert:
		w.Link = r.Uint16()
		w.ReadOnly = r.Uint8()&writeReadOnly != 0
		w.Audience = AudienceKind(r.Uint8())
		w.Message = r.Bytes(int(r.Uint16()))
		w.Values = readValues(&r, w.Kind)
	case WriteDrop:
		w.Link = r.Uint16()
	case WriteJoin:
		w.Join, w.Leave = readNames(&r), readNames(&r)
	case WriteLeave:
	default:
		return Write{}, errMessage
	}
	return finish(w, &r)
}

// readValues reads a counted list of typed values.
func readValues(r *wire.Reader, kind WriteKind) []WriteValue {
	values := make([]WriteValue, readCount(r, 1))
	for i := range values {
		v := &values[i]
		v.Index = i
		if kind != WriteAssert {
			v.Index = int(r.Uint16())
		}
		if kind == numbered {
			if v.Number = uint32(r.Uvarint(1<<32 - 1)); v.Number == 0 {
				r.Fail(errMessage)
			}
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
//	code 6: as code 5, with a code uint8 behind each index
func AppendWriteResult(b []byte, r WriteResult) []byte {
	coded := r.Code == WritePartly && slices.ContainsFunc(r.Refused, func(v RefusedIndex) bool { return v.Code != 0 })
	code := r.Code
	if coded {
		code = partlyNumbered
	}
	b = append(b, codecVersion, byte(code))
	b = binary.LittleEndian.AppendUint64(b, r.Epoch)
	b = binary.LittleEndian.AppendUint64(b, r.Seq)
	b = binary.LittleEndian.AppendUint64(b, r.State)
	if r.Code != WritePartly {
		return b
	}
	b = binary.LittleEndian.AppendUint16(b, uint16(len(r.Refused)))
	for _, v := range r.Refused {
		b = binary.LittleEndian.AppendUint16(b, v.Index)
		if coded {
			b = append(b, byte(v.Code))
		}
	}
	return b
}

// ParseWriteResult parses an answer.
func ParseWriteResult(p []byte) (WriteResult, error) {
	r := wire.NewReader(p)
	if r.Uint8() != codecVersion {
		return WriteResult{}, errMessage
	}
	m := WriteResult{Code: WriteCode(r.Uint8()), Epoch: r.Uint64(), Seq: r.Uint64(), State: r.Uint64()}
	coded := m.Code == partlyNumbered
	if coded {
		m.Code = WritePartly
	}
	if m.Code == WritePartly {
		m.Refused = make([]RefusedIndex, readCount(&r, 2))
		for i := range m.Refused {
			if m.Refused[i].Index = r.Uint16(); coded {
				m.Refused[i].Code = wire.RefusalCode(r.Uint8())
			}
		}
	}
	return finish(m, &r)
}
