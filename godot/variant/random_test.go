package variant

import (
	"flag"
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

var seed = flag.Uint64("seed", 0, "seed of the random tests; 0 takes one from the clock")

// A random is what random values are made of.
type random struct {
	*rand.Rand
	single bool // vectors have no floats of 64 bits, which common builds of Godot 4 read and do not write
}

func newRand(t *testing.T) random {
	s := *seed
	if s == 0 {
		s = uint64(time.Now().UnixNano())
	}
	t.Logf("-seed=%d", s)
	return random{Rand: rand.New(rand.NewPCG(s, 0))}
}

// randomValue writes a value of any type that a Writer can write, in the form of the engine.
func randomValue(rnd random, w *Writer, depth int) {
	for {
		t := Type(rnd.IntN(Types))
		if t.In(w.Dialect()) && randomOf(rnd, w, t, depth) {
			return
		}
	}
}

func randomOf(rnd random, w *Writer, t Type, depth int) bool {
	row := &types[t]
	switch {
	case t == Nil:
		w.Nil()
	case t == Bool:
		w.Bool(rnd.IntN(2) == 0)
	case t == Int:
		i := int64(rnd.Uint64()) >> rnd.IntN(64)
		if w.FitsInt(i) {
			w.Int(i)
		} else {
			w.Int(int64(int32(i)))
		}
	case t == Float:
		w.Float(randomFloat(rnd, w.Dialect() > Godot2))
	case t == String:
		w.String(randomText(rnd))
	case t == NodePath:
		w.NodePath([]string{"", "/home/A", "a/b:c:d", ":x", "/", "Ä"}[rnd.IntN(6)])
	case t == PackedStringArray:
		w.Strings([]string{"a", "", "bcd", randomText(rnd)}[:rnd.IntN(5)]...)
	case row.shape == shapeFixed && row.integral, row.shape == shapePacked && row.integral:
		c := make([]int64, row.n*randomCount(rnd, row.shape))
		for i := range c {
			c[i] = int64(rnd.Uint64()) >> (64 - 8*row.width)
			if row.width == 1 {
				c[i] &= 0xff
			}
		}
		w.Ints(t, c...)
	case row.shape == shapeFixed, row.shape == shapePacked:
		c := make([]float64, row.n*randomCount(rnd, row.shape))
		for i := range c {
			c[i] = randomFloat(rnd, row.width == 8 || w.Dialect() == Godot4 && row.wide != never && !rnd.single)
		}
		w.Floats(t, c...)
	case (t == Array || t == Dictionary) && depth < 4:
		randomContainer(rnd, w, t, depth)
	default:
		return false
	}
	return true
}

func randomContainer(rnd random, w *Writer, t Type, depth int) {
	m, n := w.Begin(t), rnd.IntN(5)
	for i := range n {
		if t == Dictionary {
			w.Int(int64(i)) // distinct keys
		}
		randomValue(rnd, w, depth+1)
	}
	w.End(m, n)
}

func randomCount(rnd random, s shape) int {
	if s == shapePacked {
		return rnd.IntN(6)
	}
	return 1
}

func randomText(rnd random) string {
	text := []rune("aé世 \n\"😀z")
	return string(text[rnd.IntN(4) : 4+rnd.IntN(5)])
}

// randomFloat returns a number but never NaN, whose bits an engine may change.
func randomFloat(rnd random, wide bool) float64 {
	f := float64(math.Float32frombits(rnd.Uint32()))
	if wide && rnd.IntN(2) == 0 {
		f = math.Float64frombits(rnd.Uint64())
	}
	if math.IsNaN(f) {
		return 0.5
	}
	return f
}

// TestRandom writes values, reads them, and writes them again.
func TestRandom(t *testing.T) {
	rnd := newRand(t)
	for d := Godot2; d <= Godot4; d++ {
		for range 3000 {
			w := NewWriter(d, nil)
			randomValue(rnd, &w, 0)
			if w.Err() != nil {
				t.Fatal(w.Err())
			}
			v, err := Decode(d, w.Bytes())
			if err != nil {
				t.Fatalf("%x: %v", w.Bytes(), err)
			}
			if got := v.Append(nil); string(got) != string(w.Bytes()) {
				t.Fatalf("%v\n%x became\n%x", d, w.Bytes(), got)
			}
		}
	}
}
