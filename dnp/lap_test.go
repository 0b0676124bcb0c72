package dnp

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// TestLapEnd is the table of the rule.
func TestLapEnd(t *testing.T) {
	for _, c := range []struct {
		why              string
		first, near, end uint64 // first is plus one
	}{
		{"the peer looks for 100 when it has 99", 101, 100 + 49_151, 100 + 65_534},
		{"in the third lap", 140_001, 140_000 + 49_151, 140_000 + 65_534},
		{"the end would be the last number", 1, 49_151, 65_524},
		{"the end would be close behind the wrap", 31, 30 + 49_151, 65_524},
		{"far enough behind it", 32, 31 + 49_151, 31 + 65_534},
		{"the end would be before the wrap, where repeats are not acknowledged", 65_527, 65_526 + 49_151, 65_535 + 65_524},
		{"far enough before it", 65_525, 65_524 + 49_151, 65_524 + 65_534},
	} {
		l := &lap{modulus: 65_535, first: c.first}
		if end := l.end(); end != c.end {
			t.Errorf("%s: the lap of %d ends at %d, want %d", c.why, c.first-1, end, c.end)
		}
		if l.near(c.near-1) || !l.near(c.near) {
			t.Errorf("%s: the end is not near from %d on", c.why, c.near)
		}
	}
}

// TestLapModel compares the numbers that a connection remembers with all that were repeated.
func TestLapModel(t *testing.T) {
	rng := newRand(t)
	const m = 1000
	for range 200 {
		l, noOps, others := &lap{modulus: m}, map[uint64]bool{}, []uint64{}
		base := rng.Uint64N(5 * m)
		for range rng.IntN(300) {
			n := base + rng.Uint64N(3*m)
			noOp := rng.IntN(2) == 0 || l.reserves(n)
			news := l.keep(n, noOp)
			if noOp && (noOps[n%m] || len(noOps) < noOpsMax && n%m < m-edgeDistance) {
				noOps[n%m] = true
			} else {
				others = append(others, n)
			}
			if len(others) > 0 && l.first != slices.Min(others)+1 || len(others) == 0 && l.first != 0 {
				t.Fatalf("the lowest of %v is taken for %d", others, l.first)
			}
			if len(noOps) != len(l.noOps) || !slices.IsSorted(l.noOps) || news && l.first != n+1 && !noOps[n%m] {
				t.Fatalf("no-ops %v, want %v", l.noOps, noOps)
			}
		}
		for n := range uint64(m) {
			if l.reserves(base+n) != noOps[(base+n)%m] {
				t.Fatalf("%d is reserved: %v", base+n, !noOps[(base+n)%m])
			}
		}
	}
}

// say sends messages that the peer acknowledges, up to number n.
func (s *connTest) say(n uint64) {
	s.Helper()
	for s.c.send.next < n {
		next := s.c.send.next
		if err := s.c.Send([]byte("x"), 0); err != nil {
			s.Fatal(err)
		}
		s.pump()
		if s.c.send.next == next {
			s.Fatalf("number %d is not sent", next)
		}
		for ; next < s.c.send.next; next++ {
			s.recv(ackText(next))
		}
	}
	s.sent, s.happen = nil, nil
}

func ackText(n uint64) string { return fmt.Sprintf("06 %02x%02x 00", n%65_535&0xFF, n%65_535>>8) }

// TestLapSecondAck: a command that was acknowledged twice may be kept, because the network doubled it.
func TestLapSecondAck(t *testing.T) {
	s := serve(t, quiet())
	s.say(5000)
	s.recv(ackText(4990), ackText(150), ackText(200))
	s.say(150 + 49_150)
	if LapNear(s.c) {
		t.Fatal("more than a quarter of the lap is left")
	}
	s.c.Send([]byte("x"), 0)
	s.pump()
	s.recv(ackText(150 + 49_150))
	s.events("a quarter is left", "lap")
	s.say(150 + 65_533)
	if !s.c.Established() {
		t.Fatal("one number is left")
	}
	if err := s.c.Send([]byte("last"), 0); err != nil {
		t.Fatal(err)
	}
	if err := s.c.Send([]byte("beyond"), 0); err != nil {
		t.Fatal(err)
	}
	s.pump()
	s.want("the last number is used, and no other", "04 9400 6c617374")
	s.events("the connection waits for the acknowledgement")
	s.recv(ackText(150 + 65_533))
	s.want("then it ends", "02")
	s.events("because of the lap", "closed recycle")
}

