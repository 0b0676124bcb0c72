package lludp

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/lludp/wire"
)

func TestAcknowledgements(t *testing.T) {
	c := newCircuitTest(t, Config{})
	c.receives("the first packet of a client is passed up", "40 00000001 00 ffff0105 0a", "packet ffff0105 0a")
	c.receives("so does an unreliable one", "00 00000002 00 04 0b", "packet 4 0b")
	c.sends("the next packet carries the acknowledgement", Message{Number: wire.AgentUpdate, Body: []byte{1}}, "#1 04 01 +1")
	c.waits("and only once", time.Second)

	c.receives("the acknowledgement was lost, so the peer repeats", "60 00000001 00 ffff0105 0a")
	c.receives("in vain", "60 00000001 00 ffff0105 0a")
	c.receives("another packet", "40 00000003 00 04 0c", "packet 4 0c")
	c.waits("nothing is sent for a while", 99*time.Millisecond)
	c.waits("then acknowledgements are sent alone, each once", time.Millisecond, "#2 fffffffb 020100000003000000")
	c.waits("and only once", time.Second)
	c.dropped("repeats", map[DropReason]uint64{DropRepeat: 2})
}

// TestOpeningIsAcknowledgedAtOnce: peers send nothing more before they have the acknowledgement.
func TestOpeningIsAcknowledgedAtOnce(t *testing.T) {
	c := newCircuitTest(t, Config{})
	c.receives("the opening", "40 00000001 00 ffff0003 0a", "#1 fffffffb 0101000000", "packet ffff0003 0a")
	c.receives("a repeat of it", "60 00000001 00 ffff0003 0a", "#2 fffffffb 0101000000")
}

// TestOnce: a message that something newer replaces is not repeated, because an old copy would come after the newer one.
func TestOnce(t *testing.T) {
	c := newCircuitTest(t, Config{PingInterval: time.Hour})
	m := reliable(7, 1, 2)
	m.Once = true
	c.sends("a message that is not repeated", m, "#1 reliable 04 0102")
	if n, bytes := c.InFlight(); n != 1 || bytes != 9 {
		t.Errorf("%d packets, %d bytes in flight; want 1 and 9", n, bytes)
	}
	c.waits("it is lost when it would have been repeated", time.Second, "lost 7")
	m.Token = 8
	c.sends("another one", m, "#2 reliable 04 0102")
	c.receives("is acknowledged", "00 00000002 00 fffffffb 01 02000000", "delivered 8")
	if n, bytes := c.InFlight(); n != 0 || bytes != 0 {
		t.Errorf("%d packets, %d bytes in flight", n, bytes)
	}
}

func TestResend(t *testing.T) {
	c := newCircuitTest(t, Config{PingInterval: time.Hour})
	c.receives("something to acknowledge", "40 00000001 00 04", "packet 4 ")
	c.sends("a reliable packet", reliable(7, 1, 2), "#1 reliable 04 0102 +1")
	c.waits("waits a second for its acknowledgement", 999*time.Millisecond)
	c.waits("is repeated with the same number and nothing appended", time.Millisecond, "#1 reliable again 04 0102")
	c.receives("is acknowledged", "00 00000002 00 fffffffb 01 01000000", "delivered 7")
	c.waits("is not repeated again", 20*time.Second)
	c.receives("acknowledged again", "10 00000003 00 04 00000001 01", "packet 4 ")
	c.dropped("an acknowledgement of a packet that is not in flight", map[DropReason]uint64{DropUnknownAck: 1})
}

func TestAppendedAckEndsResends(t *testing.T) {
	c := newCircuitTest(t, Config{PingInterval: time.Hour})
	c.sends("one", reliable(1, 1), "#1 reliable 04 01")
	c.sends("two", reliable(2, 2), "#2 reliable 04 02")
	c.sends("the third", reliable(0, 3), "#3 reliable 04 03")
	c.receives("the second is acknowledged at the end of a zero-coded packet", "90 00000001 00 04 0003 00000002 01", "delivered 2", "packet 4 000000")
	c.waits("the others are repeated", time.Second, "#1 reliable again 04 01", "#3 reliable again 04 03")
	c.receives("acks in any order, and of packets that were not sent", "10 00000002 00 04 00000003 01000001 00000001 00ffffff 04", "delivered 1", "packet 4 ")
	c.waits("all is quiet", 20*time.Second)
	c.dropped("acks of packets that were not sent", map[DropReason]uint64{DropUnknownAck: 2})
	if n, bytes := c.InFlight(); n != 0 || bytes != 0 {
		t.Errorf("%d packets, %d bytes in flight", n, bytes)
	}
}

