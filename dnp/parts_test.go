package dnp

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/dnprelay/dnprelay/dnp/admit"
	"github.com/dnprelay/dnprelay/dnp/wire"
)

// TestConnSize: the allocator adds 8 bytes to an object with pointers, so a Conn of 1,016
// bytes takes 1,024, and a larger one 1,152.
func TestConnSize(t *testing.T) {
	if size := unsafe.Sizeof(Conn{}); size > 1016 {
		t.Errorf("a Conn has %d bytes, want at most 1,016", size)
	}
}

func TestChoose(t *testing.T) {
	full := make([]outgoing, sendWindowSize)
	half := make([]outgoing, sendWindowSize/2)
	text := []outgoing{{data: []byte("m")}}
	cfg := quiet().withDefaults()
	offer := []uint16{0}
	for _, tt := range []struct {
		why            string
		w              sendWindow
		mayOffer, open bool
		want           choice
	}{
		{"nothing waits", sendWindow{}, true, true, takeNothing},
		{"the window is full", sendWindow{flight: full, queue: text, offers: offer}, true, true, takeNothing},
		{"a window that is stuck near the wrap has room for more", sendWindow{flight: full, limit: 11, queue: text}, true, true, takeOther},
		{"a message", sendWindow{queue: text}, false, false, takeOther},
		{"a probe goes before an offer", sendWindow{probes: 1, offers: offer}, true, true, takeOther},
		{"the parts of a message stay together", sendWindow{partAt: 1, offers: offer}, true, true, takeOther},
		{"an offer", sendWindow{offers: offer}, true, true, takeOffer},
		{"an offer waits in the queue of the Endpoint", sendWindow{offers: offer}, true, false, takeOffer},
		{"the budget does not allow an offer", sendWindow{offers: offer}, false, true, takeNothing},
		{"then messages do not wait for it", sendWindow{offers: offer, queue: text}, false, true, takeOther},
		{"offers and messages take turns", sendWindow{offers: offer, queue: text}, true, true, takeOffer},
		{"after an offer a message", sendWindow{offers: offer, queue: text, offered: true}, true, true, takeOther},
		{"after an offer another if there is no message", sendWindow{offers: offer, offered: true}, true, true, takeOffer},
		{"messages pass an offer that waits for its turn", sendWindow{offers: offer, queue: text}, true, false, takeOther},
		{"but leave half the window to it", sendWindow{flight: half, offers: offer, queue: text}, true, false, takeOffer},
	} {
		if got := tt.w.choose(&cfg, tt.mayOffer, tt.open); got != tt.want {
			t.Errorf("%s: choice %d, want %d", tt.why, got, tt.want)
		}
	}
}

func TestAckState(t *testing.T) {
	w := sendWindow{next: 7, flight: make([]outgoing, 4)}
	w.acknowledged(&w.flight[0])
	w.acknowledged(&w.flight[2])
	if base, ahead := w.ackState(); base != 3 || ahead != 0b101 {
		t.Errorf("base %d, ahead %b, want 3 and 101", base, ahead)
	}
	if done := w.processed(); len(done) != 1 {
		t.Errorf("%d commands are processed, want 1: the peer holds what is beyond a gap", len(done))
	}
	w.forget(1, wire.Denetwork, 0)
	if w.base() != 4 || w.find(5) != nil || w.find(4) == nil || w.find(7) != nil {
		t.Errorf("base %d; want 4 and 6 in flight, 5 acknowledged, 7 not sent", w.base())
	}
}

func TestLongReceive(t *testing.T) {
	const sizeMax = 5
	var r longReceive
	for _, tt := range []struct {
		why   string
		flags wire.PartFlags
		data  string
		want  string
		ok    bool
	}{
		{"a probe is no part", 0, "", "", true},
		{"a part without message is ignored", wire.PartLast, "x", "", true},
		{"the first part", wire.PartFirst, "ab", "", true},
		{"a first part starts again", wire.PartFirst, "cd", "", true},
		{"a part between", 0, "e", "", true},
		{"the last part", wire.PartLast, "f", "cdef", true},
		{"both at once", wire.PartFirst | wire.PartLast, "g", "g", true},
		{"as large as allowed", wire.PartFirst, "12345", "", true},
		{"too large", wire.PartLast, "6", "", false},
	} {
		data, ok := r.addMessage(wire.ReliableMessageLong{Flags: tt.flags, Data: []byte(tt.data)}, sizeMax, 0)
		if !bytes.Equal(data, []byte(tt.want)) || ok != tt.ok {
			t.Errorf("%s: %q, %v, want %q, %v", tt.why, data, ok, tt.want, tt.ok)
		}
	}
}

