package wire

import "encoding/binary"

// A peer that asked for it gets and sends LinkUpdates with bytes behind their last link, which every other peer ignores.
//
// A client's LinkUpdate with values that it wrote ends with the number of the write:
//
//	number uvarint, 1 to 2³²-1
//
// An edge's ends with a trailer, which is read from its end, so that a link which the client does not know does not hide it:
//
//	generation uvarint, counter uvarint                                             the order of the datagram
//	number uvarint, refused uint8, {link uint16, index uint16, code uint8} × refused     × acknowledgements
//	length uint8, of all that in bytes

// WriteValuesMax is how many values a LinkUpdate with the number of a write has at most. A trailer has room to refuse
// all of them.
const WriteValuesMax = 32

// TrailerMax is the most bytes of a trailer, with its length.
const TrailerMax = 256

// An Order is the place of a LinkUpdate among those that a client gets: a value in a later one is not older. 0 is that
// of a LinkUpdate without a trailer.
type Order uint64

const (
	generationMax = 1<<20 - 1
	counterBits   = 44
	counterMax    = 1<<counterBits - 1
)

// NewOrder returns the order of the LinkUpdate with this counter of the edge with this generation. Both wrap where nobody
// gets, at 2²⁰ takeovers and 2⁴⁴ datagrams.
func NewOrder(generation, counter uint64) Order {
	return Order(generation&generationMax<<counterBits | counter&counterMax)
}

// Generation returns the generation of the edge, which grows with each takeover of the session.
func (o Order) Generation() uint64 { return uint64(o) >> counterBits }

// A RefusalCode says why a value that a client wrote will never be applied. The values are on the wire; a reader takes a
// code that it does not know for RefusedWrite.
type RefusalCode uint8

// The codes.
const (
	RefusedWrite   RefusalCode = 0 // no other reason is known
	RefusedRights  RefusalCode = 1 // the client may not write the state
	RefusedBounds  RefusalCode = 2 // outside of the value's bounds, or not a finite number
	RefusedRate    RefusalCode = 3 // the client writes the value too often
	RefusedNoState RefusalCode = 4 // the state has ended
	RefusedBusy    RefusalCode = 5 // the edge has no room for more of the client's writes
)

var refusalNames = [...]string{
	RefusedWrite: "refused", RefusedRights: "not_authorised", RefusedBounds: "bounds", RefusedRate: "rate", RefusedNoState: "no_state", RefusedBusy: "busy",
}

// String returns the name of a code, as programs are told it.
func (c RefusalCode) String() string {
	if int(c) < len(refusalNames) {
		return refusalNames[c]
	}
	return refusalNames[RefusedWrite]
}

// A RefusedValue is a value of a write that will never be applied.
type RefusedValue struct {
	Link  LinkID
	Index uint16
	Code  RefusalCode
}

const refusedValueSize = 5

// A WriteAck is the end of a write: all of its values but the refused ones were applied, or overtaken.
type WriteAck struct {
	Number  uint32
	Refused []RefusedValue // at most WriteValuesMax
}

// Size returns the bytes of an acknowledgement.
func (a *WriteAck) Size() int {
	return uvarintSize(uint64(a.Number)) + 1 + refusedValueSize*len(a.Refused)
}

// Append appends an acknowledgement.
func (a *WriteAck) Append(b []byte) []byte {
	b = append(binary.AppendUvarint(b, uint64(a.Number)), byte(len(a.Refused)))
	for _, v := range a.Refused {
		b = binary.LittleEndian.AppendUint16(b, uint16(v.Link))
		b = append(binary.LittleEndian.AppendUint16(b, v.Index), byte(v.Code))
	}
	return b
}

// Size returns the bytes of a trailer without acknowledgements.
func (o Order) Size() int {
	return uvarintSize(uint64(o>>counterBits)) + uvarintSize(uint64(o&counterMax)) + 1
}

// AppendTrailer appends a trailer with as many of the acknowledgements as fit, and returns how many those are.
func AppendTrailer(b []byte, o Order, acks []WriteAck) (_ []byte, n int) {
	start := len(b)
	b = binary.AppendUvarint(binary.AppendUvarint(b, uint64(o>>counterBits)), uint64(o&counterMax))
	for n < len(acks) && len(b)-start+acks[n].Size() < TrailerMax {
		b = acks[n].Append(b)
		n++
	}
	return append(b, byte(len(b)-start)), n
}

// A Trailer is that of a LinkUpdate of an edge.
type Trailer struct {
	Order Order
	acks  Reader
}

// ParseTrailer splits the bytes of a LinkUpdate behind its command into links and trailer. It reports false, and returns
// all of p as links, if there is none.
func ParseTrailer(p []byte) (links []byte, t Trailer, ok bool) {
	if len(p) == 0 {
		return p, Trailer{}, false
	}
	n := int(p[len(p)-1])
	if n+1 > len(p) {
		return p, Trailer{}, false
	}
	r := NewReader(p[len(p)-1-n : len(p)-1])
	generation, counter := r.Uvarint(generationMax), r.Uvarint(counterMax)
	t.Order, t.acks = NewOrder(generation, counter), r
	for acks := t; r.Err() == nil; { // of a copy
		if _, ok := acks.Next(); !ok {
			r = acks.acks
			break
		}
	}
	if r.Err() != nil || t.Order == 0 {
		return p, Trailer{}, false
	}
	return p[: len(p)-1-n : len(p)-1-n], t, true
}

// Next returns the next acknowledgement. It reports false behind the last one.
func (t *Trailer) Next() (a WriteAck, ok bool) {
	if len(t.acks.Rest()) == 0 {
		return WriteAck{}, false
	}
	a.Number = uint32(t.acks.Uvarint(1<<32 - 1))
	for range min(t.acks.Uint8(), WriteValuesMax+1) { // one more is one too many
		v := RefusedValue{Link: LinkID(t.acks.Uint16()), Index: t.acks.Uint16(), Code: RefusalCode(t.acks.Uint8())}
		a.Refused = append(a.Refused, v)
	}
	if len(a.Refused) > WriteValuesMax {
		t.acks.Fail(ErrTruncated)
	}
	return a, t.acks.Err() == nil
}

// AppendWriteNumber appends the number of a write to a LinkUpdate.
func AppendWriteNumber(b []byte, number uint32) []byte {
	return binary.AppendUvarint(b, uint64(number))
}

// WriteNumberMax is the most bytes of the number of a write.
const WriteNumberMax = binary.MaxVarintLen32

// WriteNumber returns the number of the write behind the last link of a LinkUpdate, all of whose links were read; 0 if
// it has none. Anything else behind the last link is an error.
func (u *UpdateReader) WriteNumber() uint32 {
	if u.r.Err() != nil || len(u.r.Rest()) == 0 {
		return 0
	}
	n := u.r.Uvarint(1<<32 - 1)
	if n == 0 || len(u.r.Rest()) > 0 {
		u.r.Fail(ErrTruncated)
		return 0
	}
	return uint32(n)
}

func uvarintSize(v uint64) (n int) {
	for n = 1; v >= 1<<7; v >>= 7 {
		n++
	}
	return n
}
