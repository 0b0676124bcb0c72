package bench

import (
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/x448/float16"
)

// A Model is the choice of values that change in a tick.
type Model uint8

const (
	ModelAll   Model = iota // every value of every state
	ModelTenth              // every tenth value, in turn
	ModelSine               // all values move slowly, and precision holds most changes back
)

var modelNames = []string{"all", "tenth", "sine"}

// String returns the name of m.
func (m Model) String() string { return modelNames[m] }

const (
	valuesPerState = 2    // a position and a rotation
	sinePeriod     = 512  // ticks
	sinePrecision  = 0.02 // of an amplitude of 1
	cycleHalf      = 2048 // a half float is exact for smaller integers
	cycleFloat     = 1 << 20
)

// A script encodes the ops of the publisher and decodes their values for clients: the first
// component of each value stands for the tick, modulo the length of the cycle.
type script struct {
	c      *Case
	types  []wire.ValueType
	cycle  uint32
	sine   [sinePeriod]float32
	inSine map[float32]uint32
}

func newScript(c *Case) *script {
	s := &script{c: c, cycle: cycleFloat}
	names := []string{"vector3f32", "quaternionf32"}
	if c.Half {
		s.cycle = cycleHalf
		names = []string{"vector3f16", "quaternionf16"}
	}
	for _, name := range names {
		t, ok := wire.ParseValueType(name)
		if !ok {
			panic("bench: no value type " + name)
		}
		s.types = append(s.types, t)
	}
	if c.Model == ModelSine {
		s.cycle = sinePeriod
		s.inSine = make(map[float32]uint32, sinePeriod)
		for k := range s.sine { // the slope tells rising values from falling ones
			s.sine[k] = float32(math.Sin(2*math.Pi*float64(k)/sinePeriod) + 1e-5*float64(k))
			s.inSine[s.sine[k]] = uint32(k)
		}
	}
	return s
}

// changes reports whether value v of state i changes in tick n.
func (s *script) changes(i, v int, n uint32) bool {
	return s.c.Model != ModelTenth || (uint32(i*valuesPerState+v)+n)%10 == 0
}

// first returns the first component of the values that change in tick n.
func (s *script) first(n uint32) float32 {
	if s.c.Model == ModelSine {
		return s.sine[n%sinePeriod]
	}
	return float32(n % s.cycle)
}

// tick returns the tick that an encoded value stands for: the newest up to last
// that fits.
func (s *script) tick(t wire.ValueType, value []byte, last uint32) (n uint32, ok bool) {
	var x float32
	if t.Width() == 2 {
		x = float16.Frombits(binary.LittleEndian.Uint16(value)).Float32()
	} else {
		x = math.Float32frombits(binary.LittleEndian.Uint32(value))
	}
	k := uint32(x)
	if s.c.Model == ModelSine {
		if k, ok = s.inSine[x]; !ok {
			return 0, false
		}
	}
	n = last - last%s.cycle + k
	if n > last {
		if n < s.cycle {
			return 0, false
		}
		n -= s.cycle
	}
	return n, true
}

// appendSet appends the op that changes state i in tick n, or nothing.
func (s *script) appendSet(b []byte, i int, n uint32) []byte {
	if !s.changes(i, 0, n) && !s.changes(i, 1, n) {
		return b
	}
	b = append(b, `{"op":"set","key":"s`...)
	b = strconv.AppendInt(b, int64(i), 10)
	b = append(b, `","values":{`...)
	start := len(b)
	for v := range valuesPerState {
		if !s.changes(i, v, n) {
			continue
		}
		if len(b) > start {
			b = append(b, ',')
		}
		b = append(b, '"', byte('0'+v), '"', ':')
		b = s.appendValue(b, i, v, n)
	}
	return append(b, '}', '}')
}

func (s *script) appendValue(b []byte, i, v int, n uint32) []byte {
	b = append(b, '[')
	b = strconv.AppendFloat(b, float64(s.first(n)), 'g', -1, 32)
	for k := 1; k < s.types[v].Components(); k++ {
		b = append(b, ',')
		if s.c.Model == ModelSine {
			b = append(b, '0')
			continue
		}
		b = strconv.AppendFloat(b, float64((uint32(i+k)*7+n*uint32(k))%1000)/8, 'f', -1, 32)
	}
	return append(b, ']')
}

// appendPut appends the op that makes state i.
func (s *script) appendPut(b []byte, i int) []byte {
	b = fmt.Appendf(b, `{"op":"put","key":"s%d"`, i)
	if s.c.Links > 0 {
		b = fmt.Appendf(b, `,"audience":{"groups":["g%d"]}`, s.c.group(i))
	}
	b = append(b, `,"values":[`...)
	for v, t := range s.types {
		if v > 0 {
			b = append(b, ',')
		}
		b = fmt.Appendf(b, `{"name":"v%d","type":"%s","value":`, v, t)
		b = s.appendValue(b, i, v, 0)
		if s.c.Model == ModelSine {
			b = fmt.Appendf(b, `,"precision":%g`, sinePrecision)
		}
		b = append(b, '}')
	}
	return append(b, ']', '}')
}

// A timeline has the times of the ticks of a window.
type timeline struct {
	start  time.Time
	first  uint32 // tick that is due at start
	period time.Duration
}

func (t *timeline) due(n uint32) time.Time {
	return t.start.Add(time.Duration(int32(n-t.first)) * t.period)
}

// last returns the newest tick that is due at now.
func (t *timeline) last(now time.Time) uint32 {
	if d := now.Sub(t.start); d > 0 && t.period > 0 { // the zero timeline is before the first
		return t.first + uint32(d/t.period)
	}
	return t.first
}
