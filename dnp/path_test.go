package dnp

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestRoundTrip(t *testing.T) {
	const most = 500 * time.Millisecond
	var r roundTrip
	if r.usual(most) != most || r.longest(most) != most {
		t.Errorf("without a sample %v and %v, want the most", r.usual(most), r.longest(most))
	}
	r.sample(80 * time.Millisecond)
	if r.usual(most) != 120*time.Millisecond || r.longest(most) != 240*time.Millisecond {
		t.Errorf("after the first sample %v and %v, want 80 ms and 40 ms of deviation, once and four times", r.usual(most), r.longest(most))
	}
	for range 100 {
		r.sample(20 * time.Millisecond)
	}
	if r.usual(most) != 25*time.Millisecond || r.longest(most) != resendLeast {
		t.Errorf("steady, %v and %v, want the round trip and a quarter, and %v for the frame of an application", r.usual(most), r.longest(most), resendLeast)
	}
	r.sample(10 * time.Second)
	if r.usual(most) != most || r.longest(most) != most {
		t.Errorf("after a long one %v and %v, want the most", r.usual(most), r.longest(most))
	}
	r.sample(-time.Second)
}

// trips returns a test with a server that knows a round trip of 40 ms.
func trips(t *testing.T) *connTest {
	t.Helper()
	s := serve(t, quiet())
	for n := range 30 {
		s.c.Send([]byte("m"), 0)
		s.pump()
		s.wait(40 * time.Millisecond)
		s.recv(fmt.Sprintf("06 %02x00 00", n))
	}
	s.sent = nil
	return s
}

func (s *connTest) send(messages ...string) {
	s.Helper()
	for _, m := range messages {
		if err := s.c.Send([]byte(m), 0); err != nil {
			s.Fatal(err)
		}
	}
	s.pump()
}

func TestRepeatAfterRoundTrip(t *testing.T) {
	s := trips(t)
	s.send("a")
	s.want("it is sent", "04 1e00 61")
	s.wait(79 * time.Millisecond)
	s.want("an acknowledgement may wait for two frames of the application")
	s.wait(time.Millisecond)
	s.want("it is overdue", "04 1e00 61")
	s.wait(159 * time.Millisecond)
	s.want("the peer may stand still, so the pause doubles")
	s.wait(time.Millisecond)
	s.want("and ends", "04 1e00 61")
	mean := s.c.trip
	s.recv("06 1e00 00")
	if s.c.trip != mean {
		t.Errorf("the acknowledgement of a repeated command changes the round trip from %v to %v: it may be that of any copy", mean, s.c.trip)
	}
	s.send("b")
	s.wait(time.Second)
	s.sent = nil
	s.wait(8 * time.Second)
	if n := len(s.sent); n != 16 {
		t.Errorf("%d repeats in 8 s of silence, want one in half a second", n)
	}
}

// TestNeedlessRepeat: an acknowledgement that comes right behind a repeat is that of the first copy.
func TestNeedlessRepeat(t *testing.T) {
	s := trips(t)
	before := s.c.loss
	s.send("a")
	s.wait(90 * time.Millisecond)
	if s.c.loss.share <= before.share {
		t.Fatal("a repeat is no loss")
	}
	s.recv("06 1e00 00")
	if s.c.loss.share > before.share || s.c.loss.seen > 0 {
		t.Errorf("a needless repeat counts as loss: %+v", s.c.loss)
	}
	if d := s.c.trip.usual(time.Second); d < 50*time.Millisecond {
		t.Errorf("the round trip of 90 ms is not counted, an acknowledgement is expected after %v", d)
	}
}

func TestOvertaken(t *testing.T) {
	s := trips(t)
	s.send("a", "b", "c", "d")
	s.want("they are sent", "04 1e00 61", "04 1f00 62", "04 2000 63", "04 2100 64")
	s.wait(50 * time.Millisecond)
	s.recv("06 1f00 00")
	s.wait(5 * time.Millisecond)
	s.want("one command may overtake others")
	s.recv("06 2000 00")
	s.want("not two", "04 1e00 61", "04 2100 64")
	s.recv("06 2000 00")
	s.want("it counts once")
}

// TestOvertakenSoon: where the network changes the order of datagrams, overtaken commands have
// as long as others.
func TestOvertakenSoon(t *testing.T) {
	s := trips(t)
	s.send("a", "b", "c")
	s.sent = nil
	s.wait(20 * time.Millisecond)
	s.recv("06 1f00 00", "06 2000 00")
	s.want("a round trip is not over")
	s.wait(23 * time.Millisecond)
	s.want("nor is a quarter of it")
	s.wait(2 * time.Millisecond)
	s.want("now it is", "04 1e00 61")
}

