package systest

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/dnp/dnptest"
	"github.com/dnprelay/dnprelay/dnp/netstate"
	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/internal/edge"
	"github.com/dnprelay/dnprelay/internal/edge/fanout"
)

const uint16Type wire.ValueType = 3

// offer lets a client offer a state with one uint16.
func (p *player) offer(message string, value uint16) *dnptest.Link {
	p.world.Helper()
	layout, err := netstate.NewLayout([]netstate.Value{{Type: uint16Type}})
	if err != nil {
		p.world.Fatal(err)
	}
	s := netstate.NewState(layout)
	s.Set(0, u16(value))
	var l *dnptest.Link
	p.do(func(now time.Time) { l, err = p.Offer(now, s, []byte(message), false) })
	if err != nil {
		p.world.Fatal(err)
	}
	return l
}

func (p *player) key(l *dnptest.Link) string {
	return "client." + p.name + "." + strconv.Itoa(int(l.ID))
}

// write lets a client write the first value of a link.
func (p *player) write(l *dnptest.Link, value uint16) {
	p.do(func(time.Time) { p.Set(l, 0, u16(value)) })
}

func inSpace(c *edge.Config) { c.ClientStates = fanout.ClientStatesSpace }

// TestOwnStateNeedsTheBus offers a state while the edge cannot hear the holder. The edge must go
// on asserting it.
func TestOwnStateNeedsTheBus(t *testing.T) {
	w, e := newWorldWithEdge(t, inSpace)
	a, b := w.join(e, dnptest.Cpp(), dnptest.App{}), w.join(e, dnptest.Cpp(), dnptest.App{})
	w.hub.Cut("relay1", e.node, true)
	l := a.offer("avatar", 5)
	w.net.Run(5 * time.Second)
	a.write(l, 6)
	w.net.Run(time.Second)
	w.hub.Cut("relay1", e.node, false)
	w.within(time.Second, "the others see the state with the value that was written meanwhile", func() bool { return b.has("avatar", 0, u16(6)) })
}

// TestOwnStateNewHolder replaces the relay. Only the edge knows the state.
func TestOwnStateNewHolder(t *testing.T) {
	w := newWorld(t, *seed)
	old := w.startRelay()
	e := w.startEdge(wire.Denetwork, inSpace)
	a, b := w.join(e, dnptest.Cpp(), dnptest.App{}), w.join(e, dnptest.Cpp(), dnptest.App{})
	l := a.offer("avatar", 5)
	w.within(2*time.Second, "the others see the state", func() bool { return b.has("avatar", 0, u16(5)) })
	old.kill()
	w.net.Run(time.Second)
	a.write(l, 6)
	w.startRelay()
	// The numbers of states start again with the holder: the client's write must not go to
	// the state that has the number of the old one.
	w.mustPublish("s", `{"op":"put","key":"lamp","message":"L","access":"read-write","values":[{"type":"uint16","value":1}]}`)
	w.within(3*time.Second, "the others see the state with the write", func() bool { return b.has("avatar", 0, u16(6)) })
	a.write(l, 7)
	w.within(time.Second, "and go on seeing it", func() bool { return b.has("avatar", 0, u16(7)) })
	if a := w.ask(w.subjects.Get("s", "lamp"), ""); !strings.Contains(a, `"value":1`) {
		t.Errorf("the lamp is %s, which no client wrote", a)
	}
}

// TestOwnStateTakenBack lets a client take a state back while the edge cannot hear the holder,
// and offer another state under its LinkID.
func TestOwnStateTakenBack(t *testing.T) {
	w, e := newWorldWithEdge(t, inSpace)
	a, b := w.join(e, dnptest.Cpp(), dnptest.App{}), w.join(e, dnptest.Cpp(), dnptest.App{})
	first, second := a.offer("first", 5), a.offer("second", 5)
	w.within(2*time.Second, "the others see both", func() bool { return b.has("first", 0, u16(5)) && b.has("second", 0, u16(5)) })
	w.hub.Cut("relay1", e.node, true)
	for _, l := range []*dnptest.Link{first, second} {
		w.net.Send(a.addr, e.addr, wire.LinkDown{Link: l.ID}.Append(nil))
		l.Phase = dnptest.LinkIsDown
	}
	w.net.Run(5 * time.Second)
	second.State.Set(0, u16(9))
	a.do(func(now time.Time) { _, _ = a.Offer(now, second.State, []byte("second"), false) })
	w.net.Run(time.Second)
	w.hub.Cut("relay1", e.node, false)
	w.within(2*time.Second, "the state is gone", func() bool { return b.LinkNamed("first") == nil })
	w.within(2*time.Second, "the second state is there again", func() bool { return b.has("second", 0, u16(9)) })
	w.net.Run(5 * time.Second)
	if !b.has("second", 0, u16(9)) {
		t.Error("a late message about the earlier state under its LinkID ended the later one")
	}
	if got := w.ask(w.subjects.Get("s", a.key(first)), ""); !strings.Contains(got, "unknown_state") {
		t.Errorf("the holder still has %s", got)
	}
}

// TestOwnStateOwner checks that a client gets no second link to a state that it offers itself,
// whatever the audience.
func TestOwnStateOwner(t *testing.T) {
	w, e := newWorldWithEdge(t, nil)
	a, b := w.join(e, dnptest.Cpp(), dnptest.App{}), w.join(e, dnptest.Cpp(), dnptest.App{})
	l := a.offer("avatar", 5)
	w.net.Run(time.Second)
	w.mustPublish("s", `{"op":"audience","key":"`+a.key(l)+`","audience":{"all":true}}`)
	w.within(time.Second, "the other client is linked", func() bool { return b.has("avatar", 0, u16(5)) })
	w.net.Run(2 * time.Second)
	if n := len(a.Links()); n != 1 {
		t.Errorf("the owner has %d links, want its own only", n)
	}
	w.mustPublish("s", `{"op":"set","key":"`+a.key(l)+`","values":{"0":9}}`)
	w.within(time.Second, "both see what the game server wrote", func() bool { return a.has("avatar", 0, u16(9)) && b.has("avatar", 0, u16(9)) })
}

// TestOwnStateTooLarge offers a state that no holder accepts.
func TestOwnStateTooLarge(t *testing.T) {
	w, e := newWorldWithEdge(t, inSpace)
	a := w.join(e, dnptest.Cpp(), dnptest.App{})
	layout, err := netstate.NewLayout([]netstate.Value{{Type: wire.TypeString}, {Type: wire.TypeString}})
	if err != nil {
		t.Fatal(err)
	}
	s := netstate.NewState(layout)
	long := append([]byte{0xA8, 0x61}, strings.Repeat("x", 25000)...)
	s.Set(0, long)
	s.Set(1, long)
	message := strings.Repeat("m", 12000)
	a.do(func(now time.Time) { _, err = a.Offer(now, s, []byte(message), false) })
	if err != nil {
		t.Fatal(err)
	}
	w.net.Run(3 * time.Second)
	if got := w.ask(w.subjects.Get("s", ""), ""); strings.Contains(got, "client.") {
		t.Error("the holder accepted a state of 62,000 bytes")
	}
	if e.worker.Counts().OffersRefused == 0 {
		t.Error("no offer was refused")
	}
}
