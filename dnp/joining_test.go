package dnp

import (
	"net/netip"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/dnp/wire"
)

// A party is a server with players, and joiners that accept each offer a round trip
// later. It records the datagrams to the players in the order of time.
type party struct {
	*crowd
	players int
	sent    map[netip.AddrPort][]dispatch
	up      map[netip.AddrPort]int
	offered int // bytes since begun
	most    int // bytes of offers in one turn
	begun   time.Time
	answers []answer
}

// A dispatch is a datagram to a player in one turn.
type dispatch struct {
	at    time.Duration
	bytes int
}

type answer struct {
	at   time.Time
	from netip.AddrPort
	link wire.LinkID
	seq  wire.Seq
}

const partyTrip = 20 * time.Millisecond

func (p *party) Datagram(size int) []byte { return p.out.Datagram(size) }

func (p *party) Send(to netip.AddrPort, b []byte) {
	if to.Addr().As4()[2] == 0 && int(to.Addr().As4()[3]) < p.players {
		p.sent[to] = append(p.sent[to], dispatch{p.now.Sub(p.begun), len(b)})
		return
	}
	if m, err := wire.ParseLinkState(b[1:]); b[0] == byte(wire.CommandReliableLinkState) && err == nil {
		p.offered += len(b) + headersIPv4
		p.answers = append(p.answers, answer{p.now.Add(partyTrip), to, m.Link, m.Seq})
	}
}

// run simulates a second, in which joiners join.
func (p *party) run(joiners int) (joined time.Duration) {
	p.begun = p.now
	for i := range joiners {
		addr := clientAddr(300 + i)
		conn := p.e.Receive(p.now, addr, unhex("0001000000"), p)[0].Conn
		for _, s := range p.sources {
			if err := conn.Link(s, true); err != nil {
				panic(err)
			}
		}
	}
	var ack [4]byte
	for turn := 0; turn < 1000 || len(p.answers) > 0; turn++ {
		for len(p.answers) > 0 && !p.answers[0].at.After(p.now) {
			a := p.answers[0]
			p.answers = p.answers[1:]
			p.e.Receive(p.now, a.from, wire.ReliableAck{Seq: a.seq}.Append(ack[:0]), p)
			p.e.Receive(p.now, a.from, wire.LinkUp{Link: a.link}.Append(ack[:0]), p)
			p.up[a.from]++
			joined = p.now.Sub(p.begun)
		}
		if turn%50 == 0 && turn < 1000 { // 20 Hz
			for i, s := range p.sources[:50] {
				s.State().Set(0, []byte{byte(turn), byte(turn >> 8), byte(i), 0, 0, 0, 0, 0, 0, 0, 0, 0})
				s.Changed(0)
			}
		}
		before := p.offered
		p.e.Flush(p.now, p)
		p.e.Advance(p.now, p)
		p.most = max(p.most, p.offered-before)
		p.now = p.now.Add(time.Millisecond)
	}
	return joined
}

func newParty(t *testing.T, players int) *party {
	p := &party{crowd: newCrowd(t, 50, players, posRot...), players: players, sent: map[netip.AddrPort][]dispatch{}, up: map[netip.AddrPort]int{}}
	for range 950 { // that players do not have
		p.sources = append(p.sources, p.e.NewSource(SourceConfig{State: newState(t, posRot...), Message: []byte("M")}))
	}
	p.e.rate = newRate(256<<10, 1200)
	p.e.offers = newOfferQueue(4 << 20)
	p.e.cfg.ScrubInterval, p.e.cfg.Refresh = -1, nil // their times depend on the number of links
	for c := range p.e.All {
		c.links.scrub.at, c.budget = never, newBudget(&p.e.rate, p.e.clock.now)
	}
	p.now = p.now.Add(10 * time.Second)
	return p
}

