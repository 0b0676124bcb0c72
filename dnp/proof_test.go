package dnp

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"testing"
	"time"
	"unsafe"

	"github.com/dnprelay/dnprelay/dnp/wire"
)

func proofConfig(p Probe) Config {
	cfg := quiet()
	cfg.Probe = p
	cfg.UnprovenMax = 64 // New allocates the table
	return cfg
}

func TestProofByPing(t *testing.T) {
	s := newTest(t, proofConfig(ProbePing))
	s.recv("00 0100 0000")
	s.want("accepted, and asked", "01 00 0000", "0a 0000 00")
	s.events("the owner learns of it only after the proof")
	s.wait(6 * time.Second)
	s.want("the ping at 0.25, 0.5, 1, 1.5, 2 s: 28 bytes for 5", "0a 0000 00", "0a 0000 00", "0a 0000 00", "0a 0000 00", "0a 0000 00")
	s.recv("06 0000 00")
	s.dropped("after 5 s it is forgotten", DropStranger, 1)
	s.recv("00 0100 0000", "06 0000 00")
	s.events("the acknowledgement is the proof", "connected")
	if !s.c.SpeaksLong() {
		t.Fatal("a peer that acknowledges command 10 understands it")
	}
	s.sent = nil
	s.c.Send([]byte("m"), 0)
	s.pump()
	s.want("number 0 was the ping", "04 0100 6d")
}

func TestProofByCommand(t *testing.T) {
	s := newTest(t, proofConfig(ProbePing))
	s.recv("00 0100 0000", "04 0000 6d")
	s.events("a reliable command is a proof as well", "connected", "message 0 m")
	s.want("the ping stays in flight, its number being used", "01 00 0000", "0a 0000 00", "06 0000 00")
	s.wait(500 * time.Millisecond)
	s.want("and is repeated", "0a 0000 00")
}

func TestProofLostAck(t *testing.T) {
	s := newTest(t, proofConfig(ProbePing))
	s.recv("00 0100 0000")
	s.wait(time.Second)
	s.sent = nil
	s.recv("00 0100 0000")
	s.want("a repeated request is answered again, and the peer has ignored the pings", "01 00 0000", "0a 0000 00")
}

func TestProofByHello(t *testing.T) {
	s := newTest(t, proofConfig(ProbeHello))
	s.recv("00 0100 0000")
	if len(s.sent) != 2 || len(s.sent[1]) != 22 {
		t.Fatalf("sent %v, want an acknowledgement and 11 bytes", s.sent)
	}
	first := s.sent[1][6:10]
	s.sent = nil
	s.recv("04 0000 6d", "07 3412", "06 0000 00")
	s.events("a number can be guessed, a LinkId not")
	s.wait(500 * time.Millisecond)
	if len(s.sent) != 1 || s.sent[0][2:6] != "0100" || s.sent[0][6:10] == first {
		t.Fatalf("sent %v: number 0 was acknowledged without answer, so 1 is tried with another id than %s", s.sent, first)
	}
	second := s.sent[0][6:10]
	s.sent = nil
	s.recv("08" + second)
	s.events("LinkDown proves as much as LinkUp", "connected")
	s.want("both links are taken down, in case they came up, twice as long as the loss is not known",
		"08"+first, "08"+first, "08"+second, "08"+second)
	s.c.Send([]byte("m"), 0)
	s.pump()
	s.want("numbers 0 and 1 are used", "04 0200 6d")
}

// TestForgottenHello: a forged close ends the slot of a client that connects, and the next hello has another id. The client keeps the
// link that the first one offered, so no link of the session may have its id, however the hello was made.
func TestForgottenHello(t *testing.T) {
	s := newTest(t, proofConfig(ProbeHello))
	const links = 1024
	for i := range 1000 {
		s.recv("00 0100 0000", "07 3412", "02")
		s.sent = nil
		s.recv("00 0100 0000")
		slot := s.e.unproven.find(peerAddr)
		if slot == nil {
			t.Fatalf("request %d gets no slot", i)
		}
		for _, id := range []wire.LinkID{slot.hello, s.e.statelessID(peerAddr, uint64(i))} {
			if id < 0x8000+links {
				t.Fatalf("hello %d has the id %#x, want none of the first %d of links", i, id, links)
			}
		}
		s.recv("02")
	}
}

