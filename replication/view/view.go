package view

import (
	"github.com/dnprelay/dnprelay/dnp/wire"
)

// A RefID is the short number of a view within one epoch of a space.
type RefID uint16

// NoRef says that a record names its view by EntityID. 0 is not used either.
const NoRef RefID = 0xFFFF

// An EntityID is the long number of a view: the state's number and, in the low
// byte, which of its views it is.
type EntityID uint64

// PerState is the most views of a state, because the view has one byte.
const PerState = 256

// Entity returns the id of one view of a state.
func Entity(state uint64, view int) EntityID { return EntityID(state<<8 | uint64(uint8(view))) }

// State returns the state's number.
func (e EntityID) State() uint64 { return uint64(e) >> 8 }

// View returns which of the state's views it is.
func (e EntityID) View() int { return int(uint8(e)) }

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
