package view

import (
	"github.com/dnprelay/dnprelay/dnp/netstate"
	"github.com/dnprelay/dnprelay/dnp/wire"
)

// A RefID is the short number of a view within one epoch of a space.
type RefID uint16

// NoRef says that a record addresses its view by EntityID. 0 is not a RefId either.
const NoRef RefID = 0xFFFF

// An EntityID is the long number of a view: the number of the state and, in the low byte, the
// number of the view in the state.
type EntityID uint64

// PerState is the most views of a state; the view number has one byte.
const PerState = 256

// Entity returns the id of a view of a state.
func Entity(state uint64, view int) EntityID { return EntityID(state<<8 | uint64(uint8(view))) }

// State returns the number of the state.
func (e EntityID) State() uint64 { return uint64(e) >> 8 }

// View returns the number of the view in its state.
func (e EntityID) View() int { return int(uint8(e)) }

// Bounds of a view. A keyframe or update of the largest values stays below SizeMax.
const (
	FieldsMax = 128    // indices from 0x80 on mean null
	BytesMax  = 32_000 // sum of the largest sizes of the values
)

// A Field is what the codec needs to know about one value.
type Field struct {
	Type     wire.ValueType
	Nullable bool
}

// A Range is a view: the values First to End-1 of a state.
type Range struct{ First, End int }

// Split cuts a state into views. A view ends at 128 values, or where its values could take more
// than 32,000 bytes; a string or data value can take 2 + valueMax. Writer and readers must cut
// alike.
func Split(fields []Field, valueMax int) []Range {
	var views []Range
	first, size := 0, 0
	for i, f := range fields {
		n := f.Type.Size()
		if f.Type.Variable() {
			n = 2 + valueMax
		}
		if i-first == FieldsMax || i > first && size+n > BytesMax {
			views = append(views, Range{first, i})
			first, size = i, 0
		}
		size += n
	}
	return append(views, Range{first, len(fields)})
}

// AppendKeyframe appends all values of one view: first one bit per nullable value, lowest bit
// first, 1 for null, unused bits 0; then every value that is not null, in order. nulls may have
// length 0 if no value is nullable. The CRC-32 (IEEE) of the keyframe is the checksum of the
// view.
func AppendKeyframe(b []byte, s *netstate.State, nulls netstate.Mask, fields []Field, r Range) []byte {
	b = appendNullBits(b, nulls, fields, r)
	for i := r.First; i < r.End; i++ {
		if !fields[i].Nullable || !nulls.Has(i) {
			b = append(b, s.Value(i)...)
		}
	}
	return b
}

func appendNullBits(b []byte, nulls netstate.Mask, fields []Field, r Range) []byte {
	n := 0
	for i := r.First; i < r.End; i++ {
		if !fields[i].Nullable {
			continue
		}
		if n%8 == 0 {
			b = append(b, 0)
		}
		if nulls.Has(i) {
			b[len(b)-1] |= 1 << (n % 8)
		}
		n++
	}
	return b
}

// nullBit marks an index in an update whose value is null. The published document negates the
// index, which could not express value 0; the original protocol sends index|0x80.
const nullBit = 0x80

// AppendUpdateValue appends one changed value to the data of an update. index counts within the
// view.
func AppendUpdateValue(b []byte, index int, value []byte) []byte {
	return append(append(b, byte(index)), value...)
}

// AppendUpdateNull appends the marker that a nullable value is null.
func AppendUpdateNull(b []byte, index int) []byte { return append(b, byte(index)|nullBit) }

// Values iterates over the values of a keyframe or an update.
type Values struct {
	r         wire.Reader
	fields    []Field
	first     int // of an update: of the view; of a keyframe: the value that comes next
	end       int // of the view
	update    bool
	nulls     []byte // null bits of a keyframe
	bit       int    // of nulls
	malformed bool
}

// ReadKeyframe returns the values of p, in order. It is not ok if p is not exactly a keyframe of
// view r.
func ReadKeyframe(p []byte, fields []Field, r Range) (v Values, ok bool) {
	n := 0
	for _, f := range fields[r.First:r.End] {
		if f.Nullable {
			n++
		}
	}
	v = Values{r: wire.NewReader(p), fields: fields, first: r.First, end: r.End}
	v.nulls = v.r.Bytes((n + 7) / 8)
	return v, v.r.Err() == nil && v.check()
}

// ReadUpdate returns the values of p. It is not ok if p is not an update of view r.
func ReadUpdate(p []byte, fields []Field, r Range) (v Values, ok bool) {
	v = Values{r: wire.NewReader(p), fields: fields, first: r.First, end: r.End, update: true}
	return v, v.check()
}

// check reports whether all values are well-formed.
func (v Values) check() bool {
	for {
		if _, _, _, ok := v.Next(); !ok {
			return !v.malformed
		}
	}
}

// Next returns the next value; index counts within the state, and a null value has no bytes. It
// reports false at the end.
func (v *Values) Next() (index int, value []byte, null, ok bool) {
	if v.update {
		index, null, ok = v.nextChanged()
	} else {
		index, null, ok = v.nextInOrder()
	}
	if !ok || null {
		return index, nil, null, ok
	}
	value = v.r.Value(v.fields[index].Type)
	v.malformed = v.r.Err() != nil
	return index, value, false, !v.malformed
}

func (v *Values) nextChanged() (index int, null, ok bool) {
	if len(v.r.Rest()) == 0 {
		return 0, false, false
	}
	b := v.r.Uint8()
	index, null = v.first+int(b&^nullBit), b&nullBit != 0
	v.malformed = index >= v.end || null && !v.fields[index].Nullable
	return index, null, !v.malformed
}

func (v *Values) nextInOrder() (index int, null, ok bool) {
	index = v.first
	if index == v.end {
		v.malformed = len(v.r.Rest()) > 0
		return 0, false, false
	}
	v.first++
	if v.fields[index].Nullable {
		null = v.nulls[v.bit/8]&(1<<(v.bit%8)) != 0
		v.bit++
	}
	return index, null, true
}
