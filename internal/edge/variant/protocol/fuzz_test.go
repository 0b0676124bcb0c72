package protocol

import (
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/godot/variant"
)

// FuzzCore has a client say anything after it has joined: nothing panics, what the edge answers are Variants, and what it holds
// has bounds.
func FuzzCore(f *testing.F) {
	for _, m := range []any{
		hello, list{"set", 7, dict{"on", 5, 1, 6}}, list{"msg", []byte("x"), true}, list{"msg", "x", false}, list{"bye"},
		list{"offer", -1, "x", list{list{"x", "sint32", 1}}}, list{"unlink", -1}, list{"part", encode(variant.Godot3, list{"msg", "x"}), true},
	} {
		f.Add(uint8(3), encode(variant.Godot3, m), encode(variant.Godot3, m))
		f.Add(uint8(4), encode(variant.Godot4, m), encode(variant.Godot4, list{"set", -1, dict{"x", 2}}))
	}
	f.Fuzz(func(t *testing.T, version uint8, first, second []byte) {
		d := variant.Godot2 + variant.Dialect(version%3)
		s := newTalk(t, d).join()
		lamp := &fakeState{key: "lamp", names: []string{"on"}, values: []int32{1, 2}, hasText: true}
		s.core.Linked(s.now, 7, lamp)
		s.turn()
		for _, p := range [][]byte{first, second} {
			s.Receive(s.now, p)
			for id := range s.client.offers {
				if e := s.core.entries[id]; e != nil {
					s.core.Linked(s.now, id, e.state)
				}
			}
			for range 3 {
				s.turn()
			}
		}
		if s.core.offered > OfferedMax || len(s.core.parts) > partsMax || len(s.core.loose) > looseMax {
			t.Errorf("%d states, %d bytes of parts, %d messages", s.core.offered, len(s.core.parts), len(s.core.loose))
		}
	})
}

// FuzzFrame has a client, which knows its cookie, send any datagrams: nothing panics, the edge sends no datagram that is too long,
// and answers each with a bounded number.
func FuzzFrame(f *testing.F) {
	k := NewCookies([]byte("secret"), start).New(start, peerAddr)
	for _, m := range []list{
		{k[:], 0, 1, hello}, {k[:], 1, 2, list{"msg", "x"}}, {k[:], 3, 0}, {k[:], 0, -1, list{"set", 7, dict{"on", 5}}},
		{k[:], 0, 5, list{"msg", "x"}}, {nil, 0, 1, hello},
	} {
		f.Add(encode(variant.Godot3, m), encode(variant.Godot3, list{k[:], 2, 2, list{"set", 7, dict{"on", 5}}}))
	}
	f.Fuzz(func(t *testing.T, first, second []byte) {
		client := &fakeClient{}
		c := NewChannel(Config{Dialect: variant.Godot3, Client: client}, k, start)
		now := start
		receive := func(p []byte) {
			if frame, ok := ParseFrame(p); ok {
				frame.Cookie = k[:]
				if c.Owns(&frame) {
					c.Receive(now, &frame)
				}
			}
		}
		receive(encode(variant.Godot3, list{k[:], 0, 1, hello}))
		c.core.Welcome()
		c.core.Linked(now, 7, &fakeState{key: "lamp", names: []string{"on"}, values: make([]int32, 400)})
		for _, p := range [][]byte{first, second} {
			receive(p)
			sent := 0
			for range 5 {
				now = now.Add(20 * time.Millisecond)
				c.Advance(now, func(p []byte) {
					sent++
					if _, ok := ParseFrame(p); !ok || len(p) > DatagramMax {
						t.Errorf("the edge sent %d bytes: %x", len(p), p)
					}
				})
			}
			if sent > 100 {
				t.Errorf("%d datagrams for one", sent)
			}
		}
		if c.next < 0 || c.top < c.next || c.top > len(c.sent) || c.nextSize < 0 {
			t.Errorf("next %d, top %d of %d messages, %d bytes", c.next, c.top, len(c.sent), c.nextSize)
		}
	})
}
