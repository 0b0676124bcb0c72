package replication

import (
	"encoding/binary"
	"math"

	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/x448/float16"
)

// within reports whether every component of the encoded value b is at most
// precision away from that of a. Only floating point types have a precision.
// NaN is never within, so it is always told.
func within(t wire.ValueType, precision float64, a, b []byte) bool {
	if t.Kind() != wire.KindFloat || !(precision > 0) {
		return false
	}
	width := t.Width()
	for i := 0; i < len(a); i += width {
		if d := math.Abs(component(width, a[i:]) - component(width, b[i:])); !(d <= precision) {
			return false
		}
	}
	return true
}

func component(width int, p []byte) float64 {
	switch width {
	case 2:
		return float64(float16.Frombits(binary.LittleEndian.Uint16(p)).Float32())
	case 4:
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(p)))
	}
	return math.Float64frombits(binary.LittleEndian.Uint64(p))
}