func TestGivesUp(t *testing.T) {
	c := newCircuitTest(t, Config{PingInterval: time.Hour})
	c.sends("a packet that gets lost", reliable(7, 1), "#1 reliable 04 01")
	c.waits("it is sent four times", 3999*time.Millisecond, "#1 reliable again 04 01", "#1 reliable again 04 01", "#1 reliable again 04 01")
	c.waits("and given up", time.Millisecond, "lost 7")
	c.receives("a late acknowledgement has no effect", "00 00000001 00 fffffffb 01 01000000")
	c.waits("it is forgotten", 10*time.Second)
	if s := c.Stats(); s.Lost != 1 || s.Resends != 3 || s.Delivered != 0 {
		t.Errorf("%+v", s)
	}
	for c = newCircuitTest(t, Config{PingInterval: time.Hour, Retries: -1}); !c.Closed(); {
		if c.stats.PacketsOut == 0 {
			c.sends("a packet that gets lost", reliable(7, 1), "#1 reliable 04 01")
		}
		c.events(c.Advance(c.now, c))
		c.now = c.now.Add(time.Second)
	}
	if s := c.Stats(); s.Resends != 59 || s.Lost != 0 {
		t.Errorf("with unlimited retries there were %d repeats in a minute, %d lost", s.Resends, s.Lost)
	}
}

func TestPings(t *testing.T) {
	c := newCircuitTest(t, Config{})
	c.receives("a ping is answered at once", "00 00000001 00 01 07 00000000", "#1 02 07")
	c.receives("the answer carries acknowledgements", "40 00000002 00 01 08 00000000", "#2 02 08 +2")
	c.waits("the circuit's own ping", 5*time.Second, "#3 01 0102000000")
	c.now = c.now.Add(300 * time.Millisecond)
	c.receives("its answer", "00 00000003 00 02 01")
	if got := c.Ping(); got != 300*time.Millisecond {
		t.Errorf("the ping is %v, want 300 ms", got)
	}
	c.receives("an answer to no ping", "00 00000004 00 02 01")
	c.receives("another", "00 00000005 00 02 63")
	c.sends("a reliable packet", reliable(1, 1), "#4 reliable 04 01")
	c.waits("waits for five pings", 1499*time.Millisecond)
	c.waits("then it is repeated", time.Millisecond, "#4 reliable again 04 01")
	c.waits("a ping names the oldest packet without an acknowledgement", 3200*time.Millisecond,
		"#4 reliable again 04 01", "#4 reliable again 04 01", "#5 01 0204000000")
	c.dropped("answers", map[DropReason]uint64{DropUnknownPing: 2})
}

func TestBlocked(t *testing.T) {
	c := newCircuitTest(t, Config{})
	c.waits("three pings", 15*time.Second, "#1 01 0100000000", "#2 01 0201000000", "#3 01 0302000000")
	if c.Blocked() {
		t.Error("blocked by three unanswered pings")
	}
	c.waits("four", 5*time.Second, "#4 01 0403000000")
	if !c.Blocked() {
		t.Error("not blocked by four unanswered pings")
	}
	c.receives("the oldest is answered", "00 00000001 00 02 01")
	if !c.Blocked() {
		t.Error("released by three unanswered pings")
	}
	c.receives("the next", "00 00000002 00 02 02")
	if c.Blocked() {
		t.Error("blocked by two unanswered pings")
	}
	if got := c.Ping(); got != pingMax {
		t.Errorf("an answer after 15 s makes a ping of %v", got)
	}
	c.receives("a second answer to the same ping", "00 00000003 00 02 02")
	c.receives("the newest", "00 00000004 00 02 04")
	c.dropped("answered twice", map[DropReason]uint64{DropUnknownPing: 1})
}

func TestAveragePing(t *testing.T) {
	ms := time.Millisecond
	for _, c := range []struct{ average, ping, want time.Duration }{
		{0, 300 * ms, 300 * ms}, {300 * ms, 800 * ms, 800 * ms}, {800 * ms, 300 * ms, 700 * ms},
		{0, 10 * ms, 100 * ms}, {0, 20 * time.Second, 2 * time.Second}, {2 * time.Second, 0, 1600 * ms},
	} {
		if got := averagePing(c.average, c.ping); got != c.want {
			t.Errorf("average %v, ping %v: %v, want %v", c.average, c.ping, got, c.want)
		}
	}
	if got := resendAfter(time.Second, 0); got != time.Second {
		t.Errorf("without a ping packets wait %v", got)
	}
}

