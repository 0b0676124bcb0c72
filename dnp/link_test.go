package dnp

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/dnp/admit"
	"github.com/dnprelay/dnprelay/dnp/wire"
)

func TestLinkOffer(t *testing.T) {
	s := serve(t, quiet())
	src := s.source("uint8", "uint16")
	s.c.Link(src, true)
	s.pump()
	s.want("ids start at 0x8000, flags are exactly 1", "05 0000 0080 01 0100 4d 0200 01 00 03 0000")
	set(src, 0, "07")
	s.flush()
	s.want("no values before the link is up")
	s.wait(500 * time.Millisecond)
	s.want("a repeated offer has the newest values", "05 0000 0080 01 0100 4d 0200 01 07 03 0000")
	s.recv("07 0080")
	s.events("LinkUp", "link up 8000")
	if s.c.send.flight[0].acked {
		t.Error("anybody can have said that: the peer may wait for the offer")
	}
	s.recv("06 0000 00")
	s.flush()
	s.want("the peer may have taken the first copy, so what changed since follows", "09 01 0080 01 0000 07")
	s.wait(time.Second)
	s.want("LinkUp stands for the acknowledgement")
	if err := s.c.Link(src, true); err != ErrLinked {
		t.Fatalf("a second link to one state: %v, want ErrLinked", err)
	}
}

func TestLinkPresumed(t *testing.T) {
	s := serve(t, quiet())
	a, b := s.source("uint8"), s.source("uint8")
	s.c.Link(a, true)
	s.c.Link(b, true)
	s.pump()
	s.recv("06 0000 00", "06 0100 00", "07 0180")
	s.sent, s.happen = nil, nil
	s.wait(499 * time.Millisecond)
	s.events("LinkUp may still come")
	s.wait(time.Millisecond)
	s.events("it was lost, and is never repeated, or the peer has no such link", "link presumed 8000")
	set(a, 0, "01")
	set(b, 0, "02")
	s.flush()
	s.want("a peer drops what follows a link that it does not know, so it goes alone",
		"09 01 0080 01 0000 01", "09 01 0180 01 0000 02")
	s.recv("07 0080")
	s.events("now it is sure", "link up 8000")
	s.recv("07 0080")
	s.events("which is told once")
	set(a, 0, "03")
	set(b, 0, "04")
	s.flush()
	s.want("proven links share a datagram", "09 02 0080 01 0000 03 0180 01 0000 04")
}

func TestLinkRefused(t *testing.T) {
	s := serve(t, quiet())
	src := s.source("uint8")
	s.c.Link(src, true)
	s.pump()
	s.recv("08 0080")
	s.events("anybody can have said that: the peer may wait for the offer")
	s.wait(500 * time.Millisecond)
	if len(s.sent) != 2 || s.sent[0] != s.sent[1] {
		t.Errorf("sent %v, want the offer and its repeat", s.sent)
	}
	s.recv("06 0000 00")
	s.events("the peer has the offer, and does not want the link", "link down 8000")
	s.sent = nil
	s.c.Link(src, true)
	s.pump()
	s.want("another try has another id: libraries cannot link one again", "05 0100 0180 01 0100 4d 0100 01 00")
}

func TestLinkDownRepeats(t *testing.T) {
	s, src := linked(t, quiet(), true, "uint8")
	src.SetDescription([]byte("M"), []byte("bye"))
	src.Remove()
	s.pump()
	s.want("the farewell goes first, since applications do not see LinkDown", "04 0100 627965", "08 0080")
	s.recv("06 0100 00")
	s.wait(10 * time.Second)
	s.want("LinkDown is not acknowledged, so it is repeated at 60, 180, 500, 1500 ms and 5 s",
		"08 0080", "08 0080", "08 0080", "08 0080", "08 0080")
	s.recv("07 0080")
	s.want("a peer that brings up a link that is gone has missed them all", "08 0080")
}

