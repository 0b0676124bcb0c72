package forward

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/dnp/admit"
	"github.com/dnprelay/dnprelay/dnp/wire"
)

// command returns a datagram with a number, of size bytes.
func command(cmd wire.Command, seq uint16, size int) []byte {
	b := binary.LittleEndian.AppendUint16([]byte{byte(cmd)}, seq)
	return append(b, make([]byte, size-len(b))...)
}

// A rated world is an edge that serves clients, and one to which their datagrams come.
type rated struct {
	*world
	owner, ingress *node
}

func newRated(t *testing.T) rated {
	w := &world{t: t, now: epoch, nodes: map[string]*node{}, rate: admit.Rate{Datagrams: 200, Bytes: 64 << 10}}
	r := rated{world: w, owner: w.start("owner", 0, 1), ingress: w.start("ingress", 1, 2)}
	w.meet()
	for n := range 100 {
		r.owner.owned[client(n)] = 1
	}
	return r
}

// step lets a millisecond go by.
func (r rated) step() {
	r.now = r.now.Add(time.Millisecond)
	for _, n := range r.order {
		n.Advance(r.now, n)
	}
	r.settle()
}

// in forwards a datagram, and reports whether the owner got it.
func (r rated) in(c Client, data []byte) bool {
	before := len(r.owner.got)
	r.ingress.In(r.now, "owner", c, 0, data, r.ingress)
	r.settle()
	return len(r.owner.got) > before
}

// out returns a datagram to a client.
func (r rated) out(c Client, data []byte) {
	r.owner.Out(r.now, "ingress", c, 1, data, r.owner)
	r.settle()
}

// TestRateOfClient: an edge forwards no more in the name of a client than that client may send to
// the edge that serves it, and the other clients do not suffer.
func TestRateOfClient(t *testing.T) {
	for _, c := range []struct {
		why               string
		size, most, least int // of three seconds, with two of burst
	}{
		{"small datagrams", 50, 5 * 200, 5*200 - 2},
		{"large datagrams", 1000, 5 * 64 << 10 / 1000, 5*64<<10/1000 - 2},
	} {
		r := newRated(t)
		passed, others := 0, 0
		for range 3000 {
			r.step()
			for range 3 {
				if r.in(client(1), command(wire.CommandMessage, 0, c.size)) {
					passed++
				}
			}
			if r.now.Sub(epoch)%(100*time.Millisecond) == 0 && r.in(client(2), command(wire.CommandMessage, 0, c.size)) {
				others++
			}
		}
		if passed > c.most || passed < c.least {
			t.Errorf("%s: %d of 9,000 datagrams passed in the name of one client, want %d to %d", c.why, passed, c.least, c.most)
		}
		r.drops(c.why, "ingress", DropRate, uint64(9000-passed))
		if others != 30 {
			t.Errorf("%s: %d of 30 datagrams of another client passed", c.why, others)
		}
		for range 2000 {
			r.step()
		}
		if !r.in(client(1), command(wire.CommandMessage, 0, c.size)) {
			t.Errorf("%s: the client is not forwarded when the flood is over", c.why)
		}
	}
}

// TestRateSparesTheClient: while a stranger floods in the name of a client, what the client itself
// has to send gets through, because it has the numbers of what the owner returned.
func TestRateSparesTheClient(t *testing.T) {
	r := newRated(t)
	random := rand.New(rand.NewPCG(1, *seed))
	t.Logf("-seed=%d", *seed)
	kinds := []wire.Command{wire.CommandReliableAck, wire.CommandReliableMessage, wire.CommandMessage, wire.CommandReliableLinkState}
	const first, own = 65_500, 3_000 // the numbers wrap
	forged, passed := 0, 0
	for ms := range 20_000 {
		r.step()
		for range 5 {
			if r.in(client(1), command(kinds[random.IntN(len(kinds))], uint16(random.Uint32()), 3+random.IntN(18))) {
				passed++
			}
			forged++
		}
		n := ms / 50
		if ms%50 == 0 {
			r.out(client(1), command(wire.CommandReliableMessageLong, uint16((first+n)%65535), 30))
		}
		if ms%50 != 25 { // it is far away
			continue
		}
		if !r.in(client(1), command(wire.CommandReliableAck, uint16((first+n)%65535), 3)) {
			t.Fatalf("after %d ms the client's acknowledgement of what was just sent to it is dropped", ms)
		}
		if !r.in(client(1), command(wire.CommandReliableMessage, uint16((own+n)%65535), 20)) {
			t.Fatalf("after %d ms the client's next command is dropped", ms)
		}
		r.out(client(1), command(wire.CommandReliableAck, uint16((own+n)%65535), 3))
	}
	if most := 22*200 + 2*400 + forged/1000; passed > most { // the rate with its burst, answers that the owner asked for, and numbers that fit by chance
		t.Errorf("%d of %d forged datagrams passed, want at most %d", passed, forged, most)
	}
}

