package fanout

import (
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/bus"
	"github.com/dnprelay/dnprelay/dnp"
	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/internal/auth"
	"github.com/dnprelay/dnprelay/replication"
	"github.com/dnprelay/dnprelay/replication/payload"
	"github.com/dnprelay/dnprelay/subject"
)

var (
	orderRounds = flag.Int("rounds", 60, "runs of TestOrderOfEvents")
)

// TestOrderOfEvents lets clients come, write, speak and go at two edges, while the holder is away at times and another one
// comes. All messages pass one server, each way to it and from it with delays of its own. A game server hears joined first and left
// last of each session, or nothing of it, and what it says about a client as soon as it hears joined is not refused while the
// client is there, nor accepted when it heard left.
func TestOrderOfEvents(t *testing.T) {
	ops, sessions := 0, 0
	for round := range uint64(*orderRounds) {
		o := newOrderTest(t, *seed+round)
		o.play()
		ops, sessions = ops+o.ops, sessions+len(o.all)
		if t.Failed() {
			t.Fatalf("repeat with -run TestOrderOfEvents -seed=%d -rounds=1", *seed+round)
		}
	}
	t.Logf("%d sessions, %d ops at joined", sessions, ops)
}

// An orderTest is a deployment whose messages are in transit. Its relays are stores.
type orderTest struct {
	*testing.T
	rand  *rand.Rand
	now   time.Time
	queue []transit // by time
	ways  map[string]time.Time
	edges []*orderEdge
	store *replication.Store // nil while there is no holder
	since time.Time          // when the holder began
	epoch uint64
	waits map[uint64]func(data []byte) // for answers, by token
	token uint64

	all    []*orderClient
	byID   map[string]*orderClient
	ops    int
	ending bool
}

type transit struct {
	at time.Time
	do func()
}

// An orderClient is one session, and the dumb twin of what a game server may hear of it.
type orderClient struct {
	*Session
	edge         *orderEdge
	ended        bool // at the edge
	joined, left bool // game servers heard it
	departed     bool // a holder was told
	wanted       int  // messages that the client sent
	heard        int  // of those
}

type orderEdge struct {
	*orderTest
	name   string
	spaces *Spaces
}

func newOrderTest(t *testing.T, seed uint64) *orderTest {
	o := &orderTest{
		T: t, rand: rand.New(rand.NewPCG(seed, 7)), now: start, ways: make(map[string]time.Time), waits: make(map[uint64]func([]byte)), byID: make(map[string]*orderClient),
	}
	for i := range 2 {
		endpoint, err := dnp.New(dnp.Config{})
		if err != nil {
			t.Fatal(err)
		}
		e := &orderEdge{orderTest: o, name: fmt.Sprint("e", i)}
		e.spaces = New(Config{Host: e, Endpoint: endpoint, Node: e.name, Shards: 1, Linger: time.Hour})
		o.edges = append(o.edges, e)
	}
	o.hold()
	return o
}

// way has a message pass from one node over the server to another, behind those that took the same ways before.
func (o *orderTest) way(from, to string, arrived func()) {
	o.leg(from+" to the server", func() { o.leg("the server to "+to, arrived) })
}

func (o *orderTest) leg(name string, arrived func()) {
	at := o.now.Add(time.Duration(o.rand.Int64N(int64(30 * time.Millisecond))))
	if last := o.ways[name]; at.Before(last) {
		at = last
	}
	o.ways[name] = at
	o.after(at.Sub(o.now), arrived)
}

func (o *orderTest) after(d time.Duration, do func()) {
	at := o.now.Add(d)
	i := len(o.queue)
	for i > 0 && o.queue[i-1].at.After(at) {
		i--
	}
	o.queue = slices.Insert(o.queue, i, transit{at, do})
}

// gatherTime is how long a relay that begins to serve a space waits for edges to name the client that a publish is about
// (internal/relay, deferred.go). The answer to a client that joined may be on its way when the former holder dies, so that its edge
// names it to the next one a little later.
const gatherTime = 900 * time.Millisecond

