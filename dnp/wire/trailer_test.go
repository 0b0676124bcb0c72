package wire

import (
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
)

func unhexed(t *testing.T, text string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(text, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Trailers as an edge writes them.
var trailers = []struct {
	what  string
	order Order
	acks  []WriteAck
	hex   string
}{
	{"an order", NewOrder(0, 1), nil, "00 01 02"},
	{"the third edge of a session", NewOrder(2, 300), nil, "02 ac02 03"},
	{"an acknowledgement", NewOrder(0, 7), []WriteAck{{Number: 1}}, "00 07 01 00 04"},
	{"two, one with a refused value", NewOrder(0, 7), []WriteAck{{Number: 129, Refused: []RefusedValue{{0x8001, 258, RefusedRate}}}, {Number: 130}},
		"00 07 8101 01 0180 0201 03 8201 00 0d"},
}

func TestTrailer(t *testing.T) {
	for _, c := range trailers {
		links := unhexed(t, "01 0180 01 0000 05")
		b, n := AppendTrailer(links, c.order, c.acks)
		if got, want := hex.EncodeToString(b[len(links):]), strings.ReplaceAll(c.hex, " ", ""); got != want || n != len(c.acks) {
			t.Errorf("%s: %s with %d acknowledgements, want %s", c.what, got, n, want)
		}
		if room := c.order.Size(); len(c.acks) == 0 && room != len(b)-len(links) {
			t.Errorf("%s: its size is %d, want %d", c.what, room, len(b)-len(links))
		}
		rest, trailer, ok := ParseTrailer(b)
		if !ok || string(rest) != string(links) || trailer.Order != c.order {
			t.Errorf("%s: parsed as %x, %+v, %v", c.what, rest, trailer, ok)
		}
		for _, want := range c.acks {
			if got, ok := trailer.Next(); !ok || fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("%s: got %v, %v, want %v", c.what, got, ok, want)
			}
		}
		if _, ok := trailer.Next(); ok {
			t.Errorf("%s: there are more acknowledgements than were appended", c.what)
		}
	}
	for what, text := range map[string]string{
		"nothing": "", "longer than the datagram": "00 01 03", "no order": "00 00 02", "no counter": "00 01", "a generation beyond 20 bits": "808040 01 04",
		"an acknowledgement without its count": "00 01 05 03", "a refused value that is cut": "00 01 05 01 0180 0200 07", "33 refused values": "00 01 05 21" + strings.Repeat(" 0180 0200 01", 33) + " a9",
	} {
		p := unhexed(t, text)
		if rest, trailer, ok := ParseTrailer(p); ok || len(rest) != len(p) {
			t.Errorf("%s was taken for a trailer: %+v", what, trailer)
		}
	}
}

// TestTrailerRoom checks that a trailer takes the acknowledgements that fit, also one that refuses all values of a write.
func TestTrailerRoom(t *testing.T) {
	full := WriteAck{Number: 1<<32 - 1, Refused: make([]RefusedValue, WriteValuesMax)}
	most := NewOrder(1<<20-1, 1<<44-1)
	if b, n := AppendTrailer(nil, most, []WriteAck{full, full}); n != 1 || len(b) > TrailerMax {
		t.Errorf("%d acknowledgements in %d bytes, want 1 in at most %d", n, len(b), TrailerMax)
	}
	var acks []WriteAck
	for i := range 1000 {
		acks = append(acks, WriteAck{Number: uint32(i + 1)})
	}
	for len(acks) > 0 {
		b, n := AppendTrailer(nil, 1, acks)
		if n == 0 || len(b) > TrailerMax {
			t.Fatalf("%d acknowledgements in %d bytes", n, len(b))
		}
		_, trailer, _ := ParseTrailer(b)
		for _, want := range acks[:n] {
			if got, _ := trailer.Next(); got.Number != want.Number {
				t.Fatalf("got %d, want %d", got.Number, want.Number)
			}
		}
		acks = acks[n:]
	}
}

func TestWriteNumber(t *testing.T) {
	types := []ValueType{1}
	for _, c := range []struct {
		hex    string
		number uint32
		ok     bool
	}{
		{"01 0180 01 0000 05", 0, true},
		{"01 0180 01 0000 05 01", 1, true},
		{"01 0180 01 0000 05 ffffffff0f", 1<<32 - 1, true},
		{"01 0180 01 0000 05 00", 0, false},         // a number counts from 1
		{"01 0180 01 0000 05 80", 0, false},         // cut
		{"01 0180 01 0000 05 0101", 0, false},       // more than a number
		{"01 0180 01 0000 05 ffffffff1f", 0, false}, // beyond 32 bits
	} {
		r := Denetwork.UpdateReader(unhexed(t, c.hex))
		r.NextLink()
		r.NextValue(types)
		if got := r.WriteNumber(); got != c.number || (r.Err() == nil) != c.ok {
			t.Errorf("%s: number %d, %v; want %d, %v", c.hex, got, r.Err(), c.number, c.ok)
		}
	}
}

func FuzzTrailer(f *testing.F) {
	for _, c := range trailers {
		f.Add([]byte("links" + strings.ReplaceAll(c.hex, " ", "")))
	}
	f.Fuzz(func(t *testing.T, p []byte) {
		links, trailer, ok := ParseTrailer(p)
		if !ok {
			return
		}
		var acks []WriteAck
		for a, ok := trailer.Next(); ok; a, ok = trailer.Next() {
			acks = append(acks, a)
		}
		b, n := AppendTrailer(append([]byte(nil), links...), trailer.Order, acks)
		if _, again, ok := ParseTrailer(b); n != len(acks) || !ok || again.Order != trailer.Order {
			t.Fatalf("%x was parsed, and encoded as %x", p, b)
		}
	})
}
