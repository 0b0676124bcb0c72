package takeover

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/dnp"
	"github.com/dnprelay/dnprelay/dnp/netstate"
	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/internal/simnet"
	"github.com/dnprelay/dnprelay/sessionlog"
	"github.com/dnprelay/dnprelay/sessionlog/memlog"
)

// checkpointMax is what a checkpoint may have. NATS takes writes of 1 MiB, and thousands of
// sessions write one every few seconds.
const checkpointMax = 512 << 10

// A heavySession is a durable session whose client and game do all that makes its checkpoints
// large.
type heavySession struct {
	*testing.T
	net     *simnet.Net
	store   *memlog.Store
	ep      *dnp.Endpoint
	conn    *dnp.Conn
	log     *sessionlog.Session
	client  netip.AddrPort
	seq     uint16         // the client's next number
	answers bool           // the client answers
	sent    [][]byte       // datagrams of the edge to the client
	largest map[string]int // bytes of checkpoints, of writes
	held    []uint64       // messages that the game has not consumed
	heard   []sessionlog.ActionKind
}

func newHeavySession(t *testing.T) *heavySession {
	h := &heavySession{T: t, net: simnet.New(1), client: clientAddr(1), answers: true, largest: map[string]int{}}
	h.store = memlog.New(memlog.Config{Schedule: h.net.Schedule, Rand: h.net.Rand()})
	var err error
	h.ep, err = dnp.New(dnp.Config{
		Listen: true, Logged: true, Probe: dnp.ProbeNone, Rand: rand.New(rand.NewPCG(1, 1)), LongMax: LongMessageMax,
		BytesPerSecond: -1, OfferBytesPerSecond: -1,
	})
	if err != nil {
		t.Fatal(err)
	}
	h.datagram(wire.CommandConnectionRequest, 1, 0, 0, 0)
	h.conn, _ = h.ep.Conn(h.client)
	h.log = sessionlog.Open(sessionlog.Config{
		Node: "edge", Rand: rand.New(rand.NewPCG(1, 2)), UndeliveredBytesMax: undeliveredMax, BlockBytes: blockBytesMax,
	}, "log", h.conn, sessionlog.Info{ID: sessionlog.ID{1}, Addr: h.client, About: make([]byte, sessionlog.AboutMax)})
	h.pass(100 * time.Millisecond)
	return h
}

// Datagram and Send implement dnp.Sender.
func (h *heavySession) Datagram(size int) []byte { return make([]byte, 0, size) }

func (h *heavySession) Send(_ netip.AddrPort, b []byte) { h.sent = append(h.sent, b) }

// datagram is one of the client.
func (h *heavySession) datagram(cmd wire.Command, body ...byte) {
	h.handle(h.ep.Receive(h.net.Now(), h.client, append([]byte{byte(cmd)}, body...), h))
}

// command is a reliable command of the client.
func (h *heavySession) command(cmd wire.Command, body ...byte) {
	h.datagram(cmd, append(binary.LittleEndian.AppendUint16(nil, h.seq), body...)...)
	h.seq++
}

func (h *heavySession) handle(events []dnp.Event) {
	for i := range events {
		ev := &events[i]
		for ev.Kind == dnp.EventUpdate {
			index, value, ok := ev.Update.Next()
			if !ok {
				break
			}
			h.conn.Writes().Hold(ev.Link, index, uint32(ev.Number), value)
		}
		if h.log != nil {
			h.log.Handle(h.net.Now(), ev)
		}
	}
}

// pass lets time go by.
func (h *heavySession) pass(d time.Duration) {
	for end := h.net.Elapsed() + d; h.net.Elapsed() < end; h.net.Run(time.Millisecond) {
		now := h.net.Now()
		h.handle(h.ep.Advance(now, h))
		for _, a := range h.log.Advance(now) {
			h.act(a)
		}
		list := h.sent
		h.sent = nil
		for _, b := range list {
			h.answer(b)
		}
	}
}

