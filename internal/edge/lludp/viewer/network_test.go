package viewer

import (
	"bytes"
	"container/heap"
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/lludp"
	"github.com/dnprelay/dnprelay/lludp/wire"
)

var seed = flag.Uint64("seed", uint64(time.Now().UnixNano()), "seed of random tests")

// A network brings packets between a Viewer and the circuit of a test, late, in any order, or not at all.
type network struct {
	testing.TB
	rand    *rand.Rand
	now     time.Time
	loss    float64
	delay   time.Duration
	jitter  time.Duration
	rate    float64 // bytes per second to the viewer, and a queue of queueMax before it; 0 is no bound
	queued  time.Time
	v       *Viewer
	peer    *lludp.Circuit
	packets packets
	seen    map[uint32][3]float32
	label   map[uint32]string
	bytes   int
	ackWait time.Duration
}

const queueMax = 100 * time.Millisecond

type packet struct {
	at     time.Time
	toPeer bool
	b      []byte
}

type packets []packet

func (p packets) Len() int           { return len(p) }
func (p packets) Less(i, j int) bool { return p[i].at.Before(p[j].at) }
func (p packets) Swap(i, j int)      { p[i], p[j] = p[j], p[i] }
func (p *packets) Push(x any)        { *p = append(*p, x.(packet)) }
func (p *packets) Pop() any {
	last := (*p)[len(*p)-1]
	*p = (*p)[:len(*p)-1]
	return last
}

// An end is what one side sends with.
type end struct {
	n      *network
	toPeer bool
}

func (e end) Datagram(size int) []byte { return make([]byte, 0, size) }

func (e end) Send(b []byte) {
	n := e.n
	at := n.now.Add(n.delay + time.Duration(n.rand.Float64()*float64(n.jitter)))
	if e.toPeer {
		n.bytes += len(b)
		if n.rate > 0 {
			n.queued = latest(n.queued, n.now)
			if n.queued.Sub(n.now) > queueMax {
				return
			}
			n.queued = n.queued.Add(time.Duration(float64(len(b)) / n.rate * float64(time.Second)))
			at = n.queued.Add(n.delay)
		}
	}
	if n.rand.Float64() >= n.loss {
		heap.Push(&n.packets, packet{at, e.toPeer, bytes.Clone(b)})
	}
}

func newNetwork(t testing.TB, r *rand.Rand) *network {
	n := &network{
		TB: t, rand: r, now: time.Unix(1000, 0), delay: 20 * time.Millisecond, jitter: 20 * time.Millisecond,
		seen: map[uint32][3]float32{}, label: map[uint32]string{}, v: New(Config{Region: "Lobby", Opening: opening}),
	}
	return n
}

// begin opens the circuit.
func (n *network) begin() {
	var err error
	if n.peer, err = lludp.New(n.now, lludp.Config{AckDelay: max(time.Millisecond, n.ackWait), Retries: -1}); err != nil {
		n.Fatal(err)
	}
	for _, m := range []struct {
		number wire.Number
		body   []byte
	}{
		{wire.UseCircuitCode, opening.Append(nil)},
		{wire.CompleteAgentMovement, append(identity{ada, session}.append(nil), 0x67, 0x12, 0, 0)},
		{regionHandshakeReply, append(identity{ada, session}.append(nil), 0, 0, 0, 0)},
	} {
		if err := n.peer.Send(n.now, lludp.Message{Number: m.number, Body: m.body, Reliable: true}, end{n, false}); err != nil {
			n.Fatal(err)
		}
	}
}

// pass lets time pass.
func (n *network) pass(d time.Duration) {
	for until := n.now.Add(d); ; {
		at := until
		if len(n.packets) > 0 && n.packets[0].at.Before(at) {
			at = n.packets[0].at
		}
		for _, next := range []func() (time.Time, bool){n.v.NextTimeout, n.peer.NextTimeout} {
			if due, ok := next(); ok && due.Before(at) {
				at = due
			}
		}
		n.now = latest(n.now, at)
		for len(n.packets) > 0 && !n.packets[0].at.After(n.now) {
			if p := heap.Pop(&n.packets).(packet); p.toPeer {
				n.read(n.peer.Receive(n.now, p.b, end{n, false}))
			} else {
				n.v.Receive(n.now, p.b, end{n, true})
			}
		}
		n.peer.Advance(n.now, end{n, false})
		n.v.Advance(n.now, end{n, true})
		if !n.now.Before(until) {
			return
		}
	}
}

// read keeps what the viewer sees, as viewers do: moves of unknown objects are of no use.
func (n *network) read(events []lludp.Event) {
	for _, e := range events {
		r := reader{p: e.Packet.Body}
		switch e.Packet.Number {
		case wire.ObjectUpdate:
			r.take(10)
			for range r.u8() {
				var id uint32
				var x, y, z float32
				s := noteObject(&r)
				if _, err := fmt.Sscanf(s, "%d@[%g %g %g]", &id, &x, &y, &z); err != nil {
					n.Fatal(s, err)
				}
				n.seen[id], n.label[id] = [3]float32{x, y, z}, s
			}
		case wire.ImprovedTerseObjectUpdate:
			r.take(10)
			for range r.u8() {
				r.u8()
				id := r.u32()
				r.take(2)
				pos := r.vector()
				r.take(44 - 4 - 2 - 12 + 2)
				if _, ok := n.seen[id]; ok {
					n.seen[id] = pos
				}
			}
		case wire.KillObject:
			for range r.u8() {
				delete(n.seen, r.u32())
			}
		}
	}
}

