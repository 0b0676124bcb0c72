package netstate

import (
	"bytes"

	"github.com/dnprelay/dnprelay/dnp/wire"
)

// A State holds the encoded values of one network state. One goroutine owns it.
type State struct {
	layout *Layout
	fixed  []byte   // values of fixed size, one after the other
	varied [][]byte // values that carry their own length, each in its own buffer
}

// NewState returns a state of this layout, all its values zero.
func NewState(l *Layout) *State {
	s := &State{layout: l, fixed: make([]byte, l.fixed)}
	if l.varied == 0 {
		return s
	}
	s.varied = make([][]byte, l.varied)
	for i, t := range l.types {
		if t.Variable() {
			s.varied[l.offsets[i]] = bytes.Clone(t.Zero())
		}
	}
	return s
}

// Layout returns the layout of s.
func (s *State) Layout() *Layout { return s.layout }

// Value returns value i as its wire bytes, with the length prefix if it has
// one. It aliases the state and is valid until the next Set of that value.
func (s *State) Value(i int) []byte {
	off := s.layout.offsets[i]
	t := s.layout.types[i]
	if t.Variable() {
		return s.varied[off]
	}
	end := off + int32(t.Size())
	return s.fixed[off:end:end]
}

// Set copies value, which must be one encoded value of the type of element i,
// into s and reports whether that changed it. It allocates only if a string or data
// value is longer than all before.
func (s *State) Set(i int, value []byte) (changed bool) {
	old := s.Value(i)
	if bytes.Equal(old, value) {
		return false
	}
	if s.layout.types[i].Variable() {
		s.varied[s.layout.offsets[i]] = append(old[:0], value...)
		return true
	}
	copy(old, value)
	return true
}

// SetAll sets all values from a list whose types fit the layout.
func (s *State) SetAll(values wire.Values) {
	for i := range s.layout.types {
		var v []byte
		_, v, values = values.Next()
		s.Set(i, v)
	}
}

// AppendTyped appends all values as {type uint8, data}, as in a LinkState.
func (s *State) AppendTyped(b []byte) []byte {
	for i, t := range s.layout.types {
		b = wire.AppendTypedValue(b, t, s.Value(i))
	}
	return b
}

// TypedSize returns the bytes that AppendTyped appends.
func (s *State) TypedSize() int {
	n := len(s.layout.types) + len(s.fixed)
	for _, v := range s.varied {
		n += len(v)
	}
	return n
}
