package dnp

import (
	"fmt"
	"testing"
	"time"
)

// lossy has the peer of s send its first command twice, half a second apart, which shows that the
// first acknowledgement got lost.
func lossy(s *connTest) {
	s.Helper()
	s.recv("04 0000 61")
	s.wait(20 * time.Millisecond)
	s.recv("04 0000 61", "04 0000 61")
	s.want("copies that the network made are acknowledged as well", "06 0000 00", "06 0000 00", "06 0000 00")
	s.wait(480 * time.Millisecond)
	s.want("and show no loss")
	s.recv("04 0000 61")
	s.want("a repeat is acknowledged at once", "06 0000 00")
}

func TestAckRepeats(t *testing.T) {
	s := serve(t, quiet())
	lossy(s)
	s.wait(29 * time.Millisecond)
	s.want("nothing goes out with it, because loss comes in bursts")
	s.wait(time.Millisecond)
	s.want("again after 30 ms", "06 0000 00")
	s.wait(60 * time.Millisecond)
	s.want("after 90 ms", "06 0000 00")
	s.wait(110 * time.Millisecond)
	s.want("and after 200 ms, in time before the peer repeats the command", "06 0000 00")
	s.recv("04 0100 62")
	s.wait(time.Second)
	s.want("acknowledgements of later commands are repeated, too", "06 0100 00", "06 0100 00", "06 0100 00", "06 0100 00")
	for n := range 20 { // each acknowledgement would be followed by three
		s.recv(fmt.Sprintf("04 %02x00 63", n+2))
		s.wait(time.Second)
	}
	s.sent = nil
	s.recv("04 1600 64")
	s.wait(time.Second)
	s.want("until 18 commands came without loss", "06 1600 00")
	if got := s.e.stats.AckRepeats; got != 3*18 {
		t.Errorf("%d repeats are counted, want 54", got)
	}
}

// TestAckRepeatsStop: a command of the peer tells that earlier ones were acknowledged.
func TestAckRepeatsStop(t *testing.T) {
	s := serve(t, quiet())
	lossy(s)
	for n := range byte(11) {
		s.recv(fmt.Sprintf("04 %02x00 62", n+1))
	}
	s.sent = nil
	s.wait(30 * time.Millisecond)
	s.want("a peer with number 11 in flight knows that 0 arrived", "06 0100 00", "06 0200 00", "06 0300 00", "06 0400 00", "06 0500 00",
		"06 0600 00", "06 0700 00", "06 0800 00", "06 0900 00", "06 0a00 00", "06 0b00 00")
	if n := len(s.c.acks.list); n != peerWindow {
		t.Errorf("%d acknowledgements are remembered, want %d", n, peerWindow)
	}
	s.recv("04 0000 61")
	if n := len(s.c.acks.list); n != peerWindow {
		t.Errorf("%d acknowledgements are remembered after an old repeat, want %d", n, peerWindow)
	}
}

// TestAckRepeatsBounded: repeats that somebody sends in the name of the peer are not worth more than one
// series of acknowledgements at a time, and cost no budget that values need.
func TestAckRepeatsBounded(t *testing.T) {
	s := serve(t, quiet())
	lossy(s)
	for range 10 {
		s.wait(10 * time.Millisecond)
		s.recv("04 0000 61")
	}
	if n := s.e.stats.AckRepeats; n != 2 {
		t.Errorf("acknowledgements were repeated %d times in 100 ms, want 2: copies do not begin the series anew", n)
	}
	s.wait(100 * time.Millisecond)
	if n := s.e.stats.AckRepeats; n != 3 {
		t.Errorf("acknowledgements were repeated %d times in 200 ms, want 3", n)
	}
	s.sent = nil
	s.recv("04 0100 62")
	s.c.budget.spent = s.e.clock.now.add(50 * time.Millisecond)
	s.wait(300 * time.Millisecond)
	s.want("the repeat after 30 ms is left out, because something is owed", "06 0100 00", "06 0100 00", "06 0100 00")
}

// TestAckRepeatsLogged: a logged connection repeats the acknowledgements of stored commands only.
func TestAckRepeatsLogged(t *testing.T) {
	s := logged(t)
	s.recv("04 0000 61")
	s.store()
	s.wait(500 * time.Millisecond)
	s.recv("04 0000 61")
	s.wait(500 * time.Millisecond)
	s.sent = nil
	s.recv("04 0000 61", "04 0100 62")
	s.wait(500 * time.Millisecond)
	s.want("number 1 is not stored", "06 0000 00", "06 0000 00", "06 0000 00", "06 0000 00")
	s.c.Mute(true)
	s.store()
	s.wait(time.Second)
	s.want("a connection that may have another owner says nothing")
	s.c.Mute(false)
	s.wait(time.Second)
	s.want("when it is clear that it has not, the acknowledgement of what is stored, and its repeats", "06 0100 00", "06 0100 00", "06 0100 00", "06 0100 00")
}
