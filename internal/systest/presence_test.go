package systest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/bus"
	"github.com/dnprelay/dnprelay/dnp/dnptest"
	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/internal/relay"
	"github.com/dnprelay/dnprelay/replication"
)

// TestHolderIsAway keeps a relay from hearing that a client is there. The client is offered its states meanwhile, and game servers
// hear of it, and what it said, when the relay has it, so that the relay knows whom they mean.
func TestHolderIsAway(t *testing.T) {
	w, e := newWorldWithEdge(t, nil)
	var said []string
	w.on(w.subjects.From("s", "*"), func(m bus.Msg) {
		said = append(said, fmt.Sprint(string(m.Data), " behind ", len(w.joined()), " joined"))
	})
	w.mustPublish("s", towerPut)
	w.join(e, dnptest.Cpp(), dnptest.App{})
	w.net.Run(time.Second)
	w.hub.Cut("relay1", e.node, true)
	a := w.connect(e, dnptest.Cpp(), dnptest.App{})
	w.within(6*time.Second, "the client has its state", func() bool { return a.has("T", 0, f32(93.5)) })
	a.do(func(now time.Time) { _ = a.Send(now, []byte("hi")) })
	w.net.Run(5 * time.Second)
	if n := len(w.joined()); n != 1 || len(said) > 0 {
		t.Fatalf("the relay does not know the client, and game servers heard %d joined, and %q", n, said)
	}
	w.hub.Cut("relay1", e.node, false)
	w.within(2*time.Second, "game servers hear what the client said", func() bool { return len(said) > 0 })
	if len(said) != 1 || said[0] != "hi behind 2 joined" {
		t.Errorf("game servers heard %q", said)
	}
	w.mustPublish("s", `{"op":"group","client":"`+w.joined()[1]+`","join":["red"]}`)
}

// TestNewHolderGathers has game servers speak about clients to a relay that has just begun, before an edge named them. What they say
// is not refused, changes keep their order, a client that never was is unknown, and no client is announced again.
func TestNewHolderGathers(t *testing.T) {
	w := newWorld(t, *seed)
	first := w.startRelay()
	e := w.startEdge(wire.Denetwork, nil)
	a := w.join(e, dnptest.Cpp(), dnptest.App{})
	group := func(client string) string { return fmt.Sprintf(`{"op":"group","client":%q,"join":["red"]}`, client) }
	first.kill()
	w.startRelay()
	w.mustPublish("s", group(a.name))
	if answer := w.publish("s", group("nobody")); !strings.Contains(answer, "unknown_client") {
		t.Errorf("a group of a client that never was: %s", answer)
	}
	w.fire("t", `{"ops":[`+strings.Replace(towerPut, "93.5", "1", 1)+`,`+group("nobody")+`],"atomic":false}`)
	w.mustPublish("t", `{"op":"set","key":"tower","values":{"hp":2}}`)
	if answer := w.ask(w.subjects.Get("t", "tower"), ""); !strings.Contains(answer, `"value":2`) {
		t.Errorf("the state is %s, want the value that was published last, 2", answer)
	}
	w.net.Run(time.Minute)
	if w.count("joined") != 1 || w.count("left") != 0 {
		t.Errorf("%d joined and %d left, want 1 and 0", w.count("joined"), w.count("left"))
	}
	a.do(func(now time.Time) { a.Close(now) })
	w.within(20*time.Second, "the client leaves", func() bool { return w.count("left") == 1 })
	if answer := w.publish("s", group(a.name)); !strings.Contains(answer, "unknown_client") {
		t.Errorf("a group of a client that left: %s", answer)
	}
}

