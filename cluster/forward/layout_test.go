package forward

import (
	"bytes"
	"encoding/hex"
	"strings"
	"testing"
)

func unhex(s string) []byte {
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		panic(err)
	}
	return b
}

func TestHeaderLayout(t *testing.T) {
	h := header{kind: TypeOut, key: 0x0201, sender: 0x0807060504030201, counter: 0x1817161514131211}
	want := unhex("01 02 0102 0102030405060708 1112131415161718")
	b := h.append([]byte("prefix"))[6:]
	if !bytes.Equal(b, want) {
		t.Errorf("got  %x\nwant %x", b, want)
	}
	got, drop := parseHeader(append(b, make([]byte, tagSize)...))
	if got != h || drop != dropNone {
		t.Errorf("came back as %+v, %v", got, drop)
	}
	for n := range headerSize + tagSize {
		if _, drop := parseHeader(append(b, make([]byte, tagSize)...)[:n]); drop != DropMalformed {
			t.Errorf("the first %d bytes: %v", n, drop)
		}
	}
	for i, c := range map[int]DropReason{0: DropVersion, 1: DropMalformed} {
		for _, v := range []byte{0, 5, 99} {
			bad := append(bytes.Clone(b), make([]byte, tagSize)...)
			bad[i] = v
			if _, drop := parseHeader(bad); drop != c {
				t.Errorf("byte %d = %d: %v, want %v", i, v, drop, c)
			}
		}
	}
}

func TestMessageLayout(t *testing.T) {
	for _, c := range []struct {
		kind Type
		m    message
		want string
	}{
		{TypeIn, message{hops: 2, epoch: 7, origin: 9, client: client(0x0102), data: []byte("hi")},
			"08 0700000000000000 0900000000000000 c0000201 ea04 550d 6869"},
		{TypeOut, message{epoch: 7, client: client6, data: []byte("hi")},
			"01 0700000000000000 0000000000000000 20010db8000000000000000000000007 8813 560d 6869"},
		{TypeNack, message{refusesOut: true, epoch: 7, client: client(0x0102)},
			"02 0700000000000000 0000000000000000 c0000201 ea04 550d"},
	} {
		b := c.m.append([]byte("prefix"))[6:]
		if want := unhex(c.want); !bytes.Equal(b, want) {
			t.Errorf("got  %x\nwant %x", b, want)
		}
		got, ok := parseMessage(c.kind, b)
		if !ok || !bytes.Equal(got.data, c.m.data) || string(got.append(nil)) != string(b) {
			t.Errorf("came back as %+v, %v", got, ok)
		}
		for n := range len(b) - len(c.m.data) {
			if _, ok := parseMessage(c.kind, b[:n]); ok {
				t.Errorf("type %d: the first %d bytes pass", c.kind, n)
			}
		}
		for _, other := range []Type{TypeIn, TypeOut, TypeNack} {
			if _, ok := parseMessage(other, b); ok != (other == c.kind) {
				t.Errorf("a message of type %d as type %d: %v", c.kind, other, ok)
			}
		}
	}
	mapped := message{epoch: 7, client: client6, data: []byte("x")}
	b := mapped.append(nil)
	copy(b[17:], unhex("00000000000000000000ffffc0000201"))
	if _, ok := parseMessage(TypeOut, b); ok {
		t.Error("an IPv4 address has two forms")
	}
	unhopped := message{epoch: 7, origin: 9, client: client(1), data: []byte("x")}
	if _, ok := parseMessage(TypeIn, unhopped.append(nil)); ok {
		t.Error("a client's datagram with no hop passes")
	}
	b[0] |= 0x10
	if _, ok := parseMessage(TypeOut, b); ok {
		t.Error("a flag that means nothing passes")
	}
}

func FuzzMessage(f *testing.F) {
	f.Add(byte(TypeIn), (&message{hops: 1, epoch: 7, origin: 9, client: client(1), data: []byte("hi")}).append(nil))
	f.Add(byte(TypeOut), (&message{epoch: 7, client: client6, data: []byte("hi")}).append(nil))
	f.Add(byte(TypeNack), (&message{epoch: 7, client: client(1)}).append(nil))
	f.Fuzz(func(t *testing.T, kind byte, p []byte) {
		if m, ok := parseMessage(Type(kind), p); ok && !bytes.Equal(m.append(nil), p) {
			t.Fatalf("%x came back as %x", p, m.append(nil))
		}
	})
}

// FuzzReceive: whatever comes, nothing is told to the edge that was not sealed by a peer.
func FuzzReceive(f *testing.F) {
	w := newWorld(&testing.T{}, "a", "b")
	a := w.nodes["a"]
	a.In(w.now, "b", client(1), 0, []byte("hi"), a)
	a.Out(w.now, "b", client6, 3, []byte("hi"), a)
	a.Advance(w.now, a)
	real := map[string]bool{}
	for _, s := range a.take() {
		real[string(s.b)] = true
		f.Add(s.b)
	}
	f.Fuzz(func(t *testing.T, p []byte) {
		w := newWorld(t, "a", "b")
		b := w.nodes["b"]
		d := b.Receive(w.now, bytes.Clone(p), b)
		if (d.Kind != Nothing || b.stats.HeartbeatsIn > 0) && !real[string(p)] {
			t.Fatalf("%x was taken as %+v", p, d)
		}
	})
}
