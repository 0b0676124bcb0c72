package zerocode

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
)

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

type vectors struct {
	Zerocode []struct{ Name, Raw, Encoded string }
	Decode   []struct {
		Name, Encoded string
		Len           int  `json:"decoded_len"`
		AllZero       bool `json:"all_zero"`
	} `json:"zerocode_decode"`
}

func loadVectors(t testing.TB) (v vectors) {
	t.Helper()
	p, err := os.ReadFile("testdata/vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(p, &v); err != nil {
		t.Fatal(err)
	}
	if len(v.Zerocode) == 0 || len(v.Decode) == 0 {
		t.Fatal("no vectors")
	}
	return v
}

func expand(t *testing.T, p []byte) []byte {
	t.Helper()
	got, err := AppendExpanded([]byte("x"), p, 1<<20)
	if err != nil || got[0] != 'x' {
		t.Fatalf("%x expands to %.20x, %v", p, got, err)
	}
	return got[1:]
}

func TestVectors(t *testing.T) {
	for _, v := range loadVectors(t).Zerocode {
		raw, coded := unhex(t, v.Raw), unhex(t, v.Encoded)
		if got := Append([]byte("x"), raw)[1:]; !bytes.Equal(got, coded) {
			t.Errorf("%s: coded %x, want %x", v.Name, got, coded)
		}
		if got := expand(t, coded); !bytes.Equal(got, raw) {
			t.Errorf("%s: %x expands to %d bytes, want %d", v.Name, coded, len(got), len(raw))
		}
	}
	for _, v := range loadVectors(t).Decode {
		got := expand(t, unhex(t, v.Encoded))
		if len(got) != v.Len || v.AllZero != (len(bytes.Trim(got, "\x00")) == 0) {
			t.Errorf("%s: %s expands to %x, want %d bytes", v.Name, v.Encoded, got, v.Len)
		}
	}
}

// TestOddForms has the forms on which implementations disagree, read as the reference viewer
// and Hippolyzer read them. libomv, OpenSim and node-metaverse read 00 00 as an empty run and
// misread the rest; no implementation writes it.
func TestOddForms(t *testing.T) {
	for _, c := range []struct {
		why, coded string
		zeros      int
		tail       string
	}{
		{"nothing", "", 0, ""},
		{"a 00 at the end has no count: one zero (libomv throws)", "00", 1, ""},
		{"two 00 at the end: 256 more", "00 00", 257, ""},
		{"three 00 at the end", "00 00 00", 513, ""},
		{"each 00 after the first is 256 more", "00 00 05", 261, ""},
		{"and again", "00 00 00 05", 517, ""},
		{"a run after a run", "00 ff 00 01", 256, ""},
		{"the count ends the run", "00 00 01 41", 257, "41"},
	} {
		want := append(make([]byte, c.zeros), unhex(t, c.tail)...)
		if got := expand(t, unhex(t, c.coded)); !bytes.Equal(got, want) {
			t.Errorf("%s: %s expands to %d bytes, want %d", c.why, c.coded, len(got), len(want))
		}
	}
}

func TestMoreVectorsOfTheDocument(t *testing.T) {
	for _, c := range []struct {
		zeros int
		coded string
	}{{255, "00ff"}, {511, "00ff00ff0001"}} {
		if got := Append(nil, make([]byte, c.zeros)); hex.EncodeToString(got) != c.coded {
			t.Errorf("%d zeros: %x, want %s", c.zeros, got, c.coded)
		}
	}
	if got := Append(nil, unhex(t, "ffff0003")); hex.EncodeToString(got) != "ffff000103" {
		t.Errorf("a low message number with a zero is coded as %x", got)
	}
	if got := Append(nil, unhex(t, "61 00 62")); hex.EncodeToString(got) != "61000162" {
		t.Errorf("a lone zero is coded as %x", got)
	}
}

// AppendShorter does not code bytes that would not shrink.
func TestAppendShorter(t *testing.T) {
	for _, c := range []struct {
		raw     string
		shorter bool
	}{
		{"", false}, {"00", false}, {"0000", false}, {"000000", true}, {"6100", false}, {"61000000", true},
		{"00 61 000000", false}, {"00 61 00000000", true}, {"616263", false},
	} {
		raw := unhex(t, c.raw)
		got, ok := AppendShorter([]byte("x"), raw)
		if ok != c.shorter || ok && (len(got)-1 >= len(raw) || !bytes.Equal(got[1:], Append(nil, raw))) || !ok && string(got) != "x" {
			t.Errorf("%s: %x, %v", c.raw, got, ok)
		}
	}
}