// TestOvertakenInOrder: on a path that has kept the order of datagrams for a while, an overtaken command is lost.
func TestOvertakenInOrder(t *testing.T) {
	s := trips(t)
	n := 30
	lose := func() { // the first of three, until its repeat is acknowledged
		s.c.loss.share = 0 // otherwise repeats go twice
		s.send("a", "b", "c")
		s.wait(40 * time.Millisecond)
		s.sent = nil
		s.recv(fmt.Sprintf("06 %02x00 00", n+1), fmt.Sprintf("06 %02x00 00", n+2))
	}
	found := func() {
		s.wait(40 * time.Millisecond)
		s.recv(fmt.Sprintf("06 %02x00 00", n))
		s.sent, n = nil, n+3
	}
	for range disorderMemory {
		lose()
		s.want("nothing is known of the order yet")
		s.wait(10 * time.Millisecond)
		s.want("a quarter of a round trip later", fmt.Sprintf("04 %02x00 61", n))
		found()
	}
	lose()
	s.want("the path has kept the order 16 times", fmt.Sprintf("04 %02x00 61", n))
	found()
	s.send("a", "b", "c")
	s.wait(40 * time.Millisecond)
	s.sent = nil
	s.recv(fmt.Sprintf("06 %02x00 00", n), fmt.Sprintf("06 %02x00 00", n+1))
	s.want("the third was sent last, and may come last")
	s.recv(fmt.Sprintf("06 %02x00 00", n+2))
	n += 3
	lose()
	s.want("that was no disorder", fmt.Sprintf("04 %02x00 61", n))
	found()
	s.send("a", "b")
	s.wait(40 * time.Millisecond)
	s.recv(fmt.Sprintf("06 %02x00 00", n+1), fmt.Sprintf("06 %02x00 00", n))
	n += 2
	lose()
	s.want("the order was changed, so the command may be late")
	found()
}

// TestShown: LinkUp shows that the peer has taken an offer, so the window moves on although the acknowledgement is lost. It
// stands for none: who guesses a LinkId would take a command away.
func TestShown(t *testing.T) {
	for _, x := range []struct {
		first uint64
		more  int
	}{{100, 1}, {65535 - 5, 0}} {
		s := serve(t, quiet())
		s.c.send.next = x.first
		for range 15 {
			if err := s.c.Link(s.source("uint8"), true); err != nil {
				t.Fatal(err)
			}
		}
		s.pump()
		if len(s.sent) != sendWindowSize {
			t.Fatalf("%d offers are in flight, want %d", len(s.sent), sendWindowSize)
		}
		oldest := s.c.send.flight[0].link
		s.sent = nil
		s.recv(fmt.Sprintf("07 %02x%02x", byte(oldest), byte(oldest>>8)))
		if len(s.sent) != x.more {
			t.Errorf("behind number %d, %d offers follow LinkUp for the oldest, want %d", x.first, len(s.sent), x.more)
		}
		if o := s.c.send.find(x.first); o == nil {
			t.Error("LinkUp acknowledges the offer")
		}
	}
}

// TestWindowPast: a peer moves its window when a command arrives, not when we hear of it.
func TestWindowPast(t *testing.T) {
	s := trips(t)
	s.send(strings.Split(strings.Repeat("m", 40), "")...)
	if len(s.sent) != sendWindowSize {
		t.Fatalf("%d commands are in flight, want %d", len(s.sent), sendWindowSize)
	}
	s.sent = nil
	s.wait(40 * time.Millisecond)
	for n := range 9 {
		s.recv(fmt.Sprintf("06 %02x00 00", n+0x1f))
	}
	s.want("number 30 or its acknowledgement may be late")
	past := []string{"04 2800 6d", "04 2900 6d", "04 2a00 6d", "04 2b00 6d", "04 2c00 6d", "04 2d00 6d", "04 2e00 6d", "04 2f00 6d", "04 3000 6d", "04 3100 6d"}
	s.wait(10 * time.Millisecond)
	s.want("it is overdue; if the repeat arrives, the window of the peer moves by ten", append([]string{"04 1e00 6d"}, past...)...)
	s.wait(160 * time.Millisecond)
	s.want("as long as the peer may lack number 30, repeats of the others are useless", "04 1e00 6d")
	s.recv("06 1e00 00")
	s.want("it came with the second repeat, so the peer dropped the others; the oldest goes twice, and nothing past the window", append(past[:1:1], past...)...)
}

// TestSparesAreNoGuesses: a peer acknowledges each copy of a command. That is no sign of a stranger.
func TestSparesAreNoGuesses(t *testing.T) {
	s := trips(t)
	for n := range 20 {
		s.send("m")
		s.wait(s.c.trip.longest(time.Second) + 30*time.Millisecond)
		s.recv(fmt.Sprintf("06 %02x00 00", n+30), fmt.Sprintf("06 %02x00 00", n+30))
	}
	if s.c.life.wrongAcks > 0 {
		t.Errorf("%d acknowledgements count as guesses, but each was of a copy", s.c.life.wrongAcks)
	}
	for range sparesMax + vagueAcks {
		s.recv("06 2000 00")
	}
	if !s.c.life.vague() {
		t.Error("further ones do not count as guesses")
	}
}

func TestOffersByPriority(t *testing.T) {
	s := serve(t, quiet())
	for i, priority := range []uint8{1, 1, 8, 3, 8} {
		src := s.e.NewSource(SourceConfig{State: newState(s, "uint8"), Message: []byte{'a' + byte(i)}, Priority: priority})
		if err := s.c.Link(src, true); err != nil {
			t.Fatal(err)
		}
	}
	s.pump()
	var order string
	for _, d := range s.sent {
		order += string(unhex(d[16:18]))
	}
	if order != "cedab" {
		t.Errorf("offered in the order %q, want cedab: the highest priority first, and then the order of Link", order)
	}
}
