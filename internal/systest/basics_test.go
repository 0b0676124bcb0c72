package systest

import (
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/bus"
	"github.com/dnprelay/dnprelay/dnp/dnptest"
	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/internal/edge"
	"github.com/dnprelay/dnprelay/internal/edge/fanout"
)

func f32(v float32) []byte { return binary.LittleEndian.AppendUint32(nil, math.Float32bits(v)) }
func u16(v uint16) []byte  { return binary.LittleEndian.AppendUint16(nil, v) }

const towerPut = `{"op":"put","key":"tower","message":"T","farewell":"gone","values":[{"name":"hp","type":"float32","value":93.5}]}`

// TestPublishReachesClients publishes, changes and removes a state before clients of every kind.
func TestPublishReachesClients(t *testing.T) {
	for _, b := range dnptest.Presets() {
		t.Run(b.Name, func(t *testing.T) {
			w := newWorld(t, *seed)
			w.startRelay()
			e := w.startEdge(b.Profile, nil)
			early := w.join(e, b, dnptest.App{})
			w.net.Run(time.Second)
			w.mustPublish("s", towerPut)
			w.within(time.Second, "a connected client sees the new state", func() bool { return early.has("T", 0, f32(93.5)) })
			late := w.join(e, b, dnptest.App{})
			w.within(3*time.Second, "a later client is linked", func() bool { return late.has("T", 0, f32(93.5)) })
			w.mustPublish("s", `{"op":"set","key":"tower","values":{"hp":50}}`)
			w.within(time.Second, "both see the change", func() bool { return early.has("T", 0, f32(50)) && late.has("T", 0, f32(50)) })
			w.event(time.Second, "linked", "tower")

			w.mustPublish("s", `{"op":"remove","key":"tower"}`)
			w.within(2*time.Second, "the farewell arrives as a message", func() bool {
				return len(early.Messages) > 0 && string(early.Messages[0].Data) == "gone" && early.Messages[0].Reliable
			})
			if b.LinkDown != dnptest.DownWhileListening { // the engine keeps links that are up forever
				w.within(2*time.Second, "the link goes down", func() bool { return early.LinkNamed("T") == nil })
			}
		})
	}
}

// TestTwoProfiles shows one state through two edges that speak different dialects.
func TestTwoProfiles(t *testing.T) {
	w := newWorld(t, *seed)
	w.startRelay()
	cpp := w.join(w.startEdge(wire.Denetwork, nil), dnptest.Cpp(), dnptest.App{})
	spec := w.join(w.startEdge(wire.Spec, nil), dnptest.SpecText(), dnptest.App{})
	w.mustPublish("s", towerPut)
	w.within(5*time.Second, "both are linked", func() bool { return cpp.has("T", 0, f32(93.5)) && spec.has("T", 0, f32(93.5)) })
	w.mustPublish("s", `{"op":"set","key":"tower","values":{"hp":1}}`)
	w.within(time.Second, "both see the change", func() bool { return cpp.has("T", 0, f32(1)) && spec.has("T", 0, f32(1)) })
}

// TestClientWrites follows a write to the authority, to game servers and to the other client; a
// forbidden write reaches none of them.
func TestClientWrites(t *testing.T) {
	w, e := newWorldWithEdge(t, nil)
	a, b := w.join(e, dnptest.Cpp(), dnptest.App{}), w.join(e, dnptest.Java(), dnptest.App{})
	w.mustPublish("s", `{"ops":[
	 {"op":"put","key":"lamp","message":"L","access":"read-write","values":[{"name":"level","type":"uint16","value":1}]},
	 {"op":"put","key":"wall","message":"W","values":[{"name":"level","type":"uint16","value":1}]}]}`)
	w.within(5*time.Second, "both are linked", func() bool { return b.has("L", 0, u16(1)) && a.has("L", 0, u16(1)) && a.has("W", 0, u16(1)) })
	w.net.Run(time.Second)
	a.do(func(time.Time) {
		a.Set(a.LinkNamed("L"), 0, u16(7))
		a.Set(a.LinkNamed("W"), 0, u16(7))
	})
	w.within(time.Second, "the other client sees the write", func() bool { return b.has("L", 0, u16(7)) })
	if e := w.event(time.Second, "changed", "lamp"); e.Client != a.name || string(e.Values["level"]) != "7" {
		t.Errorf("event changed is %+v, want client %s and level 7", e, a.name)
	}
	w.net.Run(10 * time.Second)
	if !b.has("W", 0, u16(1)) {
		t.Error("a write to a read-only state reached another client")
	}
	if !a.has("W", 0, u16(1)) {
		t.Error("the scrub did not return the true value to the writer of a read-only state")
	}
	if !strings.Contains(w.ask(w.subjects.Get("s", "lamp"), ""), `"value":7`) {
		t.Error("the authority does not have the write")
	}
}

