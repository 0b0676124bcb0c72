package wire

import (
	"bytes"
	"encoding/hex"
	"errors"
	"flag"
	"reflect"
	"strings"
	"testing"
	"time"
)

var seed = flag.Uint64("seed", uint64(time.Now().UnixNano()), "seed of random tests")

func unhex(s string) []byte {
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		panic(err)
	}
	return b
}

// A codecTest is a message and its bytes on the wire.
type codecTest[M any] struct {
	name string
	m    M
	want string
}

// testCodec requires that Append appends each message to a prefix, that it parses back,
// also with bytes behind it unless the last field takes them, and that every truncation
// down to minimum bytes fails with ErrTruncated.
func testCodec[M any](t *testing.T, parse func([]byte) (M, error), open bool, tests []codecTest[M]) {
	t.Helper()
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := any(tt.m).(interface{ Append([]byte) []byte }).Append([]byte("x"))
			want := unhex(tt.want)
			if got[0] != 'x' || !bytes.Equal(got[1:], want) {
				t.Fatalf("Append = % x, want % x behind the x", got, want)
			}
			back, err := parse(want[1:])
			if err != nil || !reflect.DeepEqual(back, tt.m) {
				t.Fatalf("Parse = %+v, %v, want %+v", back, err, tt.m)
			}
			if open {
				return // its data may end anywhere; truncations of the head have their own test
			}
			if back, err = parse(append(bytes.Clone(want[1:]), 0xff)); err != nil || !reflect.DeepEqual(back, tt.m) {
				t.Fatalf("Parse with a byte behind = %+v, %v, want %+v", back, err, tt.m)
			}
			for i := range want[1:] {
				if _, err := parse(want[1 : 1+i]); err != ErrTruncated {
					t.Errorf("Parse of %d bytes: err = %v, want ErrTruncated", i, err)
				}
			}
		})
	}
}

func TestReliableAck(t *testing.T) {
	testCodec(t, ParseReliableAck, false, []codecTest[ReliableAck]{
		{"first", ReliableAck{Seq: 0, Code: AckSuccess}, "06 0000 00"},
		{"little endian", ReliableAck{Seq: 0x0102, Code: AckFailed}, "06 0201 01"},
		{"last before wrap", ReliableAck{Seq: 65534}, "06 feff 00"},
		{"code of another protocol version", ReliableAck{Seq: 1, Code: 9}, "06 0100 09"},
	})
}

func TestLinkUpDown(t *testing.T) {
	testCodec(t, ParseLinkUp, false, []codecTest[LinkUp]{
		{"first of a client", LinkUp{0}, "07 0000"},
		{"first of ours", LinkUp{0x8000}, "07 0080"},
		{"little endian", LinkUp{0x0102}, "07 0201"},
	})
	testCodec(t, ParseLinkDown, false, []codecTest[LinkDown]{{"little endian", LinkDown{0x0102}, "08 0201"}})
}

func TestConnectionAck(t *testing.T) {
	testCodec(t, ParseConnectionAck, false, []codecTest[ConnectionAck]{
		{"accepted", ConnectionAck{}, "01 00 0000"},
		{"accepted with a protocol", ConnectionAck{Protocol: 0x0102}, "01 00 0201"},
		{"rejected", ConnectionAck{Result: Rejected}, "01 01"},
		{"no common protocol", ConnectionAck{Result: NoCommonProtocol}, "01 02"},
		{"unknown result", ConnectionAck{Result: 200}, "01 c8"},
	})
}

