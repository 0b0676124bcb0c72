package systest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/bus"
	"github.com/dnprelay/dnprelay/dnp/dnptest"
	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/internal/inspect"
)

// askAll asks all nodes, as people do, and returns their answers.
func askAll[T any](w *world, subject string, q inspect.Query) (answers []T) {
	w.Helper()
	body, err := json.Marshal(q)
	if err != nil {
		w.Fatal(err)
	}
	w.ids++
	inbox := fmt.Sprintf("_INBOX.look.%d", w.ids)
	end, err := w.game.Subscribe(inbox, func(m bus.Msg) {
		if m.NoResponders() {
			return
		}
		var a T
		if err := json.Unmarshal(m.Data, &a); err != nil {
			w.Fatalf("answer %s: %v", m.Data, err)
		}
		answers = append(answers, a)
	})
	if err == nil {
		err = w.game.Publish(bus.Msg{Subject: subject, Reply: inbox, Data: body})
	}
	if err != nil {
		w.Fatal(err)
	}
	w.net.Run(50 * time.Millisecond)
	end()
	return answers
}

// why returns the codes of the reasons why a client has what it has.
func (w *world) why(client, key string) (codes []inspect.Code, text string) {
	w.Helper()
	var facts []*inspect.Facts
	for _, a := range askAll[inspect.WhyAnswer](w, w.subjects.Why("s"), inspect.Query{Client: client, Key: key}) {
		if a.Error != nil {
			w.Fatalf("%s %s answers %s", a.Role, a.Node, a.Error.Code)
		}
		facts = append(facts, a.Facts)
	}
	for _, r := range inspect.Reasons(inspect.Merge(facts)) {
		codes = append(codes, r.Code)
		text += fmt.Sprintf("  %s (blocks: %v): %s\n", r.Code, r.Blocks, r.Text)
	}
	return codes, text
}

// explains wants certain reasons among those that the nodes give.
func (w *world) explains(because, client, key string, want ...inspect.Code) {
	w.Helper()
	codes, text := w.why(client, key)
	for _, c := range want {
		if !slices.Contains(codes, c) {
			w.Errorf("%s: why %s %s lacks the reason %s:\n%s", because, client, key, c, text)
		}
	}
}

// TestWhyAcrossNodes asks in situations that no node sees alone.
func TestWhyAcrossNodes(t *testing.T) {
	w := newWorld(t, *seed)
	r := w.startRelay()
	e := w.startEdge(wire.Denetwork, nil)
	w.explains("nothing happened in the space", "alice", "tower", inspect.SpaceUnknown)
	w.mustPublish("s", towerPut)
	w.explains("the space has a state and no client", "alice", "tower", inspect.ClientUnknown)
	p := w.join(e, dnptest.Cpp(), dnptest.App{})
	w.within(time.Second, "the client is linked", func() bool { return p.has("T", 0, f32(93.5)) })
	w.explains("the client has the state", p.name, "tower", inspect.InAudience, inspect.Linked, inspect.UpToDate)
	w.explains("another client asks", "alice", "tower", inspect.ClientUnknown)
	w.explains("no state has the key", p.name, "castle", inspect.NeverPublished)

	e.bus.SetConnected(false)
	w.explains("the edge is without the bus", p.name, "tower", inspect.EdgeAway)
	e.bus.SetConnected(true)
	w.net.Run(time.Second)
	r.kill()
	w.net.Run(3 * time.Second)
	w.explains("the relay is dead", p.name, "tower", inspect.HolderAway, inspect.Linked)
}

// TestWhyTakeover asks while a durable session changes its edge: because its edge leaves, and because its edge died.
func TestWhyTakeover(t *testing.T) {
	w, p, first := silentClientOf(newTakeoverWorldOf(t, *seed, takeoverPlan{name: "no fault"}))
	w.explains("an edge serves the client", p.name, "tower", inspect.InAudience, inspect.Linked)
	first.drain()
	w.explains("the edge leaves", p.name, "tower", inspect.EdgeDraining, inspect.Linked)

	w, p, first = silentClientOf(newTakeoverWorldOf(t, *seed, takeoverPlan{name: "no fault"}))
	for _, e := range w.edges {
		e.ends()
	}
	w.explains("all edges died", p.name, "tower", inspect.EdgeAway)
	next := w.edges[slices.IndexFunc(w.edges, func(e *takeoverEdge) bool { return e != first })]
	name := fmt.Sprintf("%s.%d", next.name, w.starts+1) // on the bus
	w.hub.Cut("relay1", name, true)                     // so that the edge waits for the space
	next.boot()
	w.comesToExplain("an edge takes the session over", p.name, "tower", inspect.Adopting)
	w.hub.Cut("relay1", name, false)
	w.comesToExplain("the edge serves the client", p.name, "tower", inspect.Linked)
}