// TestWriteWaitsForHolder lets a client write while the edge cannot reach a relay.
func TestWriteWaitsForHolder(t *testing.T) {
	w, e := newWorldWithEdge(t, nil)
	a := w.join(e, dnptest.Cpp(), dnptest.App{})
	put := `{"op":"put","key":"lamp","message":"L","access":"read-write","values":[{"name":"level","type":"uint16","value":1}]}`
	w.mustPublish("s", put)
	w.within(5*time.Second, "linked", func() bool { return a.has("L", 0, u16(1)) })
	w.net.Run(time.Second)
	w.hub.Cut("relay1", "edge1", true)
	a.do(func(time.Time) { a.Set(a.LinkNamed("L"), 0, u16(7)) })
	w.net.Run(3 * time.Second)
	if !a.has("L", 0, u16(7)) {
		t.Error("the client's own write was undone while no relay answered")
	}
	w.hub.Cut("relay1", "edge1", false)
	w.within(time.Second, "the write arrives when the holder is back", func() bool {
		for _, e := range w.events {
			if e.Type == "changed" {
				return true
			}
		}
		return false
	})
}

// TestMessages sends messages of every kind in both directions.
func TestMessages(t *testing.T) {
	w, e := newWorldWithEdge(t, nil)
	p := w.join(e, dnptest.Cpp(), dnptest.App{})
	client := p.name
	var got []bus.Msg
	w.on(w.subjects.From("s", "*"), func(m bus.Msg) { got = append(got, m) })
	long := strings.Repeat("long", 5000)
	p.do(func(now time.Time) {
		_ = p.Send(now, []byte("one"))
		_ = p.Send(now, []byte(long))
		_ = p.SendUnreliable(now, []byte("quick"))
	})
	w.within(3*time.Second, "three messages arrive", func() bool { return len(got) == 3 })
	next := uint64(0)
	for _, m := range got {
		if m.Header["Dnp-Reliable"] == "false" {
			if string(m.Data) != "quick" || m.Header["Dnp-Number"] != "" {
				t.Errorf("unreliable message %q %v", m.Data, m.Header)
			}
			continue
		}
		n, err := strconv.ParseUint(m.Header["Dnp-Number"], 10, 64)
		if err != nil || n < next || m.Subject != w.subjects.From("s", client) || m.Header["Dnp-Session"] == "" {
			t.Errorf("message of %d bytes: subject %s, headers %v, want number from %d", len(m.Data), m.Subject, m.Header, next)
		}
		next = n + 1
	}
	if a := w.ask(w.subjects.To("s", client), "hello"); !strings.HasPrefix(a, `{"number":`) {
		t.Errorf("answer to a message is %s", a)
	}
	w.ask(w.subjects.To("s", client), long)
	_ = w.game.Publish(bus.Msg{Subject: w.subjects.ToAll("s"), Header: map[string]string{"Dnp-Reliable": "false"}, Data: []byte("all")})
	w.within(3*time.Second, "the client has three messages", func() bool { return len(p.Messages) == 3 })
	if string(p.Messages[0].Data) != "hello" {
		t.Errorf("first message is %q", p.Messages[0].Data)
	}
	if a := w.ask(w.subjects.To("s", "nobody"), "x"); a != "error: no responders" {
		t.Errorf("a message to no client is answered %s", a)
	}
}