func TestUnlinkInFlight(t *testing.T) {
	s := serve(t, quiet())
	src := s.source("uint8")
	s.c.Link(src, true)
	s.pump()
	s.want("offered", "05 0000 0080 01 0100 4d 0100 01 00")
	set(src, 0, "05")
	src.Remove()
	s.wait(500 * time.Millisecond)
	s.want("its number keeps its meaning", "05 0000 0080 01 0100 4d 0100 01 05")
	s.recv("06 0000 00")
	s.want("a LinkDown before the offer arrived would be lost on the peer", "08 0080")
}

func TestUnlinkQueued(t *testing.T) {
	s := serve(t, quiet())
	var all []*Source
	for range 11 {
		src := s.source("uint8")
		all = append(all, src)
		s.c.Link(src, true)
	}
	s.pump()
	s.sent = nil
	s.c.Unlink(all[10], true)
	s.recv("06 0000 00")
	s.want("a link that was never offered is not mentioned")
}

func TestMessagesAndOffersTakeTurns(t *testing.T) {
	s := serve(t, quiet())
	for range 3 {
		s.c.Send([]byte("m"), 0)
		s.c.Link(s.source("uint8"), true)
	}
	s.pump()
	s.want("neither waits for the other's backlog",
		"05 0000 0080 01 0100 4d 0100 01 00", "04 0100 6d", "05 0200 0180 01 0100 4d 0100 01 00", "04 0300 6d",
		"05 0400 0280 01 0100 4d 0100 01 00", "04 0500 6d")
}

func TestPeerOffers(t *testing.T) {
	s := serve(t, quiet())
	s.recv("05 0000 0000 00 0200 4869 0100 01 2a")
	s.want("acknowledged first", "06 0000 00")
	s.events("the owner is asked", "link offered 0000 Hi values=1 readonly=false")
	src := s.source("uint8")
	src.State().Set(0, unhex("2a"))
	if err := s.c.Accept(0, src); err != nil {
		t.Fatal(err)
	}
	s.wait(3 * time.Second)
	s.want("LinkUp can be lost: at 0, 0.25, 0.5, 1, 2 s", "07 0000", "07 0000", "07 0000", "07 0000", "07 0000")
	s.recv("09 01 0000 01 0000 2b")
	s.events("the peer writes", "update 0000 0=2b")
	s.c.Writes().Hold(0, 0, 0, unhex("2b"))
	set(src, 0, "2b")
	s.flush()
	s.want("its value is not sent back")
	s.c.Writes().Release(0, 0)
	s.flush()
	s.want("nor when it became the truth")
	set(src, 0, "2c")
	s.flush()
	s.want("values that others write are sent", "09 01 0000 01 0000 2c")
}

func TestPeerUpdateStopsLinkUps(t *testing.T) {
	s := serve(t, quiet())
	s.recv("05 0000 0000 00 0100 4d 0100 01 2a")
	s.c.Accept(0, s.source("uint8"))
	s.pump()
	s.recv("09 01 0000 01 0000 2b")
	s.sent = nil
	s.wait(3 * time.Second)
	s.want("a peer that updates knows that its link is up")
}

func TestLinkUpForEver(t *testing.T) {
	cfg := quiet()
	cfg.ScrubInterval = 5 * time.Second
	s := serve(t, cfg)
	s.recv("05 0000 0000 00 0100 4d 0100 01 2a")
	s.c.Accept(0, s.source("uint8"))
	s.wait(3 * time.Second)
	s.sent = nil // all five were lost
	s.wait(16 * time.Second)
	s.want("the peer may still wait, so LinkUp is sent once in each round of the scrub", "07 0000", "07 0000", "07 0000")
	s.recv("09 01 0000 01 0000 2b")
	s.sent = nil
	s.wait(16 * time.Second)
	s.want("it knows")
}

