package replication

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/dnp/wire"
)

// A boundsTwin is the simplest store of one state that clients write: it keeps the time of
// every accepted write, and compares numbers as fractions.
type boundsTwin struct {
	defs     []ValueDef
	values   []string
	accepted map[string][]time.Time // by session and index
}

// number returns a component as a fraction, or nil if it is not finite.
func number(t wire.ValueType, c []byte) *big.Rat {
	var f float64
	switch {
	case t.Kind() == wire.KindFloat && t.Width() == 2:
		h := binary.LittleEndian.Uint16(c)
		exponent, fraction := int(h>>10&31), float64(h&1023)
		switch {
		case exponent == 31:
			return nil
		case exponent == 0:
			f = math.Ldexp(fraction, -24)
		default:
			f = math.Ldexp(1024+fraction, exponent-25)
		}
		if h>>15 == 1 {
			f = -f
		}
	case t.Kind() == wire.KindFloat && t.Width() == 4:
		f = float64(math.Float32frombits(binary.LittleEndian.Uint32(c)))
	case t.Kind() == wire.KindFloat:
		f = math.Float64frombits(binary.LittleEndian.Uint64(c))
	default:
		high := slices.Clone(c)
		slices.Reverse(high)
		n := new(big.Int).SetBytes(high)
		if t.Kind() == wire.KindSint && high[0] >= 0x80 {
			n.Sub(n, new(big.Int).Lsh(big.NewInt(1), uint(8*len(c))))
		}
		return new(big.Rat).SetInt(n)
	}
	return new(big.Rat).SetFloat64(f) // nil for NaN and infinities
}

// why returns the bound that a write breaks.
func (m *boundsTwin) why(now time.Time, session string, i int, enc string) string {
	d := &m.defs[i]
	if m.values[i] == enc {
		return ""
	}
	b := d.Bounds
	if b == nil {
		b = &Bounds{}
	}
	for rest := []byte(enc); !d.Type.Variable() && len(rest) > 0; rest = rest[d.Type.Width():] {
		n := number(d.Type, rest[:d.Type.Width()])
		if n == nil {
			if !b.Infinite {
				return "finite"
			}
			continue
		}
		if b.Min != nil && n.Cmp(number(d.Type, b.Min)) < 0 {
			return "min"
		}
		if b.Max != nil && n.Cmp(number(d.Type, b.Max)) > 0 {
			return "max"
		}
	}
	if b.Rate > 0 && m.full(now, fmt.Sprint(session, i), b.Rate) {
		return "rate"
	}
	return ""
}

// full pours every accepted write into a bucket that leaks at the rate, and reports whether it
// overflows.
func (m *boundsTwin) full(now time.Time, key string, rate float64) bool {
	level, last := time.Duration(0), time.Time{}
	each := time.Duration(float64(time.Second) / rate)
	for _, at := range append(slices.Clone(m.accepted[key]), now) {
		if !last.IsZero() {
			level = max(0, level-at.Sub(last))
		}
		level, last = level+each, at
	}
	if level > each*time.Duration(max(1, math.Floor(rate))) {
		return true
	}
	m.accepted[key] = append(m.accepted[key], now)
	return false
}

// randomBounds makes bounds for a value, with components that are not far apart.
func randomBounds(r *rand.Rand, t wire.ValueType) *Bounds {
	b := &Bounds{}
	if !t.Variable() {
		low, high := smallValue(r, t.Component()), smallValue(r, t.Component())
		if r.IntN(2) == 0 {
			b.Min = low
		}
		if r.IntN(2) == 0 {
			b.Max = high
		}
	}
	if t.Kind() == wire.KindFloat && b.Min == nil && b.Max == nil {
		b.Infinite = r.IntN(2) == 0
	}
	if r.IntN(2) == 0 {
		b.Rate = []float64{0.5, 1, 2, 5, 8, 20}[r.IntN(6)]
	}
	if b.none() || b.Check(t) != nil {
		return nil
	}
	return b
}

// smallValue is a value whose components are often near zero, and sometimes NaN.
func smallValue(r *rand.Rand, t wire.ValueType) (b []byte) {
	if t.Variable() {
		return appendLong(nil, []byte{byte('a' + r.IntN(4))})
	}
	for range t.Components() {
		c := make([]byte, t.Width())
		switch {
		case r.IntN(12) == 0:
			for i := range c {
				c[i] = byte(r.Uint32())
			}
		case t.Kind() == wire.KindFloat:
			c = floatBytes(t.Width(), []float64{-2, -1, -0.5, 0, 0.5, 1, 2, math.Inf(1), math.Inf(-1), math.NaN()}[r.IntN(9+r.IntN(2))])
		default:
			n := int64(r.IntN(8) - 4)
			for i := range c {
				c[i] = byte(n >> (8 * min(i, 7)))
			}
		}
		b = append(b, c...)
	}
	return b
}

