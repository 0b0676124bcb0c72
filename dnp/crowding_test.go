package dnp

import (
	"fmt"
	"testing"
	"time"
)

// test feeds samples of the round trip, in milliseconds, in a round of their own.
func (c *crowding) test(now *instant, lossy bool, trips ...int) float32 {
	for _, ms := range trips {
		*now = now.add(50 * time.Millisecond)
		o := outgoing{sends: 1, timed: true, first: *now, last: *now}
		*now = now.add(time.Duration(ms) * time.Millisecond)
		c.acknowledged(&o, lossy, 4, *now)
	}
	return c.price
}

func TestCrowding(t *testing.T) {
	for _, x := range []struct {
		why   string
		trips []int
		want  float32
	}{
		{"steady round trips are no queue", []int{20, 21, 22, 20}, 1},
		{"a queue of 80 ms or more raises the price by half", []int{120, 120, 121, 122}, 1.5},
		{"one of 40 ms by a quarter", []int{60, 60, 60, 60}, 1.25},
		{"one of 20 ms may be frames", []int{40, 40, 40, 40}, 1},
		{"one short round trip shows that there is no queue", []int{120, 20, 120, 120}, 1},
		{"a peer of 10 frames a second spreads acknowledgements like this", []int{50, 64, 95, 119}, 1},
		{"three are too few", []int{120, 120, 120}, 1},
	} {
		now, c := instant(time.Hour), crowding{price: 1}
		c.test(&now, true, 20, 20, 20, 20)
		if got := c.test(&now, true, x.trips...); got != x.want {
			t.Errorf("%s: %v make a price of %v, want %v", x.why, x.trips, got, x.want)
		}
	}
}

func TestCrowdingFalls(t *testing.T) {
	now, c := instant(time.Hour), crowding{price: 2}
	c.test(&now, true, 20, 20, 20, 20)
	if c.price != 1.8 {
		t.Errorf("without a queue the price falls from 2 to %v, want a tenth", c.price)
	}
	for range 50 {
		c.test(&now, true, 20, 20, 20, 20)
	}
	if c.price != 1 {
		t.Errorf("the price ends at %v, want that of the rate", c.price)
	}
	for range 50 {
		c.test(&now, true, 220, 220, 220, 220)
		if c.price > 4 {
			t.Fatalf("a price of %v, want 4 at most", c.price)
		}
		if c.price == 4 {
			break
		}
	}
	c.test(&now, true, 220, 220, 220, 220)
	if c.test(&now, true, 220, 220, 220, 220) >= 4 {
		t.Error("a price that can rise no further shows nothing: it is the way that is longer")
	}
}

// TestCrowdingCopies: the acknowledgement of a command that was sent several times may be that of each copy that is
// old enough.
func TestCrowdingCopies(t *testing.T) {
	ago := func(ms int) instant { return instant(time.Hour).add(-time.Duration(ms) * time.Millisecond) }
	for _, x := range []struct {
		why         string
		sends       uint16
		first, last int // milliseconds ago
		want        time.Duration
	}{
		{"sent once", 1, 70, 70, 70 * time.Millisecond},
		{"the second copy may have taken 60 ms, the first took longer", 2, 130, 60, 60 * time.Millisecond},
		{"no copy takes less than 20 ms, so it was the first", 2, 70, 10, 70 * time.Millisecond},
		{"of more copies the others are unknown", 3, 130, 10, 0},
		{"a command of the round before says nothing of this one", 1, 600, 600, 0},
	} {
		c := crowding{price: 1, round: ago(500), least: uint16(20 * time.Millisecond / crowdingUnit)}
		c.sample(&outgoing{sends: x.sends, timed: x.sends == 1, first: ago(x.first), last: ago(x.last)}, ago(0))
		got := time.Duration(0)
		if c.samples > 0 {
			got = time.Duration(c.shortest) * crowdingUnit
		}
		if got != x.want {
			t.Errorf("%s: a sample of %v, want %v", x.why, got, x.want)
		}
	}
}

