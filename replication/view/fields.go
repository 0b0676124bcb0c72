package view

import "github.com/dnprelay/dnprelay/dnp/wire"

// Bounds of a view. With the largest values a keyframe or update is still
// smaller than SizeMax.
const (
	FieldsMax = 128    // because index 0x80 and above say null
	BytesMax  = 32_000 // sum of the most that the values can take
)

// A Field is what the codec must know about one value.
type Field struct {
	Type     wire.ValueType
	Nullable bool
}

// A Range is the values First to End-1 of a state, one view.
type Range struct{ First, End int }

// Len returns the number of values.
func (r Range) Len() int { return r.End - r.First }

// Split cuts a state into views: a view ends at 128 values, or when the values
// could take more than 32,000 bytes. A string or data value can take
// 2 + valueMax. Both ends of the wire must cut alike.
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