// TestJoinersDoNotDisturb lets 100 peers join 1,000 states at once while 200 play. The
// players must be sent the same at the same times as without them.
func TestJoinersDoNotDisturb(t *testing.T) {
	alone, crowded := newParty(t, 200), newParty(t, 200)
	alone.run(0)
	joined := crowded.run(100)
	for i := range 200 {
		a, b := alone.sent[clientAddr(i)], crowded.sent[clientAddr(i)]
		if len(a) == 0 || len(a) != len(b) {
			t.Fatalf("player %d was sent %d datagrams alone, %d with joiners", i, len(a), len(b))
		}
		for j := range a {
			if a[j] != b[j] {
				t.Fatalf("player %d: datagram %d is %v alone, %v with joiners", i, j, a[j], b[j])
			}
		}
	}
	for i := range 100 {
		if n := crowded.up[clientAddr(300+i)]; n != 1000 {
			t.Fatalf("joiner %d has %d links, want 1000", i, n)
		}
	}
	total := float64(crowded.offered)
	t.Logf("%.1f MB of offers took %v, %.1f MB/s; at most %d bytes in a turn", total/1e6, joined, total/1e6/joined.Seconds(), crowded.most)
	// At least the time of the offer queue, and of the budgets of those that join.
	if joined > 3*time.Second {
		t.Errorf("the last link was up after %v, want 3 s: 4 MiB/s for all together, and ten offers per 20 ms for each", joined)
	}
	if crowded.most > offerBurst+1000 {
		t.Errorf("%d bytes of offers in one turn, want at most %d and one offer", crowded.most, offerBurst)
	}
}

// TestJoinersTakeTurns: two peers that join advance equally at all times, and only its
// window holds up a peer that joins alone.
func TestJoinersTakeTurns(t *testing.T) {
	p := newParty(t, 1)
	if joined := p.run(1); joined > 2200*time.Millisecond {
		t.Errorf("one that joins alone took %v for 1,000 links, want 100 round trips of 21 ms", joined)
	}
	p = newParty(t, 1)
	p.e.offers = newOfferQueue(64 << 10)
	p.begun = p.now
	var conns []*Conn
	for i := range 5 {
		conn := p.e.Receive(p.now, clientAddr(300+i), unhex("0001000000"), p)[0].Conn
		for _, s := range p.sources {
			conn.Link(s, true)
		}
		conns = append(conns, conn)
	}
	for turn := range 500 {
		p.run1()
		least, most := 1000, 0
		for _, c := range conns {
			least, most = min(least, len(c.send.offers)), max(most, len(c.send.offers))
		}
		if most-least > 1 {
			t.Fatalf("turn %d: between %d and %d offers wait, want turns to be equal", turn, least, most)
		}
	}
}

// run1 is one turn with answers at once.
func (p *party) run1() {
	var ack [4]byte
	for _, a := range p.answers {
		p.e.Receive(p.now, a.from, wire.ReliableAck{Seq: a.seq}.Append(ack[:0]), p)
	}
	p.answers = p.answers[:0]
	p.now = p.now.Add(time.Millisecond)
	p.e.Advance(p.now, p)
}

// TestMessagesPassOffers: a message does not wait for the offer queue.
func TestMessagesPassOffers(t *testing.T) {
	s := serve(t, quiet())
	s.e.offers.spent = never
	for range 3 {
		s.c.Link(s.source("uint8"), true)
	}
	for range 8 {
		s.c.Send([]byte("m"), 0)
	}
	s.pump()
	s.want("half the window is left to offers",
		"04 0000 6d", "04 0100 6d", "04 0200 6d", "04 0300 6d", "04 0400 6d")
	s.e.offers.spent = instant(-s.e.offers.rate.burst)
	s.note(s.e.Advance(s.now, &s.recorder))
	s.pump()
	s.want("then they take turns again", "05 0500 0080 01 0100 4d 0100 01 00", "04 0600 6d",
		"05 0700 0180 01 0100 4d 0100 01 00", "04 0800 6d", "05 0900 0280 01 0100 4d 0100 01 00")
}