func floatBytes(width int, f float64) []byte {
	switch width {
	case 2:
		bits := map[float64]uint16{-2: 0xC000, -1: 0xBC00, -0.5: 0xB800, 0: 0, 0.5: 0x3800, 1: 0x3C00, 2: 0x4000, math.Inf(1): 0x7C00, math.Inf(-1): 0xFC00}
		h, ok := bits[f]
		if !ok {
			h = 0x7E00
		}
		return binary.LittleEndian.AppendUint16(nil, h)
	case 4:
		return binary.LittleEndian.AppendUint32(nil, math.Float32bits(float32(f)))
	}
	return binary.LittleEndian.AppendUint64(nil, math.Float64bits(f))
}

// TestBoundsTwin lets three sessions write values of all types, with random bounds, and
// compares every write with the twin: the refused values and the reasons, the state afterwards,
// and the answer to the edge.
func TestBoundsTwin(t *testing.T) {
	seeds(t, func(t *testing.T, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 7))
		s := newStoreTest(t, Limits{})
		m := &boundsTwin{accepted: map[string][]time.Time{}}
		op := Op{Kind: OpPut, Key: "a", HasAccess: true, Access: Access{Kind: AccessReadWrite}}
		for i := range wire.ValueTypes {
			d := ValueDef{Type: wire.ValueType(i), Bounds: randomBounds(r, wire.ValueType(i))}
			m.defs, m.values = append(m.defs, d), append(m.values, string(d.Type.Zero()))
			op.Values = append(op.Values, PutValue{ValueDef: d})
		}
		first := r.IntN(len(m.defs))
		m.defs[first].Bounds = &Bounds{Rate: 1}
		op.Values[first].Bounds = m.defs[first].Bounds
		s.ok(op)
		s.Advance(s.now)
		why := map[string]int{}
		for number := range uint32(1500) {
			s.now = s.now.Add(time.Duration(r.IntN(80)) * time.Millisecond)
			w := Write{Kind: WriteValues, Session: fmt.Sprint("s", r.IntN(3)), Client: "c", State: 1, Epoch: 7, Number: number + 1}
			var refused []RefusedIndex
			for _, i := range r.Perm(len(m.defs))[:1+r.IntN(4)] {
				if r.IntN(2) == 0 {
					i = (first + i%3) % len(m.defs) // a few values often, one of them with a rate
				}
				if slices.ContainsFunc(w.Values, func(v WriteValue) bool { return v.Index == i }) {
					continue
				}
				enc := smallValue(r, m.defs[i].Type)
				w.Values = append(w.Values, WriteValue{Index: i, Type: m.defs[i].Type, Value: enc})
				reason := m.why(s.now, w.Session, i, string(enc))
				why[reason]++
				if reason == "" {
					m.values[i] = string(enc)
				} else {
					refused = append(refused, RefusedIndex{Index: uint16(i)})
				}
			}
			var result WriteResult
			got := s.Store.write(s.now, &w, &result)
			want := WriteOK
			switch len(refused) {
			case 0:
			case len(w.Values):
				want, refused = WriteRefused, nil
			default:
				want = WritePartly
			}
			if got != want || !slices.Equal(result.Refused, refused) {
				t.Fatalf("write %d of %+v: code %d, refused %v; the twin says %d, %v", number, w, got, result.Refused, want, refused)
			}
			for i, v := range m.values {
				if now := s.states.byNumber[1].Values.Value(i); string(now) != v {
					t.Fatalf("after write %d value %d is %x, the twin says %x", number, i, now, v)
				}
			}
		}
		st := s.Stats()
		if int(st.ValuesOutOfRange) != why["min"]+why["max"] || int(st.ValuesNotFinite) != why["finite"] || int(st.ValuesTooOften) != why["rate"] {
			t.Errorf("counted %+v, the twin %v", *st, why)
		}
		if why["rate"] == 0 || why["finite"] == 0 || why["min"]+why["max"] == 0 || why[""] == 0 {
			t.Errorf("the run did not try everything: %v", why)
		}
	})
}
