package dnp

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestUpdateFromPeer(t *testing.T) {
	s, _ := linked(t, quiet(), false, "uint8", "uint16")
	s.recv("09 01 0080 02 0000 07 0100 0800")
	s.events("all values", "update 8000 0=07 1=0800")
	s.recv("09 02 0080 01 0000 09")
	s.events("the C++ library counts too many links: what is there counts", "update 8000 0=09")
	s.dropped("the rest is missing", DropTruncated, 1)
	s.recv("09 02 3412 01 0000 09 0080 01 0000 09")
	s.events("behind an unknown link nothing can be read")
	s.dropped("counted", DropUnknownLink, 1)
	s.recv("09 01 0080 02 0000 09 0500 09")
	s.events("a link that does not parse is discarded whole")
	s.dropped("counted", DropBadValue, 1)
}

func TestUpdateSplits(t *testing.T) {
	cfg := quiet()
	cfg.DatagramMax = 256
	s, src := linked(t, cfg, true, "data", "uint8", "data")
	set(src, 0, "c800"+strings.Repeat("11", 200))
	set(src, 1, "07")
	set(src, 2, "2c01"+strings.Repeat("22", 300))
	s.flush()
	s.want("a datagram ends at 256 bytes here, a larger value has its own",
		"09 01 0080 02 0000 c800"+strings.Repeat("11", 200)+"0100 07", "09 01 0080 01 0200 2c01"+strings.Repeat("22", 300))
}

func TestUpdateCounts(t *testing.T) {
	cfg := quiet()
	cfg.DatagramMax = 60000
	types := strings.Split(strings.Repeat("uint8 ", 200), " ")[:200]
	s, src := linked(t, cfg, true, types...)
	for i := range 200 {
		set(src, i, "01")
	}
	s.flush()
	if len(s.sent) != 1 || s.sent[0][:10] != "0902"+"0080"+"7f" {
		t.Fatalf("127 values are the most that Java reads: %v", s.sent)
	}
	s.sent = nil
	for i := range 200 {
		extra := s.source("uint8")
		s.c.Link(extra, true)
		s.pump()
		id := byte(i + 1)
		s.recv(fmt.Sprintf("06 %02x00 00", id), fmt.Sprintf("07 %02x80", id))
		defer func() { _ = extra }()
		set(extra, 0, "01")
	}
	s.sent = nil
	s.flush()
	if len(s.sent) != 2 || s.sent[0][:4] != "097f" {
		t.Fatalf("127 links are the most that Java reads: %.40v", s.sent)
	}
}

func TestVersions(t *testing.T) {
	s, src := linked(t, quiet(), true, "uint8", "uint8", "uint8")
	set(src, 0, "01")
	set(src, 0, "02")
	s.flush()
	s.want("changes coalesce", "09 01 0080 01 0000 02")
	s.flush()
	s.want("nothing changed")
	set(src, 1, "03")
	if !s.e.Pending() {
		t.Fatal("a change is pending")
	}
	s.flush()
	s.want("only what changed", "09 01 0080 01 0100 03")
	src.version = 1<<32 - 1
	set(src, 2, "04")
	s.flush()
	s.want("the versions start again: everything is sent", "09 01 0080 03 0000 02 0100 03 0200 04")
}

func TestRefresh(t *testing.T) {
	cfg := quiet()
	cfg.Refresh = nil
	s, src := linked(t, cfg, true, "uint8", "uint8")
	set(src, 1, "01")
	s.flush()
	s.sent = nil
	var times []string
	for range 3000 {
		s.wait(time.Millisecond)
		s.flush()
		for range s.sent {
			times = append(times, s.now.Sub(epoch).String())
		}
		s.sent = nil
	}
	if got := strings.Join(times, " "); got != "60ms 180ms 500ms 1.5s" {
		t.Fatalf("refreshed at %s", got)
	}
	set(src, 0, "02")
	s.flush()
	s.want("only what changed lately is repeated", "09 01 0080 01 0000 02")
	s.wait(60 * time.Millisecond)
	s.flush()
	s.want("the other value had its turn", "09 01 0080 01 0000 02")
}

