package dnp

import (
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/dnp/wire"
)

// TestOrderedUpdates: LinkUpdates to a peer that asked for it end with their order, and tell which of its writes have ended.
func TestOrderedUpdates(t *testing.T) {
	s, src := linked(t, quiet(), false, "uint8", "uint8")
	set(src, 0, "01")
	s.flush()
	s.want("a peer that did not ask", "09 01 0080 01 0000 01")
	w := s.c.Writes()
	w.Order(0)
	set(src, 0, "02")
	s.flush()
	s.want("the first in order", "09 01 0080 01 0000 02   00 01 02")

	s.recv("09 01 0080 01 0000 07   05")
	s.events("a write with a number", "update 8000 write 5 0=07")
	w.Hold(0x8000, 0, 5, unhex("07"))
	set(src, 0, "07")
	set(src, 1, "09")
	s.flush()
	s.want("what the peer wrote is not sent to it", "09 01 0080 01 0100 09   00 02 02")
	w.Release(0x8000, 0)
	w.Acknowledge(wire.WriteAck{Number: 5}, 1, false)
	if !s.e.Pending() {
		t.Error("it is not time for a Flush, although a write has ended")
	}
	s.flush()
	s.want("no value differs from what the peer wrote", "09 00   00 03 05 00 04")

	s.recv("09 01 0080 02 0000 08 0100 08   06")
	s.happen = nil
	w.Hold(0x8000, 0, 6, unhex("08"))
	w.Hold(0x8000, 1, 6, unhex("08"))
	set(src, 0, "08")
	set(src, 0, "0a") // the game server corrects what the peer wrote
	w.Release(0x8000, 0)
	w.Refuse(0x8000, 1)
	w.Acknowledge(wire.WriteAck{Number: 6, Refused: []wire.RefusedValue{{Link: 0x8000, Index: 1, Code: wire.RefusedBounds}}}, 1, false)
	s.flush()
	s.want("the values that the peer lacks come with the end of the write", "09 01 0080 02 0000 0a 0100 09   00 04 06 01 0080 0100 02 09")
	s.wait(20 * time.Second)
	s.flush()
	s.want("a write with a number needs no echo")
}

// TestNumberedUpdates: a LinkUpdate with the number of a write counts as a whole or not at all, because the write is
// acknowledged as a whole.
func TestNumberedUpdates(t *testing.T) {
	s, _ := linked(t, quiet(), false, "uint8", "uint8")
	s.recv("09 01 0080 01 0000 07   05")
	s.events("a peer that did not ask: the bytes behind the last link are nobody's", "update 8000 0=07")
	s.c.Writes().Order(0)
	s.recv("09 01 0080 01 0000 07")
	s.events("a peer may say nothing about a value, as before the answer to its hello", "update 8000 0=07")
	for why, datagram := range map[string]string{
		"a link that has ended hides the number": "09 02 0080 01 0000 07 0180 01 0000 07   06",
		"a number is not 0":                      "09 01 0080 01 0000 07   00",
		"a number that is cut":                   "09 01 0080 01 0000 07   80",
		"bytes behind the number":                "09 01 0080 01 0000 07   0607",
		"33 values":                              "09 01 0080 21" + repeated(" 0000 07", 33) + "   06",
	} {
		s.recv(datagram)
		s.events(why)
	}
	s.recv("09 01 0080 20"+repeated(" 0000 07", 32)+"   06", "09 00")
	s.events("32 values, and a sign of life", "update 8000 write 6"+repeated(" 0=07", 32))
}

func repeated(s string, n int) (all string) {
	for range n {
		all += s
	}
	return all
}

// TestAcknowledgementsWait: acknowledgements beyond a datagram follow in others, and a bounded number waits for a Flush.
func TestAcknowledgementsWait(t *testing.T) {
	s, src := linked(t, quiet(), false, "uint8")
	w := s.c.Writes()
	w.Acknowledge(wire.WriteAck{Number: 1}, 1, false)
	s.flush()
	s.want("a peer that did not ask hears nothing")
	w.Order(0)
	set(src, 0, "01")
	for i := range 2 * acksMax {
		w.Acknowledge(wire.WriteAck{Number: uint32(i + 1)}, 1, false)
	}
	s.flush()
	next, orders := uint32(1), wire.Order(1)
	for i, d := range s.sent {
		links, trailer, ok := wire.ParseTrailer(unhex(d)[1:])
		if !ok || trailer.Order != orders || (len(links) > 1) != (i == 0) {
			t.Fatalf("datagram %d is %s", i, d)
		}
		orders++
		for a, ok := trailer.Next(); ok; a, ok = trailer.Next() {
			if a.Number != next {
				t.Fatalf("the acknowledgement of %d, want %d", a.Number, next)
			}
			next++
		}
	}
	if next != acksMax+1 || s.e.Stats().Drops[DropAcksFull] != acksMax {
		t.Errorf("%d acknowledgements were sent and %d dropped, want %d of each", next-1, s.e.Stats().Drops[DropAcksFull], acksMax)
	}
}