// comesToExplain waits until the nodes give a reason. Nodes count questions by the time of the machine, so in a simulation they
// answer hardly more than a burst of them: it asks 45 times.
func (w *world) comesToExplain(because, client, key string, want inspect.Code) {
	w.Helper()
	var text string
	for range 45 {
		var codes []inspect.Code
		if codes, text = w.why(client, key); slices.Contains(codes, want) {
			return
		}
		w.net.Run(350 * time.Millisecond)
	}
	w.Fatalf("%s: why %s %s never has the reason %s; at last it has\n%s", because, client, key, want, text)
}

// TestLook reads the lists of spaces, nodes and clients.
func TestLook(t *testing.T) {
	w, e := newWorldWithEdge(t, nil)
	w.mustPublish("s", towerPut)
	w.mustPublish("arena", towerPut)
	players := []*player{w.join(e, dnptest.Cpp(), dnptest.App{}), w.join(e, dnptest.Cpp(), dnptest.App{})}
	w.within(time.Second, "both are linked", func() bool { return players[0].has("T", 0, f32(93.5)) && players[1].has("T", 0, f32(93.5)) })

	spaces := askAll[inspect.SpacesAnswer](w, w.subjects.Spaces(), inspect.Query{})
	if len(spaces) != 1 || len(spaces[0].Entries) != 2 || spaces[0].Entries[0].Space != "arena" || spaces[0].Next != "" {
		t.Fatalf("spaces: %+v, want arena and s of one relay", spaces)
	}
	if s := spaces[0].Entries[1]; s.States != 1 || s.Clients != 2 || s.Epoch != 1 || s.Seq == 0 || s.Holder != "relay1" || !s.Serving || s.Publishes != 1 {
		t.Errorf("space s: %+v, want one state and two clients", s)
	}
	page := askAll[inspect.SpacesAnswer](w, w.subjects.Spaces(), inspect.Query{Max: 1})
	if len(page) != 1 || len(page[0].Entries) != 1 || page[0].Next != "arena" {
		t.Errorf("a page of one space: %+v, want arena, and that there is more", page)
	}

	clients := askAll[inspect.ClientsAnswer](w, w.subjects.Clients("s"), inspect.Query{})
	if len(clients) != 1 || len(clients[0].Entries) != 2 {
		t.Fatalf("clients: %+v, want both of one edge", clients)
	}
	for _, c := range clients[0].Entries {
		if c.Links.Up != 1 || c.Edge != e.config.Node || c.Address != "10.1.0.0/24" || c.Carrier != "udp" || c.Path.Rate == 0 {
			t.Errorf("client %+v, want one link, and an address as logs show it", c)
		}
	}

	nodes := askAll[inspect.NodesAnswer](w, w.subjects.Nodes(), inspect.Query{})
	if len(nodes) != 2 {
		t.Fatalf("nodes: %+v, want a relay and an edge", nodes)
	}
	for _, n := range nodes {
		if n.Clients != 2 || n.Version == "" || n.Role == "relay" && (n.Shards != simShards || n.Spaces != 2) || n.Role == "edge" && n.Spaces != 1 {
			t.Errorf("node %s: %+v", n.Head.Node, n.NodeFacts)
		}
	}
	if a := askAll[inspect.SpacesAnswer](w, w.subjects.Spaces(), inspect.Query{Max: -1}); len(a) != 1 || a[0].Error == nil || a[0].Error.Code != "bad_request" {
		t.Errorf("a malformed request: %+v, want bad_request", a)
	}
}

// TestLookFlood asks far more often than nodes answer: the answers are bounded, and the client has its values in time.
func TestLookFlood(t *testing.T) {
	w, e := newWorldWithEdge(t, nil)
	w.mustPublish("s", towerPut)
	p := w.join(e, dnptest.Cpp(), dnptest.App{})
	w.within(time.Second, "the client is linked", func() bool { return p.has("T", 0, f32(93.5)) })
	answers, busy := 0, 0
	w.on("_INBOX.flood", func(m bus.Msg) {
		if answers++; strings.Contains(string(m.Data), `"code":"busy"`) {
			busy++
		}
	})
	body := fmt.Appendf(nil, `{"client":%q,"key":"tower"}`, p.name)
	for range 2000 {
		for _, subject := range []string{w.subjects.Why("s"), w.subjects.Clients("s"), w.subjects.Nodes(), w.subjects.Spaces()} {
			if err := w.game.Publish(bus.Msg{Subject: subject, Reply: "_INBOX.flood", Data: body}); err != nil {
				t.Fatal(err)
			}
		}
	}
	w.mustPublish("s", `{"op":"set","key":"tower","values":{"hp":1}}`)
	w.within(time.Second, "the client sees a change during the flood", func() bool { return p.has("T", 0, f32(1)) })
	w.net.Run(time.Second)
	if answers < 100 || answers > 2000 || busy == 0 {
		t.Errorf("%d answers, %d of them busy, to 8,000 requests, want that both nodes answer a burst and say that they are busy", answers, busy)
	}
}