// TestRepeatsWaitForCompany wants a repeat to be sent with the next change, and after repeatWait without one.
func TestRepeatsWaitForCompany(t *testing.T) {
	cfg := quiet()
	cfg.Refresh = []time.Duration{60 * time.Millisecond}
	s, src := linked(t, cfg, true, "uint8")
	other := s.source("uint8")
	if err := s.c.Link(other, true); err != nil {
		t.Fatal(err)
	}
	s.pump()
	s.recv("06 0100 00", "07 0180")
	s.sent, s.happen = nil, nil
	for _, company := range []bool{true, false} {
		set(src, 0, "01")
		s.flush()
		s.sent = nil
		s.wait(60 * time.Millisecond)
		if s.e.Pending() {
			t.Fatal("a repeat does not wait for other values")
		}
		if at, ok := s.e.NextTimeout(); !ok || at.Sub(s.now) != repeatWait {
			t.Fatalf("the endpoint wants a turn in %v (%v), want %v", at.Sub(s.now), ok, repeatWait)
		}
		if company {
			set(other, 0, "02")
		} else {
			s.wait(repeatWait)
		}
		if !s.e.Pending() {
			t.Fatalf("nothing is pending, with another change: %v", company)
		}
		s.flush()
		if want := map[bool]string{true: "09 02 0080 01 0000 01 0180 01 0000 02", false: "09 01 0080 01 0000 01"}[company]; len(s.sent) != 1 || s.sent[0] != strings.ReplaceAll(want, " ", "") {
			t.Fatalf("a repeat, with another change: %v: sent %v, want %s", company, s.sent, want)
		}
		if s.e.Pending() {
			t.Fatal("flushed values are still pending")
		}
		s.wait(time.Second) // the other source repeats its change
		s.flush()
	}
}

func TestRefreshWaitsForQuiet(t *testing.T) {
	cfg := quiet()
	cfg.Refresh = nil
	s, src := linked(t, cfg, true, "uint8")
	for i := range 100 {
		set(src, 0, fmt.Sprintf("%02x", i+1))
		s.flush()
		s.wait(50 * time.Millisecond)
	}
	if s.e.stats.Refreshes != 0 {
		t.Fatalf("%d refreshes of a state that changes all the time", s.e.stats.Refreshes)
	}
}

// TestRefreshKnowsRhythm changes a state ten times a second, so that the first repeat
// would be due before each change.
func TestRefreshKnowsRhythm(t *testing.T) {
	cfg := quiet()
	cfg.Refresh = nil
	s, src := linked(t, cfg, true, "uint8", "uint8")
	tenTimes := func(values ...int) (refreshes uint64) {
		before := s.e.stats.Refreshes
		for n := range 10 {
			for _, i := range values {
				set(src, i, fmt.Sprintf("%02x", s.e.stats.UpdatesOut+uint64(n)+1))
			}
			s.flush()
			for range 100 {
				s.wait(time.Millisecond)
				s.flush()
			}
		}
		return s.e.stats.Refreshes - before
	}
	if n := tenTimes(0); n > 1 { // one before the rhythm is known
		t.Errorf("%d refreshes of a value that changes in a rhythm", n)
	}
	set(src, 1, "ff")
	s.flush()
	if n := tenTimes(0); n < 4 {
		t.Errorf("%d refreshes while a value waits that stands still: the rhythm of the other holds its repeats up", n)
	}
	s.wait(2 * time.Second)
	s.flush()
	before := s.e.stats.Refreshes
	tenTimes(0, 1)
	if n := s.e.stats.Refreshes - before; n > 1 {
		t.Errorf("%d refreshes while both values change in a rhythm", n)
	}
	if s.wait(150 * time.Millisecond); s.e.stats.Refreshes == before {
		t.Error("no refresh after the rhythm ended")
	}
}

// TestRefreshToleratesLateness changes a state in several rhythms, and counts the repeats until the last change, and how long
// after that the first one comes.
func TestRefreshToleratesLateness(t *testing.T) {
	steady := func(n, pause int) (all []int) {
		for range n {
			all = append(all, pause)
		}
		return all
	}
	repeat := func(n int, pauses ...int) (all []int) {
		for range n {
			all = append(all, pauses...)
		}
		return all
	}
	for _, c := range []struct {
		why    string
		pauses []int // between changes, in milliseconds
		most   uint64
		first  int // milliseconds from the last change to the first repeat, at most, but for refreshGrid
	}{
		{"twenty changes a second", steady(40, 50), 0, 75},
		{"each tenth of them 22 ms late: no repeat before 75 ms", repeat(4, append(steady(8, 50), 72, 28)...), 0, 90},
		{"each second of them 15 ms late", repeat(20, 65, 35), 1, 100}, // one before the rhythm is known
		{"each second of them 20 ms late", repeat(20, 70, 30), 1, 105},
		{"a rhythm that becomes faster: its earlier pauses are forgotten", append(steady(10, 120), steady(10, 20)...), 1, 61},
	} {
		cfg := quiet()
		cfg.Refresh = nil
		s, src := linked(t, cfg, true, "uint8")
		wait := func(ms int) {
			for range ms {
				s.wait(time.Millisecond)
				s.flush()
			}
		}
		for n, pause := range c.pauses {
			set(src, 0, fmt.Sprintf("%02x", n+1))
			s.flush()
			wait(pause)
		}
		if n := s.e.stats.Refreshes; n > c.most {
			t.Errorf("%s: %d refreshes, want %d", c.why, n, c.most)
		}
		before := s.e.stats.Refreshes
		set(src, 0, "ff")
		s.flush()
		wait(c.first + int(refreshGrid.Milliseconds()))
		if n := s.e.stats.Refreshes - before; n != 1 {
			t.Errorf("%s: %d refreshes within %d ms of the last change, want one", c.why, n, c.first)
		}
	}
}