// TestNoHolder: after half a minute game servers hear of a client although no relay has it, and at once if it leaves.
func TestNoHolder(t *testing.T) {
	w := newWorld(t, *seed)
	e := w.startEdge(wire.Denetwork, nil)
	w.connect(e, dnptest.Cpp(), dnptest.App{})
	w.within(45*time.Second, "the client joins", func() bool { return w.count("joined") == 1 })
	if d := w.net.Elapsed(); d < 25*time.Second {
		t.Errorf("game servers heard so after %v, when no relay could know", d)
	}
	b := w.connect(e, dnptest.Cpp(), dnptest.App{})
	w.net.Run(3 * time.Second)
	b.do(func(now time.Time) { b.Close(now) })
	w.within(20*time.Second, "the other client leaves", func() bool { return w.count("left") == 1 })
	if w.count("joined") != 2 {
		t.Errorf("game servers heard %d times that a client joined, want that the one that left did", w.count("joined"))
	}
}

// TestEdgeDies kills an edge. Its sessions and the states of their clients must not stay
// forever.
func TestEdgeDies(t *testing.T) {
	w := newWorld(t, *seed)
	w.startRelay()
	dying, other := w.startEdge(wire.Denetwork, inSpace), w.startEdge(wire.Denetwork, inSpace)
	a, b := w.join(dying, dnptest.Cpp(), dnptest.App{}), w.join(other, dnptest.Cpp(), dnptest.App{})
	a.offer("avatar", 5)
	w.within(2*time.Second, "the other sees the state", func() bool { return b.has("avatar", 0, u16(5)) })
	w.net.Detach(dying.addr)
	w.hub.Node(dying.node).Close()
	w.within(2*time.Minute, "the state is gone", func() bool { return b.LinkNamed("avatar") == nil })
	if w.count("left") != 1 || w.events[len(w.events)-1].Reason != "lost" {
		t.Errorf("events: %+v, want one left with reason lost", w.events)
	}
	if a := w.publish("s", `{"op":"group","client":"`+a.name+`","join":["red"]}`); !strings.Contains(a, "unknown_client") {
		t.Errorf("group of a client that is gone: %s", a)
	}
}

// TestEdgeIsAway cuts an edge off for so long that the relay takes its clients for gone. They
// are not, and return with their states.
func TestEdgeIsAway(t *testing.T) {
	w := newWorld(t, *seed)
	w.startRelay()
	away, other := w.startEdge(wire.Denetwork, inSpace), w.startEdge(wire.Denetwork, inSpace)
	a, b := w.join(away, dnptest.Cpp(), dnptest.App{}), w.join(other, dnptest.Cpp(), dnptest.App{})
	l := a.offer("avatar", 5)
	w.within(2*time.Second, "the other sees the state", func() bool { return b.has("avatar", 0, u16(5)) })
	w.hub.Cut("relay1", away.node, true)
	w.within(2*time.Minute, "the state is gone", func() bool { return b.LinkNamed("avatar") == nil })
	w.hub.Cut("relay1", away.node, false)
	w.within(70*time.Second, "the state is there again", func() bool { return b.has("avatar", 0, u16(5)) })
	var told []string
	for _, e := range w.events {
		if e.Client == a.name && (e.Type == "joined" || e.Type == "left") {
			told = append(told, e.Type+" "+e.Reason)
		}
	}
	if want := []string{"joined ", "left lost", "joined "}; !slices.Equal(told, want) {
		t.Errorf("game servers heard %q of the client, want %q", told, want)
	}
	a.write(l, 6)
	w.within(time.Second, "the state changes", func() bool { return b.has("avatar", 0, u16(6)) })
}

// TestForgedEvents publishes events on permitted subjects about a space that is not theirs.
func TestForgedEvents(t *testing.T) {
	w := newWorld(t, *seed)
	w.startRelay()
	for _, subject := range []string{w.subjects.Event("mine"), w.subjects.Event("_x"), "dnp.v1.event.a b"} {
		_ = w.game.Publish(bus.Msg{Subject: subject, Data: []byte(`{"type":"joined","space":"s","client":"c","session":"x"}`)})
	}
	w.net.Run(time.Second)
	if a := w.publish("s", `{"op":"group","client":"c","join":["red"]}`); !strings.Contains(a, "unknown_client") {
		t.Errorf("a client joined by an event of another space: %s", a)
	}
}

