package dnp

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestCloseRepeated: a server says several times that a connection ended, and answers what the peer still sends, until
// the peer begins anew or knows.
func TestCloseRepeated(t *testing.T) {
	ended := func(t *testing.T) *connTest {
		s := serve(t, quiet())
		s.c.Close(CloseKicked)
		s.pump()
		s.want("at once", "02")
		return s
	}
	s := ended(t)
	s.recv("03 61", "02 0000")
	s.want("a datagram that was under way is not answered")
	s = ended(t)
	s.wait(2 * time.Second)
	s.want("and again, because there is no acknowledgement", "02", "02", "02", "02")
	for range 100 {
		s.recv("03 61")
		s.wait(20 * time.Millisecond)
	}
	if len(s.sent) < 6 || len(s.sent) > closeAnswers {
		t.Errorf("%d answers to a peer that talks on for 2 s, want 6 to %d", len(s.sent), closeAnswers)
	}
	s.sent = nil
	s.wait(2 * time.Second)
	s.recv("03 61")
	s.want("later it is a stranger")
	if _, ok := s.e.NextTimeout(); ok || len(s.e.closed.list)+len(s.e.closed.byAddr) != 0 {
		t.Errorf("something is left: %d, %d", len(s.e.closed.list), len(s.e.closed.byAddr))
	}
	for why, datagram := range map[string]string{"a peer that says so itself": "02", "one of ours that says so": "02 0000"} {
		s = ended(t)
		s.recv(datagram)
		s.wait(5 * time.Second)
		s.want(why + " is told no more")
	}
	s = ended(t)
	s.recv("00 0100 0000")
	s.want("a peer that connects again is told nothing old", "01 00 0000")
	s.events("it has a new connection", "closed kicked", "connected")
	s.wait(5 * time.Second)
	s.want("whatever time passes")
	for why, reason := range map[string]CloseReason{"a peer that moved": CloseMoved, "one that closed": ClosePeer, "one that may be another server's": CloseUncertain} {
		s = serve(t, quiet())
		s.c.Close(reason)
		s.pump()
		s.sent = nil
		s.recv("03 61")
		s.wait(5 * time.Second)
		s.want(why + " is not told again")
	}
}

func numbered(i int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(i >> 8)}), uint16(1000+i&255))
}

// TestCloseRoom: peers beyond the bound are told once, and counted.
func TestCloseRoom(t *testing.T) {
	var s closedPeers
	for i := range closedPeersMax {
		if !s.add(closedPeer{addr: numbered(i), again: 1, until: never, repeats: 1}) {
			t.Fatalf("no room for peer %d", i)
		}
	}
	if s.add(closedPeer{addr: numbered(closedPeersMax)}) {
		t.Error("there is no bound")
	}
	if !s.add(closedPeer{addr: numbered(3)}) {
		t.Error("a peer that is there has no room")
	}
	if len(s.byAddr) != closedPeersMax {
		t.Errorf("%d peers, want %d", len(s.byAddr), closedPeersMax)
	}
}

// TestLeave: a client of ours repeats its ConnectionClose until the server answers it, a second at most.
func TestLeave(t *testing.T) {
	leaving := func(t *testing.T) *connTest {
		s := dialed(t, quiet())
		s.c.Close(CloseLocal)
		s.pump()
		s.want("at once", "02 0000")
		if s.events("it is over", "closed local"); !s.e.Leaving() {
			t.Fatal("it does not wait for an answer")
		}
		return s
	}
	s := leaving(t)
	s.recv("04 0000 61", "0a 0100 00", "01 00 0000") // sent before, or a question
	s.want("nothing is answered")
	s.wait(time.Second)
	s.want("repeats", slices.Repeat([]string{"02 0000"}, leaveRepeats)...)
	if _, due := s.e.NextTimeout(); due || s.e.Leaving() {
		t.Error("it waits for longer than a second")
	}
	for why, answer := range map[string]string{"the server answers": "09 00", "the server closes, too": "02"} {
		s = leaving(t)
		s.recv(answer)
		if s.e.Leaving() {
			t.Errorf("%s: the client goes on", why)
		}
		s.wait(time.Second)
		s.want(why)
	}
	s = dialed(t, quiet())
	s.recv("02")
	s.want("a server that closes is not told")
	if s.e.Leaving() {
		t.Error("nor waited for")
	}
}