// TestRefreshExpectsChanges changes a state five times a second, as its owner said, and once in a second.
func TestRefreshExpectsChanges(t *testing.T) {
	for _, period := range []time.Duration{200 * time.Millisecond, time.Second} {
		cfg := quiet()
		cfg.Refresh = nil
		s, src := linked(t, cfg, true, "uint8")
		src.Expect(period)
		for n := range 10 {
			set(src, 0, fmt.Sprintf("%02x", n+1))
			s.flush()
			s.wait(period)
		}
		if n := s.e.stats.Refreshes; n != 0 {
			t.Errorf("%d refreshes of a value that changes each %v, as was expected", n, period)
		}
		s.wait(period/2 - time.Millisecond)
		if n := s.e.stats.Refreshes; n != 0 {
			t.Errorf("%d refreshes before the change is overdue", n)
		}
		if s.wait(time.Millisecond); s.e.stats.Refreshes != 1 {
			t.Errorf("%d refreshes half a period after the change was due, want 1", s.e.stats.Refreshes)
		}
		src.Expect(0)
		set(src, 0, "77")
		s.flush()
		if s.wait(60 * time.Millisecond); s.e.stats.Refreshes != 2 {
			t.Errorf("%d refreshes after a change that none is expected to follow, want 2", s.e.stats.Refreshes)
		}
		s.wait(2 * time.Second)
		before := s.e.stats.Refreshes
		src.Expect(2 * time.Second)
		set(src, 0, "78")
		s.flush()
		if s.wait(60 * time.Millisecond); s.e.stats.Refreshes != before+1 {
			t.Errorf("%d refreshes of a change that is followed so late that a loss would be seen, want 1", s.e.stats.Refreshes-before)
		}
	}
}

// TestRefreshOfParts changes both values of a state, or only the first, five times a second, as its owner said.
func TestRefreshOfParts(t *testing.T) {
	cfg := quiet()
	cfg.Refresh = nil
	s, src := linked(t, cfg, true, "uint8", "uint8")
	src.Expect(200 * time.Millisecond)
	n := 0
	change := func(values ...int) {
		n++
		for _, i := range values {
			set(src, i, fmt.Sprintf("%02x", n))
		}
		s.flush()
		for range 40 {
			s.wait(5 * time.Millisecond)
			s.flush()
		}
	}
	for range 10 {
		change(0, 1)
		change(0)
	}
	if n := s.e.stats.Refreshes; n != 0 {
		t.Errorf("%d refreshes of values that the change after the next one replaces, want none", n)
	}
	change(0, 1)
	for range 8 {
		change(0)
	}
	if n := s.e.stats.Refreshes; n != 3 {
		t.Errorf("%d refreshes of a value that stands still while the other changes, want those of 300, 420 and 740 ms after the first change without it", n)
	}
	before := s.e.stats.Refreshes
	s.wait(4 * time.Second)
	if n := s.e.stats.Refreshes - before; n != 5 {
		t.Errorf("%d refreshes after the last change, want the last one of those before it, and four of its own", n)
	}
}

func TestRefreshTwiceForLossyPeer(t *testing.T) {
	cfg := quiet()
	cfg.Refresh = nil
	s, src := linked(t, cfg, true, "uint8")
	s.c.loss.share = 0.3
	set(src, 0, "01")
	s.flush()
	s.want("a change goes once", "09 01 0080 01 0000 01")
	s.wait(60 * time.Millisecond)
	s.flush()
	s.want("its repeat twice", "09 01 0080 01 0000 01", "09 01 0080 01 0000 01")
	s.c.loss.share = 0.5
	s.wait(120 * time.Millisecond)
	s.flush()
	s.want("and three times where every second command is lost", "09 01 0080 01 0000 01", "09 01 0080 01 0000 01", "09 01 0080 01 0000 01")
}

func TestScrub(t *testing.T) {
	cfg := quiet()
	cfg.ScrubInterval = 5 * time.Second
	s, _ := linked(t, cfg, true, "uint8", "uint8")
	s.wait(2500 * time.Millisecond) // connections start at different times
	s.flush()
	s.want("all values of all links", "09 01 0080 02 0000 00 0100 00")
	s.wait(4999 * time.Millisecond)
	s.flush()
	s.want("not again within 5 s")
	s.wait(time.Millisecond)
	s.flush()
	s.want("but then", "09 01 0080 02 0000 00 0100 00")
}