// differ counts what the viewer sees otherwise than it is.
func (n *network) differ() (count int) {
	for id, o := range n.v.scene.objects {
		if n.seen[id] != o.place() {
			count++
		}
	}
	for id := range n.seen {
		if n.v.scene.objects[id] == nil {
			count++
		}
	}
	return count
}

// TestLoss has a fifth of all packets lost, both ways, and others come in another order: two seconds after the last change, the
// viewer sees everything as it is.
func TestLoss(t *testing.T) {
	t.Logf("repeat with -seed=%d", *seed)
	for round := range uint64(20) {
		for _, ackWait := range []time.Duration{0, 100 * time.Millisecond} {
			n := newNetwork(t, rand.New(rand.NewPCG(*seed, round)))
			n.loss, n.ackWait = .2, ackWait
			n.begin()
			var objects []*Object
			var things []*thing
			link := func() {
				s := newThing(fmt.Sprint("o", len(things)), "pos:vector3f32", "hp:uint8")
				things, objects = append(things, s), append(objects, n.v.Link(s))
			}
			for range 200 {
				link()
			}
			n.pass(4 * time.Second)
			for range 50 { // 5 s at 10 Hz, in which some come and go
				for i, o := range objects {
					things[i].floats[0] = [4]float64{n.rand.Float64(), n.rand.Float64() * 10, n.rand.Float64()}
					n.v.Changed(o, []int{0})
				}
				i := n.rand.IntN(len(objects))
				n.v.Unlink(objects[i])
				things, objects = append(things[:i], things[i+1:]...), append(objects[:i], objects[i+1:]...)
				link()
				things[0].floats[1][0]++
				n.v.Changed(objects[0], []int{1})
				n.pass(100 * time.Millisecond)
			}
			n.pass(2 * time.Second)
			if d := n.differ(); d != 0 || len(n.seen) != len(objects) {
				t.Errorf("round %d, acknowledgements after %v: %d of %d objects differ, %d are seen; %+v", round, ackWait, d, len(objects), len(n.seen), n.v.Stats())
			}
			n.bytes = 0
			n.pass(20 * time.Second)
			if n.bytes > 50_000 {
				t.Errorf("round %d: %d bytes were sent in 20 s at rest, want the scrub only", round, n.bytes)
			}
		}
	}
}

// TestNarrow has a way that takes 64 KiB/s: the rate stays near that, few packets are lost, and all objects move.
func TestNarrow(t *testing.T) {
	n := newNetwork(t, rand.New(rand.NewPCG(1, 2)))
	n.rate, n.jitter = 64<<10, 0
	n.begin()
	var objects []*Object
	var things []*thing
	for i := range 500 {
		s := newThing(fmt.Sprint("o", i), "pos:vector3f32")
		things, objects = append(things, s), append(objects, n.v.Link(s))
	}
	n.pass(10 * time.Second)
	if d := n.differ(); d != 0 {
		t.Errorf("%d objects differ 10 s after the beginning; %+v", d, n.v.Stats())
	}
	n.bytes = 0
	for k := range 200 { // 500 objects at 10 Hz would take 235 KB/s
		for i, o := range objects {
			things[i].floats[0] = [4]float64{float64(k%100) / 2, 0, 0}
			n.v.Changed(o, []int{0})
		}
		n.pass(100 * time.Millisecond)
	}
	sent := n.bytes
	if sent < 20*32<<10 || sent > 20*100<<10 {
		t.Errorf("%d bytes were sent in 20 s to a way that takes %d", sent, 20*64<<10)
	}
	n.pass(4 * time.Second)
	if d := n.differ(); d != 0 {
		t.Errorf("%d objects differ 4 s after the last change", d)
	}
}

// TestThrottle has a viewer that asks for little, and for much.
func TestThrottle(t *testing.T) {
	send := func(bits float64) int {
		n := newNetwork(t, rand.New(rand.NewPCG(1, 2)))
		n.begin()
		n.pass(time.Second)
		n.v.pace.throttle(bits)
		s := newThing("o", "pos:vector3f32")
		var objects []*Object
		for range 3000 {
			objects = append(objects, n.v.Link(s))
		}
		n.pass(10 * time.Second)
		n.bytes = 0
		for range 50 {
			for _, o := range objects {
				n.v.Changed(o, []int{0})
			}
			n.pass(100 * time.Millisecond)
		}
		return n.bytes
	}
	if got := send(400_000); got > 5*55_000 || got < 5*40_000 {
		t.Errorf("a viewer that asks for 50 KB/s got %d bytes in 5 s", got)
	}
	if got := send(1e12); got > 5*rateMax*11/10 || got < 5*rateMax*8/10 {
		t.Errorf("a viewer that asks for all got %d bytes in 5 s, want the most that viewers may have", got)
	}
}

// TestNoBurst has 500 objects that are shown at once: a viewer that takes some time gets each once.
func TestNoBurst(t *testing.T) {
	n := newNetwork(t, rand.New(rand.NewPCG(1, 2)))
	n.begin()
	for i := range 500 {
		n.v.Link(newThing(fmt.Sprint("o", i), "pos:vector3f32"))
	}
	n.pass(5 * time.Second)
	s := n.v.Stats()
	if d := n.differ(); d != 0 || s.Repeats != 0 || s.Circuits.Resends != 0 {
		t.Errorf("%d objects differ, %d repeats, %d packets were sent again", d, s.Repeats, s.Circuits.Resends)
	}
}