// TestAudience shows a state to clients and hides it, by name and by group.
func TestAudience(t *testing.T) {
	w, e := newWorldWithEdge(t, nil)
	a, b := w.join(e, dnptest.Cpp(), dnptest.App{}), w.join(e, dnptest.Python(), dnptest.App{})
	w.mustPublish("s", `{"op":"group","client":"`+a.name+`","join":["red"]}`)
	w.mustPublish("s", `{"op":"put","key":"flag","message":"F","audience":{"groups":["red"]},"values":[{"type":"uint16","value":1}]}`)
	w.within(time.Second, "the member of the group is linked", func() bool { return a.has("F", 0, u16(1)) })
	w.net.Run(time.Second)
	if b.LinkNamed("F") != nil {
		t.Error("a client outside of the group was linked")
	}
	w.mustPublish("s", `{"op":"audience","key":"flag","audience":{"clients":["`+b.name+`"]}}`)
	w.within(2*time.Second, "the named client is linked, the member is not", func() bool {
		return b.has("F", 0, u16(1)) && a.LinkNamed("F") == nil
	})
	w.mustPublish("s", `{"op":"audience","key":"flag","audience":{"groups":["red"]}}`)
	w.within(2*time.Second, "and the other way round", func() bool { return b.LinkNamed("F") == nil && a.has("F", 0, u16(1)) })
	w.mustPublish("s", `{"op":"group","client":"`+a.name+`","leave":["red"]}`)
	w.within(2*time.Second, "a client that leaves the group loses the link", func() bool { return a.LinkNamed("F") == nil })
	if got := w.publish("s", `{"op":"group","client":"nobody","join":["red"]}`); !strings.Contains(got, "unknown_client") {
		t.Errorf("group of an unknown client: %s", got)
	}
}

// TestWhoAndKick lists the clients and kicks one.
func TestWhoAndKick(t *testing.T) {
	w, e := newWorldWithEdge(t, nil)
	p := w.join(e, dnptest.Cpp(), dnptest.App{})
	client := p.name
	if a := w.ask(w.subjects.Who("s"), ""); !strings.Contains(a, client) || !strings.Contains(a, `"edge":"edge1"`) {
		t.Errorf("the answer to who is %s", a)
	}
	w.mustPublish("s", `{"op":"kick","client":"`+client+`","reason":"shouts <b>"}`)
	w.within(time.Second, "the client is told", func() bool { return p.Phase() != dnptest.Connected })
	w.within(time.Second, "game servers are told why", func() bool {
		for _, e := range w.events {
			if e.Type == "left" && (e.Reason != "kicked" || e.Detail != "shouts <b>") {
				t.Fatalf("left with reason %q and detail %q, want kicked and the reason of the op", e.Reason, e.Detail)
			} else if e.Type == "left" {
				return true
			}
		}
		return false
	})
	w.within(time.Second, "left", func() bool { return w.ask(w.subjects.To("s", client), "x") == "error: no responders" })
}

// TestClientStates follows a state that a client offers, under each policy.
func TestClientStates(t *testing.T) {
	start := func(t *testing.T, policy fanout.ClientStates) (*world, *player, *player) {
		w, e := newWorldWithEdge(t, func(c *edge.Config) { c.ClientStates = policy })
		a, b := w.join(e, dnptest.Cpp(), dnptest.App{}), w.join(e, dnptest.Cpp(), dnptest.App{})
		return w, a, b
	}

	t.Run("off", func(t *testing.T) {
		w, a, _ := start(t, fanout.ClientStatesOff)
		l := a.offer("avatar", 5)
		w.net.Run(3 * time.Second)
		if l.Phase == dnptest.LinkIsUp {
			t.Error("the link came up although clients may not offer states")
		}
	})
	t.Run("space", func(t *testing.T) {
		w, a, b := start(t, fanout.ClientStatesSpace)
		l := a.offer("avatar", 5)
		w.within(2*time.Second, "the other client sees the state", func() bool { return b.has("avatar", 0, u16(5)) })
		a.do(func(time.Time) { a.Set(l, 0, u16(6)) })
		w.within(time.Second, "and its changes", func() bool { return b.has("avatar", 0, u16(6)) })
		w.net.Run(7 * time.Second)
		if got := len(a.Links()); got != 1 {
			t.Errorf("the owner has %d links, want its own only", got)
		}
		a.do(func(now time.Time) { a.Close(now) })
		w.within(5*time.Second, "the state goes with its owner", func() bool { return b.LinkNamed("avatar") == nil })
	})
	t.Run("game", func(t *testing.T) {
		w, a, b := start(t, fanout.ClientStatesGame)
		l := a.offer("avatar", 5)
		w.net.Run(time.Second)
		if b.LinkNamed("avatar") != nil {
			t.Fatal("offered to others before the game server said so")
		}
		key := a.key(l)
		w.mustPublish("s", `{"op":"audience","key":"`+key+`","audience":{"all":true}}`)
		w.within(time.Second, "the other client sees the state", func() bool { return b.has("avatar", 0, u16(5)) })
		w.mustPublish("s", `{"op":"set","key":"`+key+`","values":{"0":9}}`)
		w.within(time.Second, "both see what the game server wrote", func() bool { return a.has("avatar", 0, u16(9)) && b.has("avatar", 0, u16(9)) })
	})
}

