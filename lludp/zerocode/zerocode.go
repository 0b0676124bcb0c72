package zerocode

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/bits"
)

// runMax is the longest run that two bytes can express.
const runMax = 255

// AppendShorter appends the coded form of p if that is shorter than p. Otherwise it returns b
// unchanged and false. The coded form has every run of zeros as 00 k, a longer one in pieces of
// 255, and never several 00, which half of the implementations read differently
// (lludp/DESIGN.md, Verdicts).
func AppendShorter(b, p []byte) ([]byte, bool) {
	start, left := len(b), len(p)-1 // bytes that the coded form may still take
	for {
		i := bytes.IndexByte(p, 0)
		if i < 0 {
			if left -= len(p); left < 0 {
				return b[:start], false
			}
			return append(b, p...), true
		}
		if left -= i + 2; left < 0 {
			return b[:start], false
		}
		k := run(p[i:])
		b = append(append(b, p[:i]...), 0, byte(k))
		p = p[i+k:]
	}
}

// run returns the number of zeros at the beginning of p, at most 255.
func run(p []byte) (n int) {
	if len(p) > runMax {
		p = p[:runMax]
	}
	for len(p)-n >= 8 {
		w := binary.LittleEndian.Uint64(p[n:])
		if w != 0 {
			return n + bits.TrailingZeros64(w)/8
		}
		n += 8
	}
	for n < len(p) && p[n] == 0 {
		n++
	}
	return n
}

// ErrTooLong reports coded bytes that expand beyond the limit. It is a static value, because
// hostile input must not cost an allocation.
var ErrTooLong = errors.New("zerocode: zero-coded bytes expand beyond the limit")

// Expanded returns the number of bytes that p expands to, or ErrTooLong if that is more than
// limit. It writes nothing, and stops at the byte that exceeds the limit.
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

// AppendExpanded appends the expanded form of p to b. If that is more than limit bytes, it
// returns b unchanged and ErrTooLong. b grows at most once, to the needed size; it must not
// overlap p.
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

// cut splits p, which is not empty, into literal bytes, the run behind them, and the rest. A
// run is at most 256 × len(p) long, so that the sum of all runs does not overflow.
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