func TestConnectionRequest(t *testing.T) {
	if got := AppendConnectionRequest([]byte("x")); !bytes.Equal(got, unhex("78 00 0100 0000")) {
		t.Fatalf("AppendConnectionRequest = % x", got)
	}
	tests := []struct {
		name, in string
		want     bool // it offers protocol 0
	}{
		{"of every client", "0100 0000", true},
		{"second of two", "0200 0500 0000", true},
		{"another protocol", "0100 0001", false},
		{"none", "0000", false},
	}
	for _, tt := range tests {
		p := unhex(tt.in)
		m, err := ParseConnectionRequest(p)
		if err != nil || m.Offers(ProtocolDNP1) != tt.want {
			t.Errorf("%s: Offers = %v, %v, want %v", tt.name, m.Offers(ProtocolDNP1), err, tt.want)
		}
		for i := range p {
			if _, err := ParseConnectionRequest(p[:i]); err != ErrTruncated {
				t.Errorf("%s: Parse of %d bytes: err = %v, want ErrTruncated", tt.name, i, err)
			}
		}
	}
}

func TestMessages(t *testing.T) {
	if got := AppendMessage([]byte("x"), []byte("hi")); !bytes.Equal(got, unhex("78 03 6869")) {
		t.Fatalf("AppendMessage = % x", got)
	}
	if got := AppendConnectionClose([]byte("x")); !bytes.Equal(got, unhex("78 02")) {
		t.Fatalf("AppendConnectionClose = % x", got)
	}
	testCodec(t, ParseReliableMessage, true, []codecTest[ReliableMessage]{
		{"data", ReliableMessage{0x0102, []byte("hi")}, "04 0201 6869"},
		{"empty", ReliableMessage{7, []byte{}}, "04 0700"},
	})
	testCodec(t, ParseReliableMessageLong, true, []codecTest[ReliableMessageLong]{
		{"first part", ReliableMessageLong{0x0102, PartFirst, []byte("hi")}, "0a 0201 01 6869"},
		{"last part", ReliableMessageLong{65534, PartLast, []byte("h")}, "0a feff 02 68"},
		{"probe", ReliableMessageLong{0, 0, []byte{}}, "0a 0000 00"},
	})
	testCodec(t, ParseLinkStateLong, true, []codecTest[LinkStateLong]{
		{"only part", LinkStateLong{1, 2, LinkStateReadOnly | LinkStateFirst | LinkStateLast, []byte("M"), unhex("0000")},
			"0b 0100 0200 07 0100 4d 0000"},
	})
	for _, head := range []struct {
		name  string
		size  int
		parse func([]byte) error
	}{
		{"ReliableMessage", 2, func(p []byte) error { _, err := ParseReliableMessage(p); return err }},
		{"ReliableMessageLong", 3, func(p []byte) error { _, err := ParseReliableMessageLong(p); return err }},
		{"LinkStateLong", 7, func(p []byte) error { _, err := ParseLinkStateLong(p); return err }},
	} {
		for i := range head.size {
			if err := head.parse(make([]byte, i)); err != ErrTruncated {
				t.Errorf("%s of %d bytes: err = %v, want ErrTruncated", head.name, i, err)
			}
		}
	}
}

func typed(n int, hex string) Values { return Values{n: n, p: unhex(hex)} }

func TestLinkState(t *testing.T) {
	testCodec(t, ParseLinkState, false, []codecTest[LinkState]{
		{"read-only", LinkState{1, 2, true, []byte("M"), typed(2, "03 3930 0b 0300 616263")},
			"05 0100 0200 01 0100 4d 0200 03 3930 0b 0300 616263"},
		{"no values and no message", LinkState{1, 2, false, []byte{}, typed(0, "")}, "05 0100 0200 00 0000 0000"},
	})
	if m, err := ParseLinkState(unhex("0100 0200 03 0100 4d 0000")); err != nil || m.ReadOnly {
		t.Errorf("flags 3: ReadOnly = %v, %v, want read-write: every implementation compares with 1", m.ReadOnly, err)
	}
}

