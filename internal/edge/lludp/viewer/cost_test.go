package viewer

import (
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/lludp/wire"
)

// A crowd is a Viewer with objects that all move, and a viewer that confirms what asks for it, answers pings, and does nothing else, so
// that what is measured is the Viewer alone.
type crowd struct {
	*Viewer
	now     time.Time
	states  []*thing
	objects []*Object
	round   int
	seq     wire.Seq // of the viewer
	acks    []wire.Seq
	pinged  uint8 // the latest ping of the Viewer
	out     []byte
	in      []byte
	packets int
}

// Datagram implements lludp.Sender.
func (c *crowd) Datagram(size int) []byte {
	if cap(c.out) < size {
		c.out = make([]byte, 0, size)
	}
	return c.out[:0]
}

// Send implements lludp.Sender.
func (c *crowd) Send(b []byte) {
	c.packets++
	if wire.Flags(b[0])&wire.FlagReliable != 0 {
		c.acks = append(c.acks, wire.Seq(binary.BigEndian.Uint32(b[1:])))
	}
	if wire.Number(b[wire.HeaderSize]) == wire.StartPingCheck {
		c.pinged = b[wire.HeaderSize+1]
	}
}

// newCrowd returns one whose viewer knows all objects and has let the rate grow.
func newCrowd(t testing.TB, n int) *crowd {
	v := newViewerTest(t)
	v.arrives()
	c := &crowd{Viewer: v.Viewer, now: v.now, seq: 1000}
	for i := range n {
		s := newThing(fmt.Sprint("o", i), "pos:vector3f32", "rot:quaternionf16")
		c.states, c.objects = append(c.states, s), append(c.objects, c.Link(s))
	}
	for range 100 {
		c.move()
	}
	for _, o := range c.objects {
		if o.described == 0 {
			t.Fatalf("the viewer does not know object %d after 10 s", o.id)
		}
	}
	return c
}

// move moves all objects once, and lets a tenth of a second pass.
func (c *crowd) move() {
	c.round++
	for i, o := range c.objects {
		c.states[i].floats[0][0] = float64(c.round % 100)
		c.Changed(o, positionOnly)
	}
	for range 4 {
		c.Advance(c.now, c)
		if len(c.acks) > 0 {
			c.answer()
		}
		c.now = c.now.Add(25 * time.Millisecond)
	}
}

// answer sends what the viewer confirms, in a packet that answers a ping. An answer that the Viewer has got already is ignored.
func (c *crowd) answer() {
	c.seq = c.seq.Next()
	c.in = binary.BigEndian.AppendUint32(append(c.in[:0], 0), uint32(c.seq))
	c.in = wire.CompletePing{ID: c.pinged}.Append(wire.CompletePingCheck.Append(append(c.in, 0)))
	var n int
	c.in, n = wire.AppendAcks(c.in, c.acks, wire.PacketMax)
	c.acks = c.acks[:copy(c.acks, c.acks[n:])]
	c.Receive(c.now, c.in, c)
}

var positionOnly = []int{0}

// TestMovesAllocateNothing: objects that move are what an edge does for viewers all the time.
func TestMovesAllocateNothing(t *testing.T) {
	c := newCrowd(t, 500)
	before := c.Stats().Moves
	if n := testing.AllocsPerRun(50, c.move); n > 0 {
		t.Errorf("500 moves allocate %.0f times, want never", n)
	}
	if moves := c.Stats().Moves - before; moves < 51*500 {
		t.Errorf("%d moves left, want each of %d", moves, 51*500)
	}
}

// BenchmarkMoves is one move of each of 2,000 objects, with its share of acknowledgements.
func BenchmarkMoves(b *testing.B) {
	c := newCrowd(b, 2000)
	moves, packets := c.Stats().Moves, c.packets
	b.ReportAllocs()
	for b.Loop() {
		c.move()
	}
	moves = c.Stats().Moves - moves
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(moves), "ns/move")
	b.ReportMetric(float64(moves)/float64(c.packets-packets), "moves/packet")
}
