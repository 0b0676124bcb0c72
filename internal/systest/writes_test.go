package systest

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/bus"
	"github.com/dnprelay/dnprelay/dnp/dnptest"
	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/internal/edge"
	"github.com/dnprelay/dnprelay/subject"
)

const lampPut = `{"op":"put","key":"lamp","message":"L","access":"read-write","values":[{"name":"level","type":"uint16","value":1}]}`

// lamp returns a world with two clients that may write a state.
func lamp(t *testing.T, app dnptest.App) (w *world, e *simEdge, a, b *player) {
	w = newWorld(t, *seed)
	w.startRelay()
	e = w.startEdge(wire.Denetwork, nil)
	a, b = w.join(e, dnptest.Cpp(), app), w.join(e, dnptest.Cpp(), dnptest.App{})
	w.mustPublish("s", lampPut)
	w.within(5*time.Second, "linked", func() bool { return a.has("L", 0, u16(1)) && b.has("L", 0, u16(1)) })
	w.net.Run(2 * time.Second)
	return w, e, a, b
}

func (w *world) count(typ string) (n int) {
	for _, e := range w.events {
		if e.Type == typ {
			n++
		}
	}
	return n
}

// TestFarHolder has a holder whose answer takes longer than the pause before a write is
// repeated.
func TestFarHolder(t *testing.T) {
	w, e, a, b := lamp(t, dnptest.App{})
	w.hub.Delay = 150 * time.Millisecond
	a.write(a.LinkNamed("L"), 7)
	w.within(time.Second, "the other client sees the write", func() bool { return b.has("L", 0, u16(7)) })
	w.net.Run(3 * time.Second)
	repeated := e.worker.Counts().WritesRepeated
	w.net.Run(10 * time.Second)
	if now := e.worker.Counts().WritesRepeated; now != repeated {
		t.Errorf("the write is acknowledged and still repeated, %d times in 10 s", now-repeated)
	}
	w.mustPublish("s", `{"op":"set","key":"lamp","values":{"level":9}}`)
	w.within(time.Second, "the writer sees later writes of others", func() bool { return a.has("L", 0, u16(9)) })
}

// TestOwnWriteIsNotUndone delivers the holder's "ok" before the batch with the write, as NATS
// may. The writer must never see the earlier value.
func TestOwnWriteIsNotUndone(t *testing.T) {
	var seen []uint16
	w, _, a, b := lamp(t, dnptest.App{Updated: func(l *dnptest.Link, i int) {
		seen = append(seen, binary.LittleEndian.Uint16(l.State.Value(i)))
	}})
	w.hub.Jitter = 30 * time.Millisecond
	for n := range uint16(50) {
		seen = nil
		a.write(a.LinkNamed("L"), 100+n)
		w.within(time.Second, "the other client sees the write", func() bool { return b.has("L", 0, u16(100+n)) })
		w.net.Run(500 * time.Millisecond)
		for _, v := range seen {
			if v != 100+n {
				t.Fatalf("the writer of %d was sent %d", 100+n, v)
			}
		}
	}
}

// TestConcurrentWrites has a game server and a client write at the same time. The write that
// reached the holder last must win at the writer, too.
func TestConcurrentWrites(t *testing.T) {
	w, _, a, b := lamp(t, dnptest.App{})
	w.hub.Jitter = 30 * time.Millisecond
	for n := range uint16(50) {
		a.write(a.LinkNamed("L"), 100+n)
		w.fire("s", fmt.Sprintf(`{"op":"set","key":"lamp","values":{"level":%d}}`, 1000+n))
		w.net.Run(time.Second)
		got := w.ask(w.subjects.Get("s", "lamp"), "")
		for _, p := range []*player{a, b} {
			if v := binary.LittleEndian.Uint16(p.Value("L", 0)); !strings.Contains(got, fmt.Sprintf(`"value":%d`, v)) {
				t.Fatalf("round %d: a client has %d, the authority %s", n, v, got)
			}
		}
	}
}