// TestOverlong: counts and lengths beyond the datagram fail, fast and without
// allocating.
func TestOverlong(t *testing.T) {
	parsers := map[string]func([]byte) error{
		"request":         func(p []byte) error { _, err := ParseConnectionRequest(p); return err },
		"link state":      func(p []byte) error { _, err := ParseLinkState(p); return err },
		"link state long": func(p []byte) error { _, err := ParseLinkStateLong(p); return err },
		"values":          func(p []byte) error { _, err := ParseValues(p); return err },
		"update":          func(p []byte) error { return drain(Denetwork, p) },
		"update spec":     func(p []byte) error { return drain(Spec, p) },
	}
	tests := []struct {
		parser, in string
		want       error
	}{
		{"request", "ffff 0000", ErrTruncated},
		{"link state", "0000 0000 00 ffff 4d 0000", ErrTruncated},
		{"link state", "0000 0000 00 0100 4d ffff 01 05", ErrTruncated},
		{"link state", "0000 0000 00 0100 4d 0100 26 05", ErrValueType},
		{"link state", "0000 0000 00 0100 4d 0100 0b ffff 05", ErrTruncated},
		{"link state long", "0000 0000 00 ffff 4d", ErrTruncated},
		{"values", "ffff", ErrTruncated},
		{"values", "0200 0c 0000", ErrTruncated},
		{"values", "0200 0c 0000 ff", ErrValueType},
		{"update", "ff 0000 01 0000 07", ErrTruncated},
		{"update", "01 0000 ff 0000 07", ErrTruncated},
		{"update", "01 0000 01 0200 07", ErrIndex},
		{"update", "01 0000 01 ffff 07", ErrIndex},
		{"update spec", "ffff 0000 0100 01 07", ErrTruncated},
		{"update spec", "0100 0000 ffff 01 07 0b 0000 00", ErrIndex},
		{"update spec", "0100 0000 0100 02 07", ErrValueKind},
		{"update spec", "0100 0000 0100 ff 07", ErrValueKind},
	}
	for _, tt := range tests {
		in := unhex(tt.in)
		var err error
		if n := testing.AllocsPerRun(10, func() { err = parsers[tt.parser](in) }); n != 0 {
			t.Errorf("%s % x: %v allocations, want 0", tt.parser, in, n)
		}
		if !errors.Is(err, tt.want) {
			t.Errorf("%s % x: err = %v, want %v", tt.parser, in, err, tt.want)
		}
	}
}

// TestFailedValues: ParseValues returns an empty list with an error, so that a caller
// that ignores the error does not read beyond the datagram.
func TestFailedValues(t *testing.T) {
	for _, in := range []string{"0200 01 07", "ffff", "0100 ff 00"} {
		if v, err := ParseValues(unhex(in)); err == nil || v.Len() != 0 || len(v.p) != 0 {
			t.Errorf("ParseValues(%s) = %d values in %d bytes, %v, want none and an error", in, v.Len(), len(v.p), err)
		}
	}
}

// drainTypes is the layout of every link in these tests.
var drainTypes = []ValueType{1, TypeString}

func drain(profile Profile, p []byte) error {
	u := profile.UpdateReader(p)
	for {
		if _, ok := u.NextLink(); !ok {
			return u.Err()
		}
		for {
			if _, _, ok := u.NextValue(drainTypes); !ok {
				break
			}
		}
	}
}

func TestAllocs(t *testing.T) {
	buf := make([]byte, 0, 128)
	if n := testing.AllocsPerRun(100, func() {
		ack, err := ParseReliableAck(ReliableAck{Seq: 9}.Append(buf)[1:])
		up, err2 := ParseLinkUp(LinkUp{Link: 9}.Append(buf)[1:])
		m, err3 := ParseReliableMessage(ReliableMessage{Seq: 1, Data: buf[:5]}.Append(buf[8:8])[1:])
		if err != nil || err2 != nil || err3 != nil || ack.Seq != 9 || up.Link != 9 || m.Seq != 1 {
			t.Fatal("an update does not parse")
		}
		b := AppendLinkStateHead(buf, LinkState{Seq: 1, Link: 2}, 1)
		b = AppendTypedValue(b, 1, []byte{7})
		s, err := ParseLinkState(b[1:])
		if err != nil || s.Values.Len() != 1 {
			t.Fatal("an update does not parse")
		}
		s.Values.Next()
	}); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}