// TestWrongShard sends everything to shards to which the space does not belong, as a node with
// another number of shards does. There must be no second authority.
func TestWrongShard(t *testing.T) {
	w := newWorld(t, *seed)
	r := w.startRelay()
	w.mustPublish("s", towerPut)
	spaces := func() (n uint64) {
		for _, l := range r.relay.Workers() {
			n += l.Stats(w.net.Now()).Spaces
		}
		return n
	}
	before, right := spaces(), 0
	for shard := range simShards {
		write := replication.AppendWrite(nil, &replication.Write{Kind: replication.WriteDrop, Space: "s", Client: "c", Session: "x"})
		_ = w.game.Publish(bus.Msg{Subject: w.subjects.Write(shard), Data: write})
		bad := replication.AppendWrite(nil, &replication.Write{Kind: replication.WriteDrop, Space: "a.>", Client: "c", Session: "x"})
		_ = w.game.Publish(bus.Msg{Subject: w.subjects.Write(shard), Data: bad})
		if a := w.ask(w.subjects.ShardPublish(shard, "s", ""), `{"op":"set","key":"tower","values":{"hp":1}}`); strings.Contains(a, "epoch") {
			right++
		} else if !strings.Contains(a, "does not belong") {
			t.Errorf("shard %d answers %s", shard, a)
		}
	}
	if right != 1 {
		t.Errorf("%d shards accepted the publish, want one", right)
	}
	if n := spaces(); n != before {
		t.Errorf("%d spaces, want %d", n, before)
	}
}

// TestRoomForSpaces uses more spaces, one after the other, than a relay has room for.
func TestRoomForSpaces(t *testing.T) {
	w := newWorld(t, *seed)
	r := w.startRelayWith(func(c *relay.Config) { c.Spaces, c.Workers = 10, 1 })
	put := func(space string) string { return w.publish(space, towerPut) }
	for i := range 10 {
		if a := put(fmt.Sprint("m", i)); strings.Contains(a, "error") {
			t.Fatalf("space %d: %s", i, a)
		}
	}
	if a := put("more"); !strings.Contains(a, `"busy"`) {
		t.Errorf("the space beyond the bound is answered %s", a)
	}
	w.mustPublish("m3", `{"op":"remove","key":"tower"}`)
	w.net.Run(time.Minute)
	if a := put("more"); !strings.Contains(a, `"busy"`) {
		t.Errorf("a recently used space made room: %s", a)
	}
	w.net.Run(15 * time.Minute)
	if a := put("more"); strings.Contains(a, "error") {
		t.Errorf("no room was made: %s", a)
	}
	if a := w.ask(w.subjects.Get("m4", "tower"), ""); !strings.Contains(a, "93.5") {
		t.Errorf("a space with states was forgotten: %s", a)
	}
	if n := r.relay.Workers()[0].Stats(w.net.Now()).Spaces; n != 10 {
		t.Errorf("%d spaces", n)
	}
}

// TestManySessions asks for all clients when one answer cannot name them.
func TestManySessions(t *testing.T) {
	if testing.Short() {
		t.Skip("4,200 clients")
	}
	const clients = 4200
	w, e := newWorldWithEdge(t, nil)
	for range clients {
		w.connect(e, dnptest.Engine(), dnptest.App{})
	}
	w.within(10*time.Second, "all clients have joined", func() bool { return w.count("joined") == clients })
	named, answers := 0, 0
	w.on("answers", func(m bus.Msg) {
		named += strings.Count(string(m.Data), `"client":`)
		answers++
	})
	_ = w.game.Publish(bus.Msg{Subject: w.subjects.Who("s"), Reply: "answers"})
	w.net.Run(time.Second)
	if named != clients || answers != 2 {
		t.Errorf("%d clients in %d answers, want %d in 2", named, answers, clients)
	}
}