// TestLapForgets: a peer that keeps nothing has no lap, even if it seemed to before.
func TestLapForgets(t *testing.T) {
	s := serve(t, quiet())
	s.say(200)
	s.recv(ackText(150))
	PeerForgets(s.c)
	s.recv(ackText(160))
	s.say(140_000)
	if s.c.send.lap != nil || LapNear(s.c) {
		t.Error("the connection remembers numbers")
	}
}

// TestLapForged: acknowledgements can be guessed. They cost a peer its connection half a lap later at the earliest.
func TestLapForged(t *testing.T) {
	s := serve(t, quiet())
	s.say(40_000)
	for n := uint64(0); n < 65_535; n += 5 {
		s.recv(ackText(n))
	}
	if end := s.c.send.lap.end(); end < 40_000+32_000 {
		t.Errorf("number %d is the last one", end)
	}
}

// TestLapNoOps: where the peer keeps a no-op, a no-op is sent a lap later, even inside a long message, and the connection
// needs no end.
func TestLapNoOps(t *testing.T) {
	s := serve(t, quiet())
	s.c.send.long = longTaken
	s.say(10)
	s.c.send.probes = 1
	s.c.wake()
	s.pump()
	s.want("a no-op", "0a 0a00 00")
	s.wait(500 * time.Millisecond)
	s.sent = nil // it was sent again
	s.recv(ackText(10))
	for lap := uint64(1); lap < 3; lap++ {
		s.say(lap*65_535 + 9)
		s.c.Send(make([]byte, 2000), 0)
		s.pump()
		s.recv(ackText(9), ackText(10))
		s.wait(20 * time.Millisecond) // for the budget
		var heads []string
		for _, d := range s.sent {
			heads = append(heads, d[:8])
		}
		s.sent = nil
		if want := []string{"0a090001", "0a0a0000", "0a0b0002"}; !slices.Equal(heads, want) {
			t.Fatalf("lap %d: sent %v, want %v", lap, heads, want)
		}
		s.recv(ackText(11))
	}
	s.events("no lap ends")
	if _, idle := s.e.Traffic(s.c); !idle {
		t.Error("something is under way")
	}
}

// TestLapNoOpAlone: the no-op is sent when its number is the next one, and does not wait for a message.
func TestLapNoOpAlone(t *testing.T) {
	s := serve(t, quiet())
	s.say(5)
	s.c.send.lap = &lap{modulus: 65_535, noOps: []uint16{9, 20}}
	s.say(9)
	if s.c.send.next != 10 {
		t.Fatalf("the next number is %d", s.c.send.next)
	}
	s.recv(ackText(9))
	s.say(20)
}

// TestLapNoOpsMax: memory is bounded, and beyond the bound a no-op counts as any other command.
func TestLapNoOpsMax(t *testing.T) {
	l := &lap{modulus: 65_535}
	for n := range uint64(noOpsMax) {
		l.keep(2*n, true)
	}
	if l.keep(1000, true); len(l.noOps) != noOpsMax || l.first != 1001 {
		t.Errorf("%d no-ops, the lowest other number is %d", len(l.noOps), l.first)
	}
}

