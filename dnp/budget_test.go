package dnp

import (
	"fmt"
	"math"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/dnp/wire"
)

func TestBudget(t *testing.T) {
	rate := newRate(1000, 1200) // a millisecond per byte; the burst is four datagrams
	b := newBudget(&rate, 0)
	check := func(why string, ok bool) {
		t.Helper()
		if !ok {
			t.Errorf("%s: %+v", why, b)
		}
	}
	check("a burst is saved at first", b.affords(&rate, 4*1248, 0) && !b.affords(&rate, 4*1248+1, 0))
	b.pay(&rate, 4*1248, 0)
	check("a burst is spent", !b.affords(&rate, 1, 0) && b.affords(&rate, 0, 0))
	at := b.allowedAt(&rate, 1200, 1200)
	check("the next datagram waits until it is earned", at == instant(rate.cost(1200)) && at == instant(1200*time.Millisecond))
	check("not before", b.allowance(&rate, 1200, 1200, at-1) == 0)
	check("but then", b.allowance(&rate, 1200, 1200, at) == 1200)
	for range 100 {
		b.pay(&rate, 60000, at)
	}
	check("no more than a burst is owed", b.spent == at.add(rate.burst))
	b.updated = at
	at = b.allowedAt(&rate, 1200, 1200)
	check("then the debt is paid", at == b.spent.add(rate.cost(1200)))
	for range 100 {
		at = at.add(100 * time.Millisecond)
		b.pay(&rate, 1000, at)
	}
	check("values get an eighth although commands that cannot wait take all", b.allowance(&rate, 1200, 1200, at) == 1200)
	off := newRate(-1, 1200)
	b = newBudget(&off, 5)
	b.pay(&off, 1<<20, 5)
	check("off", b.affords(&off, 1<<30, 5) && b.allowance(&off, 1200, 1200, 5) == math.MaxInt)
	if n := headersTo(netip.MustParseAddrPort("[2001:db8::1]:1")); n != 48 {
		t.Errorf("IPv6 has headers of 48 bytes, not %d", n)
	}
	if n := headersTo(netip.MustParseAddrPort("[::ffff:192.0.2.1]:1")); n != 28 {
		t.Errorf("mapped IPv4 has headers of 28 bytes, not %d", n)
	}
}

// short returns a test whose connection has spent its budget of 12,000 bytes a second,
// so that it sends a datagram every 100 ms, with the links of these sources up.
func short(t *testing.T, cfg Config, sources int, types ...string) (*connTest, []*Source) {
	t.Helper()
	cfg.BytesPerSecond = 12000
	cfg.OfferBytesPerSecond, cfg.ReliableTimeout = -1, time.Hour
	s := serve(t, cfg)
	var all []*Source
	for i := range sources {
		src := s.source(types...)
		src.State().Value(0)[0] = byte(i)
		if err := s.c.Link(src, true); err != nil {
			t.Fatal(err)
		}
		all = append(all, src)
		s.wait(time.Second)
		s.recv(fmt.Sprintf("06 %02x%02x 00", byte(i), i>>8), fmt.Sprintf("07 %02x80", byte(i)))
	}
	s.wait(time.Second)
	s.flush()
	s.c.budget.spent = s.e.clock.now
	s.c.budget.updated = s.e.clock.now
	s.sent, s.happen = nil, nil
	return s, all
}

