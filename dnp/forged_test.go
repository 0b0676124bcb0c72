package dnp

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/dnp/admit"
)

// answer acknowledges in the peer's name what the connection sent, and refuses links, as libraries do.
func (s *connTest) answer() {
	s.Helper()
	sent := s.sent
	s.sent = nil
	for _, d := range sent {
		switch {
		case strings.HasPrefix(d, "05"):
			s.recv("06"+d[2:6]+"00", "08"+d[6:10])
		case strings.HasPrefix(d, "04"), strings.HasPrefix(d, "0a"):
			s.recv("06" + d[2:6] + "00")
		}
	}
}

// TestFloodAsked: a flood in the name of a peer keeps nothing from its connection that the peer
// answers, nor its commands, however long it lasts, and although the stranger knows that numbers
// begin with 0.
func TestFloodAsked(t *testing.T) {
	for _, life := range []string{"04 0000 61", "0a 0000 00"} { // the second shows that the peer knows command 10
		for _, forged := range []string{"06 ffef 00", "06 0000 00", "06 0300 01", "03 61", "04 0000 61", "07 ff10", "02"} {
			cfg := alive()
			cfg.Rate = admit.Rate{Datagrams: 200, Bytes: 64 << 10}
			s := serve(t, cfg)
			s.recv(life)
			s.answer()
			for n := range 120 * 50 {
				for range 40 { // 2,000 per second, ten times the bound
					s.recv(forged)
				}
				for range 8 {
					s.recv("06 ffef 00")
				}
				s.answer()
				if n%500 == 250 {
					s.happen = nil
					s.recv(fmt.Sprintf("04 %02x00 62", n/500+1))
					if !slices.Contains(s.happen, fmt.Sprintf("message %d b", n/500+1)) {
						t.Errorf("a peer that begins with %s, and a flood of %s: the peer's command is lost after %v", life, forged, s.now.Sub(epoch))
						break
					}
				}
				s.wait(20 * time.Millisecond)
			}
			if !s.c.Established() {
				t.Errorf("a peer that begins with %s, and a flood of %s: it ends after %v: %q", life, forged, s.now.Sub(epoch), s.happen)
			}
		}
	}
}

// TestFloodOfNext: who knows the peer's next numbers can speak for it, but cannot keep its answers from
// the connection; and what answers only in part, again and again, is limited as everything.
func TestFloodOfNext(t *testing.T) {
	cfg := alive()
	cfg.Rate = admit.Rate{Datagrams: 200, Bytes: 64 << 10}
	s := serve(t, cfg)
	for n := range 20 * 50 {
		for range 30 {
			next := s.c.recv.next
			s.recv("06 ffef 00", fmt.Sprintf("04 %02x%02x 61", byte(next), byte(next>>8)))
		}
		if s.answer(); len(s.c.send.flight) > 0 {
			t.Fatalf("an answer is lost after %v", s.now.Sub(epoch))
		}
		if n%50 == 0 && s.c.Send([]byte("x"), 0) != nil {
			t.Fatalf("it ends after %v: %q", s.now.Sub(epoch), s.happen[len(s.happen)-1])
		}
		s.wait(20 * time.Millisecond)
	}
	s.wait(5 * time.Second)
	s.c.Send([]byte("y"), 0)
	s.pump()
	number, before := s.sent[len(s.sent)-1][2:6], s.e.stats.Drops[DropRate]
	for range 1000 {
		s.recv("06" + number + "01")
	}
	if got := s.e.stats.Drops[DropRate] - before; got < 300 {
		t.Errorf("%d of 1,000 requests to repeat a command were beyond the rate", got)
	}
}

// TestRepeatsProveNothing: a repeat of an old command, which anybody can write, puts off no real
// Close, and no request of a peer that starts again, except for as long as libraries repeat.
func TestRepeatsProveNothing(t *testing.T) {
	for end, reason := range map[string]string{"02": "closed peer", "00 0100 0000": "closed restarted"} {
		s := serve(t, alive())
		s.recv("04 0000 61")
		s.happen = nil
		s.wait(repeatsFor + 500*time.Millisecond)
		for range 10 {
			s.recv(end, "04 0000 61")
			s.wait(500 * time.Millisecond)
		}
		if !slices.Contains(s.happen, reason) {
			t.Errorf("%s: after 5 s: %q, want %s", end, s.happen, reason)
		}
	}
}

// TestForgedHole: a command whose number lies ahead may be forged, and ends nothing.
func TestForgedHole(t *testing.T) {
	for _, log := range []bool{false, true} {
		for _, forged := range []string{"04 0500 78", "0a 0500 00", "05 0500 0010 00 0100 68 0000", "0a 0000 01 61"} {
			cfg := quiet()
			cfg.Logged = log
			s := serve(t, cfg)
			s.recv(forged)
			s.store()
			for range 120 {
				s.wait(time.Second)
				s.store()
			}
			if _, ending := s.c.Ending(); ending || !s.c.Established() {
				t.Errorf("log %v, forged %s: it ends: %q", log, forged, s.happen)
			}
		}
	}
}