// TestWriteToRelinked changes the description of a state while a write is under way: its link is
// replaced, but the write counts.
func TestWriteToRelinked(t *testing.T) {
	w, e, a, b := lamp(t, dnptest.App{})
	w.hub.Cut("relay1", e.node, true)
	a.write(a.LinkNamed("L"), 7)
	w.net.Run(time.Second)
	w.hub.Cut("relay1", e.node, false)
	w.mustPublish("s", `{"op":"put","key":"lamp","message":"M","values":[{"name":"level","type":"uint16"}]}`)
	w.within(3*time.Second, "all see the write through the new link", func() bool { return a.has("M", 0, u16(7)) && b.has("M", 0, u16(7)) })
}

// TestWriteToRemoved removes the state while a write is under way.
func TestWriteToRemoved(t *testing.T) {
	w, e, a, _ := lamp(t, dnptest.App{})
	w.hub.Cut("relay1", e.node, true)
	a.write(a.LinkNamed("L"), 7)
	w.net.Run(time.Second)
	w.hub.Cut("relay1", e.node, false)
	w.mustPublish("s", `{"op":"remove","key":"lamp"}`)
	w.net.Run(2 * time.Second)
	repeated := e.worker.Counts().WritesRepeated
	w.net.Run(5 * time.Second)
	if now := e.worker.Counts().WritesRepeated; now != repeated {
		t.Errorf("a write to a state that is gone was repeated %d times in 5 s", now-repeated)
	}
}

// TestRefusedWrite writes a value that the holder does not accept, and more than the edge
// stores.
func TestRefusedWrite(t *testing.T) {
	w, e := newWorldWithEdge(t, nil)
	a := w.join(e, dnptest.Cpp(), dnptest.App{})
	w.mustPublish("s", `{"op":"put","key":"sign","message":"S","access":"read-write","values":[{"type":"string","value":"hi"},{"type":"string","value":""}]}`)
	hi := []byte{2, 0, 'h', 'i'}
	w.within(5*time.Second, "linked", func() bool { return a.has("S", 0, hi) })
	w.net.Run(time.Second)
	long := append([]byte{0xD0, 0x07}, strings.Repeat("x", 2000)...) // the limit is 1,024
	a.do(func(time.Time) { a.Set(a.LinkNamed("S"), 0, long) })
	w.within(time.Second, "the client gets the true value back", func() bool { return a.has("S", 0, hi) })
	if w.count("refused") != 1 {
		t.Errorf("%d events refused, want 1", w.count("refused"))
	}
	w.hub.Cut("relay1", e.node, true)
	for i := range 2 {
		huge := append([]byte{0x40, 0x9C}, strings.Repeat("y", 40000)...)
		a.do(func(time.Time) { a.Set(a.LinkNamed("S"), i, huge) })
		w.net.Run(100 * time.Millisecond)
	}
	if n := e.worker.Counts().WritesDropped; n != 1 {
		t.Errorf("%d values dropped, want the one beyond the bound", n)
	}
	w.within(time.Second, "the dropped value comes back at once", func() bool { return a.has("S", 1, []byte{0, 0}) })
	w.hub.Cut("relay1", e.node, false)
	w.within(2*time.Second, "the other value comes back when the holder has refused it", func() bool { return a.has("S", 0, hi) })
}

// TestLostBus takes the bus away: clients keep their states, new clients are rejected, and
// everything works when the bus is back.
func TestLostBus(t *testing.T) {
	w, e, a, b := lamp(t, dnptest.App{})
	bus := w.hub.Node(e.node)
	bus.SetConnected(false)
	a.write(a.LinkNamed("L"), 7)
	late := w.connect(e, dnptest.Cpp(), dnptest.App{})
	w.net.Run(2 * time.Second)
	if late.Phase() != dnptest.Closed || !strings.Contains(late.Reason(), "reject") {
		t.Errorf("a client that connects without a bus is %v (%s), want rejected", late.Phase(), late.Reason())
	}
	w.net.Run(20 * time.Second)
	if !a.has("L", 0, u16(7)) || !b.has("L", 0, u16(1)) || a.Phase() != dnptest.Connected {
		t.Error("a client lost its connection or its values")
	}
	bus.SetConnected(true)
	w.within(time.Second, "the write arrives", func() bool { return b.has("L", 0, u16(7)) })
	w.join(e, dnptest.Cpp(), dnptest.App{})
}