// TestCloseAnswered: a server answers a ConnectionClose of ours at once, with no more bytes than it has, and those of libraries
// not at all. It waits for silence all the same.
func TestCloseAnswered(t *testing.T) {
	s := serve(t, alive())
	s.recv("04 0000 61")
	s.sent = nil
	s.recv("02 0000")
	if s.sent[0] != "0900" {
		t.Errorf("sent %v, want the answer 0900 first", s.sent)
	}
	s.sent = nil
	s.recv("02", "02 00", "02 000000")
	for _, d := range s.sent {
		if strings.HasPrefix(d, "09") {
			t.Errorf("another form is answered: %v", s.sent)
		}
	}
	s.happen = nil
	s.wait(closeDelay - time.Millisecond)
	s.events("the peer may say that it was not its own")
	s.wait(time.Second)
	s.events("it does not", "closed peer")
}

// TestOvertakenClose: what a peer sent before its ConnectionClose, and arrives behind it, does not keep the session.
func TestOvertakenClose(t *testing.T) {
	for why, late := range map[string]string{
		"an acknowledgement": "06 0000 00", "a message": "03 61", "a command": "04 0100 62", "a command ahead": "04 0200 62",
		"a repeat": "04 0000 61", "a value": "09 01 0080 01 0000 07", "LinkUp": "07 0080", "a request to repeat": "06 0000 01",
	} {
		for _, known := range []bool{false, true} { // whether the peer is known to answer probes
			s := serve(t, alive())
			if err := s.c.Link(s.source("uint8"), false); err != nil {
				t.Fatal(err)
			}
			s.pump()
			s.recv("04 0000 61")
			if known {
				s.c.send.peerLong = true
			}
			s.wait(10 * time.Millisecond)
			s.recv("02")
			for range 4 { // 90 ms later
				s.wait(20 * time.Millisecond)
				s.recv(late)
			}
			closed := s.now
			s.happen = nil
			for !slices.Contains(s.happen, "closed peer") && s.now.Sub(closed) < time.Minute {
				s.wait(10 * time.Millisecond)
			}
			if got := s.now.Sub(closed); got > closeDelay+overtakenFor {
				t.Errorf("%s, probes %v: the session ends %v after ConnectionClose", why, known, got)
			}
		}
	}
}

// TestForgedCloseAnswered: a peer that answers after a ConnectionClose that it did not send stays, also if the forger repeats what
// the peer said, and although it answers only a second and a half later.
func TestForgedCloseAnswered(t *testing.T) {
	for _, probes := range []bool{false, true} {
		for _, stall := range []time.Duration{0, 300 * time.Millisecond, 1500 * time.Millisecond} {
			s := serve(t, alive())
			s.recv("04 0000 61")
			s.c.send.peerLong = probes
			for n := range 60 {
				s.sent = nil
				s.recv([]string{"02", "02 0000"}[n%2], "04 0000 61")
				s.wait(stall)
				s.answer()
				s.wait(10 * time.Millisecond)
				s.answer()
				s.wait(time.Second)
			}
			if s.answer(); !s.c.Established() {
				t.Errorf("probes %v, answers after %v: it ends: %q", probes, stall, s.happen)
			}
		}
	}
}

// TestCloseBehindSilence: a peer that closes while a command to it is about to be given up has left by itself.
func TestCloseBehindSilence(t *testing.T) {
	s := serve(t, quiet())
	if err := s.c.Send([]byte("a"), 0); err != nil {
		t.Fatal(err)
	}
	s.pump()
	s.wait(9 * time.Second)
	s.recv("02")
	s.wait(3 * time.Second)
	s.events("the peer said that it leaves", "closed peer")
}