func TestScrubSparesPeersValues(t *testing.T) {
	cfg := quiet()
	cfg.ScrubInterval = 5 * time.Second
	s := serve(t, cfg)
	s.recv("05 0000 0000 00 0100 4d 0200 01 2a 01 2b")
	src := s.source("uint8", "uint8")
	s.c.Accept(0, src)
	s.wait(10 * time.Second)
	s.sent = nil
	s.flush()
	s.want("the peer's own values are not sent back to it")
	set(src, 1, "01")
	s.flush()
	s.sent = nil
	s.wait(6 * time.Second)
	s.flush()
	s.want("the scrub sends values that others changed since, and LinkUp, because the peer never wrote", "07 0000", "09 01 0000 01 0100 01")
}

func TestHoldRefuse(t *testing.T) {
	s, src := linked(t, quiet(), false, "uint8", "uint8")
	s.recv("09 01 0080 01 0000 07")
	s.c.Writes().Hold(0x8000, 0, 0, unhex("07"))
	set(src, 0, "09")
	set(src, 1, "01")
	s.flush()
	s.want("the value in question waits, the other does not", "09 01 0080 01 0100 01")
	s.c.Writes().Refuse(0x8000, 0)
	s.flush()
	s.want("refused: the peer gets the truth", "09 01 0080 02 0000 09 0100 01")
	s.c.Writes().Hold(0x8000, 0, 0, unhex("07"))
	set(src, 0, "0a")
	s.flush()
	s.want("held")
	s.c.Writes().Release(0x8000, 0)
	s.flush()
	s.want("acknowledged, but the state has moved on", "09 01 0080 01 0000 0a")
}

// TestHoldEcho: a write may have crossed a value on the wire, so it is sent back once the
// peer has been quiet, but never while the peer goes on writing.
func TestHoldEcho(t *testing.T) {
	cfg := quiet()
	cfg.ScrubInterval = 5 * time.Second
	s, src := linked(t, cfg, false, "uint8")
	write := func(hex string) {
		s.recv("09 01 0080 01 0000 " + hex)
		s.c.Writes().Hold(0x8000, 0, 0, unhex(hex))
		set(src, 0, hex)
		s.c.Writes().Release(0x8000, 0)
		s.flush()
		s.want("not while it could undo the next write")
	}
	write("07")
	for range 20 {
		s.wait(500 * time.Millisecond)
		write("08")
	}
	echoes := 0
	for range 40 {
		s.wait(time.Second)
		s.flush()
		echoes += len(s.sent)
		s.sent = nil
	}
	if echoes != echoCopies {
		t.Fatalf("sent back %d times, want %d: one may get lost, and endless echoes cost", echoes, echoCopies)
	}
}

// TestRefreshOfSplitLink: the copies of a repeat that takes several datagrams.
func TestRefreshOfSplitLink(t *testing.T) {
	for _, phase := range []LinkPhase{LinkUp, LinkPresumed} {
		cfg := quiet()
		cfg.Refresh, cfg.DatagramMax = nil, 256
		s, src := linked(t, cfg, true, slices.Repeat([]string{"uint64"}, 40)...)
		s.c.links.slots[0].phase = phase
		s.c.loss.share = 0.3
		for i := range 40 {
			set(src, i, "0102030405060708")
		}
		s.flush()
		if len(s.sent) != 2 {
			t.Fatalf("a change of 40 values was sent in %d datagrams, want 2", len(s.sent))
		}
		once := s.sent
		s.sent = nil
		s.wait(60 * time.Millisecond)
		s.flush()
		s.want("each datagram of the repeat twice", once[0], once[0], once[1], once[1])
	}
}

// TestAcceptBetweenChanges: the version that is open when a link is accepted does not
// count as known to the peer.
func TestAcceptBetweenChanges(t *testing.T) {
	s, src := linked(t, quiet(), true, "uint8", "uint8")
	set(src, 0, "01")
	s.e.Receive(s.now, servAddr, unhex("00 0100 0000"), &s.recorder)
	s.note(s.e.Receive(s.now, servAddr, unhex("05 0000 0000 00 0100 4d 0200 01 01 01 00"), &s.recorder))
	if err := s.c.Accept(0, src); err != nil {
		t.Fatal(err)
	}
	set(src, 1, "02")
	s.sent = nil
	s.flush()
	s.want("the change behind the acceptance reaches both peers", "09 01 0080 02 0000 01 0100 02", "09 01 0000 02 0000 01 0100 02")
}
