package view

import (
	"github.com/dnprelay/dnprelay/dnp/netstate"
	"github.com/dnprelay/dnprelay/dnp/wire"
)

// AppendKeyframe appends all values of one view of a state: first one bit per
// nullable value, lowest bit first, 1 for null, unused bits 0; then every value
// that is not null, in order. nulls may have length 0 if nothing is nullable.
// Its CRC-32 (IEEE) is the view's checksum.
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

// A KeyframeReader reads the values of a keyframe.
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

// Next returns the next value in order; null ones have no bytes. It reports
// false at the end and at the first error.
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

// Err returns ErrMalformed if the bytes were not exactly a keyframe, once Next
// has reported false.
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
