package dnp

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/dnp/wire"
)

// alive is how a server that people play on watches its peers.
func alive() Config {
	cfg := quiet()
	cfg.LivenessInterval = 0
	return cfg
}

// outlives lets a stranger send datagrams in the name of a dead peer each second, and returns for
// how long the connection goes on after the peer's last acknowledgement.
func (s *connTest) outlives(died time.Time, forged ...string) time.Duration {
	s.Helper()
	closed := func(e string) bool { return strings.HasPrefix(e, "closed") } // a forged request then begins another connection
	for !slices.ContainsFunc(s.happen, closed) && s.now.Sub(died) < 5*time.Minute {
		if len(forged) > 0 {
			s.recv(forged...)
		}
		s.wait(time.Second)
	}
	return s.now.Sub(died)
}

// TestOutlives: a connection ends 55 s after its peer's last acknowledgement, whatever the peer is,
// and whatever a stranger sends who sees nothing.
func TestOutlives(t *testing.T) {
	var acks, ups []string
	for n := range 200 { // numbers count from 0, and ids of links from 0x8000
		acks = append(acks, fmt.Sprintf("06 %02x00 00", n))
		ups = append(ups, fmt.Sprintf("07 %02x80", n))
	}
	peers := map[string][]string{
		"a peer that knows no probe": {"04 0000 61"},
		"one that does":              {"0a 0000 00"},
	}
	for peer, life := range peers {
		for forger, forged := range map[string][]string{
			"": nil, "messages": {"03 61"}, "repeats": {"04 0000 61"}, "closes": {"02"}, "requests": {"00 0100 0000"},
			"acknowledgements": acks, "one acknowledgement": acks[1:2], "messages and acknowledgements": append([]string{"03 61"}, acks...), "links": ups,
			"everything": append(append([]string{"03 61", "04 0000 61"}, acks...), ups...),
		} {
			s := serve(t, alive())
			src := s.source("uint8")
			if err := s.c.Link(src, false); err != nil {
				t.Fatal(err)
			}
			s.pump()
			s.recv(append(life, "06 0000 00", "07 0080")...)
			died := s.now
			s.wait(10 * time.Second)
			if got, most := s.outlives(died, forged...), 56*time.Second; got > most { // it steps by seconds
				t.Errorf("%s, forged %s: the connection goes on for %v after the last acknowledgement, want %v at most", peer, forger, got, most)
			}
		}
	}
}

// TestLives: a peer that lives stays, whatever it says, for as long as it answers.
func TestLives(t *testing.T) {
	for _, c := range []struct {
		why, says string // what it says each second
		probes    bool   // it knows command 10
		forged    int    // seconds in which a stranger acknowledges in its name
		questions [2]int // at least and at most
	}{
		{"one that listens", "", true, 0, [2]int{0, 0}},
		{"one that listens, and knows no probe", "", false, 0, [2]int{28, 45}},
		{"one that sends unreliable messages", "03 61", true, 0, [2]int{0, 0}},
		{"one that sends unreliable messages, and knows no probe", "03 61", false, 0, [2]int{28, 45}},
		{"one in whose name a stranger acknowledges", "03 61", true, 600, [2]int{20, 45}},
		{"one in whose name a stranger acknowledged", "03 61", true, 10, [2]int{2, 3}},
	} {
		s := serve(t, alive())
		src := s.source("uint8")
		if err := s.c.Link(src, false); err != nil {
			t.Fatal(err)
		}
		s.pump()
		s.sent = nil
		s.recv("04 0000 61", "06 0000 00", "07 0080")
		if c.probes {
			s.recv("0a 0100 00")
		}
		questions, datagrams := 0, 0
		for second := range 600 {
			s.sent = nil
			if c.says != "" {
				s.recv(c.says)
			}
			if second < c.forged {
				s.recv("06 0000 00", "06 0900 00")
			}
			for range 50 { // a round trip of 20 ms at most
				s.wait(20 * time.Millisecond)
				sent := s.sent
				s.sent = nil
				datagrams += len(sent)
				for _, d := range sent {
					switch {
					case strings.HasPrefix(d, "05") && len(d) == 22:
						questions++
						s.recv("06"+d[2:6]+"00", "08"+d[6:10])
					case strings.HasPrefix(d, "0a") && c.probes:
						s.recv("06" + d[2:6] + "00")
					}
				}
			}
		}
		if !s.c.Established() {
			t.Errorf("%s: the connection ends: %q", c.why, s.happen)
		}
		if questions < c.questions[0] || questions > c.questions[1] {
			t.Errorf("%s: %d questions in ten minutes, want %v", c.why, questions, c.questions)
		}
		if datagrams > 500 { // a question and the repeats of its LinkDown are some ten
			t.Errorf("%s: %d datagrams in ten minutes", c.why, datagrams)
		}
	}
}