// hold begins an epoch. The holder knows the sessions that edges name, as relays do, who wait for that.
func (o *orderTest) hold() {
	o.epoch++
	o.since = o.now
	o.store = replication.NewStore(replication.StoreConfig{Space: "arena", Epoch: o.epoch, Volatile: true, Tick: 20 * time.Millisecond})
	for _, e := range o.edges {
		for _, p := range e.spaces.Presences("arena") {
			o.store.Join(p.Client, p.Session)
		}
	}
	typ, _ := wire.ParseValueType("uint8")
	o.store.Publish(o.now, replication.Publish{Atomic: true, Ops: []replication.Op{{
		Kind: replication.OpPut, Key: "door", Access: replication.Access{Kind: replication.AccessReadWrite}, HasAccess: true,
		Values: []replication.PutValue{{ValueDef: replication.ValueDef{Name: "open", Type: typ}, Value: replication.Encoded{Type: typ, Value: []byte{0}}}},
	}}})
	o.advance()
	for _, e := range o.edges {
		e.replicate()
	}
}

// advance has the holder emit what is due.
func (o *orderTest) advance() {
	if o.store == nil {
		return
	}
	for _, out := range o.store.Advance(o.now) {
		switch out.Kind {
		case replication.OutputEvent:
			o.way("relay", "game", func() { o.event(payload.JSON.AppendEvent(nil, out.Event)) })
		case replication.OutputAnswer:
			o.waits[out.Answer.Token](payload.JSON.AppendAnswer(nil, &out.Answer))
		case replication.OutputWrite:
			o.waits[out.Write.Token](replication.AppendWriteResult(nil, out.Write))
		case replication.OutputKick:
			for _, e := range o.edges {
				o.way("relay", e.name, func() { e.kick(out.Client, out.Session) })
			}
		}
	}
	if at, ok := o.store.NextTimeout(); ok {
		o.after(max(0, at.Sub(o.now)), o.advance)
	}
}

// want returns the token of an answer that goes to a node.
func (o *orderTest) want(node string, done func(data []byte)) uint64 {
	o.token++
	o.waits[o.token] = func(data []byte) { o.way("relay", node, func() { done(data) }) }
	return o.token
}

// Publish implements Host.
func (e *orderEdge) Publish(m bus.Msg) error {
	switch {
	case m.Subject == e.spaces.Subjects.Event("arena"):
		e.way(e.name, "game", func() { e.event(m.Data) })
		e.way(e.name, "relay", func() { e.after(eventsBehind, func() { e.hears(m.Data) }) })
	case m.Header[subject.HeaderControl] == "":
		e.way(e.name, "game", func() { e.says(m.Header[subject.HeaderSession], "a message") })
	}
	return nil
}

// Request implements Host.
func (e *orderEdge) Request(m bus.Msg, wait time.Duration, done func(time.Time, bus.Msg, error)) {
	open := true
	answer := func(data []byte, err error) {
		if open {
			open = false
			done(e.now, bus.Msg{Data: data}, err)
		}
	}
	e.after(wait, func() { answer(nil, bus.ErrTimeout) })
	e.way(e.name, "relay", func() {
		if e.store == nil {
			e.way("relay", e.name, func() { answer(nil, bus.ErrNoResponders) })
			return
		}
		w, err := replication.ParseWrite(m.Data)
		if err != nil {
			e.Fatalf("an edge asks %x: %v", m.Data, err)
		}
		if w.Kind == replication.WriteLeave {
			e.byID[w.Session].departed = true
		}
		w.Token = e.want(e.name, func(data []byte) { answer(data, nil) })
		e.store.Write(e.now, w)
		e.advance()
	})
}

