package netstate

import (
	"bytes"
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/dnp/wire"
)

var seed = flag.Uint64("seed", uint64(time.Now().UnixNano()), "seed of random tests")

func random(t *testing.T) *rand.Rand {
	t.Logf("repeat with -seed=%d", *seed)
	return rand.New(rand.NewPCG(*seed, 0))
}

// TestMaskModel applies the same operations to masks and to sets and compares the
// results.
func TestMaskModel(t *testing.T) {
	rng := random(t)
	for range 300 {
		n := 1 + rng.IntN(200)
		if rng.IntN(3) == 0 {
			n = 64 * (1 + rng.IntN(3)) // full words
		}
		m, o := NewMask(n), NewMask(n)
		twin, other := map[int]bool{}, map[int]bool{}
		for range 100 {
			i := rng.IntN(n)
			switch rng.IntN(6) {
			case 0, 1:
				m.Set(i)
				twin[i] = true
			case 2:
				m.Clear(i)
				delete(twin, i)
			case 3:
				o.Set(i)
				other[i] = true
			case 4:
				m.Or(o)
				for k := range other {
					twin[k] = true
				}
			case 5:
				if rng.IntN(10) == 0 {
					m.Reset()
					clear(twin)
				}
			}
			compareMask(t, m, twin, n)
		}
	}
}

func compareMask(t *testing.T, m Mask, twin map[int]bool, n int) {
	t.Helper()
	if m.Count() != len(twin) || m.Empty() != (len(twin) == 0) {
		t.Fatalf("Count = %d, Empty = %v, want %d members", m.Count(), m.Empty(), len(twin))
	}
	for i := range n {
		if m.Has(i) != twin[i] {
			t.Fatalf("Has(%d) = %v, want %v", i, m.Has(i), twin[i])
		}
	}
	from, got := 0, 0
	for {
		i, ok := m.Next(from)
		if !ok {
			break
		}
		for k := from; k < i; k++ {
			if twin[k] {
				t.Fatalf("Next(%d) = %d leaves %d out", from, i, k)
			}
		}
		if !twin[i] {
			t.Fatalf("Next(%d) = %d, which is not a member", from, i)
		}
		from = i + 1
		got++
	}
	if got != len(twin) {
		t.Fatalf("Next finds %d members, want %d", got, len(twin))
	}
}

func randomType(rng *rand.Rand) wire.ValueType {
	if rng.IntN(4) == 0 { // many that carry their own length
		return wire.TypeString + wire.ValueType(rng.IntN(2))
	}
	return wire.ValueType(rng.IntN(wire.ValueTypes))
}

func randomValue(rng *rand.Rand, t wire.ValueType) []byte {
	n := t.Size()
	var b []byte
	if t.Variable() {
		n = rng.IntN(20)
		b = []byte{byte(n), 0}
	}
	for range n {
		b = append(b, byte(rng.IntN(3))) // few values, so that equal ones occur
	}
	return b
}

// TestStateModel applies the same operations to states and to lists of byte slices and
// compares the results.
func TestStateModel(t *testing.T) {
	rng := random(t)
	for range 200 {
		n := 1 + rng.IntN(20)
		values, twin := make([]Value, n), make([][]byte, n)
		for i := range values {
			values[i] = Value{Type: randomType(rng)}
			twin[i] = bytes.Clone(values[i].Type.Zero())
		}
		layout, err := NewLayout(values)
		if err != nil {
			t.Fatal(err)
		}
		s := NewState(layout)
		for range 50 {
			i := rng.IntN(n)
			v := randomValue(rng, values[i].Type)
			if changed := s.Set(i, v); changed == bytes.Equal(v, twin[i]) {
				t.Fatalf("Set(%d, % x) = %v over % x", i, v, changed, twin[i])
			}
			twin[i] = bytes.Clone(v)
			copy(v, "the caller uses its bytes for something else")
			compareState(t, s, twin)
		}
		copyOf := NewState(layout)
		list := parseAll(t, s)
		copyOf.SetAll(list)
		compareState(t, copyOf, twin)
	}
}