func TestLongReceiveLink(t *testing.T) {
	var r longReceive
	add := func(link wire.LinkID, flags wire.LinkStateFlags, message, values string) (wire.LinkStateLong, bool, bool) {
		return r.addLink(wire.LinkStateLong{Link: link, Flags: flags, Message: []byte(message), Values: []byte(values)}, 0)
	}
	add(1, wire.LinkStateFirst|wire.LinkStateReadOnly, "a", "")
	if _, done, ok := add(2, wire.LinkStateLast, "x", "x"); done || !ok {
		t.Errorf("a part of another link: done %v, ok %v, want it ignored", done, ok)
	}
	whole, done, ok := add(1, wire.LinkStateLast, "b", "12")
	if !done || !ok || string(whole.Message) != "ab" || string(whole.Values) != "12" || whole.Flags&wire.LinkStateReadOnly == 0 {
		t.Errorf("got %+v, %v, %v, want the joined offer with the flags of its first part", whole, done, ok)
	}
	add(3, wire.LinkStateFirst, "", "")
	if _, _, ok := add(3, 0, "", string(make([]byte, longLinkMax+1))); ok {
		t.Error("an offer beyond 64 KiB is accepted")
	}
}

// TestLongReceiveBoth: the parts of a message are consecutive, so it leaves no room to a long offer.
func TestLongReceiveBoth(t *testing.T) {
	var r longReceive
	part := func(n int) []byte { return make([]byte, n) }
	if _, ok := r.addMessage(wire.ReliableMessageLong{Flags: wire.PartFirst, Data: part(60_000)}, 192<<10, 0); !ok {
		t.Fatal("a part is refused")
	}
	if _, _, ok := r.addLink(wire.LinkStateLong{Link: 1, Flags: wire.LinkStateFirst, Values: part(5_000)}, 0); !ok {
		t.Error("an offer that fits is refused")
	}
	if _, _, ok := r.addLink(wire.LinkStateLong{Link: 1, Values: part(5_000)}, 0); ok {
		t.Error("an offer that does not fit beside the message is accepted")
	}
	if _, ok := r.addMessage(wire.ReliableMessageLong{Data: part(132_000)}, 192<<10, 0); ok {
		t.Error("a message that does not fit beside the offer is accepted")
	}
}

// TestLongTimeWithHoles: a peer that always leaves a hole does not postpone the end of its message.
func TestLongTimeWithHoles(t *testing.T) {
	cfg := quiet().withDefaults()
	w := recvWindow{early: make([]early, 1), hole: 100, long: longReceive{message: &longPart{due: 200}}}
	if got := w.dueAt(&cfg, false, false); got != 200 {
		t.Errorf("it ends at %d, want 200", got)
	}
}

func TestLossEstimate(t *testing.T) {
	l := newLossEstimate()
	if l.copies() != 2 {
		t.Errorf("a new path gets %d copies of a repeat, want 2", l.copies())
	}
	for range 6 {
		l.add(false)
	}
	if l.copies() != 1 {
		t.Errorf("after six deliveries %d copies of a repeat, want 1", l.copies())
	}
	for range 6 {
		l.add(true)
	}
	if l.copies() != 3 {
		t.Errorf("after six losses %d copies of a repeat, want 3", l.copies())
	}
}

func TestJournalNil(t *testing.T) {
	var j *journal
	j.want(needNow)
	j.linkChanged(1, LinkCameUp)
	j.agree()
	j.storedUpTo(1)
	if j.isMuted() || j.contradicted(0) {
		t.Error("a connection without a log is muted or contradicted")
	}
}