// TestRateSparesTheYoung: the numbers of a young session can be guessed, and the client's answers and its
// next commands get through a flood of them.
func TestRateSparesTheYoung(t *testing.T) {
	r := newRated(t)
	random := rand.New(rand.NewPCG(1, *seed))
	t.Logf("-seed=%d", *seed)
	own := uint16(1)
	r.out(client(1), command(wire.CommandReliableAck, 0, 4)) // of the login
	for ms := range 20_000 {
		r.step()
		n, id := uint16(ms/1000), uint16(0x1000+random.IntN(0x4000))
		if ms%1000 == 0 {
			r.out(client(1), binary.LittleEndian.AppendUint16(command(wire.CommandReliableLinkState, n, 3), id))
		}
		for range 3 {
			r.in(client(1), command(wire.CommandReliableMessage, 0, 20)) // a repeat
			r.in(client(1), append(command(wire.CommandReliableAck, uint16(random.IntN(40)), 3), byte(wire.AckFailed)))
			r.in(client(1), command(wire.CommandLinkUp, 0x8000+uint16(random.IntN(40)), 3))
			r.in(client(1), command(wire.CommandMessage, 0, 20))
		}
		if ms%1000 != 0 {
			continue
		}
		for _, p := range [][]byte{command(wire.CommandReliableAck, n, 4), command(wire.CommandLinkDown, id, 3), command(wire.CommandReliableMessage, own, 20)} {
			if !r.in(client(1), p) {
				t.Fatalf("after %d ms the client's own datagram %x is dropped", ms, p)
			}
		}
		r.out(client(1), command(wire.CommandReliableAck, own, 4))
		own++
	}
}

// TestRateOfAnswers: an answer beyond the rate passes once for each time that the owner sent what it
// answers.
func TestRateOfAnswers(t *testing.T) {
	r := newRated(t)
	flood := func() (passed int) {
		for range 2000 {
			if r.in(client(1), command(wire.CommandReliableAck, 7, 4)) {
				passed++
			}
		}
		return passed
	}
	flood()
	for try := range 3 {
		r.out(client(1), command(wire.CommandReliableMessage, 7, 20))
		r.out(client(1), command(wire.CommandReliableMessage, 8, 20))
		if got, want := flood(), 2*2+1; got != want { // what the two commands allow, and the answer
			t.Errorf("sending %d: %d of 2,000 acknowledgements pass, want %d", try, got, want)
		}
	}
}

// TestRateAnswers: a client that is offered many links answers as often, and no answer is dropped.
func TestRateAnswers(t *testing.T) {
	r := newRated(t)
	for n := range 5_000 {
		r.step()
		r.out(client(1), command(wire.CommandReliableLinkState, uint16(n), 100))
		for _, cmd := range []wire.Command{wire.CommandReliableAck, wire.CommandLinkUp} {
			if !r.in(client(1), command(cmd, uint16(n), 3)) {
				t.Fatalf("the %v for offer %d is dropped", cmd, n)
			}
		}
	}
}

// TestRateRelayed: what another edge forwarded is within the rate of the client there. This edge does
// not see what is returned to the client.
func TestRateRelayed(t *testing.T) {
	r := newRated(t)
	for range 2_000 {
		r.ingress.In(r.now, "owner", client(1), 1, command(wire.CommandLinkUp, 0, 3), r.ingress)
	}
	r.settle()
	if got := len(r.owner.got); got != 2_000 {
		t.Errorf("%d of 2,000 datagrams passed", got)
	}
}

// TestRateOff: without a rate nothing is dropped.
func TestRateOff(t *testing.T) {
	w := newWorld(t, "a", "b")
	w.nodes["b"].owned[client(1)] = 1
	r := rated{world: w, owner: w.nodes["b"], ingress: w.nodes["a"]}
	for range 2_000 {
		r.ingress.In(r.now, "b", client(1), 0, command(wire.CommandMessage, 0, 900), r.ingress)
	}
	r.settle()
	if got := len(r.owner.got); got != 2_000 {
		t.Errorf("%d of 2,000 datagrams passed", got)
	}
}

// TestRateOfForgedAnswers: what looks like answers, or like the client's next commands, is bounded, too.
func TestRateOfForgedAnswers(t *testing.T) {
	const rate, expected, spare = 5 * 200, 512, 5 * 100 // of three seconds, with two of burst
	for _, c := range []struct {
		why  string
		p    []byte
		most int
	}{
		{"answers to nothing", command(wire.CommandReliableAck, 30_000, 4), rate + expected},
		{"answers that are too long", command(wire.CommandReliableAck, 30_000, 1000), 5*64<<10/1000 + 1},
		{"what is short and no answer", command(wire.CommandMessage, 0, 4), rate},
		{"commands with the client's next number", command(wire.CommandReliableMessage, 1001, 20), rate + spare},
	} {
		r := newRated(t)
		r.out(client(1), command(wire.CommandReliableAck, 1000, 4))
		for n := range uint16(3000) { // the client answers none of them
			r.out(client(1), command(wire.CommandReliableMessage, n, 20))
		}
		passed := 0
		for range 3000 {
			r.step()
			for range 3 {
				if r.in(client(1), c.p) {
					passed++
				}
			}
		}
		if passed > c.most || passed < c.most*9/10 {
			t.Errorf("%s: %d of 9,000 datagrams passed, want up to %d", c.why, passed, c.most)
		}
	}
}