func (h *heavySession) act(a sessionlog.Action) {
	switch a.Kind {
	case sessionlog.ActionAppend:
		k, err := sessionlog.ParseBlock(a.Write.Data)
		if err != nil {
			h.Fatal(err)
		}
		h.largest["write"] = max(h.largest["write"], len(a.Write.Data))
		if k.Ckpt != nil {
			without := k
			without.Ckpt = nil
			size := len(a.Write.Data) - len(without.Append(nil))
			if size > h.largest["checkpoint"] {
				h.largest["checkpoint"], h.largest["snapshot"] = size, len(k.Ckpt.Snapshot)
			}
		}
		h.store.Append(a.Write, func(x sessionlog.Answer) { h.log.Answer(h.net.Now(), x) })
	case sessionlog.ActionRead:
		h.store.Read(a.Log, func(x sessionlog.Answer) { h.log.Answer(h.net.Now(), x) })
	case sessionlog.ActionDeliver:
		h.held = append(h.held, a.Message.Number)
	default:
		h.heard = append(h.heard, a.Kind)
	}
}

// answer acknowledges a command of the edge, and takes the link that it offers.
func (h *heavySession) answer(b []byte) {
	cmd := wire.Command(b[0])
	switch {
	case !h.answers:
		return
	case cmd == wire.CommandReliableLinkState:
		h.datagram(wire.CommandReliableAck, b[1], b[2], 0)
		h.datagram(wire.CommandLinkUp, b[3], b[4])
	case cmd == wire.CommandReliableMessage || cmd == wire.CommandReliableMessageLong:
		h.datagram(wire.CommandReliableAck, b[1], b[2], 0)
	}
}

// source makes a state with as many values of type data, of size bytes each.
func (h *heavySession) source(ref, values, size int) *dnp.Source {
	list := make([]netstate.Value, values)
	for i := range list {
		list[i].Type = wire.TypeData
	}
	layout, err := netstate.NewLayout(list)
	if err != nil {
		h.Fatal(err)
	}
	src := h.ep.NewSource(dnp.SourceConfig{State: netstate.NewState(layout), Message: []byte("m"), Ref: 1<<63 | uint64(ref)})
	for i := range values {
		src.State().Set(i, data(size))
	}
	return src
}

// data is an encoded value.
func data(size int) []byte {
	return append(binary.LittleEndian.AppendUint16(nil, uint16(size)), bytes.Repeat([]byte{7}, size)...)
}

// link links the client to a state.
func (h *heavySession) link(src *dnp.Source) {
	if err := h.conn.Link(src, false); err != nil {
		h.Fatal(err)
	}
}

// update is a LinkUpdate of the client with count values, of size bytes each.
func (h *heavySession) update(src *dnp.Source, first, count, size int) {
	l, ok := h.conn.LinkOf(src)
	if !ok {
		h.Fatal("a link is not there")
	}
	u := wire.Denetwork.AppendUpdateHead(nil, 1)
	u = wire.Denetwork.AppendUpdateLink(u, l.ID, count)
	for i := first; i < first+count; i++ {
		u = append(binary.LittleEndian.AppendUint16(u, uint16(i)), data(size)...)
	}
	h.datagram(wire.CommandLinkUpdate, u[1:]...)
}

