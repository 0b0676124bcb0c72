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

// A KeyframeReader iterates over the values of a keyframe.
type KeyframeReader struct {
	bits   []byte // null bits
	r      wire.Reader
	fields []Field
	next   int // value
	end    int
	bit    int
	err    error
}

// ReadKeyframe returns a reader of p, the keyframe of view r.
func ReadKeyframe(p []byte, fields []Field, r Range) KeyframeReader {
	n := 0
	for _, f := range fields[r.First:r.End] {
		if f.Nullable {
			n++
		}
	}
	k := KeyframeReader{fields: fields, next: r.First, end: r.End, r: wire.NewReader(p)}
	k.bits = k.r.Bytes((n + 7) / 8)
	if k.r.Err() != nil {
		k.err = ErrMalformed
	}
	return k
}

// Next returns the next value in order; a null value has no bytes. It reports false at the end
// and at the first error.
func (k *KeyframeReader) Next() (index int, value []byte, null, ok bool) {
	if k.err != nil {
		return 0, nil, false, false
	}
	if k.next == k.end {
		if len(k.r.Rest()) > 0 {
			k.err = ErrMalformed
		}
		return 0, nil, false, false
	}
	index = k.next
	k.next++
	f := k.fields[index]
	if f.Nullable {
		null = k.bits[k.bit/8]&(1<<(k.bit%8)) != 0
		k.bit++
	}
	if null {
		return index, nil, true, true
	}
	value = k.r.Value(f.Type)
	if k.r.Err() != nil {
		k.err = ErrMalformed
		return 0, nil, false, false
	}
	return index, value, false, true
}

// Err returns ErrMalformed if the bytes are not exactly a keyframe. It is valid once Next has
// reported false.
func (k *KeyframeReader) Err() error { return k.err }

// CheckKeyframe reports whether p is a keyframe of view r.
func CheckKeyframe(p []byte, fields []Field, r Range) bool {
	k := ReadKeyframe(p, fields, r)
	for {
		if _, _, _, ok := k.Next(); !ok {
			return k.Err() == nil
		}
	}
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

// An UpdateReader iterates over the values of an update.
type UpdateReader struct {
	r      wire.Reader
	fields []Field
	first  int
	err    error
}

// ReadUpdate returns a reader of p, an update of view r.
func ReadUpdate(p []byte, fields []Field, r Range) UpdateReader {
	return UpdateReader{r: wire.NewReader(p), fields: fields[:r.End], first: r.First}
}

// Next returns the next value; index counts within the state. It reports false
// at the end and at the first error.
func (u *UpdateReader) Next() (index int, value []byte, null, ok bool) {
	if len(u.r.Rest()) == 0 || u.err != nil {
		return 0, nil, false, false
	}
	b := u.r.Uint8()
	index = u.first + int(b&^nullBit)
	null = b&nullBit != 0
	if index >= len(u.fields) || null && !u.fields[index].Nullable {
		u.err = ErrMalformed
		return 0, nil, false, false
	}
	if !null {
		value = u.r.Value(u.fields[index].Type)
		if u.r.Err() != nil {
			u.err = ErrMalformed
			return 0, nil, false, false
		}
	}
	return index, value, null, true
}

// Err returns ErrMalformed if the bytes are not an update. It is valid once Next has reported
// false.
func (u *UpdateReader) Err() error { return u.err }

// CheckUpdate reports whether p is an update of view r.
func CheckUpdate(p []byte, fields []Field, r Range) bool {
	u := ReadUpdate(p, fields, r)
	for {
		if _, _, _, ok := u.Next(); !ok {
			return u.Err() == nil
		}
	}
}
