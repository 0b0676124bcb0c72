package client

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/dnprelay/dnprelay/dnp/wire"
)

// TestAppendFloats compares the fast reading of components with that of a Value, for all types of fixed size.
func TestAppendFloats(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	same := func(a, b float64) bool { return a == b || math.IsNaN(a) && math.IsNaN(b) }
	for typ := range wire.ValueType(wire.ValueTypes) {
		if typ.Variable() {
			continue
		}
		for range 100 {
			p := make([]byte, typ.Size())
			for i := range p {
				p[i] = byte(rng.Uint32())
			}
			got, want := appendFloats([]float64{7}, typ, p), append([]float64{7}, newValue(typ, p).Floats()...)
			if !slices.EqualFunc(got, want, same) {
				t.Fatalf("the components of the %v %x are %v, want %v", typ, p, got, want)
			}
		}
	}
	list := make([]float64, 0, 4)
	vector, _ := wire.ParseValueType("vector3f32")
	if n := testing.AllocsPerRun(100, func() { appendFloats(list, vector, make([]byte, 12)) }); n > 0 {
		t.Errorf("reading a vector allocates %.0f times", n)
	}
}
