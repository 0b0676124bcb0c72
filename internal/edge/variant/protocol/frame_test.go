package protocol

import (
	"net/netip"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/godot/variant"
)

// TestCookies has cookies of another address, of another edge, too old ones, and changed ones.
func TestCookies(t *testing.T) {
	c := NewCookies([]byte("secret"), start)
	k := c.New(start, peerAddr)
	const life = 20 * time.Second // as INTERFACES.md says
	if got, ok := c.Valid(start.Add(life), peerAddr, k[:]); !ok || got != k {
		t.Error("a cookie is not valid")
	}
	if k2 := c.New(start, peerAddr); k2 == k || !k2.newer(&k) || k.newer(&k2) {
		t.Error("the second cookie is not a newer one")
	}
	other := netip.AddrPortFrom(peerAddr.Addr(), peerAddr.Port()+1)
	if _, ok := c.Valid(start, other, k[:]); ok {
		t.Error("a cookie of another port is valid")
	}
	if _, ok := c.Valid(start, netip.AddrPortFrom(netip.MustParseAddr("192.0.2.2"), 5000), k[:]); ok {
		t.Error("a cookie of another address is valid")
	}
	if _, ok := c.Valid(start.Add(life+time.Second), peerAddr, k[:]); ok {
		t.Error("an old cookie is valid")
	}
	if _, ok := NewCookies([]byte("other"), start).Valid(start, peerAddr, k[:]); ok {
		t.Error("a cookie of another edge is valid")
	}
	for i := range k {
		changed := k
		changed[i] ^= 1
		if _, ok := c.Valid(start, peerAddr, changed[:]); ok {
			t.Errorf("a cookie with another byte %d is valid", i)
		}
		if _, ok := c.Valid(start, peerAddr, k[:i]); ok {
			t.Errorf("%d bytes of a cookie are valid", i)
		}
	}
}

// TestChallenge has the shortest datagram that gets an answer: the answer is not longer.
func TestChallenge(t *testing.T) {
	for d := variant.Godot2; d <= variant.Godot4; d++ {
		p := encode(d, list{nil, 0, 1, list{"hello", dict{}}})
		f, ok := ParseFrame(p)
		if !ok || !f.Begins() || f.Dialect != d {
			t.Fatalf("%v: the first datagram is %v, %v", d, f, ok)
		}
		answer := Challenge(nil, d, Cookie{1})
		if len(answer) > len(p) {
			t.Errorf("%v: %d bytes are answered with %d", d, len(p), len(answer))
		}
		g, ok := ParseFrame(answer)
		if !ok || g.Begins() || g.Cookie[0] != 1 || g.Size != len(answer) {
			t.Errorf("%v: the answer is %v, %v", d, g, ok)
		}
		for n := range p {
			if _, ok := ParseFrame(p[:n]); ok {
				t.Errorf("%v: %d of %d bytes are a datagram", d, n, len(p))
			}
		}
	}
	for _, m := range []any{5, list{}, list{nil, 0}, list{nil, "0", 1}, list{nil, 0, 1.5}, list{5, 0, 1}, list{nil, -1, 1}, list{nil, 0, 1 << 40}, list{"cookie", 0, 1}} {
		if _, ok := ParseFrame(encode(variant.Godot3, m)); ok {
			t.Errorf("%v is a datagram", m)
		}
	}
	for _, m := range []list{{nil, 0, 0, hello}, {nil, 0, 2, hello}, {nil, 0, 1}, {nil, 0, 1, list{"msg"}}, {nil, 0, 1, list{"hello"}}} {
		if f, _ := ParseFrame(encode(variant.Godot3, m)); f.Begins() {
			t.Errorf("%v begins a session", m)
		}
	}
}