func TestShortOfBudget(t *testing.T) {
	s, src := short(t, quiet(), 3, "uint8")
	src[2].SetPriority(4)
	set(src[0], 0, "01")
	set(src[1], 0, "02")
	s.flush()
	s.want("nothing is saved: both wait")
	if s.e.Pending() {
		t.Fatal("Flush can do nothing before something is earned")
	}
	s.wait(50 * time.Millisecond)
	set(src[0], 0, "03")
	set(src[2], 0, "04")
	s.flush()
	s.want("half a datagram is earned, the third waits, too")
	if at, ok := s.e.NextTimeout(); !ok || at.Sub(s.now) != 50*time.Millisecond {
		t.Fatalf("next timeout in %v, want 50 ms: when a datagram is earned", at.Sub(s.now))
	}
	s.wait(50 * time.Millisecond)
	if !s.e.Pending() {
		t.Fatal("Flush has something to do when a datagram is earned")
	}
	s.flush()
	s.want("priority × (versions + age / 50 ms): 4 × 2, then 2 + 2, then 1 + 2; newest values",
		"09 03 0280 01 0000 04 0080 01 0000 03 0180 01 0000 02")
	if got := s.e.stats.Deferred; got != 3 {
		t.Errorf("%d links began to wait, want 3", got)
	}
	s.flush()
	s.want("nothing is left")
}

func TestShortRepeatsYield(t *testing.T) {
	cfg := quiet()
	cfg.Refresh = []time.Duration{10 * time.Millisecond}
	s, src := short(t, cfg, 2, "uint8")
	s.c.budget.spent -= instant(time.Second)
	set(src[0], 0, "01")
	s.flush()
	s.want("the change", "09 01 0080 01 0000 01")
	s.c.loss.share, s.c.budget.spent = 0, s.e.clock.now.add(10*time.Millisecond)
	s.wait(10 * time.Millisecond)
	s.flush()
	s.want("its repeat waits")
	s.wait(60 * time.Millisecond)
	set(src[1], 0, "02")
	s.flush()
	s.want("and so does another change, which is younger")
	s.wait(50 * time.Millisecond)
	s.flush()
	s.want("a repeat counts a sixteenth", "09 02 0180 01 0000 02 0080 01 0000 01")
}

func TestShortScrub(t *testing.T) {
	cfg := quiet()
	cfg.ScrubInterval = time.Second
	s, src := short(t, cfg, 1, "uint8", "uint8")
	set(src[0], 0, "01")
	s.flush()
	s.c.budget.spent = s.e.clock.now.add(10 * time.Second) // owes much
	s.c.budget.updated = s.e.clock.now.add(10 * time.Second)
	s.wait(5 * time.Second)
	s.flush()
	s.want("a link that waits is not scrubbed, or its urgency would be lost")
	s.wait(10 * time.Second)
	s.flush()
	s.want("only what changed", "09 01 0080 01 0000 01")
}

func TestShortUnlink(t *testing.T) {
	s, src := short(t, quiet(), 2, "uint8")
	set(src[0], 0, "01")
	set(src[1], 0, "02")
	s.flush()
	s.c.Unlink(src[0], false)
	s.recv("05 0000 0000 00 0200 4869 0100 01 2a") // takes its slot, and has no source
	s.wait(200 * time.Millisecond)
	s.sent = nil
	s.flush()
	s.want("a link that waited and was taken down is not sent", "09 01 0180 01 0000 02")
	set(src[1], 0, "03")
	s.flush()
	s.c.Close(CloseLocal)
	s.pump()
	s.sent = nil
	s.flush()
	s.want("nothing is sent after the end")
}

func TestShortDropsUnreliable(t *testing.T) {
	s, _ := short(t, quiet(), 1, "uint8")
	s.c.SendUnreliable([]byte("a"))
	s.pump()
	s.want("nothing is owed yet", "0361")
	s.c.SendUnreliable([]byte("b"))
	s.c.Send([]byte("c"), 0)
	s.pump()
	s.want("reliable messages never wait", "04 0100 63")
	s.dropped("but unreliable ones go before values have to wait longer", DropBudget, 1)
}

