package view

import "github.com/dnprelay/dnprelay/dnp/wire"

// nullBit marks an index in an update whose value is null. The document says
// that the negative index unsets a value, which could not unset value 0; the
// original wire has index|0x80.
const nullBit = 0x80

// AppendUpdateValue appends one changed value to the data of an update. index
// counts within the view.
func AppendUpdateValue(b []byte, index int, value []byte) []byte {
	return append(append(b, byte(index)), value...)
}

// AppendUpdateNull appends the marker that a nullable value is null.
func AppendUpdateNull(b []byte, index int) []byte { return append(b, byte(index)|nullBit) }

// An UpdateReader reads the values of an update.
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

// Err returns ErrMalformed if the bytes were not an update, once Next has
// reported false.
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