func (*orderEdge) Repair(_ time.Time, _ string, _ int, request []byte) (replication.Asked, error) {
	return replication.Asked{ID: replication.RequestID(request)}, nil
}
func (*orderEdge) Subscribe(string, func(time.Time, bus.Msg)) func() { return func() {} }
func (*orderEdge) Follow(string, int)                                {}
func (*orderEdge) Unfollow(string, int)                              {}

// replicate brings the replica to the position of the holder.
func (e *orderEdge) replicate() {
	replica := e.spaces.Replica("arena")
	if replica == nil || e.store == nil {
		return
	}
	epoch, seq := e.store.Position()
	replica.ApplyHead(e.now, epoch, seq)
	if request, ok := replica.Advance(e.now.Add(time.Minute)); ok {
		for _, part := range e.store.Repair(e.now, request) {
			replica.ApplyReply(e.now, part)
		}
	}
}

// kick ends the sessions of a client, or one of them, as the word of a relay does.
func (e *orderEdge) kick(client, only string) {
	for _, c := range e.all {
		if c.edge == e && c.Claims.Client == client && (only == "" || only == c.ID) {
			c.end(dnp.CloseKicked)
		}
	}
}

// begin has a client come, whose name no client has now.
func (o *orderTest) begin() {
	name := fmt.Sprint("c", o.rand.IntN(6))
	if slices.ContainsFunc(o.all, func(c *orderClient) bool { return c.Claims.Client == name && !c.ended }) {
		return
	}
	e := o.edges[o.rand.IntN(len(o.edges))]
	n := len(o.all)
	c := &orderClient{edge: e}
	c.Session = e.spaces.NewSession(SessionConfig{ID: fmt.Sprint("s", n), Claims: auth.Claims{Client: name, Space: "arena", Write: true}, Began: o.now})
	conn := e.spaces.Endpoint.LogIn(o.now, netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(n >> 8), byte(n)}), 1), nil, discard{})
	o.all, o.byID[c.ID] = append(o.all, c), c
	c.Begin(o.now, conn)
	e.replicate()
}

// act has a client do something.
func (o *orderTest) act(c *orderClient) {
	if c.ended {
		return
	}
	st := c.replica.ByKey("door")
	switch n := o.rand.IntN(12); {
	case n < 4:
		c.wanted++
		c.Handle(o.now, &dnp.Event{Kind: dnp.EventMessage, Conn: c.conn, Data: []byte("hi")})
	case n < 7 && st != nil:
		c.Handle(o.now, &dnp.Event{Kind: dnp.EventLinkUp, Conn: c.conn, Source: source(st), Link: 1})
	case n < 11 && st != nil:
		wr := c.writes.writer(source(st), nil)
		wr.store(0, 0, 0, []byte{byte(o.rand.IntN(256))})
		wr.repeat.want(o.now)
	case n == 11:
		c.end(dnp.ClosePeer)
	}
}

func (c *orderClient) end(reason dnp.CloseReason) {
	if !c.ended {
		c.ended = true
		c.Handle(c.edge.now, &dnp.Event{Kind: dnp.EventClosed, Conn: c.conn, Reason: reason})
	}
}

// says takes what a game server hears of a session.
func (o *orderTest) says(session, what string) {
	c := o.byID[session]
	if !c.joined || c.left {
		o.Errorf("%v: a game server hears %s of session %s of %s; it heard joined %v, left %v", o.now.Sub(start), what, session, c.Claims.Client, c.joined, c.left)
	}
	if what == "a message" {
		c.heard++
	}
}

// eventsBehind is how much later a holder reads events than what else came: they have a subscription of their own, whose order with others means nothing.
const eventsBehind = 300 * time.Millisecond

// hears takes an event that the holder hears, which learns from it who came (internal/relay, presence.go).
func (o *orderTest) hears(data []byte) {
	var ev struct{ Type, Client, Session string }
	switch err := json.Unmarshal(data, &ev); {
	case err != nil:
		o.Fatal(err)
	case o.store != nil && ev.Type == "joined" && !o.byID[ev.Session].departed:
		o.store.Join(ev.Client, ev.Session)
	case o.store != nil && ev.Type == "left":
		o.store.Leave(ev.Client, ev.Session)
	}
}