func TestRejectPeerOffer(t *testing.T) {
	s := serve(t, quiet())
	s.recv("05 0000 0000 01 0100 4d 0000")
	s.events("offered", "link offered 0000 M values=0 readonly=true")
	s.c.Reject(0)
	if err := s.c.Accept(0, s.source("uint8")); err != ErrNoLink {
		t.Fatalf("Accept after Reject: %v; LinkUp after LinkDown would bring it up", err)
	}
	s.pump()
	s.want("refused by LinkDown, never by silence", "06 0000 00", "08 0000")
}

func TestPeerOfferBounds(t *testing.T) {
	cfg := quiet()
	cfg.PeerLinksMax, cfg.PeerValuesMax = 1, 1
	s := serve(t, cfg)
	s.recv("05 0000 0000 00 0100 4d 0200 01 00 01 00")
	s.want("too many values", "06 0000 00", "08 0000")
	s.recv("05 0100 0100 00 0100 4d 0100 01 00", "05 0200 0200 00 0100 4d 0100 01 00")
	s.want("too many links", "06 0100 00", "06 0200 00", "08 0200")
	s.events("one is fine", "link offered 0001 M values=1 readonly=false")
	s.dropped("counted", DropTooManyValues, 1)
	s.dropped("counted", DropLinksFull, 1)
}

func TestPeerOffersOurID(t *testing.T) {
	s := serve(t, quiet())
	src := s.source("uint8")
	s.c.Link(src, true)
	s.pump()
	s.want("we take 8000", "05 0000 0080 01 0100 4d 0100 01 00")
	s.recv("05 0000 0080 00 0100 50 0100 01 00")
	s.events("so did the peer, at the same time", "link offered 8000 P values=1 readonly=false")
	s.want("ours moves: the peer ignores our offer, its own link being there", "06 0000 00", "05 0100 0180 01 0100 4d 0100 01 00")
	s.recv("06 0000 00", "06 0100 00", "07 0180")
	s.events("and comes up", "link up 8001")
	s.recv("05 0100 0180 00 0100 50 0100 01 00")
	s.want("Java may use an id twice. LinkDown would hit our link, so there is only silence", "06 0100 00")
	s.dropped("and a count", DropLinkTaken, 1)
}

func TestReadOnly(t *testing.T) {
	s, src := linked(t, quiet(), true, "uint8", "uint16")
	s.recv("09 01 0080 01 0000 07")
	s.events("no library enforces it, so we must")
	s.dropped("counted", DropReadOnly, 1)
	s.want("the peer shows what it wrote, and is corrected", "09 01 0080 01 0000 00")
	s.recv("09 01 0080 01 0000 00")
	s.want("a library may send back what it was sent, which needs no answer")
	set(src, 1, "0500")
	s.recv("09 01 0080 02 0000 00 0100 0900")
	s.want("only what differs, and the newest value", "09 01 0080 01 0100 0500")
	s.flush()
	s.sent = nil
	s.c.log = &journal{core: &s.e.core, muted: true}
	s.c.links.log = s.c.log
	s.recv("09 01 0080 01 0000 07")
	s.want("a connection that must say nothing says nothing")
}

func TestReadOnlySpec(t *testing.T) {
	cfg := quiet()
	cfg.Profile = wire.Spec
	s, _ := linked(t, cfg, true, "uint8", "uint8", "uint8")
	s.recv("09 0100 0080 0300 01 00 01 07 01 00")
	s.want("the values up to the last that differs", "09 0100 0080 0200 01 00 01 00")
}