// TestLapRestored: a snapshot, a checkpoint, and a log behind it have what the peer may keep.
func TestLapRestored(t *testing.T) {
	s := logged(t)
	send := func() {
		s.c.Send([]byte("x"), 0)
		s.pump()
		s.store()
	}
	send()
	send()
	checkpoint := s.c.AppendCheckpoint(nil) // has 0 and 1 in flight
	s.recv(ackText(0), ackText(1))
	send()
	s.recv(ackText(2), ackText(2))
	ch := s.c.Changes(1 << 20)
	if ch.Repeats.First != 3 || len(ch.Repeats.NoOps) != 0 {
		t.Fatalf("changes %+v, want the number 2", ch)
	}
	sent := Changes{Sent: []SentCommand{{Number: 2, Kind: SentMessage, Data: []byte("x")}}, Acked: 2}
	s.c.Stored()
	if ch := s.c.Changes(1 << 20); ch.Repeats.First != 0 {
		t.Fatalf("changes %+v, want the number once", ch)
	}
	s.c.Stored()

	restore := func(from []byte, changes ...Changes) *Conn {
		t.Helper()
		n := newTest(t, Config{Listen: true, Logged: true})
		c, err := n.e.Restore(n.now, peerAddr, from, func(uint64) *Source { return nil })
		if err != nil {
			t.Fatal(err)
		}
		for _, ch := range changes {
			if err := c.Replay(n.now, ch, func(uint64) *Source { return nil }); err != nil {
				t.Fatal(err)
			}
		}
		n.pump()
		return c
	}
	first := func(c *Conn) uint64 { return c.send.repeats().First }
	if n := first(restore(s.c.AppendCheckpoint(nil))); n != 3 {
		t.Errorf("from a checkpoint: %d, want the number 2", n)
	}
	if n := first(restore(checkpoint)); n != 1 {
		t.Errorf("from a checkpoint with commands in flight, which are sent again: %d, want the number 0", n)
	}
	if n := first(restore(checkpoint, sent, Changes{Acked: 3, Repeats: ch.Repeats})); n != 3 {
		t.Errorf("from the log: %d, want the number 2", n)
	}
	if n := first(restore(checkpoint, sent)); n != 3 {
		t.Errorf("from a log that ends before: %d, want the number 2, which is sent again", n)
	}
	PeerForgets(s.c)
	if c := restore(s.c.AppendSnapshot(nil)); !c.send.peerForgets {
		t.Error("the snapshot does not say that the peer keeps nothing")
	}
}

// TestLapLostMeaning: a number whose state is gone is sent again as a no-op. The peer may keep the offer.
func TestLapLostMeaning(t *testing.T) {
	s := restored(t)
	offer := Changes{Sent: []SentCommand{{Number: 0, Kind: SentLink, Link: 0x8000, HasRef: true, Ref: 1}}}
	if err := s.c.Replay(s.now, offer, func(uint64) *Source { return nil }); err != nil {
		t.Fatal(err)
	}
	s.pump()
	s.want("the link is over", "0a 0000 00", "08 0080")
	if r := s.c.send.repeats(); r.First != 1 {
		t.Errorf("%+v, want the number 0, which may be an offer", r)
	}
}

// TestLapUnfinished: numbers that were sent before there was a connection count.
func TestLapUnfinished(t *testing.T) {
	s := newTest(t, Config{Listen: true, Probe: ProbePing, Rand: rand.New(rand.NewPCG(1, 2))})
	s.recv("00 0100 0000")
	s.recv("06 0000 00")
	if s.c.send.lap != nil {
		t.Error("a ping that was sent once is remembered")
	}
	s = newTest(t, Config{Listen: true, Probe: ProbePing})
	s.recv("00 0100 0000")
	s.wait(300 * time.Millisecond)
	s.recv("06 0000 00")
	if r := s.c.send.repeats(); r.First != 0 || !slices.Equal(r.NoOps, []uint16{0}) {
		t.Errorf("%+v, want the no-op of number 0", r)
	}
	s = newTest(t, Config{Listen: true, Probe: ProbeHello})
	s.recv("00 0100 0000")
	s.wait(600 * time.Millisecond)
	s.recv("07" + s.sent[len(s.sent)-1][6:10])
	if r := s.c.send.repeats(); r.First != 1 {
		t.Errorf("%+v, want the hello of number 0", r)
	}
}