// TestExpectOrder is the client's side.
func TestExpectOrder(t *testing.T) {
	s := newTest(t, quiet())
	c, err := s.e.Connect(s.now, peerAddr)
	if err != nil {
		t.Fatal(err)
	}
	s.pump()
	s.recv("01 00 0000", "05 0000 0080 00 0100 6d 0200 01 05 01 06")
	src := s.source("uint8", "uint8")
	if err := c.Accept(0x8000, src); err != nil {
		t.Fatal(err)
	}
	s.pump()
	s.sent, s.happen = nil, nil
	s.recv("09 01 0080 01 0000 07   00 02 02")
	s.events("before the edge is known to order its updates", "update 8000 0=07")
	c.ExpectOrder()
	s.recv("09 01 0080 01 0000 08   00 03 05 00 04", "09 00   00 04 06 00 04", "09 01 0180 01 0000 07   00 05 07 00 04")
	s.events("the end of a write comes before the values, and also behind a link that is not known", "write 5 ended order 3 refused []", "update 8000 order 3 0=08",
		"write 6 ended order 4 refused []", "write 7 ended order 5 refused []")

	set(src, 0, "11")
	set(src, 1, "12")
	if n := c.SendValues(9, []ValueRef{{src, 0}, {src, 1}}, &s.recorder); n != 2 {
		t.Errorf("%d values were sent, want 2", n)
	}
	s.want("a write with a number", "09 01 0080 02 0000 11 0100 12   09")
	if n := c.SendValues(0, []ValueRef{{src, 1}}, &s.recorder); n != 1 {
		t.Errorf("%d values were sent, want 1", n)
	}
	s.want("a write without a number", "09 01 0080 01 0100 12")
	var many []ValueRef
	for range 40 {
		many = append(many, ValueRef{src, 0})
	}
	if n := c.SendValues(300, many, &s.recorder); n != wire.WriteValuesMax {
		t.Errorf("%d values were sent, want %d at most", n, wire.WriteValuesMax)
	}
}

// TestOrderSurvives: the node that continues a connection knows the numbers of the writes that have not ended, and its
// updates come behind those of the node before.
func TestOrderSurvives(t *testing.T) {
	s, src := linked(t, quiet(), false, "uint8", "uint8")
	s.c.Writes().Order(3)
	set(src, 0, "01")
	s.flush()
	s.want("the order of the first node", "09 01 0080 01 0000 01   03 01 02")
	s.c.Writes().Hold(0x8000, 1, 77, unhex("07"))
	s.c.Writes().Hold(0x8000, 0, 78, unhex("08"))
	s.c.Writes().Release(0x8000, 0)
	snapshot := s.c.AppendSnapshot(nil)
	next := newTest(t, quiet())
	again := next.source("uint8", "uint8")
	c, err := next.e.Restore(next.now, peerAddr, snapshot, func(uint64) *Source { return again })
	if err != nil {
		t.Fatal(err)
	}
	if held := c.Writes().Held(); len(held) != 1 || held[0].Write != 77 || held[0].Index != 1 {
		t.Errorf("held is %+v, want value 1 of write 77", held)
	}
	c.Writes().Order(4)
	next.flush()
	next.want("the order of the second, twice on a path that it does not know", "09 01 0080 01 0000 00   04 01 02", "09 01 0080 01 0000 00   04 01 02")
}

// TestAcknowledgementsOfAStream: a peer that writes a value all the time is not told of each write, but soon after the last.
func TestAcknowledgementsOfAStream(t *testing.T) {
	s, src := linked(t, quiet(), false, "uint8", "uint8")
	w := s.c.Writes()
	w.Order(0)
	write := func(number uint32, value string, indexes ...int) (again bool) {
		s.flush() // tells the time
		for _, i := range indexes {
			again = w.Hold(0x8000, i, number, unhex(value))
			set(src, i, value)
			w.Release(0x8000, i)
		}
		w.Acknowledge(wire.WriteAck{Number: number}, len(indexes), again)
		s.flush()
		return again
	}
	if write(1, "01", 0) {
		t.Error("the first write of a value is one of many")
	}
	s.want("nobody wrote the value before: its peer may wait", "09 00   00 01 01 00 04")
	for n := uint32(2); n <= 5; n++ {
		s.wait(50 * time.Millisecond)
		if !write(n, "02", 0) {
			t.Error("a value that is written all the time is none of many")
		}
	}
	write(6, "03", 0, 1)
	s.want("the peer writes on", "09 00   00 02 06 00 04") // the other value was not written before
	s.wait(50 * time.Millisecond)
	write(7, "04", 0, 1)
	s.wait(50 * time.Millisecond)
	write(8, "05", 0)
	s.want("a value of write 7 was not written again, and both wait")
	s.wait(ackWait)
	s.flush()
	s.want("the peer pauses", "09 00   00 03 07 00 08 00 06")
	s.wait(50 * time.Millisecond)
	write(9, "06", 0)
	set(src, 1, "09")
	s.flush()
	s.want("values to the peer take the acknowledgement along", "09 01 0080 01 0100 09   00 04 09 00 04")
	s.wait(50 * time.Millisecond)
	write(10, "07", 0)
	s.wait(50 * time.Millisecond)
	if write(10, "07", 0) {
		t.Error("a repeat is one of many")
	}
	s.want("the peer repeats its last write: it waits, and hears at once", "09 00   00 05 0a 00 0a 00 06")
	s.wait(time.Second)
	s.flush()
	s.want("nothing is left")
}
