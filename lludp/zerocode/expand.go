package zerocode

import (
	"bytes"
	"errors"
)

// ErrTooLong reports coded bytes that expand beyond the limit. It is a plain
// value, because hostile input must not cost an allocation.
var ErrTooLong = errors.New("zerocode: zero-coded bytes expand beyond the limit")

// Expanded returns how many bytes p expands to, or ErrTooLong if those are more
// than limit. It writes nothing, and stops at the byte that goes too far.
func Expanded(p []byte, limit int) (n int, err error) {
	for len(p) > 0 {
		literal, zeros, rest := cut(p)
		if n += literal + zeros; n > limit {
			return 0, ErrTooLong
		}
		p = rest
	}
	return n, nil
}

// AppendExpanded appends what p stands for to b, or returns b as it was and
// ErrTooLong if that is more than limit bytes. b grows at most once, to what is
// needed; it must not overlap p.
func AppendExpanded(b, p []byte, limit int) ([]byte, error) {
	n, err := Expanded(p, limit)
	if err != nil {
		return b, err
	}
	if cap(b)-len(b) < n {
		b = append(make([]byte, 0, len(b)+n), b...)
	}
	for len(p) > 0 {
		literal, zeros, rest := cut(p)
		b = append(b, p[:literal]...)
		at := len(b)
		b = b[:at+zeros]
		clear(b[at:])
		p = rest
	}
	return b, nil
}

// cut takes the next literal bytes and the run behind them from p, which is not
// empty. A run is at most 256 × len(p) long, so its sum does not overflow.
func cut(p []byte) (literal, zeros int, rest []byte) {
	literal = bytes.IndexByte(p, 0)
	if literal < 0 {
		return len(p), 0, nil
	}
	rest = p[literal+1:]
	for len(rest) > 0 && rest[0] == 0 {
		zeros += 256
		rest = rest[1:]
	}
	if len(rest) == 0 {
		return literal, zeros + 1, nil
	}
	return literal, zeros + int(rest[0]), rest[1:]
}