func TestRefusals(t *testing.T) {
	cfg := quiet()
	verdict := AdmitRefuse
	cfg.Admit = func(netip.AddrPort) AdmitVerdict { return verdict }
	s := newTest(t, cfg)
	s.recv("00 0100 0100")
	s.want("no common protocol", "01 02")
	s.recv("00 0100 0000")
	s.want("not admitted", "01 01")
	verdict = AdmitWait
	s.recv("00 0100 0000")
	s.want("not known yet")
	s.dropped("counted", DropAdmitWaits, 1)
	verdict = AdmitAccept
	s.recv("00 0100 0000")
	if len(s.sent) == 0 || s.sent[0] != "01000000" {
		t.Errorf("sent %v, want that the repeated request is accepted", s.sent)
	}
	cfg = quiet()
	cfg.Listen = false
	s = newTest(t, cfg)
	s.recv("00 0100 0000")
	s.want("not listening")
	s.dropped("counted", DropNotListening, 1)
}

func TestUnprovenTable(t *testing.T) {
	if size := unsafe.Sizeof(unproven{}); size > 64 {
		t.Errorf("an unproven peer takes %d bytes, want at most 64", size)
	}
	cfg := proofConfig(ProbePing)
	cfg.UnprovenMax = 100
	s := newTest(t, cfg)
	addr := func(i int) netip.AddrPort {
		var ip [4]byte
		binary.BigEndian.PutUint32(ip[:], uint32(i))
		return netip.AddrPortFrom(netip.AddrFrom4(ip), 1)
	}
	for i := range 10000 {
		s.now = s.now.Add(time.Millisecond)
		s.e.Advance(s.now, &s.recorder)
		s.e.Receive(s.now, addr(i), unhex("0001000000"), &s.recorder)
	}
	s.dropped("the oldest makes room", DropEvicted, 9900)
	if len(s.e.unproven.slots)-len(s.e.unproven.steps) != 100 || s.e.unproven.n != 100 {
		t.Fatalf("%d slots, %d used", len(s.e.unproven.slots), s.e.unproven.n)
	}
	for i := range 10000 {
		if known := s.e.unproven.find(addr(i)) != nil; known != (i >= 9900) {
			t.Fatalf("peer %d known: %v", i, known)
		}
	}
	s.wait(5 * time.Second)
	if s.e.unproven.n != 0 {
		t.Fatalf("%d are left after 5 s", s.e.unproven.n)
	}
}

// TestTruncations: a truncated command moves one counter and does nothing else.
func TestTruncations(t *testing.T) {
	whole := map[string]int{ // datagram: the length from which it means something else
		"00 0100 0000": 5, "01 00 0000": 4, "04 0000 61": 4, "05 0000 0000 00 0100 4d 0100 01 2a": 13,
		"06 0000 00": 4, "07 0080": 3, "08 0080": 3, "09 01 0080 01 0000 07": 8, "0a 0000 03": 4,
		"0b 0000 0000 06 0100 4d": 9, "03 61": 2,
	}
	for d, size := range whole {
		p := unhex(d)
		if len(p) != size {
			t.Fatalf("%s has %d bytes", d, len(p))
		}
		for n := range p {
			t.Run(fmt.Sprintf("%x of %s", p[:n], d), func(t *testing.T) {
				s, _ := linked(t, quiet(), false, "uint8")
				before, heard := s.e.stats, s.c.life.heard
				s.now = s.now.Add(time.Second)
				s.recv(fmt.Sprintf("%x", p[:n]))
				s.want("no answer")
				s.events("no event")
				counts := uint64(0)
				for i := range s.e.stats.Drops {
					counts += s.e.stats.Drops[i] - before.Drops[i]
				}
				if counts != 1 || s.c.life.heard != heard {
					t.Fatalf("%d counters moved, heard %v", counts, s.c.life.heard != heard)
				}
			})
		}
	}
}
