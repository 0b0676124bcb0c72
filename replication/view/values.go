package view

import (
	"github.com/dnprelay/dnprelay/dnp/netstate"
	"github.com/dnprelay/dnprelay/dnp/wire"
)

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
