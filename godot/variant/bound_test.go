package variant

import (
	"encoding/binary"
	"runtime"
	"strings"
	"testing"
)

// allocated returns the bytes that f allocates, garbage included. Other goroutines can only add
// to them, so the smallest of several runs counts.
func allocated(f func()) uint64 {
	least := ^uint64(0)
	for range 3 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		f()
		runtime.ReadMemStats(&after)
		least = min(least, after.TotalAlloc-before.TotalAlloc)
	}
	return least
}

// bound returns the bytes that decoding n bytes may allocate.
func bound(n int) uint64 { return 2*uint64(n) + 1024 }

// TestAllocation decodes input that could make a decoder allocate: large counts, large values
// of many small parts, thousands of keys, deep errors with long paths.
func TestAllocation(t *testing.T) {
	const size = 256 << 10
	for d := Godot2; d <= Godot4; d++ {
		for name, p := range map[string][]byte{
			"arrays of large counts":       bomb(d, Array, size),
			"dictionaries of large counts": bomb(d, Dictionary, size),
			"nulls":                        flat(d, size),
			"keys":                         keys(d, size, -1),
			"keys, one of them twice":      keys(d, size, 7),
			"deep":                         nested(d, DepthMax),
			"too deep":                     nested(d, 1000),
			"long keys":                    longKeys(d),
			"one byte":                     {0},
			"a count":                      binary.LittleEndian.AppendUint32(header(d, PackedColorArray), 0x7fffffff),
			"empty texts":                  append(binary.LittleEndian.AppendUint32(header(d, PackedStringArray), size/4), make([]byte, size)...),
		} {
			if got := allocated(func() { _, _ = Decode(d, p) }); got > bound(len(p)) {
				t.Errorf("%v, %s: %d bytes allocated for %d, at most %d are allowed", d, name, got, len(p), bound(len(p)))
			}
			v, err := Decode(d, p)
			if err != nil {
				continue
			}
			b := make([]byte, 0, 2*len(p))
			if got := allocated(func() { b = v.Append(b[:0]) }); got > 1024 || len(b) > 2*len(p) {
				t.Errorf("%v, %s: written as %d bytes with %d allocated, want at most %d and 1024", d, name, len(b), got, 2*len(p))
			}
		}
	}
}

// TestNoAllocation decodes valid values without an allocation.
func TestNoAllocation(t *testing.T) {
	for _, c := range vectors(t, "godot3.jsonl") {
		p := unhex(t, c.Hex)
		b := make([]byte, 0, 2*len(p))
		if n := testing.AllocsPerRun(10, func() {
			v, _ := Decode(Godot3, p)
			for e := v.Elements(); e.Next(); {
				_ = e.Value().Type()
			}
			b = v.Append(b[:0])
		}); n > 0 {
			t.Errorf("%s: %v allocations", c.Name, n)
		}
	}
}

func header(d Dialect, t Type) []byte {
	return binary.LittleEndian.AppendUint32(nil, uint32(t.id(d)))
}

// bomb returns nested containers, each with a count as large as the rest allows.
func bomb(d Dialect, t Type, size int) (p []byte) {
	for range DepthMax {
		per := 4
		if t == Dictionary {
			per = 8
			p = append(p, header(d, Nil)...)
		}
		p = append(p, header(d, t)...)
		p = binary.LittleEndian.AppendUint32(p, uint32((size-len(p)-4)/per))
	}
	if t == Dictionary {
		p = p[4:]
	}
	return append(p, make([]byte, size-len(p))...)
}

func flat(d Dialect, size int) []byte {
	p := binary.LittleEndian.AppendUint32(header(d, Array), uint32(size/4))
	return append(p, make([]byte, size)...)
}

// keys returns a dictionary of ints to null; the last key repeats the one with this index.
func keys(d Dialect, size, again int) []byte {
	w := NewWriter(d, nil)
	m, n := w.Begin(Dictionary), size/12
	for i := range n {
		if i == n-1 && again >= 0 {
			i = again
		}
		w.Int(int64(i))
		w.Nil()
	}
	w.End(m, n)
	return w.Bytes()
}

// longKeys returns an error below 60 keys that are too long for a path.
func longKeys(d Dialect) []byte {
	w := NewWriter(d, nil)
	for range 60 {
		m := w.Begin(Dictionary)
		w.String(strings.Repeat("ä", 40))
		w.End(m, 1)
	}
	return append(w.Bytes(), 0xff, 0xff, 0xff, 0xff)
}
