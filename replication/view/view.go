// Package view encodes and decodes the records in which states are replicated.
//
// A state is cut into views of at most 128 values. A batch is a [Header] followed by records. A
// short number, its RefId, addresses each record to a view:
//
//	batch  = header record*
//	record = size VLQ, ref uint16, [entity uint64 if ref is 0xFFFF], message uint8, data
//
// The records are those of the views protocol: a RefIdAssign binds a RefId, a keyframe has all
// values of a view, an update some of them, a checksum is the CRC-32 of the keyframe, and a remove
// ends the state. Describe is an addition and says what the state is; package replication defines
// its content.
//
// Everything is little endian except the size. Writers use the shortest form of a size, readers
// accept every form. Readers alias their input, allocate nothing and report malformed input with a
// static error.
package view

import (
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
