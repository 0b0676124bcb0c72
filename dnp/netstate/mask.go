package netstate

import "math/bits"

// A Mask is a set of value indices. NewMask fixes its length; larger indices must not
// be used.
type Mask []uint64

// NewMask returns an empty mask for n values.
func NewMask(n int) Mask { return make(Mask, (n+63)/64) }

// Set adds i.
func (m Mask) Set(i int) { m[i>>6] |= 1 << (i & 63) }

// Clear removes i.
func (m Mask) Clear(i int) { m[i>>6] &^= 1 << (i & 63) }

// Has reports whether i is in m.
func (m Mask) Has(i int) bool { return m[i>>6]&(1<<(i&63)) != 0 }

// Empty reports whether nothing is in m.
func (m Mask) Empty() bool {
	for _, w := range m {
		if w != 0 {
			return false
		}
	}
	return true
}

// Count returns how many indices are in m.
func (m Mask) Count() int {
	n := 0
	for _, w := range m {
		n += bits.OnesCount64(w)
	}
	return n
}

// Or adds all indices of o, which has the same length.
func (m Mask) Or(o Mask) {
	for i, w := range o {
		m[i] |= w
	}
}

// Reset removes everything.
func (m Mask) Reset() { clear(m) }

// Next returns the smallest index that is at least from. It reports false if
// there is none.
func (m Mask) Next(from int) (i int, ok bool) {
	for w := from >> 6; w < len(m); w++ {
		word := m[w]
		if w == from>>6 {
			word &= ^uint64(0) << (from & 63)
		}
		if word != 0 {
			return w<<6 + bits.TrailingZeros64(word), true
		}
	}
	return 0, false
}
