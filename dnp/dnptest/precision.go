package dnptest

import (
	"bytes"
	"encoding/binary"
	"math"

	"github.com/dnprelay/dnprelay/dnp/netstate"
	"github.com/dnprelay/dnprelay/dnp/wire"
)

// near reports whether a change from old to value is too small to be sent: no
// component of a floating point value moved by more than the precision.
// Everything else is compared for equality.
func near(v netstate.Value, old, value []byte) bool {
	if bytes.Equal(old, value) {
		return true
	}
	if v.Type.Kind() != wire.KindFloat {
		return false
	}
	for w := v.Type.Width(); len(value) > 0; old, value = old[w:], value[w:] {
		if !(math.Abs(component(value[:w])-component(old[:w])) <= v.Precision) {
			return false
		}
	}
	return true
}

// component decodes one floating point number of 2, 4 or 8 bytes.
func component(p []byte) float64 {
	switch len(p) {
	case 4:
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(p)))
	case 8:
		return math.Float64frombits(binary.LittleEndian.Uint64(p))
	}
	return half(binary.LittleEndian.Uint16(p))
}

func half(h uint16) float64 {
	exponent, fraction := int(h>>10&31), float64(h&1023)
	var f float64
	switch exponent {
	case 0:
		f = math.Ldexp(fraction, -24)
	case 31:
		f = math.Inf(1)
		if fraction != 0 {
			f = math.NaN()
		}
	default:
		f = math.Ldexp(1024+fraction, exponent-25)
	}
	if h&0x8000 != 0 {
		return -f
	}
	return f
}
