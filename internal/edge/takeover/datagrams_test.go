package takeover

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/internal/simnet"
)

// TestOrphansWait: datagrams of an unknown client wait, in order and in bounds, for so long
// as a client does before it says something again.
func TestOrphansWait(t *testing.T) {
	s, now := newOrphans(), simnet.Epoch
	want := func(why string, from netip.AddrPort, texts ...string) {
		t.Helper()
		var got []string
		for _, h := range s.remove(from) {
			got = append(got, string(h.data))
		}
		if !slices.Equal(got, texts) {
			t.Errorf("%s: %q wait, want %q", why, got, texts)
		}
	}
	a, b := clientAddr(1), clientAddr(2)
	buffer := []byte("0")
	for i := range orphansPerClient + 1 {
		buffer[0] = '0' + byte(i)
		first, ok := s.hold(now, a, orphan{data: buffer})
		if first != (i == 0) || ok != (i < orphansPerClient) {
			t.Errorf("datagram %d: first %v, held %v", i, first, ok)
		}
	}
	want("the first eight, copied", a, "0", "1", "2", "3", "4", "5", "6", "7")
	want("nothing twice", a)

	s.hold(now, a, orphan{data: []byte("x")})
	if _, next := s.advance(now, now.Add(time.Hour)); !next.Equal(now.Add(orphanTime)) {
		t.Errorf("to be advanced after %v, want %v", next.Sub(now), orphanTime)
	}
	s.hold(now.Add(orphanTime/2), b, orphan{data: []byte("y")})
	s.advance(now.Add(orphanTime), now.Add(time.Hour))
	want("its time is over", a)
	want("the other's is not", b, "y")

	// What was taken and comes again has a time of its own.
	s, now = newOrphans(), now.Add(time.Minute)
	s.hold(now, a, orphan{data: []byte("1")})
	s.remove(a)
	s.hold(now.Add(orphanTime-time.Millisecond), a, orphan{data: []byte("2")})
	s.advance(now.Add(orphanTime), now.Add(time.Hour))
	want("the time of the first is not the second's", a, "2")

	for i := range orphansMax {
		if _, ok := s.hold(now, clientAddr(100+i), orphan{data: []byte("z")}); !ok {
			t.Fatalf("client %d has no room", i)
		}
	}
	if _, ok := s.hold(now, a, orphan{data: []byte("z")}); ok {
		t.Error("more clients wait than may")
	}
	s.advance(now.Add(time.Second), now.Add(time.Hour))
	if len(s.byAddr) != 0 || s.byDue.Len() != 0 {
		t.Errorf("%d clients, %d in order are left", len(s.byAddr), s.byDue.Len())
	}
}

// TestOrphanBytes: the bytes that wait are bounded, those of one client and all together. One
// datagram of a client fits, whatever its size, and what was removed makes room.
func TestOrphanBytes(t *testing.T) {
	s, now := newOrphans(), simnet.Epoch
	hold := func(client, size int) bool {
		_, ok := s.hold(now, clientAddr(client), orphan{data: make([]byte, size)})
		return ok
	}
	const largest = 65_507 // that UDP carries
	if !hold(1, largest) {
		t.Fatal("the largest datagram does not wait")
	}
	if hold(1, 100) {
		t.Errorf("another 100 bytes wait behind %d of the client, more than %d", largest, orphanBytesPerClient)
	}
	for i := range orphansPerClient {
		if !hold(2, 1_361) {
			t.Errorf("datagram %d of the largest that clients send does not wait", i)
		}
	}
	s.remove(clientAddr(2))
	held, n := largest, 3
	for ; hold(n, largest); n++ {
		held += largest
	}
	if most := orphanBytesMax; held > most || held < most-largest {
		t.Fatalf("%d bytes wait, want %d at most", held, most)
	}
	if !hold(n, orphanBytesMax-held) {
		t.Error("what fits exactly does not wait")
	}
	if hold(n+1, 1) || s.waiting(clientAddr(n+1)) {
		t.Error("a client without a datagram that fits waits")
	}
	s.remove(clientAddr(1))
	if !hold(n+1, largest) {
		t.Error("there is no room where a datagram was removed")
	}
	s.advance(now.Add(orphanTime), now.Add(time.Hour))
	if s.bytes != 0 {
		t.Errorf("%d bytes count when no datagram waits", s.bytes)
	}
}

// TestOrphansAsked: it is asked again about a client whose datagrams wait still, once at a
// time.
func TestOrphansAsked(t *testing.T) {
	s, now := newOrphans(), simnet.Epoch
	a, b, late := clientAddr(1), clientAddr(2), simnet.Epoch.Add(time.Hour)
	want := func(why string, at time.Duration, from netip.AddrPort, next time.Time) {
		t.Helper()
		if got, when := s.advance(now.Add(at), late); got != from || !when.Equal(next) {
			t.Errorf("%s: %v, next %v, want %v, %v", why, got, when, from, next)
		}
	}
	for _, from := range []netip.AddrPort{a, b} {
		s.hold(now, from, orphan{data: []byte("x")})
		s.askLater(now, from)
	}
	s.askLater(now.Add(askAgainTime/2), a)
	want("not yet", 0, netip.AddrPort{}, now.Add(askAgainTime))
	s.remove(b)
	s.hold(now, b, orphan{data: []byte("another time")})
	want("the first", askAgainTime, a, now.Add(askAgainTime))
	want("the second waits for another reason now, and the first was asked about", askAgainTime, netip.AddrPort{}, now.Add(orphanTime))
	s.askLater(now.Add(askAgainTime), a)
	want("the first again", 2*askAgainTime, a, now.Add(2*askAgainTime))
	want("none is left to ask about", 2*askAgainTime, netip.AddrPort{}, now.Add(orphanTime))
}

// TestPaths: it is remembered for a while over which edge a client came last.
func TestPaths(t *testing.T) {
	g, now := newPaths(), simnet.Epoch
	a, b := clientAddr(1), clientAddr(2)
	want := func(why string, addr netip.AddrPort, via string) {
		t.Helper()
		if got := g.edge(addr); got != via {
			t.Errorf("%s: it comes over %q, want %q", why, got, via)
		}
	}
	g.note(now, a, "")
	want("it comes directly", a, "")
	if g.byUntil.Len() > 0 {
		t.Error("nothing is to be remembered of that")
	}
	g.note(now, a, "e2")
	g.note(now.Add(time.Second), b, "e3")
	g.note(now.Add(2*time.Second), a, "e4")
	g.advance(now.Add(pathTime))
	want("it was heard of since", a, "e4")
	want("its time has not come", b, "e3")
	g.advance(now.Add(pathTime + time.Second))
	want("silent for too long", b, "")
	want("not silent for so long", a, "e4")
	g.note(now.Add(pathTime+time.Second), a, "")
	want("it comes directly by now", a, "")
	g.advance(now.Add(2*pathTime + time.Second))
	if g.byUntil.Len()+len(g.byAddr) > 0 {
		t.Errorf("%d in order, %d are known, and all were silent", g.byUntil.Len(), len(g.byAddr))
	}
	for i := range pathsMax {
		if g.note(now, clientAddr(10+i), "e2") {
			t.Fatalf("path %d has no room", i)
		}
	}
	if !g.note(now, a, "e2") || len(g.byAddr) != pathsMax {
		t.Errorf("one more has to displace another; %d are known", len(g.byAddr))
	}
	want("the oldest is forgotten", clientAddr(10), "")
	want("the newest is known", a, "e2")
}
