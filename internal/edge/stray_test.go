package edge

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/internal/simnet"
)

func strayClient(i int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), 5000)
}

// TestStraysWait: datagrams of an unknown client wait, in order and in bounds, for so long
// as a client does before it says something again.
func TestStraysWait(t *testing.T) {
	s, now := newStrays(), simnet.Epoch
	want := func(why string, from netip.AddrPort, texts ...string) {
		t.Helper()
		var got []string
		for _, h := range s.take(from) {
			got = append(got, string(h.data))
		}
		if !slices.Equal(got, texts) {
			t.Errorf("%s: %q wait, want %q", why, got, texts)
		}
	}
	a, b := strayClient(1), strayClient(2)
	buffer := []byte("0")
	for i := range straysPerClient + 1 {
		buffer[0] = '0' + byte(i)
		first, ok := s.hold(now, a, held{data: buffer})
		if first != (i == 0) || ok != (i < straysPerClient) {
			t.Errorf("datagram %d: first %v, held %v", i, first, ok)
		}
	}
	want("the first eight, copied", a, "0", "1", "2", "3", "4", "5", "6", "7")
	want("nothing twice", a)

	s.hold(now, a, held{data: []byte("x")})
	if next := s.advance(now, now.Add(time.Hour)); !next.Equal(now.Add(strayTime)) {
		t.Errorf("to be advanced after %v, want %v", next.Sub(now), strayTime)
	}
	s.hold(now.Add(strayTime/2), b, held{data: []byte("y")})
	s.advance(now.Add(strayTime), now.Add(time.Hour))
	want("its time is over", a)
	want("the other's is not", b, "y")

	// What was taken and comes again has a time of its own.
	s, now = newStrays(), now.Add(time.Minute)
	s.hold(now, a, held{data: []byte("1")})
	s.take(a)
	s.hold(now.Add(strayTime-time.Millisecond), a, held{data: []byte("2")})
	s.advance(now.Add(strayTime), now.Add(time.Hour))
	want("the time of the first is not the second's", a, "2")

	for i := range straysMax {
		if _, ok := s.hold(now, strayClient(100+i), held{data: []byte("z")}); !ok {
			t.Fatalf("client %d has no room", i)
		}
	}
	if _, ok := s.hold(now, a, held{data: []byte("z")}); ok {
		t.Error("more clients wait than may")
	}
	s.advance(now.Add(time.Second), now.Add(time.Hour))
	if len(s.byAddr) != 0 || len(s.order) != 0 {
		t.Errorf("%d clients, %d in order are left", len(s.byAddr), len(s.order))
	}
}

// TestStraysAsked: it is asked again about a client whose datagrams wait still, once at a
// time.
func TestStraysAsked(t *testing.T) {
	s, now := newStrays(), simnet.Epoch
	a, b, late := strayClient(1), strayClient(2), simnet.Epoch.Add(time.Hour)
	want := func(why string, at time.Duration, from netip.AddrPort, next time.Time) {
		t.Helper()
		if got, when := s.due(now.Add(at), late); got != from || !when.Equal(next) {
			t.Errorf("%s: %v, next %v, want %v, %v", why, got, when, from, next)
		}
	}
	for _, from := range []netip.AddrPort{a, b} {
		s.hold(now, from, held{data: []byte("x")})
		s.askLater(now, from)
	}
	s.askLater(now.Add(askAgainTime/2), a)
	want("not yet", 0, netip.AddrPort{}, now.Add(askAgainTime))
	s.take(b)
	s.hold(now, b, held{data: []byte("another time")})
	want("the first", askAgainTime, a, now.Add(askAgainTime))
	want("the second waits for another reason now, and the first was asked about", askAgainTime, netip.AddrPort{}, late)
	s.askLater(now.Add(askAgainTime), a)
	want("the first again", 2*askAgainTime, a, now.Add(2*askAgainTime))
	if len(s.asked) > 0 {
		t.Errorf("%d are left", len(s.asked))
	}
}

// TestStraysRoutes: it is remembered for a while who serves a client, unless the one says
// that it does not.
func TestStraysRoutes(t *testing.T) {
	s, now := newStrays(), simnet.Epoch
	a, b, c := strayClient(1), strayClient(2), strayClient(3)
	want := func(why string, at time.Duration, from netip.AddrPort, texts string) {
		t.Helper()
		node, known := s.route(now.Add(at), from)
		got := "unknown"
		if known {
			got = fmt.Sprintf("%q", node)
		}
		if got != texts {
			t.Errorf("%s: %s, want %s", why, got, texts)
		}
	}
	want("nothing is known", 0, a, "unknown")
	s.elsewhere(now, a, "e2", "e1")
	want("another edge", 0, a, `"e2"`)
	want("for two seconds", routeTime, a, "unknown")
	s.elsewhere(now, a, "e1", "e1")
	want("this edge is not elsewhere", 0, a, "unknown")
	s.elsewhere(now, netip.AddrPort{}, "e2", "e1")
	s.elsewhere(now, a, "", "e1")
	want("nobody is not elsewhere", 0, a, "unknown")
	s.learn(b, "", now.Add(nobodyTime))
	want("nobody serves it", 0, b, `""`)

	s.elsewhere(now, a, "e2", "e1")
	s.elsewhere(now, c, "e2", "e1")
	s.misled(a, "e3")
	want("the word of one that is not meant", 0, a, `"e2"`)
	s.misled(a, "e2")
	want("e2 does not serve it", 0, a, "unknown")
	want("that is about one client", 0, c, `"e2"`)
	s.misled(strayClient(9), "e2")

	for i := range routesMax {
		s.learn(strayClient(i), "e2", now.Add(routeTime))
	}
	s.learn(strayClient(routesMax), "e3", now.Add(routeTime))
	if len(s.routes) > routesMax {
		t.Errorf("%d clients are remembered, at most %d may be", len(s.routes), routesMax)
	}
	want("the newest is there", 0, strayClient(routesMax), `"e3"`)
}