// TestAnswersLate: a peer whose answers get lost is asked on, while a stranger acknowledges in its
// name, so that acknowledgements alone prove nothing.
func TestAnswersLate(t *testing.T) {
	for lost, lives := range map[int]bool{0: true, 8: true, 1000: false} {
		s := serve(t, alive())
		s.recv("04 0000 61")
		questions := 0
		for range 120_000 / 50 {
			s.sent = nil
			s.recv("06 0900 00")
			s.wait(50 * time.Millisecond)
			for _, d := range s.sent {
				if strings.HasPrefix(d, "05") && len(d) == 22 && s.c.Established() {
					s.recv("06" + d[2:6] + "00")
					if questions++; questions > lost {
						s.recv("08" + d[6:10])
					}
				}
			}
		}
		if got := s.c.Established(); got != lives {
			t.Errorf("%d answers lost: after two minutes and %d questions the connection is there: %v, want %v", lost, questions, got, lives)
		}
	}
}

// TestAnswersWithoutLog: while a question waits for the log, the peer cannot answer it, and the
// connection goes on.
func TestAnswersWithoutLog(t *testing.T) {
	cfg := alive()
	cfg.Logged = true
	s := serve(t, cfg)
	s.recv("04 0000 61")
	s.store()
	s.wait(10 * time.Minute) // a question waits for its place in the log
	if !s.c.Established() {
		t.Fatalf("it ends: %q", s.happen)
	}
	s.store()
	for range 60 {
		s.wait(time.Second)
	}
	if s.c.Established() {
		t.Error("no answer ends nothing")
	}
}

// TestSuspectedWithoutLog: a Close, or a second request, ends no connection whose question waits
// for the log: the peer cannot answer.
func TestSuspectedWithoutLog(t *testing.T) {
	for _, forged := range []string{"02", "00 0100 0000"} {
		for _, life := range []string{"04 0000 61", "0a 0000 00"} { // the second shows that the peer knows command 10
			cfg := alive()
			cfg.Logged = true
			s := serve(t, cfg)
			s.recv(life)
			s.store()
			for range 60 {
				s.recv(forged)
				s.wait(time.Second)
			}
			if _, ending := s.c.Ending(); ending || !s.c.Established() {
				t.Fatalf("%s: it ends: %q", forged, s.happen)
			}
			for range 10 {
				s.store()
				s.recv(forged)
				s.wait(time.Second)
			}
			if _, ending := s.c.Ending(); !ending {
				t.Errorf("%s: no answer ends nothing", forged)
			}
		}
	}
}

// TestRestoredIsUnreachable: a peer that says nothing since its connection was restored may be unreachable
// until a balancer notices that its last edge is dead. So commands to it are repeated for longer.
func TestRestoredIsUnreachable(t *testing.T) {
	start := instant(time.Hour)
	cfg := Config{ReliableTimeout: 10 * time.Second}
	for _, x := range []struct {
		heard time.Duration // after the connection was restored; 0 for never
		want  time.Duration
	}{{0, restoredTimeout}, {5 * time.Second, 15 * time.Second}, {25 * time.Second, restoredTimeout}} {
		l := liveness{closeAt: never, restartAt: never}
		l.restored(start, &cfg)
		if x.heard > 0 {
			l.prove(start.add(x.heard), unprompted)
		}
		if got := l.givesUpAt(&cfg, start).sub(start); got != x.want {
			t.Errorf("heard after %v: a command that waits since is given up after %v, want %v", x.heard, got, x.want)
		}
		if late := start.add(40 * time.Second); l.givesUpAt(&cfg, late) != late.add(cfg.ReliableTimeout) {
			t.Error("a later command has another timeout")
		}
	}
}