func TestEnds(t *testing.T) {
	c := newCircuitTest(t, Config{PingInterval: time.Hour})
	c.waits("silence for a minute", time.Minute-1)
	c.waits("ends it", 1, "closed 3")
	c.receives("the circuit has ended", "40 00000001 00 04")
	if err := c.Circuit.Send(c.now, reliable(1), c); !errors.Is(err, ErrClosed) {
		t.Errorf("sending on an ended circuit: %v", err)
	}
	if _, ok := c.NextTimeout(); ok {
		t.Error("an ended circuit has a deadline")
	}
	c.dropped("after the end", map[DropReason]uint64{DropClosed: 1})

	c = newCircuitTest(t, Config{PingInterval: time.Hour})
	c.sends("a packet", reliable(1, 1), "#1 reliable 04 01")
	c.receives("the peer ends it", "00 00000001 00 fffffffd", "closed 1")
	c.waits("nothing is repeated", time.Hour)

	c = newCircuitTest(t, Config{PingInterval: time.Hour})
	c.receives("something to acknowledge", "40 00000001 00 04", "packet 4 ")
	c.Close(c)
	c.want("the owner ends the circuit, and the peer is told", "#1 fffffffd +1")
	c.Close(c)
	c.waits("once", time.Hour)

	c = newCircuitTest(t, Config{PingInterval: time.Hour})
	c.waits("almost", time.Minute-1)
	c.receives("malformed bytes do not keep the circuit alive", "00 00000001 00 00")
	c.waits("and the circuit ends", 1, "closed 3")

	c = newCircuitTest(t, Config{PingInterval: time.Hour})
	c.waits("almost", time.Minute-1)
	c.receives("a packet keeps the circuit alive", "00 00000001 00 04", "packet 4 ")
	c.waits("for another minute", time.Minute-1)
	c.waits("but not longer", 1, "closed 3")
}

func TestDrops(t *testing.T) {
	c := newCircuitTest(t, Config{PingInterval: time.Hour})
	for _, d := range []struct{ why, datagram string }{
		{"empty", ""}, {"truncated", "40 00000001 00"}, {"too large", strings.Repeat("01", 2049)},
		{"acks", "50 00000001 00 01 09"}, {"bomb", "c0 00000001 00" + strings.Repeat("00", 1194)}, {"number 0", "40 00000001 00 00"},
		{"PacketAck without its ids", "00 00000002 00 fffffffb 02 01000000"},
		{"StartPingCheck without its number", "00 00000003 00 01 07"},
		{"CompletePingCheck without its id", "00 00000004 00 02"},
	} {
		c.receives(d.why, d.datagram)
	}
	c.waits("the circuit acknowledges none of them", time.Second)
	c.dropped("by reason", map[DropReason]uint64{DropTruncated: 5, DropTooLarge: 1, DropAcks: 1, DropExpansion: 1, DropNumber: 1})
	for r := range NumDropReasons {
		if DropReason(r).String() == "" {
			t.Errorf("drop reason %d has no name", r)
		}
	}
}

func TestDedupe(t *testing.T) {
	c := newCircuitTest(t, Config{})
	c.receives("an unreliable packet", "00 00000001 00 04", "packet 4 ")
	c.receives("its copy", "00 00000001 00 04")
	c.receives("a reliable one", "40 00000002 00 04", "packet 4 ")
	c.receives("its copy, without FlagResent", "40 00000002 00 04")
	c.receives("its repetition", "60 00000002 00 04")
	c.receives("repeated by the peer, but received for the first time", "60 00000003 00 04", "packet 4 ")
	c.receives("a number beyond 24 bits is a different number", "40 01000002 00 04", "packet 4 ")
	c.dropped("copies", map[DropReason]uint64{DropRepeat: 2, DropDuplicate: 1})
}

// TestRecent compares recent with a list of all numbers.
func TestRecent(t *testing.T) {
	r := random(t)
	const size = 16
	var set recent
	var all []wire.Seq
	for range 20_000 {
		s := wire.Seq(r.IntN(40))
		switch r.IntN(8) {
		case 0:
			s = wire.Seq(r.IntN(4)) * size // all of one chain
		case 1:
			s = wire.Seq(r.Uint32())
		}
		known := false
		for _, x := range all[max(0, len(all)-size):] {
			known = known || x == s
		}
		if set.add(s, size) == known {
			t.Fatalf("%d after %v: known %v", s, all[max(0, len(all)-size):], !known)
		}
		if !known {
			all = append(all, s)
		}
	}
}