func TestLimit(t *testing.T) {
	bomb := append(bytes.Repeat([]byte{0}, 1199), 0xFF) // 306,943 zeros
	if n, err := Expanded(bomb, 1<<20); n != 1198*256+255 || err != nil {
		t.Errorf("the bomb expands to %d, %v", n, err)
	}
	for _, limit := range []int{0, 8192, 1198*256 + 254} {
		b, err := AppendExpanded(nil, bomb, limit)
		if !errors.Is(err, ErrTooLong) || b != nil {
			t.Errorf("limit %d: %d bytes, %v", limit, len(b), err)
		}
	}
	if b, err := AppendExpanded(nil, bomb, 1198*256+255); err != nil || cap(b) != len(b) {
		t.Errorf("at the limit: %d bytes, capacity %d, %v", len(b), cap(b), err)
	}
	if _, err := AppendExpanded(nil, []byte("abc"), 2); !errors.Is(err, ErrTooLong) {
		t.Error("literal bytes do not count against the limit")
	}
}

// The zeros overwrite the old content of a reused buffer.
func TestExpandsOverWhatWasThere(t *testing.T) {
	used := bytes.Repeat([]byte{0xAA}, 300)
	if got, err := AppendExpanded(used[:1], []byte{1, 0, 200, 2}, 300); err != nil || !bytes.Equal(got[1:], append(append([]byte{1}, make([]byte, 200)...), 2)) {
		t.Errorf("got %x, %v", got, err)
	}
}

func TestAllocations(t *testing.T) {
	raw := append(make([]byte, 300), "abc"...)
	coded, room := Append(nil, raw), make([]byte, 0, 1000)
	bomb := make([]byte, 1200)
	if n := testing.AllocsPerRun(100, func() {
		Append(room, raw)
		AppendShorter(room, raw)
		AppendExpanded(room, coded, 1000)
		AppendExpanded(room, bomb, 1000)
	}); n != 0 {
		t.Errorf("%v allocations with room for the result", n)
	}
}

// twin expands one byte at a time, as the reference viewer does, up to the size of a packet.
func twin(p []byte) (out []byte) {
	for i := 0; i < len(p) && len(out) <= fuzzLimit; i++ {
		if p[i] != 0 {
			out = append(out, p[i])
			continue
		}
		zeros := 1
		for i++; i < len(p) && p[i] == 0; i++ {
			zeros += 256
		}
		if i < len(p) {
			zeros += int(p[i]) - 1
		}
		out = append(out, make([]byte, min(zeros, fuzzLimit+1))...)
	}
	return out
}

const fuzzLimit = 8192

func seed(f *testing.F) {
	for _, v := range loadVectors(f).Zerocode {
		f.Add(unhex(f, v.Raw))
		f.Add(unhex(f, v.Encoded))
	}
	for _, v := range loadVectors(f).Decode {
		f.Add(unhex(f, v.Encoded))
	}
	f.Add(make([]byte, 1200))
}

func FuzzExpand(f *testing.F) {
	seed(f)
	f.Fuzz(func(t *testing.T, p []byte) {
		got, err := AppendExpanded([]byte("x"), p, fuzzLimit)
		want := twin(p)
		if (err != nil) != (len(want) > fuzzLimit) {
			t.Fatalf("%x: %v, but it stands for %d bytes", p, err, len(want))
		}
		if err != nil {
			want = nil
		}
		if got[0] != 'x' || !bytes.Equal(got[1:], want) || cap(got) > 32+1+fuzzLimit {
			t.Fatalf("%x: %d bytes (capacity %d), want %d", p, len(got), cap(got), len(want))
		}
	})
}

func FuzzCode(f *testing.F) {
	seed(f)
	f.Fuzz(func(t *testing.T, p []byte) {
		coded := Append(nil, p)
		if n, err := Expanded(coded, len(p)); err != nil || n != len(p) {
			t.Fatalf("%x is coded as %x, which expands to %d, %v", p, coded, n, err)
		}
		if got := twin(coded); len(p) <= fuzzLimit && !bytes.Equal(got, p) {
			t.Fatalf("%x is coded as %x, which stands for %x", p, coded, got)
		}
		if i := bytes.Index(coded, []byte{0, 0}); i >= 0 {
			t.Fatalf("%x is coded as %x, which implementations read differently", p, coded)
		}
		if got, ok := AppendShorter(nil, p); ok != (len(coded) < len(p)) || ok && !bytes.Equal(got, coded) {
			t.Fatalf("%x: AppendShorter gives %x, %v; Append %x", p, got, ok, coded)
		}
	})
}

// Append appends the coded form of p, however long it is.
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
