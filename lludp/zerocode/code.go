package zerocode

import (
	"bytes"
	"encoding/binary"
	"math/bits"
)

// runMax is the longest run that two bytes can say.
const runMax = 255

// Append appends p in coded form to b: every run of zeros as 00 k, longer ones
// in pieces of 255. The form with several 00 is never written, because half of
// the implementations read it as something else (lludp/DESIGN.md, Zero-coding).
func Append(b, p []byte) []byte {
	for {
		i := bytes.IndexByte(p, 0)
		if i < 0 {
			return append(b, p...)
		}
		k := run(p[i:])
		b = append(append(b, p[:i]...), 0, byte(k))
		p = p[i+k:]
	}
}

// AppendShorter appends p in coded form if that is shorter than p. Otherwise it
// returns b as it was and false.
func AppendShorter(b, p []byte) ([]byte, bool) {
	start, left := len(b), len(p)-1 // what the coded form may take from here on
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

// run returns how many zeros p begins with, at most 255.
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
