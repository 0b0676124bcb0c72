package dnp

import (
	"testing"
	"time"
)

// standsStill lets time pass while the Endpoint is not called.
func (s *connTest) standsStill(d time.Duration) {
	s.now = s.now.Add(d)
	s.pump()
}

// TestStandstill: an Endpoint that was not called for long, because its process stood still, gives up nothing for what it could not hear meanwhile,
// and afterwards what it would have given up otherwise.
func TestStandstill(t *testing.T) {
	t.Run("a command", func(t *testing.T) {
		s := serve(t, quiet())
		if err := s.c.Send([]byte("a"), 0); err != nil {
			t.Fatal(err)
		}
		s.pump()
		s.wait(time.Second)
		for range 3 {
			s.standsStill(9500 * time.Millisecond)
		}
		s.events("no connection ends because the Endpoint stood still")
		s.recv("06 0000 00")
		s.wait(time.Minute)
		s.events("nor later")

		if err := s.c.Send([]byte("b"), 0); err != nil {
			t.Fatal(err)
		}
		s.pump()
		s.wait(4 * time.Second)
		s.standsStill(time.Hour)
		s.wait(5 * time.Second)
		s.events("10 s are not over")
		s.wait(2 * time.Second)
		s.events("the peer is gone", "closed timeout")
	})
	t.Run("a close", func(t *testing.T) {
		s := serve(t, quiet())
		s.recv("02")
		s.standsStill(time.Minute)
		s.events("a close that may be forged waits for an answer that could not be heard")
		s.wait(10 * time.Second)
		s.events("there is none", "closed peer")
	})
	t.Run("the rest of a long message", func(t *testing.T) {
		s := serve(t, quiet())
		s.recv("0a 0000 01 61") // the first part
		s.standsStill(time.Minute)
		s.recv("0a 0100 02 62")
		s.events("the rest is not late", "message 1 ab")
	})
	t.Run("a hole at a client", func(t *testing.T) {
		s := newTest(t, quiet())
		if _, err := s.e.Connect(s.now, peerAddr); err != nil {
			t.Fatal(err)
		}
		s.pump()
		s.recv("01 00 0000")
		s.happen = nil
		s.recv("04 0100 62")
		s.standsStill(time.Minute)
		s.events("the server stood still, too, and repeats")
		s.recv("04 0000 61")
		s.events("the hole is filled", "message 0 a", "message 1 b")
	})
}