// TestShortOffers: a peer whose values always wait gets its links all the same, with a
// quarter of its income, and the window is never idle.
func TestShortOffers(t *testing.T) {
	s, src := short(t, quiet(), 1, "uint32")
	for range 40 {
		s.c.Link(s.source("uint8"), true)
	}
	offers, acked := 0, 0
	numbers := make(map[string]bool)
	for i := range 200 {
		set(src[0], 0, fmt.Sprintf("%08x", i))
		s.c.budget.spent = max(s.c.budget.spent, s.e.clock.now+1)
		s.wait(10 * time.Millisecond)
		s.flush()
		for _, d := range s.sent {
			if d[:2] == "05" {
				numbers[d[2:6]] = true
			}
		}
		s.sent, offers = nil, len(numbers)
		for ; i%20 == 0 && acked < offers; acked++ { // a round trip of 200 ms
			s.recv(fmt.Sprintf("06 %02x00 00", acked+1))
		}
	}
	// An offer is 14 + 28 bytes, a quarter of 12,000 bytes a second are 71.
	if offers != 40 {
		t.Errorf("%d offers went in two seconds, want all 40", offers)
	}
}

// An ideal is a simple model of a connection whose values wait for the budget.
type ideal struct {
	sources []*Source
	waits   map[wire.LinkID]time.Time // since when
	changes map[wire.LinkID]uint32    // versions that it lacks
}

// order returns the links that wait, the most urgent first.
func (m *ideal) order(now time.Time) []wire.LinkID {
	var all []wire.LinkID
	for i := range m.sources {
		if id := wire.LinkID(0x8000 + i); !m.waits[id].IsZero() {
			all = append(all, id)
		}
	}
	slices.SortStableFunc(all, func(a, b wire.LinkID) int {
		if d := m.urgency(b, now) - m.urgency(a, now); d != 0 {
			return int(math.Copysign(1, float64(d)))
		}
		return 0
	})
	return all
}

func (m *ideal) urgency(id wire.LinkID, now time.Time) float32 {
	age := now.Sub(m.waits[id]).Seconds() / 0.05
	return m.sources[id-0x8000].weight * (float32(m.changes[id]) + float32(age))
}

// TestShortModel changes states at random while the budget is too small. The connection
// must send exactly what the model sends: the most urgent links, in order, within the
// budget, and in the end everything.
func TestShortModel(t *testing.T) {
	rng := newRand(t)
	for range 6 {
		n := 2 + rng.IntN(200)
		s, src := short(t, quiet(), n, "vector3f64")
		m := &ideal{sources: src, waits: make(map[wire.LinkID]time.Time), changes: make(map[wire.LinkID]uint32)}
		got := make([]string, n)
		for _, x := range src {
			x.SetPriority(uint8(1 + rng.IntN(PriorityMax)))
		}
		start, bytes := s.now, 0
		for step := 0; step < 300 || len(m.waits) > 0; step++ {
			if step > 10000 {
				t.Fatalf("%d links wait too long", len(m.waits))
			}
			for i := range src {
				if step < 300 && rng.IntN(3) == 0 {
					set(src[i], 0, fmt.Sprintf("%048x", rng.Uint32()))
					id := wire.LinkID(0x8000 + i)
					if m.changes[id]++; m.waits[id].IsZero() {
						m.waits[id] = s.now
					}
				}
			}
			s.flush()
			want := m.order(s.now)
			var sent []wire.LinkID
			for _, d := range s.sent {
				bytes += 28 + len(d)/2
				u := wire.Denetwork.UpdateReader(unhex(d)[1:])
				for id, ok := u.NextLink(); ok; id, ok = u.NextLink() {
					_, v, _ := u.NextValue([]wire.ValueType{src[0].State().Layout().Type(0)})
					got[id-0x8000] = fmt.Sprintf("%x", v)
					sent = append(sent, id)
				}
			}
			s.sent = nil
			for i, id := range sent {
				if len(sent) == len(want) {
					break // the budget sufficed for all
				}
				if a, b := m.urgency(id, s.now), m.urgency(want[i], s.now); math.Abs(float64(a-b)) > 1e-3*float64(b) {
					t.Fatalf("step %d: %04x of urgency %v went as number %d, want %04x of %v", step, id, a, i, want[i], b)
				}
			}
			for _, id := range sent {
				delete(m.waits, id)
				delete(m.changes, id)
			}
			s.wait(time.Duration(5+rng.IntN(10)) * time.Millisecond)
		}
		if most := 12000*s.now.Sub(start).Seconds() + 2*1300; float64(bytes) > most {
			t.Errorf("%d bytes in %v, the budget is %.0f", bytes, s.now.Sub(start), most)
		}
		for i, x := range src {
			if want := fmt.Sprintf("%x", x.State().Value(0)); got[i] != want {
				t.Errorf("link %d has %s, want %s", i, got[i], want)
			}
		}
	}
}