// event takes an event that a game server hears.
func (o *orderTest) event(data []byte) {
	var ev struct{ Type, Client, Session string }
	if err := json.Unmarshal(data, &ev); err != nil {
		o.Fatal(err)
	}
	c := o.byID[ev.Session]
	if ev.Type == "joined" {
		if c.joined {
			o.Errorf("a game server hears twice that session %s joined", ev.Session)
		}
		c.joined = true
		o.op(c, true)
		return
	}
	o.says(ev.Session, ev.Type)
	if ev.Type == "left" {
		c.left = true
		o.op(c, false)
	}
}

// op has a game server say something about the client of a session that joined, or left, until a holder answers.
func (o *orderTest) op(c *orderClient, joined bool) {
	op := replication.Op{Kind: replication.OpGroup, Client: c.Claims.Client, Join: []string{"red"}}
	if joined && o.rand.IntN(4) == 0 {
		op = replication.Op{Kind: replication.OpKick, Client: c.Claims.Client}
	}
	sessions := len(o.all) // a later one of the same name may be meant
	o.way("game", "relay", func() {
		if o.store == nil {
			o.way("relay", "game", func() { o.op(c, joined) })
			return
		}
		if _, known := o.store.Look("", op.Client); joined && known == 0 && o.now.Sub(o.since) < gatherTime {
			o.op(c, joined) // the relay waits until an edge has named the client
			return
		}
		there := !c.ended
		token := o.want("game", func(data []byte) {
			var a struct{ Error *struct{ Code string } }
			if err := json.Unmarshal(data, &a); err != nil {
				o.Fatal(err)
			}
			later := slices.ContainsFunc(o.all, func(x *orderClient) bool { return x != c && x.Claims.Client == c.Claims.Client && !x.left })
			switch {
			case joined && there && a.Error != nil:
				o.Errorf("%v: %s of %s, at joined of session %s, is refused: %s", o.now.Sub(start), data, op.Client, c.ID, a.Error.Code)
			case !joined && a.Error == nil && !later && sessions == len(o.all):
				o.Errorf("%v: a group of %s is accepted, behind left of session %s", o.now.Sub(start), op.Client, c.ID)
			}
		})
		o.ops++
		o.store.Publish(o.now, replication.Publish{Ops: []replication.Op{op}, Atomic: true, Token: token})
		o.advance()
	})
}

// play plays ten seconds, and then the end of all sessions.
func (o *orderTest) play() {
	end := start.Add(10 * time.Second)
	for !o.ending || len(o.queue) > 0 && o.now.Before(end.Add(2*time.Minute)) {
		switch n := o.rand.IntN(400); {
		case o.ending:
		case n < 30:
			o.begin()
		case n < 200 && len(o.all) > 0:
			o.act(o.all[max(0, len(o.all)-1-o.rand.IntN(8))])
		case n == 200:
			o.store = nil
		case n == 201 || o.store == nil && n < 206:
			o.hold()
		}
		for _, e := range o.edges {
			e.replicate()
			e.spaces.Advance(o.now)
		}
		o.now = o.now.Add(5 * time.Millisecond)
		for len(o.queue) > 0 && !o.queue[0].at.After(o.now) {
			do := o.queue[0].do
			o.queue = o.queue[1:]
			do()
		}
		if !o.ending && !o.now.Before(end) {
			o.ending = true
			for _, c := range o.all {
				c.end(dnp.ClosePeer)
			}
			if o.store == nil {
				o.hold()
			}
		}
	}
	for _, c := range o.all {
		if !c.joined || !c.left || c.heard != c.wanted {
			o.Errorf("session %s of %s is over: game servers heard joined %v, left %v, and %d of %d messages", c.ID, c.Claims.Client, c.joined, c.left, c.heard, c.wanted)
		}
	}
}
