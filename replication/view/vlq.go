package view

import "errors"

// ErrMalformed reports bytes that are not what they should be. It is a plain
// value, because hostile input must not cost an allocation.
var ErrMalformed = errors.New("replication/view: malformed")

// SizeMax is the largest size of a record, and the largest VLQ.
const SizeMax = 0x7FFF

// AppendSize appends n, at most SizeMax, as a VLQ: one byte below 0x80, else
// the high 7 bits with the top bit set, then the low 8.
func AppendSize(b []byte, n int) []byte {
	if n < 0x80 {
		return append(b, byte(n))
	}
	if n > SizeMax {
		panic("replication/view: record larger than a VLQ can say")
	}
	return append(b, byte(n>>8)|0x80, byte(n))
}

// cutSize reads a VLQ. Two bytes for a small number are normal on the original
// wire (8023 for 35), so they are accepted.
func cutSize(p []byte) (n int, rest []byte, ok bool) {
	switch {
	case len(p) >= 1 && p[0] < 0x80:
		return int(p[0]), p[1:], true
	case len(p) >= 2:
		return int(p[0]&0x7F)<<8 | int(p[1]), p[2:], true
	}
	return 0, nil, false
}