// TestReadOnlyAnswers: who writes to read-only links gets back no more bytes than it sends, and a
// datagram a second.
func TestReadOnlyAnswers(t *testing.T) {
	cfg := quiet()
	s, src := linked(t, cfg, true, "string", "uint8", "string")
	set(src, 0, "0400"+"61626364")
	set(src, 2, "e803"+strings.Repeat("61", 1000))
	s.flush()
	s.sent = nil
	for i := range 3 {
		s.recv("09 01 0080 01 0000 0000")
		s.want(fmt.Sprintf("second %d: an answer that is longer than the write", i), "09 01 0080 01 0000 0400 61626364")
		s.recv("09 01 0080 01 0000 0000")
		s.want("no second one")
		s.recv("09 01 0080 02 0100 07 0000 0000")
		s.want("what fits", "09 01 0080 01 0100 00")
		s.wait(time.Second)
	}
	s.e.cfg.Rate = admit.Rate{}
	in, out := 0, 0
	for range 1000 {
		for _, d := range []string{"09 01 0080 01 0200 0000", "09 01 0080 02 0200 0000 0000 0000", "09 02 0080 01 0200 0000 0080 01 0100 07"} {
			s.recv(d)
			in += len(unhex(d))
		}
		s.wait(10 * time.Millisecond)
	}
	for _, d := range s.sent {
		out += len(d) / 2
	}
	if seconds := 11; out > in+seconds*s.e.cfg.DatagramMax || len(s.sent) > 3000 {
		t.Errorf("%d bytes out for %d in within 10 s, in %d datagrams", out, in, len(s.sent))
	}
	if out < 1000 {
		t.Errorf("%d bytes out, want corrections", out)
	}
	s.sent = nil
	many := ""
	for range 200 {
		many += "0100 07"
	}
	s.recv("09 01 0080 c8" + many)
	if n := len(s.sent); n != 1 || s.sent[0][8:10] != "7f" {
		t.Errorf("200 values are corrected with %d datagrams, the first %.20v, want one of 127", n, s.sent)
	}
	if cap(s.e.forbidden) > 256 {
		t.Errorf("%d forbidden values are noted", cap(s.e.forbidden))
	}
}

func TestSpecProfile(t *testing.T) {
	cfg := quiet()
	cfg.Profile = wire.Spec
	s, src := linked(t, cfg, true, "uint8", "uint8", "uint8")
	set(src, 1, "05")
	s.flush()
	s.want("no index: the values up to the last that changed", "09 0100 0080 0200 01 00 01 05")
	s.c.Send(make([]byte, 60000), 0)
	s.pump()
	if len(s.sent) != 1 || len(s.sent[0]) != 2*60003 {
		t.Fatal("a long message is one command 4")
	}
	if err := s.c.Send(make([]byte, 60001), 0); err != ErrTooLarge {
		t.Fatalf("a longer one: %v, want ErrTooLarge", err)
	}
	s.recv("0a 0000 00")
	s.dropped("there is no command 10", DropUnknownCommand, 1)
	s.c.recv.next = 65535
	s.sent = nil
	s.recv("04 ffff 61", "04 0000 62")
	s.want("numbers go to 65535", "06 ffff 00", "06 0000 00")
}

func TestLinkIDs(t *testing.T) {
	for _, client := range []bool{false, true} {
		c := &linkIDs{connector: client}
		seen := make(map[wire.LinkID]bool)
		for i := range c.ordinals() {
			id := c.id(i)
			back, ok := c.ordinal(id)
			if seen[id] || !ok || back != i || id == 0xFFFF || !client && id < 0x1000 {
				t.Fatalf("client=%v: ordinal %d is id %04x, back %d %v", client, i, id, back, ok)
			}
			seen[id] = true
		}
	}
}

func TestLinkIDsRunOut(t *testing.T) {
	s := serve(t, quiet())
	src := s.source("uint8")
	n := 0
	for ; s.c.Link(src, true) == nil; n++ {
		s.c.Unlink(src, false)
	}
	s.pump()
	s.events("a warning comes at 90 %, and a word at the end, once each", "recycle", "used up")
	if few, none := s.e.LinkIDs(s.c); !few || !none {
		t.Fatalf("few = %v, none = %v: want both", few, none)
	}
	if want := listenerHigh + listenerLow - questionIDs; n != want {
		t.Fatalf("%d links, want %d: the rest is for questions", n, want)
	}
}

