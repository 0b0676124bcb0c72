package payload

import (
	"math"

	"github.com/dnprelay/dnprelay/dnp/wire"
)

// appendDecimals appends an array of as many decimals as t has components, which is what most publishes consist of. It reports
// false for every other array.
func (l literal) appendDecimals(b []byte, t wire.ValueType) ([]byte, bool) {
	s := string(l[1:])
	for i := range t.Components() {
		if i > 0 {
			if s == "" || s[0] != ',' {
				return b, false
			}
			s = s[1:]
		}
		s = skipSpace(s)
		f, n := decimal(s)
		if n == 0 {
			return b, false
		}
		var ok bool
		if b, ok = appendRounded(b, t, f); !ok || t.Width() == 4 && amidFloat32(f) {
			return b, false
		}
		s = skipSpace(s[n:])
	}
	return b, s == "]"
}

// Bounds of what decimal reads: a float64 holds integers of so many digits exactly, and so many powers of ten.
const decimalDigits = 15

var powersOfTen = [decimalDigits + 1]float64{1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15}

// decimal reads a number at the beginning of s, which has n bytes. n is 0 if it has an exponent or many digits, or if there is none. The
// result is that of [strconv.ParseFloat]: the quotient of two exact numbers is rounded once.
func decimal(s string) (f float64, n int) {
	negative := s != "" && s[0] == '-'
	if negative {
		n = 1
	}
	digits, point := uint64(0), -1
	begin := n
	for ; n < len(s); n++ {
		switch c := s[n]; {
		case c-'0' <= 9:
			digits = digits*10 + uint64(c-'0')
			continue
		case c == '.' && point < 0:
			point = n
			continue
		case c == 'e', c == 'E':
			return 0, 0
		}
		break
	}
	count := n - begin
	f = float64(digits)
	if point >= 0 {
		count--
		if count > decimalDigits {
			return 0, 0
		}
		f /= powersOfTen[n-1-point]
	}
	if count == 0 || count > decimalDigits {
		return 0, 0
	}
	if negative {
		f = -f
	}
	return f, n
}

// amidFloat32 reports whether f lies in the middle between two numbers of type float32. Then it depends on the decimal from which f
// was rounded which of them is nearer. Decimals of few digits are not that small that it is subnormal.
func amidFloat32(f float64) bool {
	const rest = 52 - 23 // bits that float32 does not have
	return math.Float64bits(f)&(1<<rest-1) == 1<<(rest-1)
}
