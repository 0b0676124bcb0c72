package lludp

import (
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dnprelay/dnprelay/lludp/wire"
)

// TestLogins: a code opens one circuit, for who knows the ids, from the network of the login. The numbers are those of
// SECURITY.md.
func TestLogins(t *testing.T) {
	const all, ofNetwork = 1024, 32
	if loginLife != 30*time.Second {
		t.Errorf("a code is good for %v, want 30 s", loginLife)
	}
	home, neighbour := netip.MustParseAddr("192.0.2.7"), netip.MustParseAddr("192.0.2.8")
	l := logins{byCode: map[uint32]*peer{}}
	if !l.reserve(home) {
		t.Fatal("there is no place for the first login")
	}
	p := &peer{opening: wire.Opening{Code: 4711, Session: wire.UUID{1}, Agent: wire.UUID{2}}, home: home}
	l.put(p)
	for _, c := range []struct {
		what string
		o    wire.Opening
		from netip.Addr
		why  ignored
	}{
		{"another code", wire.Opening{Code: 4712, Session: wire.UUID{1}, Agent: wire.UUID{2}}, home, unknownCode},
		{"another session", wire.Opening{Code: 4711, Session: wire.UUID{3}, Agent: wire.UUID{2}}, home, unknownCode},
		{"another agent", wire.Opening{Code: 4711, Session: wire.UUID{1}}, home, unknownCode},
		{"another network", p.opening, neighbour, otherNetwork},
	} {
		if got, why := l.take(c.o, c.from); got != nil || why != c.why {
			t.Errorf("%s opens the circuit, or is ignored because of %v, want %v", c.what, why, c.why)
		}
	}
	if got, _ := l.take(p.opening, home); got != p {
		t.Error("the viewer does not get its circuit after guesses of others")
	}
	if got, _ := l.take(p.opening, home); got != nil {
		t.Error("a code opens two circuits")
	}
	if l.remove(p) {
		t.Error("a login that opened its circuit expires")
	}

	for range ofNetwork {
		if !l.reserve(home) {
			t.Fatal("there is no place although there should be")
		}
	}
	if l.reserve(home) {
		t.Error("a network has more logins than it may")
	}
	l.release(home)
	if !l.reserve(home) {
		t.Error("a login that failed keeps its place")
	}
	for i := range all - ofNetwork {
		if !l.reserve(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)})) {
			t.Fatalf("there is no place after %d logins", i)
		}
	}
	if l.reserve(neighbour) {
		t.Error("there are more logins than there may be")
	}
}

// TestSeeds: capabilities answer for a while after the viewer is gone, and their number is bounded.
func TestSeeds(t *testing.T) {
	s, now := newSeeds(), time.Unix(1000, 0)
	p := &peer{seed: "secret"}
	s.put(p, now)
	s.end(&peer{}, now) // without capabilities
	s.end(p, now)
	s.sweep(now.Add(seedLife - 1))
	if s.get("secret") != p || s.get("") != nil {
		t.Error("the capabilities of a viewer that has just gone do not answer")
	}
	s.sweep(now.Add(seedLife))
	if s.get("secret") != nil {
		t.Error("the capabilities of a viewer answer for ever")
	}
	for i := range seedsEnded + 5 {
		p := &peer{seed: string(rune('a' + i))}
		s.put(p, now)
		s.end(p, now)
	}
	if len(s.bySecret) != seedsEnded {
		t.Errorf("%d viewers that are gone have capabilities, want %d", len(s.bySecret), seedsEnded)
	}
}

// TestPoll: a viewer has one request for events at a time, which is answered after a while, or when the viewer is gone.
func TestPoll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p poll
		gone := make(chan struct{})
		answered := make(chan int)
		ask := func() { answered <- p.wait(t.Context(), gone, false) }
		start := time.Now()
		go ask()
		synctest.Wait()
		if id := p.wait(t.Context(), gone, true); id != 2 {
			t.Errorf("the last request is answered with %d, want 2", id)
		}
		if id := <-answered; id != 1 || time.Since(start) != 0 {
			t.Errorf("the first request is answered with %d after %v, want 1 at once", id, time.Since(start))
		}
		go ask()
		if id := <-answered; id != 3 || time.Since(start) != pollTime {
			t.Errorf("a request is answered with %d after %v, want 3 after %v", id, time.Since(start), pollTime)
		}
		go ask()
		synctest.Wait()
		close(gone)
		if id := <-answered; id != 4 || time.Since(start) != pollTime {
			t.Errorf("a request of a viewer that is gone is answered with %d after %v", id, time.Since(start))
		}
	})
}