func TestRemembers1024(t *testing.T) {
	var set recent
	for i := range wire.Seq(dedupeReliable) {
		set.add(0xFFFF00+i, dedupeReliable)
	}
	if set.add(0xFFFF00, dedupeReliable) {
		t.Error("the first of 1,024 was forgotten")
	}
	set.add(7, dedupeReliable)
	if !set.add(0xFFFF00, dedupeReliable) {
		t.Error("1,025 are remembered")
	}
}

func TestSendErrors(t *testing.T) {
	c := newCircuitTest(t, Config{Window: 2, PingInterval: time.Hour})
	send := func(m Message) error { return c.Circuit.Send(c.now, m, c) }
	for _, d := range []struct {
		why string
		m   Message
		err error
	}{
		{"the largest", Message{Number: 4, Body: make([]byte, 1193)}, nil},
		{"one byte more", Message{Number: 4, Body: make([]byte, 1194)}, ErrTooLarge},
		{"which fits when coded", Message{Number: 4, Body: make([]byte, 1194), ZeroCode: true}, nil},
		{"no message has number 0", Message{}, ErrNumber},
		{"the largest expanded packet", Message{Number: 4, Body: make([]byte, 8182), ZeroCode: true}, nil},
		{"beyond the largest expanded packet", Message{Number: 4, Body: make([]byte, 8183), ZeroCode: true}, ErrTooLarge},
		{"one in flight", reliable(1, 1), nil},
		{"two", reliable(2, 2), nil},
		{"three", reliable(3, 3), ErrBacklog},
		{"unreliable ones need no window", Message{Number: 4}, nil},
	} {
		if err := send(d.m); !errors.Is(err, d.err) {
			t.Errorf("%s: %v, want %v", d.why, err, d.err)
		}
	}
	c.log = nil
	c.receives("the second is acknowledged", "10 00000001 00 04 00000005 01", "delivered 2", "packet 4 ")
	if err := send(reliable(3, 3)); !errors.Is(err, ErrBacklog) {
		t.Errorf("the window counts from the oldest without an acknowledgement: %v", err)
	}
	c.receives("the first", "10 00000002 00 04 00000004 01", "delivered 1", "packet 4 ")
	if err := send(reliable(3, 3)); err != nil {
		t.Errorf("the window is empty: %v", err)
	}
	c.dropped("backlog", map[DropReason]uint64{DropBacklog: 2})

	c = newCircuitTest(t, Config{WindowBytes: 1200})
	c.Circuit.Send(c.now, reliable(1, make([]byte, 1100)...), c)
	if err := c.Circuit.Send(c.now, reliable(2, make([]byte, 100)...), c); !errors.Is(err, ErrBacklog) {
		t.Errorf("the bytes of the window: %v", err)
	}
}

// The numbers of packets in flight are never ambiguous.
func TestNumbersDoNotMeet(t *testing.T) {
	c := newCircuitTest(t, Config{Retries: -1})
	c.Circuit.Send(c.now, reliable(1), c)
	c.last = c.last + wire.SeqModulus/2
	if err := c.Circuit.Send(c.now, reliable(2), c); !errors.Is(err, ErrBacklog) {
		t.Errorf("half a round later: %v", err)
	}
}

func TestWrap(t *testing.T) {
	c := newCircuitTest(t, Config{PingInterval: time.Hour})
	c.last = 0xFFFFFE
	c.sends("the last number", reliable(1, 1), "#16777215 reliable 04 01")
	c.sends("0 follows", reliable(2, 2), "#0 reliable 04 02")
	c.sends("then 1", reliable(3, 3), "#1 reliable 04 03")
	c.receives("0 is acknowledged", "10 00000001 00 04 00000000 01", "delivered 2", "packet 4 ")
	c.waits("the others are repeated", time.Second, "#16777215 reliable again 04 01", "#1 reliable again 04 03")
}