// TestBusComesLater starts an edge without a bus.
func TestBusComesLater(t *testing.T) {
	w := newWorld(t, *seed)
	w.startRelay()
	w.hub.Node("edge1").SetConnected(false)
	e := w.startEdge(wire.Denetwork, nil)
	early := w.connect(e, dnptest.Cpp(), dnptest.App{})
	w.net.Run(time.Second)
	if early.Phase() != dnptest.Closed {
		t.Errorf("a client is %v before the bus is there, want rejected", early.Phase())
	}
	w.hub.Node("edge1").SetConnected(true)
	w.join(e, dnptest.Cpp(), dnptest.App{})
}

// TestUnanswered closes a session while a game server waits for an answer.
func TestUnanswered(t *testing.T) {
	w, e := newWorldWithEdge(t, nil)
	a := w.join(e, dnptest.Cpp(), dnptest.App{})
	a.Silence(true)
	var answers []string
	for range 30 { // the window has 10
		w.game.Request(bus.Msg{Subject: w.subjects.To("s", a.name), Data: []byte("x")}, time.Minute, func(m bus.Msg, err error) {
			answers = append(answers, string(m.Data))
		})
	}
	w.within(20*time.Second, "all requests are answered", func() bool { return len(answers) == 30 })
	if last := answers[29]; !strings.Contains(last, "unknown_client") {
		t.Errorf("the last answer is %s", last)
	}
	w.within(time.Second, "the event left", func() bool { return w.count("left") == 1 })
}

// TestNoKickForAll sends a kick, which only the holder sends and to one client, to all clients.
func TestNoKickForAll(t *testing.T) {
	w, e := newWorldWithEdge(t, nil)
	a := w.join(e, dnptest.Cpp(), dnptest.App{})
	_ = w.game.Publish(bus.Msg{
		Subject: w.subjects.ToAll("s"), Data: []byte("x"),
		Header: map[string]string{subject.HeaderControl: subject.ControlKick},
	})
	w.net.Run(time.Second)
	if a.Phase() != dnptest.Connected {
		t.Error("a message to all clients kicked one")
	}
}

// TestForeignReply sends messages that are no answers to the subjects of answers.
func TestForeignReply(t *testing.T) {
	w, e := newWorldWithEdge(t, nil)
	a := w.join(e, dnptest.Cpp(), dnptest.App{})
	var inbox string
	w.on("dnp.v1.shard.*.repair", func(m bus.Msg) { inbox = strings.TrimSuffix(m.Reply, ".edge.s") })
	w.startRelay()
	w.mustPublish("s", lampPut) // in a new epoch, so the replica asks
	w.within(5*time.Second, "a repair request", func() bool { return inbox != "" })
	for _, end := range []string{".-1.s", ".1.s", ".99999999999999999999.s", ".x.s", ".0.nowhere", ".0.s", ".edge.nowhere", ".edge.s"} {
		_ = w.game.Publish(bus.Msg{Subject: inbox + end, Data: []byte("\x01\x02\x03")})
	}
	w.net.Run(time.Second)
	if a.Phase() != dnptest.Connected {
		t.Error("the client is disconnected")
	}
}

// TestMoreStatesThanLinks has more states than a client may have links. The remaining states are
// linked when others end.
func TestMoreStatesThanLinks(t *testing.T) {
	const states, most = 4110, 4096
	w, e := newWorldWithEdge(t, nil)
	for first := 0; first < states; first += 411 {
		var ops []string
		for i := first; i < first+411; i++ {
			ops = append(ops, fmt.Sprintf(`{"op":"put","key":"k%d","values":[{"type":"uint8","value":1}]}`, i))
		}
		w.mustPublish("s", `{"ops":[`+strings.Join(ops, ",")+`]}`)
	}
	a := w.join(e, dnptest.Engine(), dnptest.App{})
	w.within(time.Minute, "the client has as many links as it may", func() bool { return len(a.Links()) == most })
	var ops []string
	for i := range states - most {
		ops = append(ops, fmt.Sprintf(`{"op":"remove","key":"k%d"}`, i))
	}
	w.mustPublish("s", `{"ops":[`+strings.Join(ops, ",")+`]}`)
	w.within(5*time.Second, "the remaining states are linked", func() bool { return a.LinkNamed(fmt.Sprintf("k%d", states-1)) != nil })
}