// TestHeaviestCheckpoint has a client and a game do all at once that makes a checkpoint large, and
// wants it to stay within its bound.
func TestHeaviestCheckpoint(t *testing.T) {
	for _, c := range []struct {
		why               string
		undelivered, part int // bytes of messages that the game does not consume, and of a long one without its end
		queue             int // bytes of messages to the client
		handOver          bool
	}{
		{"a long message", 0, LongMessageMax - 1, 0, false},
		{"messages that wait", undeliveredMax - 1, 0, 0, false},
		{"both", undeliveredMax / 2, undeliveredMax/2 - 1, 0, false},
		{"both in full", undeliveredMax - 1, LongMessageMax - 1, 0, false}, // the client is not acknowledged any more
		{"a hand-over", undeliveredMax - 1, 0, 0, true},
		{"a hand-over with messages for the client", undeliveredMax - 1, 0, 60_000, true},
	} {
		h := newHeavySession(t)
		written, light := h.linkAll()
		h.talk(c.undelivered, c.part)
		for _, src := range written {
			for from := 0; from < heavyValues; from += 50 {
				h.update(src, from, 50, 14)
			}
		}
		h.relink(light[:len(light)-40])
		h.early()
		for n := 0; n < c.queue; n += 1000 {
			if err := h.conn.Send(make([]byte, 1000), 0); err != nil {
				t.Fatal(err)
			}
		}
		if c.handOver {
			h.log.HandOver("next")
		}
		for _, src := range light[len(light)-40:] { // a write each, after some of which comes a checkpoint
			h.conn.Unlink(src, false)
			h.pass(5 * time.Millisecond)
		}
		t.Logf("%s: %v", c.why, h.largest)
		if got := h.largest["checkpoint"]; got > checkpointMax || got < checkpointMax*5/6 && c.undelivered+c.part < undeliveredMax {
			t.Errorf("%s: the largest checkpoint has %d bytes, want at most %d, and as much as can be", c.why, got, checkpointMax)
		}
		if want := []sessionlog.ActionKind{sessionlog.ActionOpened, sessionlog.ActionHanded}; !slices.Equal(h.heard, want) && (c.handOver || !slices.Equal(h.heard, want[:1])) {
			t.Errorf("%s: the session emits %v, want %v", c.why, h.heard, want)
		}
	}
}

const heavyValues = 800 // of a state that the client writes

// linkAll links the client to as many states as there may be: a few with 4,000 values in all, and
// many with one.
func (h *heavySession) linkAll() (written, light []*dnp.Source) {
	for i := range 4096 {
		if i < 5 {
			written = append(written, h.source(i, heavyValues, 1))
			h.link(written[i])
			continue
		}
		light = append(light, h.source(i, 1, 1))
		h.link(light[i-5])
	}
	h.pass(6 * time.Second)
	return written, light
}

// talk has the client send messages that the game does not consume, and a long message without its
// end.
func (h *heavySession) talk(messages, part int) {
	const size = 1100
	for n := 0; n < messages; n += size {
		h.command(wire.CommandReliableMessage, make([]byte, min(size, messages-n))...)
		h.pass(3 * time.Millisecond)
	}
	for n := 0; n < part; n += size {
		flags := wire.PartFlags(0)
		if n == 0 {
			flags = wire.PartFirst
		}
		h.command(wire.CommandReliableMessageLong, append([]byte{byte(flags)}, make([]byte, min(size, part-n))...)...)
		h.pass(3 * time.Millisecond)
	}
}

// relink ends links, which the client does not answer, and begins others. The offers that are in
// flight grow.
func (h *heavySession) relink(light []*dnp.Source) {
	h.answers = false
	for _, src := range light {
		h.conn.Unlink(src, false)
	}
	h.pass(5 * time.Millisecond)
	var large []*dnp.Source
	for i := range light {
		src := h.source(10_000+i, 1, 1)
		h.link(src)
		if len(large) < 10 {
			large = append(large, src)
		}
	}
	h.pass(100 * time.Millisecond)
	for i, src := range large {
		src.State().Set(0, data(60_000-i))
		src.Changed(0)
	}
}

// early has the client send commands before their turn, which a checkpoint does not have.
func (h *heavySession) early() {
	h.seq++
	for n := range 15 {
		size := 4300
		if n >= 7 {
			size = 30_000
		}
		h.command(wire.CommandReliableMessage, make([]byte, size)...)
	}
	h.pass(100 * time.Millisecond)
}