func TestManyAcks(t *testing.T) {
	c := newCircuitTest(t, Config{PingInterval: time.Hour})
	packet := unhex(t, "40 00000000 00 04")
	for i := range 249 {
		packet[3], packet[4] = byte(i>>8), byte(i)
		c.Receive(c.now, packet, c)
	}
	c.want("249 wait")
	packet[4] = 249
	c.Receive(c.now, packet, c)
	if len(c.out) != 1 || len(c.out[0]) != 6+4+1+4*250 || len(c.acks.l) != 0 {
		t.Fatalf("250 made %d datagrams, %d wait", len(c.out), len(c.acks.l))
	}
	small := newCircuitTest(t, Config{DatagramMax: 64, PingInterval: time.Hour})
	for i := range 30 {
		packet[3], packet[4] = byte(i>>8), byte(i)
		small.Receive(small.now, packet, small)
	}
	small.events(small.Advance(small.now.Add(time.Second), small))
	if len(small.out) != 3 {
		t.Errorf("30 of at most 13 made %d datagrams", len(small.out))
	}
	for _, b := range small.out {
		if len(b) > 64 {
			t.Errorf("a datagram of %d bytes", len(b))
		}
	}
}

func TestZeroCodedSend(t *testing.T) {
	c := newCircuitTest(t, Config{PingInterval: time.Hour})
	c.receives("something to acknowledge", "40 00000001 00 04", "packet 4 ")
	c.sends("coded, with plain acknowledgements", Message{Number: wire.UseCircuitCode, Body: make([]byte, 5), ZeroCode: true, Reliable: true},
		"#1 coded reliable ffff0003 0000000000 +1")
	if want := unhex(t, "d0 00000001 00 ffff000103 0005 00000001 01"); string(c.out[0]) != string(want) {
		t.Errorf("%x, want %x", c.out[0], want)
	}
	c.waits("repeated unchanged", time.Second, "#1 coded reliable again ffff0003 0000000000")
	c.sends("what does not shrink is plain", Message{Number: 4, Body: []byte{1, 0}, ZeroCode: true}, "#2 04 0100")
}

func TestConfig(t *testing.T) {
	for _, cfg := range []Config{{DatagramMax: 63}, {DatagramMax: 2049}, {Window: 1001}, {Window: -1}, {WindowBytes: 1199}, {Timeout: -1}, {AckDelay: -1}} {
		if _, err := New(time.Time{}, cfg); err == nil {
			t.Errorf("%+v was accepted", cfg)
		}
	}
}

// Receiving a datagram and sending an unreliable one allocate nothing.
func TestAllocations(t *testing.T) {
	c := newCircuitTest(t, Config{})
	out := &reused{b: make([]byte, 0, 4096)}
	packet, plain, n := unhex(t, "d0 00000000 00 04 0010 00000000 01"), Message{Number: 4, Body: make([]byte, 100), ZeroCode: true}, 0
	step := func() {
		n++
		packet[3], packet[4] = byte(n>>8), byte(n)
		c.Receive(c.now, packet, out)
		c.Circuit.Send(c.now, plain, out)
		c.Advance(c.now, out)
		c.now = c.now.Add(10 * time.Millisecond)
	}
	for range 2000 {
		step()
	}
	if got := testing.AllocsPerRun(1000, step); got != 0 {
		t.Errorf("%v allocations", got)
	}
}

// A reused is a Sender that reuses one buffer.
type reused struct{ b []byte }

func (r *reused) Datagram(int) []byte { return r.b[:0] }
func (r *reused) Send([]byte)         {}

// TestWindowKeepsToMemory loses all acknowledgements of one packet and none of the later ones.
// However many packets are sent meanwhile, the peer still remembers the number when the packet
// is repeated.
func TestWindowKeepsToMemory(t *testing.T) {
	a, b := newCircuitTest(t, Config{Window: windowMax, Retries: -1}), newCircuitTest(t, Config{})
	passed := map[byte]int{}
	carry := func() {
		for _, p := range a.out {
			for _, e := range b.Receive(b.now, p, b) {
				if e.Kind == EventPacket {
					passed[e.Packet.Body[0]]++
				}
			}
		}
		a.out = nil
	}
	a.Circuit.Send(a.now, reliable(1, 1), a)
	refused := 0
	for range 3000 {
		if a.Circuit.Send(a.now, reliable(2, 2), a) != nil {
			refused++
			continue
		}
		carry()
		a.acknowledged(a.last)
	}
	a.now = a.now.Add(time.Second)
	a.Advance(a.now, a)
	carry()
	if passed[1] != 1 || passed[2] != windowMax-1 || refused != 3000-windowMax+1 {
		t.Errorf("passed up %v, refused %d", passed, refused)
	}
	if a.Stats().Resends != 1 || b.Stats().Drops[DropRepeat] != 1 {
		t.Errorf("%d repeats, %d known", a.Stats().Resends, b.Stats().Drops[DropRepeat])
	}
}