// TestDeclined rejects a link. The state is not offered again until its link message changes.
func TestDeclined(t *testing.T) {
	w, e := newWorldWithEdge(t, func(*edge.Config) {})
	offers := 0
	a := w.join(e, dnptest.Cpp(), dnptest.App{Offered: func(o dnptest.Offer) dnptest.Answer {
		if string(o.Message) == "T" || string(o.Message) == "U" {
			offers++
		}
		return dnptest.Reject
	}})
	w.mustPublish("s", towerPut)
	w.within(time.Second, "the rejection is an event", func() bool { return w.count("rejected") == 1 })
	w.mustPublish("s", `{"op":"group","client":"`+a.name+`","join":["red"]}`)
	w.mustPublish("s", strings.Replace(towerPut, "gone", "bye", 1))
	w.net.Run(2 * time.Second)
	if offers != 1 {
		t.Errorf("offered %d times, want once", offers)
	}
	w.mustPublish("s", strings.Replace(towerPut, `"T"`, `"U"`, 1))
	w.within(time.Second, "another message is another offer", func() bool { return offers == 2 })
}

// TestBounds lets a program write values within and beyond the bounds of a state in one
// datagram. Only those beyond are refused, the writer gets the authoritative values again, and
// game servers learn which client tried what.
func TestBounds(t *testing.T) {
	w, e := newWorldWithEdge(t, nil)
	a, b := w.join(e, dnptest.Cpp(), dnptest.App{}), w.join(e, dnptest.Cpp(), dnptest.App{})
	w.mustPublish("s", `{"op":"put","key":"lamp","message":"L","access":"read-write","values":[{"name":"level","type":"uint16","value":10,"max":100},`+
		`{"name":"x","type":"float32","value":1},{"name":"shout","type":"uint16","rate":1}]}`)
	one, nan := []byte{0, 0, 0x80, 0x3f}, []byte{0, 0, 0xc0, 0x7f}
	w.within(5*time.Second, "linked", func() bool { return a.has("L", 1, one) && b.has("L", 1, one) })
	w.net.Run(2 * time.Second)
	a.do(func(time.Time) {
		a.Set(a.LinkNamed("L"), 0, u16(101))
		a.Set(a.LinkNamed("L"), 1, nan)
		a.Set(a.LinkNamed("L"), 2, u16(7))
	})
	w.within(time.Second, "the value within its bounds arrives", func() bool { return b.has("L", 2, u16(7)) })
	w.within(time.Second, "the writer gets the others back", func() bool { return a.has("L", 0, u16(10)) && a.has("L", 1, one) && a.has("L", 2, u16(7)) })
	if !b.has("L", 0, u16(10)) || !b.has("L", 1, one) {
		t.Error("another client saw a refused value")
	}
	for n := range uint16(200) {
		a.write(a.LinkNamed("L"), 1000+n)
		w.net.Run(50 * time.Millisecond)
	}
	w.within(time.Second, "the writer has the authoritative value", func() bool { return a.has("L", 0, u16(10)) })
	if n := w.count("refused"); n < 20 || n > 2+10+52 {
		t.Errorf("%d events of 200 refused writes in 10 s, want 10 and 5 a second", n)
	}
	first := w.events[slices.IndexFunc(w.events, func(e event) bool { return e.Type == "refused" })]
	if first.Client != a.name || first.Key != "lamp" || first.Code != "out_of_range" || first.Reason != "max" {
		t.Errorf("game servers were told %+v", first)
	}
}