func compareState(t *testing.T, s *State, twin [][]byte) {
	t.Helper()
	var all []byte
	for i, want := range twin {
		if got := s.Value(i); !bytes.Equal(got, want) {
			t.Fatalf("value %d is % x, want % x", i, got, want)
		}
		all = wire.AppendTypedValue(all, s.Layout().Type(i), want)
	}
	if got := s.AppendTyped([]byte("x")); got[0] != 'x' || !bytes.Equal(got[1:], all) || s.TypedSize() != len(all) {
		t.Fatalf("AppendTyped = % x (TypedSize %d), want % x behind the x", got, s.TypedSize(), all)
	}
}

func parseAll(t *testing.T, s *State) wire.Values {
	t.Helper()
	n := s.Layout().Len()
	list, err := wire.ParseValues(s.AppendTyped([]byte{byte(n), byte(n >> 8)}))
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func mustLayout(t testing.TB, types ...wire.ValueType) *Layout {
	t.Helper()
	values := make([]Value, len(types))
	for i, typ := range types {
		values[i].Type = typ
	}
	l, err := NewLayout(values)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestLayout(t *testing.T) {
	l := mustLayout(t, 33, wire.TypeString, 3)
	if l.Len() != 3 || l.Type(1) != wire.TypeString || fmt.Sprint(l.Types()) != "[vector3f32 string uint16]" {
		t.Errorf("layout is %v", l.Types())
	}
	for name, other := range map[string]*Layout{
		"shorter": mustLayout(t, 33, wire.TypeString), "other type": mustLayout(t, 33, wire.TypeString, 2),
	} {
		if l.Equal(other) {
			t.Errorf("%s: taken for the same layout", name)
		}
	}
	precise, err := NewLayout([]Value{{Type: 33, Precision: 0.1}, {Type: wire.TypeString}, {Type: 3}})
	if err != nil || l.Equal(precise) || !precise.Equal(precise) {
		t.Error("another precision makes another layout, of the same shape on the wire")
	}
	if _, err := NewLayout(nil); err != ErrEmptyLayout {
		t.Errorf("empty layout: %v", err)
	}
	if _, err := NewLayout([]Value{{Type: 38}}); err == nil {
		t.Error("unknown type accepted")
	}
	if _, err := NewLayout(make([]Value, ValuesMax)); err != nil {
		t.Errorf("the most values: %v", err)
	}
	if _, err := NewLayout(make([]Value, ValuesMax+1)); err == nil {
		t.Error("one value too many accepted")
	}
}

// TestValueIsBounded: appending to a returned value does not overwrite its neighbour.
func TestValueIsBounded(t *testing.T) {
	s := NewState(mustLayout(t, 1, 1))
	_ = append(s.Value(0), 9)
	if s.Value(1)[0] != 0 {
		t.Fatal("appending to a value changed the next one")
	}
}

func TestAllocs(t *testing.T) {
	s := NewState(mustLayout(t, 33, wire.TypeString, 8))
	m, buf := NewMask(200), make([]byte, 0, 256)
	long, short, half := []byte("\x05\x00hello"), []byte("\x01\x00x"), []byte{1, 2}
	s.Set(1, long) // the longest value of this test
	if n := testing.AllocsPerRun(100, func() {
		s.Set(1, short)
		s.Set(1, long)
		half[0]++
		s.Set(2, half)
		s.AppendTyped(buf)
		m.Set(150)
		m.Or(m)
		m.Next(0)
		m.Reset()
	}); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}

func BenchmarkStateSet(b *testing.B) {
	s := NewState(mustLayout(b, 33, 36))
	v := make([]byte, 12)
	b.ReportAllocs()
	for b.Loop() {
		v[0]++
		s.Set(0, v)
	}
}

func BenchmarkMaskNext(b *testing.B) {
	m := NewMask(1024)
	for i := 0; i < 1024; i += 50 {
		m.Set(i)
	}
	b.ReportAllocs()
	for b.Loop() {
		for i, ok := m.Next(0); ok; i, ok = m.Next(i + 1) {
		}
	}
}
