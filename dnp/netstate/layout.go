package netstate

import (
	"errors"
	"fmt"
	"slices"

	"github.com/dnprelay/dnprelay/dnp/wire"
)

// ValuesMax is the largest number of values of a state. DNP itself could count to
// 65,535.
const ValuesMax = 8192

// ErrEmptyLayout reports a layout without values, which no application can use.
var ErrEmptyLayout = errors.New("dnp/netstate: layout has no values")

// A Value is one element of a layout.
type Value struct {
	Type wire.ValueType

	// Precision is how far a floating point component may move without being
	// sent. It is never sent to clients. 0 means that every change is sent.
	Precision float64
}

// A Layout is the ordered types and precisions of a state. It does not change
// and may be shared.
type Layout struct {
	values  []Value
	types   []wire.ValueType
	offsets []int32 // of a fixed value in the state's block; of a variable one in its list
	fixed   int     // bytes of all fixed values
	varied  int     // number of values that carry their own length
}

// NewLayout returns the layout with these values. It copies them.
func NewLayout(values []Value) (*Layout, error) {
	if len(values) == 0 {
		return nil, ErrEmptyLayout
	}
	if len(values) > ValuesMax {
		return nil, fmt.Errorf("dnp/netstate: layout has %d values, more than %d", len(values), ValuesMax)
	}
	l := &Layout{
		values:  slices.Clone(values),
		types:   make([]wire.ValueType, len(values)),
		offsets: make([]int32, len(values)),
	}
	for i, v := range values {
		if !v.Type.Valid() {
			return nil, fmt.Errorf("dnp/netstate: value %d has unknown type %d", i, v.Type)
		}
		l.types[i] = v.Type
		if v.Type.Variable() {
			l.offsets[i] = int32(l.varied)
			l.varied++
			continue
		}
		l.offsets[i] = int32(l.fixed)
		l.fixed += v.Type.Size()
	}
	return l, nil
}

// Len returns the number of values.
func (l *Layout) Len() int { return len(l.types) }

// Value returns element i.
func (l *Layout) Value(i int) Value { return l.values[i] }

// Type returns the type of element i.
func (l *Layout) Type(i int) wire.ValueType { return l.types[i] }

// Types returns all types in order. The caller must not change them.
func (l *Layout) Types() []wire.ValueType { return l.types }

// Equal reports whether l and m have the same types and precisions.
func (l *Layout) Equal(m *Layout) bool { return slices.Equal(l.values, m.values) }
