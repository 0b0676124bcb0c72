package main

import (
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/internal/inspect"
	"github.com/dnprelay/dnprelay/internal/natsembed"
	"github.com/dnprelay/dnprelay/internal/natstest"
	"github.com/dnprelay/dnprelay/replication"
	"github.com/dnprelay/dnprelay/replication/payload"
	"github.com/dnprelay/dnprelay/subject"
	"github.com/nats-io/nats.go"
)

// A testRelay simulates a cluster behind NATS. It holds the space demo: it parses a publish
// like a relay, and answers with a position that counts up; it answers a get of the space in
// two pages, and a get of a key with the last publish. Two edges answer who; client c1 is
// connected to one of them. Edge edge-1 drains when it is asked: it has 1 session, then none, and then it is gone.
// The testRelay publishes an event of demo all the time.
type testRelay struct {
	nc   *nats.Conn
	subj subject.Names
	seq  uint64
	last []byte

	asked int // for spaces

	mu    sync.Mutex // each subject has a goroutine of NATS
	drain int        // how many times nodes were asked since edge-1 drains; 0 before
}

func startRelay(t testing.TB) (url string) {
	t.Helper()
	r := &testRelay{}
	srv, err := natsembed.Start(natsembed.Config{Listen: "127.0.0.1:0", Folder: natstest.Dir(t), Mappings: r.subj.Mappings(64)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(srv.Shutdown)
	if r.nc, err = nats.Connect(srv.URL()); err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	t.Cleanup(running.Wait)
	stop := make(chan struct{})
	t.Cleanup(func() { close(stop); r.nc.Close() })
	for subject, handle := range map[string]nats.MsgHandler{
		"dnp.v1.shard.*.publish.demo.>": r.publish,
		"dnp.v1.shard.*.publish.demo":   r.publish,
		"dnp.v1.shard.*.get.demo":       r.page,
		"dnp.v1.shard.*.get.demo.>":     r.get,
		r.subj.Who("demo"):              r.who,
		r.subj.To("demo", "c1"):         r.to,
		r.subj.ToAll("demo"):            func(*nats.Msg) {},
		r.subj.Spaces():                 r.spaces,
		r.subj.Nodes():                  r.nodes,
		r.subj.Clients("demo"):          r.clients,
		r.subj.Why("demo"):              r.why,
		r.subj.Drain("edge-1"):          r.drainEdge,
	} {
		if _, err := r.nc.Subscribe(subject, handle); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.nc.Flush(); err != nil {
		t.Fatal(err)
	}
	running.Go(func() { r.events(stop) })
	return srv.URL()
}

func (r *testRelay) publish(m *nats.Msg) {
	a, ok := r.subj.ParsePublish(m.Subject)
	p, problem := payload.JSON.Parse(m.Data, a.Key)
	if problem == nil && p.Ops[0].Kind == replication.OpKick && p.Ops[0].Client != "c1" {
		problem = replication.Errorf(replication.CodeUnknownClient, "no client %q is in the space", p.Ops[0].Client)
	}
	if problem == nil && !ok {
		problem = replication.Errorf(replication.CodeBadRequest, "subject %s", m.Subject)
	}
	r.seq++
	r.last = m.Data
	_ = m.Respond(payload.JSON.AppendAnswer(nil, &replication.Answer{Epoch: 7, Seq: r.seq, Durable: true, Err: problem}))
}

func (r *testRelay) page(m *nats.Msg) {
	if len(m.Data) == 0 {
		_ = m.Respond([]byte(`{"epoch":7,"seq":1,"states":[{"key":"a"}],"after":"a"}`))
		return
	}
	_ = m.Respond([]byte(`{"epoch":7,"seq":1,"states":[{"key":"b"}]}`))
}

func (r *testRelay) get(m *nats.Msg) {
	if r.last == nil {
		_ = m.Respond([]byte(`{"error":{"code":"unknown_state","message":"there is no state"}}`))
		return
	}
	_ = m.Respond(r.last)
}

func (r *testRelay) who(m *nats.Msg) {
	for _, edge := range []string{"edge-1", "edge-2"} {
		b, _ := json.Marshal(map[string]string{"edge": edge})
		_ = m.Respond(b)
	}
}

// respond answers as a node does that people look at.
func respond(m *nats.Msg, v any) {
	b, _ := json.Marshal(v)
	_ = m.Respond(b)
}

// spaces answers in two pages, as two relays, of which the first is busy once.
func (r *testRelay) spaces(m *nats.Msg) {
	q, _ := inspect.ParseQuery(m.Data)
	r.asked++
	if r.asked == 1 {
		respond(m, inspect.SpacesAnswer{Head: inspect.NewHead("r1", "relay", inspect.ErrBusy)})
		return
	}
	list := inspect.List[inspect.Space]{Entries: []inspect.Space{{Space: "arena", Holder: "r1", Serving: true, Durable: true}}, Next: "arena"}
	if q.After == "arena" {
		list = inspect.List[inspect.Space]{Entries: []inspect.Space{{Space: "demo", Holder: "r1", States: 2, Clients: 1, Epoch: 7, Seq: r.seq}}}
	}
	respond(m, inspect.SpacesAnswer{Head: inspect.NewHead("r1", "relay", nil), List: list})
	respond(m, inspect.SpacesAnswer{Head: inspect.NewHead("r2", "relay", nil), List: inspect.List[inspect.Space]{Entries: []inspect.Space{}}})
}

func (r *testRelay) drainEdge(m *nats.Msg) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.drain = 1
	respond(m, inspect.DrainAnswer{Head: inspect.NewHead("edge-1", "edge", nil), Sessions: "handed_over"})
}

func (r *testRelay) nodes(m *nats.Msg) {
	r.mu.Lock()
	defer r.mu.Unlock()
	facts := &inspect.NodeFacts{Version: "1.2.3", Ready: true, Uptime: 5000, Clients: max(0, 2-max(1, r.drain))}
	members := []inspect.Member{{Node: "edge-9", Role: "edge", Phase: "draining"}}
	if r.drain < 3 {
		respond(m, inspect.NodesAnswer{Head: inspect.NewHead("edge-1", "edge", nil), NodeFacts: facts})
		members = append(members, inspect.Member{Node: "edge-1", Role: "edge", Phase: "ready"})
	}
	if r.drain > 0 {
		r.drain++
	}
	respond(m, inspect.NodesAnswer{Head: inspect.NewHead("r1", "relay", nil), NodeFacts: facts, List: inspect.List[inspect.Member]{Entries: members}})
}

func (r *testRelay) clients(m *nats.Msg) {
	entry := inspect.Client{Client: "c1", Session: "m", Edge: "edge-1", Address: "192.0.2.0/24", Carrier: "udp", Links: inspect.Links{Up: 3}}
	respond(m, inspect.ClientsAnswer{Head: inspect.NewHead("edge-1", "edge", nil), List: inspect.List[inspect.Client]{Entries: []inspect.Client{entry}}})
	if q, err := inspect.ParseClients(m.Data); err == nil && q.Selects() {
		respond(m, r.near(q)) // edge-1 does not select, so c1 is none of those
	}
}

// near answers who is near: three clients, of whom those are selected that see the state, if the query asks for them; no client is near rock, and
// there is no ghost.
func (r *testRelay) near(q inspect.Query) inspect.ClientsAnswer {
	a := inspect.ClientsAnswer{Head: inspect.NewHead("edge-2", "edge", nil), Space: "demo", List: inspect.List[inspect.Client]{Entries: []inspect.Client{}}}
	switch {
	case q.Near != nil && q.Near.Key == "rock":
		a.Nowhere = inspect.NoPlace
		return a
	case q.Sees == "ghost":
		a.Nowhere = inspect.NoState
		return a
	}
	for i, d := range []float64{4950, 12.25, 5} {
		n := inspect.Nearness{Eyes: 1, Distance: &d, Band: []int{0, 2, 1}[i], Bands: 3, Sees: i == 1}
		if (q.Sees == "" || n.Sees) && (q.Within == nil || d <= *q.Within) {
			a.Entries = append(a.Entries, inspect.Client{Client: fmt.Sprintf("c%d", i+2), Edge: "edge-2", Near: &n})
		}
	}
	return a
}

func (r *testRelay) why(m *nats.Msg) {
	q, _ := inspect.ParseWhy(m.Data)
	holder := &inspect.HolderFacts{Relay: "r1", Known: true, Epoch: 7, State: true}
	respond(m, inspect.WhyAnswer{Head: inspect.NewHead("r1", "relay", nil), Facts: &inspect.Facts{Holder: holder}})
	if q.Client == "c1" {
		state := &inspect.StateFacts{Audience: "listed", Groups: []string{"red"}}
		edge := &inspect.EdgeFacts{Edge: "edge-1", Epoch: 7, Whole: true, State: state}
		respond(m, inspect.WhyAnswer{Head: inspect.NewHead("edge-1", "edge", nil), Facts: &inspect.Facts{Edge: edge}})
	}
}

func (r *testRelay) to(m *nats.Msg) {
	_ = m.Respond(fmt.Appendf(nil, `{"number":%d}`, len(m.Data)))
}

func (r *testRelay) events(stop chan struct{}) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return
		case <-tick.C:
			_ = r.nc.Publish(r.subj.Event("demo"), []byte(`{"v":1,"type":"joined","space":"demo","client":"c1"}`))
		}
	}
}