// TestPresumed: what the edge only presumes is no `linked`. A library whose application does not
// expect a layout acknowledges the offer and says nothing; nothing tells it from a client whose
// LinkUp got lost.
func TestPresumed(t *testing.T) {
	w, e := newWorldWithEdge(t, nil)
	w.mustPublish("s", `{"op":"put","key":"tower","message":"T","access":"read-write","values":[{"name":"hp","type":"float32","value":93.5}]}`)
	w.join(e, dnptest.Java(), dnptest.App{Offered: func(dnptest.Offer) dnptest.Answer { return dnptest.Mismatch }})
	w.event(3*time.Second, "presumed", "tower")
	w.net.Run(2 * time.Second)
	if n := w.count("linked"); n != 0 {
		t.Fatalf("%d links of a client that has none are told as linked", n)
	}
	w.join(e, dnptest.Cpp(), dnptest.App{})
	w.event(3*time.Second, "linked", "tower")
	if n := w.count("presumed"); n != 1 {
		t.Errorf("%d links are presumed, want 1: the second client answered", n)
	}
}

// useLinkIDs replaces 400 states until the LinkIds of a client are nearly used up. It returns the
// client and the message of the last state.
func (w *world) useLinkIDs() (client, last string) {
	w.Helper()
	const states = 400
	for round := 1; w.count("recycle") == 0; round++ {
		var ops []string
		for i := range states {
			ops = append(ops, fmt.Sprintf(`{"op":"put","key":"k%d","message":"%d of %d","values":[{"name":"v","type":"uint16","value":1}]}`, i, i, round))
		}
		w.mustPublish("s", `{"ops":[`+strings.Join(ops, ",")+`]}`)
		w.net.Run(20 * time.Millisecond)
		last = fmt.Sprintf("%d of %d", states-1, round)
	}
	return w.event(0, "recycle", "").Client, last
}

// TestRecycle: the edge closes the connection of a client whose LinkIds are nearly used up when the
// client has all states, and the client gets all of them again when it comes back.
func TestRecycle(t *testing.T) {
	w, e := newWorldWithEdge(t, nil)
	p := w.join(e, dnptest.Cpp(), dnptest.App{})
	_, last := w.useLinkIDs()
	has := func() bool { return p.has(last, 0, u16(1)) }
	w.within(time.Minute, "the client has the last state", has)
	if p.Phase() != dnptest.Connected {
		t.Fatal("the client was sent away while it was busy")
	}
	left := w.event(5*time.Second, "left", "")
	if left.Reason != "recycle" {
		t.Fatalf("left because of %q, want recycle", left.Reason)
	}
	w.within(time.Second, "the client knows", func() bool { return p.Phase() == dnptest.Closed })
	w.net.Run(5 * time.Second) // the edge repeats the end, and this client has the same port again, unlike the libraries
	p.do(p.Connect)
	w.within(time.Minute, "the client has the last state again", has)
	if n := w.count("recycle"); n != 1 {
		t.Errorf("%d events, want one: the new session has all LinkIds", n)
	}
}