// TestUnanswered: the owner of a logged connection learns once that nothing is acknowledged, half a second after the
// oldest command was sent, and a second on a path with a long round trip.
func TestUnanswered(t *testing.T) {
	say := func(s *connTest, text string) {
		if err := s.c.Send([]byte(text), 0); err != nil {
			t.Fatal(err)
		}
		s.pump()
		s.store()
		s.happen = nil
	}
	for _, x := range []struct{ trip, want time.Duration }{{0, 500 * time.Millisecond}, {20 * time.Millisecond, 500 * time.Millisecond}, {400 * time.Millisecond, time.Second}} {
		s := logged(t)
		first := 0
		if x.trip > 0 {
			say(s, "a")
			s.wait(x.trip)
			s.recv("06 0000 00")
			s.store()
			first = 1
		}
		say(s, "b")
		s.wait(x.want - time.Millisecond)
		s.told("an acknowledgement may be on its way")
		s.wait(time.Millisecond)
		s.told("nothing came", "unanswered")
		s.wait(time.Second)
		s.told("it is told once")
		s.recv(fmt.Sprintf("06 %02x00 00", first))
		say(s, "c")
		s.wait(time.Second)
		s.told("an acknowledgement ended that", "unanswered")
	}
}

// TestKeepAlive: a LinkUpdate without links is a sign of life of either side, in both profiles, and nothing
// else: it is not answered, not counted as malformed, and proves nothing.
func TestKeepAlive(t *testing.T) {
	for _, c := range []struct {
		why      string
		profile  wire.Profile
		datagram string
		counts   bool
	}{
		{"no links", wire.Denetwork, "09 00", true},
		{"no links, a count of two bytes", wire.Spec, "09 0000", true},
		{"no count", wire.Denetwork, "09", false},
		{"half a count", wire.Spec, "09 00", false},
		{"bytes behind the count", wire.Denetwork, "09 00 00", false},
		{"bytes behind the count", wire.Spec, "09 0000 00", false},
		{"a link that does not exist", wire.Denetwork, "09 01 0000 00", false},
	} {
		cfg := quiet()
		cfg.Profile = c.profile
		for side, s := range map[string]*connTest{"server": serve(t, cfg), "client": dialed(t, cfg)} {
			s.wait(30 * time.Second)
			before := s.c.life.heard
			s.recv(c.datagram)
			if heard := s.c.life.heard > before; heard != c.counts {
				t.Errorf("%s (%s), %s: the peer was heard: %v, want %v", c.why, c.datagram, side, heard, c.counts)
			}
			if got := s.e.Stats().Drops; c.counts && got != [NumDropReasons]uint64{} {
				t.Errorf("%s, %s: dropped %v, want nothing", c.why, side, got)
			}
			if c.counts {
				s.want("and nothing is answered")
			}
		}
	}
}

// TestSignOfLife: an edge to which a peer made a connection can say so before the peer says anything. A peer that was
// not answered yet repeats its request, and is not taken for one that started again.
func TestSignOfLife(t *testing.T) {
	for _, profile := range []wire.Profile{wire.Denetwork, wire.Spec} {
		cfg := carriedConfig()
		cfg.Profile = profile
		s := newTest(t, cfg)
		s.recv("00 0100 0000")
		s.want("the request is accepted", "01 00 0000")
		s.wait(time.Second)
		s.recv(fmt.Sprintf("%x", s.e.SignOfLife()))
		if s.c.life.heard != s.e.clock.now {
			t.Error("the peer is not heard")
		}
		s.recv("00 0100 0000")
		s.want("so is the same request", "01 00 0000")
	}
}

// TestKeepAliveProvesNothing: a stranger who sends keep-alives in the name of a dead peer does not keep its
// connection.
func TestKeepAliveProvesNothing(t *testing.T) {
	s := serve(t, alive())
	s.recv("0a 0000 00", "06 0000 00")
	died := s.now
	s.wait(10 * time.Second)
	if got, most := s.outlives(died, "09 00"), 56*time.Second; got > most {
		t.Errorf("the connection goes on for %v after the last acknowledgement, want %v at most", got, most)
	}
}

// dialed returns a test with a client that is connected to the peer.
func dialed(t *testing.T, cfg Config) *connTest {
	t.Helper()
	s := newTest(t, cfg)
	if _, err := s.e.Connect(s.now, peerAddr); err != nil {
		t.Fatal(err)
	}
	s.pump()
	s.recv("01 00 0000")
	s.sent, s.happen = nil, nil
	return s
}