// TestStarved: where nothing arrives, the rate yields, but not for good: the peer may pause.
func TestStarved(t *testing.T) {
	s := trips(t)
	s.send("a")
	s.wait(500 * time.Millisecond)
	if p := s.c.budget.crowd.price; p != 1 {
		t.Errorf("a price of %v after three repeats, want 1", p)
	}
	s.wait(8 * time.Second)
	if p := s.c.budget.crowd.price; p < 2 || p > 5 {
		t.Errorf("a price of %v after 8 s without an answer, want about 4", p)
	}
	s = trips(t)
	s.send("a")
	for n := range 9 {
		s.send("b")
		s.wait(40 * time.Millisecond)
		s.recv(fmt.Sprintf("06 %02x00 00", 0x1f+n))
		s.wait(400 * time.Millisecond)
	}
	if p := s.c.budget.crowd.price; p > 1.3 {
		t.Errorf("a price of %v, want hardly more than 1: others are acknowledged", p)
	}
}

// TestSamples: a peer that is sent values and acknowledges nothing is asked for a sample now and then, and often where
// something waits or gets lost.
func TestSamples(t *testing.T) {
	cfg := quiet()
	cfg.LivenessInterval = time.Hour
	s := serve(t, cfg)
	s.recv("0a 0000 00")
	s.wait(10 * time.Second)
	s.sent = nil
	const probe = 4 // bytes
	values := func(n int) (asked int) {
		for range n {
			s.c.budget.updated = s.e.clock.now
			s.c.budget.crowd.sent = min(s.c.budget.crowd.sent+1, crowdedDatagrams)
			s.c.settle(s.e.clock.now)
			s.wait(10 * time.Millisecond)
			for _, d := range s.sent {
				if len(unhex(d)) == probe {
					asked++
					s.c.send.flight[0].acked = true
					s.c.send.forget(1, s.e.cfg.Profile, s.e.clock.now)
					s.c.budget.crowd.sent, s.c.life.sure = 0, s.e.clock.now
				}
			}
			s.sent = nil
		}
		return asked
	}
	if n := values(1500); n != 2 {
		t.Errorf("the peer is asked %d times in 1,500 datagrams, want one in %d", n, crowdedDatagrams)
	}
	s.c.budget.crowd.price = 2
	if n := values(500); n < 30 || n > 60 {
		t.Errorf("the peer is asked %d times in 5 s, want one in about 0.1 s while the rate is lower", n)
	}
	s.c.budget.crowd.price, s.c.loss.seen = 1, 0.1
	if n := values(500); n < 30 {
		t.Errorf("the peer is asked %d times in 5 s, want one in about 0.1 s while datagrams get lost", n)
	}
	s.c.send.flight = nil
	s.c.budget.updated = 0
	s.c.settle(s.e.clock.now)
	s.wait(10 * time.Second)
	if len(s.sent) > 0 {
		t.Errorf("sent %v, want nothing where no values are sent", s.sent)
	}
}

// TestRestoredResend: nothing is known of the path of a connection that was restored, but its peer waits.
func TestRestoredResend(t *testing.T) {
	s := trips(t)
	cfg, o := &s.e.cfg, outgoing{sends: 1, first: 0, last: 0}
	wait := func(l liveness) time.Duration {
		return s.c.send.resendAt(cfg, s.c.pace(&l, instant(time.Hour)), &o).sub(o.last)
	}
	if d := wait(liveness{patient: 1}); d != 80*time.Millisecond {
		t.Errorf("on a path that is known a command waits for %v, want 80 ms", d)
	}
	s.c.trip = roundTrip{}
	if d := wait(liveness{patient: 1}); d != restoredResend {
		t.Errorf("to the peer of a restored connection it waits for %v, want %v", d, restoredResend)
	}
	if d := wait(liveness{}); d != cfg.ReliableResend {
		t.Errorf("to any other it waits for %v, want %v", d, cfg.ReliableResend)
	}
}

// TestLateTrip: on a path that becomes longer each command is sent again before its acknowledgement comes, so that none
// can be timed. What comes later than usual after the last copy makes the wait longer all the same.
func TestLateTrip(t *testing.T) {
	s := trips(t)
	for n := range 20 {
		s.send("a")
		s.wait(400 * time.Millisecond)
		s.recv(fmt.Sprintf("06 %02x00 00", 30+n))
	}
	if d := s.c.trip.longest(time.Second); d < 150*time.Millisecond {
		t.Errorf("a command waits for %v, want 150 ms at least, of 400", d)
	}
}