// TestLongLinkDamaged: the values of an offer in parts are checked when all have arrived.
func TestLongLinkDamaged(t *testing.T) {
	s, _ := linked(t, quiet(), true, "uint8")
	s.recv("0b 0000 0180 06 0100 4d 0100 ff")
	s.want("an unknown type is refused", "06 0000 00", "08 0180")
	s.recv("0b 0100 0080 06 0100 4d 0100 ff")
	s.want("but LinkDown would hit our own link", "06 0100 00")
}

// TestLongLinkDamagedClash: the peer sends a damaged offer under the id of a link of ours that it
// does not have. Our link moves to another id, so LinkDown hits only the peer's.
func TestLongLinkDamagedClash(t *testing.T) {
	s := serve(t, quiet())
	src := s.source("uint8")
	if err := s.c.Link(src, true); err != nil {
		t.Fatal(err)
	}
	s.pump()
	s.sent = nil
	s.recv("0b 0000 0080 06 0100 4d 0100 ff")
	s.want("the offer is refused, and our link is offered under the next id", "06 0000 00", "08 0080", "05 0100 0180 01 0100 4d 0100 01 00")
}

// TestLongTime: a long message or offer is forgotten unless its parts keep coming, because what has
// arrived takes memory. It may be forged, so it ends nothing.
func TestLongTime(t *testing.T) {
	size := func(n int) string { return strings.Repeat("61", n) }
	for _, c := range []struct {
		why, first, part, last string // without their numbers
		interval               time.Duration
		parts                  int
		gone                   bool
	}{
		{"a message that stops", "0a %s 01" + size(1000), "04 %s 62", "", time.Second, 60, true},
		{"one that goes on a byte at a time", "0a %s 01" + size(1000), "0a %s 00 61", "", time.Second, 60, true},
		{"one that begins again and again", "0a %s 01" + size(1000), "0a %s 01" + size(1000), "", time.Second, 60, false},
		{"one on a slow path", "0a %s 01" + size(1000), "0a %s 00" + size(1100), "0a %s 02 61", 250 * time.Millisecond, 940, false},
		{"an offer that stops", "0b %s 0300 02 0100 6d", "04 %s 62", "", time.Second, 60, true},
	} {
		s := serve(t, quiet())
		s.c.e.cfg.Rate = admit.Rate{}
		n := 0
		send := func(format string) {
			s.recv(fmt.Sprintf(format, fmt.Sprintf("%02x%02x", n&0xFF, n>>8)))
			n++
		}
		send(c.first)
		for range c.parts {
			s.wait(c.interval)
			if s.e.stats.Drops[DropUnfinished] > 0 {
				break
			}
			send(c.part)
		}
		if c.last != "" {
			send(c.last)
		}
		if gone := s.e.stats.Drops[DropUnfinished] > 0; gone != c.gone || gone && s.c.Incomplete() > 0 || s.c.over() {
			t.Errorf("%s: forgotten after %v: %v, want %v; %d bytes are left, closed: %v", c.why, s.now.Sub(epoch), gone, c.gone, s.c.Incomplete(), s.c.over())
		}
		if elapsed := s.now.Sub(epoch); c.gone && (elapsed < 25*time.Second || elapsed > 32*time.Second) {
			t.Errorf("%s: forgotten after %v, want 25 s, for which a log may be silent, to 32 s", c.why, elapsed)
		}
	}
}

// TestLongTimeRestored: a connection that moves has its time anew, and no more.
func TestLongTimeRestored(t *testing.T) {
	s := logged(t)
	s.recv("0a 0000 01 6162")
	s.store()
	e, err := New(Config{Logged: true})
	if err != nil {
		t.Fatal(err)
	}
	c, err := e.Restore(s.now, peerAddr, s.c.AppendCheckpoint(nil), func(uint64) *Source { return nil })
	if err != nil {
		t.Fatal(err)
	}
	r := &connTest{T: t, e: e, now: s.now, c: c}
	r.wait(25 * time.Second)
	if c.Incomplete() != 2 {
		t.Error("the message is forgotten before its time")
	}
	r.wait(10 * time.Second)
	if _, ok := c.Ending(); ok || c.Incomplete() > 0 {
		t.Errorf("ending %v, %d bytes are left", ok, c.Incomplete())
	}
}