// TestNothingStarves checks the bound in the comment of urgency: a state that changed
// once, with the lowest priority, has its turn although all others change all the time.
func TestNothingStarves(t *testing.T) {
	rng := newRand(t)
	for range 200 {
		n, r, k := 2+rng.IntN(200), 1+rng.IntN(PriorityMax), 1+rng.IntN(8)
		bound := 1
		for k*bound <= int(float64(n)*(1+2*float64(r)*math.Log(1+float64(bound)))) {
			bound++
		}
		c := &linkTable{waiting: make([]waiter, n)}
		born := make([]int, n)
		sent := 0
		for ; ; sent++ {
			if sent > bound {
				t.Fatalf("n=%d r=%d k=%d: not sent after %d sendings", n, r, k, bound)
			}
			c.waiting = c.waiting[:0]
			for i := range n {
				priority, versions := uint8(r), uint32(sent-born[i]+1)
				if i == 0 {
					priority, versions = 1, 1
				}
				age := time.Duration(sent-born[i]) * stalenessUnit
				c.waiting = append(c.waiting, waiter{slot: uint16(i), urgency: urgency(float32(priority), versions, age, false)})
			}
			for i := n/2 - 1; i >= 0; i-- {
				c.sink(i)
			}
			done := false
			for range min(k, n) {
				i := c.mostUrgent()
				born[i] = sent + 1
				done = done || i == 0
			}
			if done {
				break
			}
		}
	}
}

// TestStalledPeer: a peer with hardly any budget costs no queue and no memory, however
// much changes.
func TestStalledPeer(t *testing.T) {
	c := newCrowd(t, 100, 2, posRot...)
	stalled, _ := c.e.Conn(clientAddr(0))
	n := 0
	turn := func() {
		n++
		c.move(n)
		c.now = c.now.Add(time.Millisecond)
		stalled.budget.spent = c.e.clock.now + instant(time.Hour)
		stalled.budget.updated = c.e.clock.now + instant(time.Hour)
		c.e.Advance(c.now, &c.out)
		c.e.Flush(c.now, &c.out)
	}
	turn()
	before := c.e.stats.UpdatesOut
	if allocs := testing.AllocsPerRun(1000, turn); allocs != 0 {
		t.Errorf("a flush beside a stalled peer makes %v allocations, want 0", allocs)
	}
	if len(stalled.links.waiting) != 100 || len(stalled.links.pending) != 0 {
		t.Errorf("%d links wait and %d are pending, want 100 and 0", len(stalled.links.waiting), len(stalled.links.pending))
	}
	if got := c.e.stats.UpdatesOut - before; got != 100*1001 {
		t.Errorf("the other peer got %d updates, want %d", got, 100*1001)
	}
}

// BenchmarkFlushShort is a second of peers whose budget suffices for a tenth of the
// changes: 1,000 states at 20 Hz, of which 256 KiB are sent.
func BenchmarkFlushShort(b *testing.B) {
	c := newCrowd(b, 1000, 20, posRot...)
	c.e.rate = newRate(256<<10, 1200)
	c.out = counter{}
	before := c.e.stats.UpdatesOut
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		for step := range 200 {
			c.now = c.now.Add(5 * time.Millisecond)
			if step%10 == 0 {
				n++
				c.move(n)
			}
			c.e.Advance(c.now, &c.out)
			c.e.Flush(c.now, &c.out)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(c.e.stats.UpdatesOut-before), "ns/update")
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/20, "µs/peer/s")
}