// TestTraffic follows what counts as reliable commands under way.
func TestTraffic(t *testing.T) {
	s := serve(t, quiet())
	first, idle := s.e.Traffic(s.c)
	if !idle {
		t.Fatal("a connection on which nothing happens is not idle")
	}
	want := func(why string, sent, received uint64, idle bool) {
		t.Helper()
		got, is := s.e.Traffic(s.c)
		if got.Sent -= first.Sent; got.Sent != sent || got.Received-first.Received != received || is != idle {
			t.Fatalf("%s: sent %d, received %d, idle %v; want %d, %d, %v", why, got.Sent, got.Received-first.Received, is, sent, received, idle)
		}
	}
	s.c.Send([]byte("a"), 0)
	want("a message waits", 0, 0, false)
	s.pump()
	want("it is not acknowledged", 1, 0, false)
	s.recv(fmt.Sprintf("06 %02x00 00", first.Sent))
	want("it is", 1, 0, true)
	s.recv(fmt.Sprintf("04 %02x00 61", first.Received+1))
	want("a command came before its turn", 1, 0, false)
	s.recv(fmt.Sprintf("04 %02x00 61", first.Received))
	want("the missing one came", 1, 2, true)
	s.recv(fmt.Sprintf("0a %02x00 01 61", first.Received+2))
	want("a long message has begun", 1, 3, false)
}

func TestLinksMax(t *testing.T) {
	cfg := quiet()
	cfg.LinksMax = 1
	s := serve(t, cfg)
	s.c.Link(s.source("uint8"), true)
	if err := s.c.Link(s.source("uint8"), true); err != ErrLinks {
		t.Fatalf("one link too many: %v, want ErrLinks", err)
	}
}

// TestLinkDownBeyondGap: a peer acknowledges an offer that arrived early, but processes
// it only after the missing command, and ignores a LinkDown before that.
func TestLinkDownBeyondGap(t *testing.T) {
	s := serve(t, quiet())
	s.c.Send([]byte("m"), 0)
	s.pump()
	src := s.source("uint8")
	s.c.Link(src, true)
	s.pump()
	s.want("number 0 is lost, number 1 arrives", "04 0000 6d", "05 0100 0080 01 0100 4d 0100 01 00")
	s.recv("06 0100 00")
	s.c.Unlink(src, false)
	s.pump()
	s.want("at once, in case the acknowledgement of number 0 was lost", "08 0080")
	s.wait(400 * time.Millisecond)
	s.sent = nil
	s.recv("06 0000 00")
	s.pump()
	s.want("again when the peer has processed the offer, twice on a path that seems to lose much", "08 0080", "08 0080")
	s.wait(60 * time.Millisecond)
	s.want("with all repeats", "08 0080", "08 0080")
}

// TestNoDataSizes: data without bytes is sent as one zero byte, and datagrams have room for that.
func TestNoDataSizes(t *testing.T) {
	s := serve(t, quiet())
	src := s.source("data", "data")
	src.State().Set(0, []byte{0, 0})
	src.State().Set(1, []byte{0, 0})
	if err := s.c.Link(src, true); err != nil {
		t.Fatal(err)
	}
	s.pump()
	s.want("an offer", "05 0000 0080 01 0100 4d 0200 0c 0100 00 0c 0100 00")
	s.recv("06 0000 00", "07 0080")
	set(src, 0, "0000")
	s.flush()
	s.want("a change", "09 01 0080 01 0000 0100 00")
}

// TestNoDataSpec: profile spec sends a value that waits for its owner's judgement back to its
// writer, but never data without bytes.
func TestNoDataSpec(t *testing.T) {
	cfg := quiet()
	cfg.Profile = wire.Spec
	s, src := linked(t, cfg, false, "data", "uint8")
	s.recv("09 0100 0080 0100 0c 0000")
	s.c.Writes().Hold(0x8000, 0, 0, []byte{0, 0})
	set(src, 1, "05")
	s.flush()
	s.want("one zero byte stands for it", "09 0100 0080 0200 0c 0100 00 01 05")
}