// TestNotWritable: a way that takes nothing makes values, offers and messages wait, and the peer gets the newest when it takes
// datagrams again. What cannot wait is sent.
func TestNotWritable(t *testing.T) {
	s, src := short(t, quiet(), 2, "uint8")
	s.c.budget.spent -= instant(time.Second)
	s.e.SetRoom(peerAddr, 0)
	s.pump()
	set(src[0], 0, "01")
	s.flush()
	set(src[0], 0, "02")
	s.flush()
	s.c.Link(s.source("uint8"), true)
	s.c.Send([]byte("a"), 0)
	s.c.SendUnreliable([]byte("b"))
	s.wait(time.Second)
	s.flush()
	s.want("all of it waits")
	s.dropped("but the unreliable message", DropBudget, 1)
	if at, ok := s.e.NextTimeout(); ok && at.Sub(s.now) < time.Minute {
		t.Fatalf("the endpoint wants to be called in %v, though time brings nothing", at.Sub(s.now))
	}
	s.recv("04 0000 78")
	s.want("an acknowledgement does not wait", "06 0000 00")
	s.events("the message is passed on", "message 0 x")
	s.e.SetRoom(peerAddr, -1)
	s.pump()
	s.want("the message and the offer", "04 0200 61", "05 0300 0280 01 0100 4d 0100 01 00")
	s.flush()
	s.want("the newest value, once", "09 01 0080 01 0000 02")
	s.e.SetRoom(peerAddr, 0)
	s.e.SetRoom(servAddr, 0) // an address without connection
	s.pump()
	set(src[1], 0, "03")
	s.flush()
	s.want("and again")
}

// TestLinkDownWaitsForRoom: the peer hears of a link that ended while its way took nothing, and as often as usual. It is not told
// for ever, and would keep the link.
func TestLinkDownWaitsForRoom(t *testing.T) {
	s, src := short(t, quiet(), 1, "uint8")
	s.c.budget.spent -= instant(time.Second)
	s.e.SetRoom(peerAddr, 0)
	s.pump()
	src[0].Remove()
	s.wait(time.Minute)
	s.want("the path would lose it")
	s.e.SetRoom(peerAddr, -1)
	s.pump()
	room := s.now
	for _, again := range linkDownSteps {
		s.wait(room.Add(again).Sub(s.now))
		s.want(fmt.Sprint("after ", again), slices.Repeat([]string{"08 0080"}, s.c.loss.copies())...)
	}
}

// TestRoom: a way that takes so many bytes gets the most urgent values that fit, and the newest of the others later.
func TestRoom(t *testing.T) {
	s, src := short(t, quiet(), 3, "uint8")
	s.c.budget.spent -= instant(time.Second)
	s.e.SetRoom(peerAddr, 10)
	for i := range src {
		set(src[i], 0, "01")
	}
	s.flush()
	s.want("two links are as much as fits", "09 02 0080 01 0000 01 0280 01 0000 01")
	set(src[1], 0, "02")
	s.flush()
	s.want("no room is left")
	s.e.SetRoom(peerAddr, 1<<20)
	s.pump()
	s.flush()
	s.want("the newest value", "09 01 0180 01 0000 02")
	s.e.SetRoom(peerAddr, 3)
	s.recv("04 0000 78")
	s.want("an acknowledgement does not wait", "06 0000 00")
	s.e.SetRoom(peerAddr, -1)
	s.pump()
	for i := range src {
		set(src[i], 0, "03")
	}
	s.flush()
	s.want("any number", "09 03 0080 01 0000 03 0180 01 0000 03 0280 01 0000 03")
}
