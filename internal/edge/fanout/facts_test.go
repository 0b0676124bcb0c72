package fanout

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/dnp"
	"github.com/dnprelay/dnprelay/dnp/command"
	"github.com/dnprelay/dnprelay/dnp/netstate"
	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/internal/inspect"
	"github.com/dnprelay/dnprelay/replication"
	"github.com/dnprelay/dnprelay/replication/payload"
)

// A whyTest is a worker, a holder and a client that talk to each other, with virtual time.
type whyTest struct {
	*testing.T
	now     time.Time
	host    *requestHost
	spaces  *Spaces
	store   *replication.Store
	session *Session
	player  *dnp.Endpoint
	conn    *dnp.Conn // of the client
	layout  *netstate.Layout
	seen    map[string]*dnp.Source // states that the client accepted, by link message

	declines string // the message of a state that the client refuses
	deaf     bool   // nothing reaches the client
	mute     bool   // nothing comes from the client but acknowledgements
	silent   bool   // nothing comes from the client
	lossy    *rand.Rand
	headless bool // the holder says nothing
}

var whyEdge, whyPlayer = netip.MustParseAddrPort("192.0.2.1:3413"), netip.MustParseAddrPort("192.0.2.2:5000")

// A lane collects datagrams.
type lane struct{ list [][]byte }

func (l *lane) Datagram(size int) []byte        { return make([]byte, 0, size) }
func (l *lane) Send(_ netip.AddrPort, b []byte) { l.list = append(l.list, slices.Clone(b)) }

func newWhyTest(t *testing.T, cfg dnp.Config) *whyTest {
	t.Helper()
	cfg.Listen, cfg.Rand = true, rand.New(rand.NewPCG(1, 1))
	edge, err := dnp.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	player, err := dnp.New(dnp.Config{PeerLinksMax: 4096})
	if err != nil {
		t.Fatal(err)
	}
	number, _ := wire.ParseValueType("uint32")
	layout, err := netstate.NewLayout([]netstate.Value{{Type: number}, {Type: wire.TypeString}})
	if err != nil {
		t.Fatal(err)
	}
	w := &whyTest{T: t, now: start, host: &requestHost{}, player: player, layout: layout, seen: make(map[string]*dnp.Source)}
	w.spaces = New(Config{Host: w.host, Endpoint: edge, Node: "e1", Shards: 1, Linger: time.Hour})
	w.store = replication.NewStore(replication.StoreConfig{Space: "arena", Epoch: 7, Volatile: true})
	w.store.Join("alice", "m")
	w.spaces.Follow(w.now, "arena")
	if w.conn, err = player.Connect(w.now, whyEdge); err != nil {
		t.Fatal(err)
	}
	w.run(2 * time.Second)
	if w.session == nil {
		t.Fatal("the client is not connected")
	}
	return w
}

// run plays for a time, in steps of 5 ms.
func (w *whyTest) run(d time.Duration) {
	for end := w.now.Add(d); w.now.Before(end); w.now = w.now.Add(5 * time.Millisecond) {
		w.replicate()
		w.turnEdge()
		w.turnPlayer()
	}
}

// replicate brings what the holder says to the worker.
func (w *whyTest) replicate() {
	if w.headless {
		return
	}
	replica := w.spaces.Replica("arena")
	for _, out := range w.store.Advance(w.now) {
		if out.Kind == replication.OutputBatch {
			replica.Apply(w.now, out.Data)
		}
	}
	if w.now.Sub(start)%(250*time.Millisecond) == 0 {
		epoch, seq := w.store.Position()
		w.spaces.ApplyHead(w.now, "arena", epoch, seq)
	}
	if request, ok := replica.Advance(w.now); ok {
		for _, part := range w.store.Repair(w.now, request) {
			replica.ApplyReply(w.now, part)
		}
	}
}

func (w *whyTest) turnEdge() {
	edge, out := w.spaces.Endpoint, &lane{}
	w.spaces.Advance(w.now)
	edge.Flush(w.now, out)
	w.handle(edge.Advance(w.now, out))
	for _, p := range out.list {
		if w.deaf || w.lost() {
			continue
		}
		back := &lane{}
		w.play(w.player.Receive(w.now, whyEdge, p, back))
		w.deliver(back)
	}
}

func (w *whyTest) turnPlayer() {
	out := &lane{}
	w.player.Flush(w.now, out)
	w.play(w.player.Advance(w.now, out))
	w.deliver(out)
}

// deliver brings datagrams of the client to the worker.
func (w *whyTest) deliver(from *lane) {
	for _, p := range from.list {
		if w.silent || w.mute && wire.Command(p[0]) == wire.CommandLinkUp || w.lost() {
			continue
		}
		back := &lane{}
		w.handle(w.spaces.Endpoint.Receive(w.now, whyPlayer, p, back))
		if w.deaf {
			continue
		}
		for _, q := range back.list {
			w.play(w.player.Receive(w.now, whyEdge, q, &lane{}))
		}
	}
}

func (w *whyTest) lost() bool { return w.lossy != nil && w.lossy.IntN(3) == 0 }

func (w *whyTest) handle(events []dnp.Event) {
	for i := range events {
		ev := &events[i]
		if s, ok := ev.Conn.Data().(*Session); ok {
			s.Handle(w.now, ev)
		} else if ev.Kind == dnp.EventConnected {
			w.session = w.spaces.NewSession(SessionConfig{ID: "m", Claims: newClaims(), Began: w.now})
			w.session.Begin(w.now, ev.Conn)
		}
	}
}

// play accepts what the client is offered.
func (w *whyTest) play(events []dnp.Event) {
	for i := range events {
		ev := &events[i]
		if ev.Kind != dnp.EventLinkOffered {
			continue
		}
		if string(ev.Data) == w.declines {
			w.conn.Reject(ev.Link)
			continue
		}
		src := w.player.NewSource(dnp.SourceConfig{State: netstate.NewState(w.layout), Message: []byte("mine")})
		w.seen[string(ev.Data)] = src
		if err := w.conn.Accept(ev.Link, src); err != nil {
			w.Fatal(err)
		}
	}
}

// publish publishes an op.
func (w *whyTest) publish(op replication.Op) {
	w.Helper()
	w.store.Publish(w.now, replication.Publish{Ops: []replication.Op{op}, Atomic: true})
}

// put makes a state with a number and a text of so many bytes, or changes it.
func (w *whyTest) put(key string, n byte, size int, more replication.Op) {
	w.Helper()
	number, _ := wire.ParseValueType("uint32")
	more.Kind, more.Key = replication.OpPut, key
	text := append([]byte{byte(size), byte(size >> 8)}, strings.Repeat("x", size)...)
	more.Values = []replication.PutValue{
		{ValueDef: replication.ValueDef{Name: "n", Type: number}, Value: replication.Encoded{Type: number, Value: []byte{n, 0, 0, 0}}},
		{ValueDef: replication.ValueDef{Name: "text", Type: wire.TypeString}, Value: replication.Encoded{Type: wire.TypeString, Value: text}},
	}
	w.publish(more)
}

func groups(names ...string) replication.Op {
	return replication.Op{Audience: replication.Audience{Kind: replication.AudienceListed, Groups: names}, HasAudience: true}
}

// resume continues the session of a client whose edge is gone. The client says nothing.
func (w *whyTest) resume(client string) {
	w.Helper()
	claims := newClaims()
	claims.Client = client
	session := w.spaces.NewSession(SessionConfig{ID: "m." + client, Claims: claims, Began: w.now})
	session.Resume(w.now, w.spaces.Endpoint.LogIn(w.now, netip.MustParseAddrPort("192.0.2.3:5000"), nil, discard{}), 0, command.Progress{})
}

// reasons returns why the client has what it has of a state.
func (w *whyTest) reasons(client, key string) []inspect.Reason {
	w.Helper()
	inquiry := w.spaces.Inquire("arena", client, key)
	for !inquiry.Step(w.now) {
	}
	if len(inquiry.Facts()) != 1 {
		w.Fatalf("the worker knows %d sessions of the client, want one", len(inquiry.Facts()))
	}
	return inspect.Reasons(&inspect.Facts{Edge: inquiry.Facts()[0]})
}

// A situation is something that keeps a client from a state, or does not.
type situation struct {
	name   string
	cfg    dnp.Config
	set    func(w *whyTest)
	key    string       // empty for door
	first  inspect.Code // the first reason that blocks; empty if none does
	others []inspect.Code
	client string // whose view; empty for alice
	text   string // a part of the text of the first reason, or of one of the others
}

var situations = []situation{
	{name: "all is well", set: func(w *whyTest) { w.put("door", 1, 1, replication.Op{}); w.run(time.Second) },
		others: []inspect.Code{inspect.InAudience, inspect.Linked, inspect.UpToDate}, text: "everybody"},
	{name: "never published", set: func(*whyTest) {}, first: inspect.NeverPublished},
	{name: "removed", set: func(w *whyTest) {
		w.put("door", 1, 1, replication.Op{})
		w.run(time.Second)
		w.publish(replication.Op{Kind: replication.OpRemove, Key: "door"})
		w.run(3 * time.Second)
	}, first: inspect.Removed, text: "3.0 s ago"},
	{name: "no group", set: func(w *whyTest) { w.put("door", 1, 1, groups("red")); w.run(time.Second) },
		first: inspect.NotInAudience, text: "needs group red; the client is in no group"},
	{name: "another group", set: func(w *whyTest) {
		w.publish(replication.Op{Kind: replication.OpGroup, Client: "alice", Join: []string{"blue"}})
		w.put("door", 1, 1, groups("red", "green"))
		w.run(time.Second)
	}, first: inspect.NotInAudience, text: "needs group red or green; the client is in blue only"},
	{name: "the group", set: func(w *whyTest) {
		w.publish(replication.Op{Kind: replication.OpGroup, Client: "alice", Join: []string{"red"}})
		w.put("door", 1, 1, groups("red"))
		w.run(time.Second)
	}, others: []inspect.Code{inspect.InAudience, inspect.UpToDate}, text: "has group red"},
	{name: "other clients only", set: func(w *whyTest) {
		w.put("door", 1, 1, replication.Op{Audience: replication.Audience{Kind: replication.AudienceListed, Clients: []string{"bob"}}, HasAudience: true})
		w.run(time.Second)
	}, first: inspect.NotInAudience, text: "names other clients"},
	{name: "everybody but the client", set: func(w *whyTest) {
		w.put("door", 1, 1, replication.Op{Audience: replication.Audience{Kind: replication.AudienceAllBut, Clients: []string{"alice"}}, HasAudience: true})
		w.run(time.Second)
	}, first: inspect.NotInAudience, text: "excludes the client by name"},
	{name: "nobody", set: func(w *whyTest) {
		w.put("door", 1, 1, replication.Op{HasAudience: true})
		w.run(time.Second)
	}, first: inspect.NotInAudience, text: "is empty"},
	{name: "declined", set: func(w *whyTest) {
		w.declines = "door"
		w.put("door", 1, 1, replication.Op{})
		w.run(time.Second)
	}, first: inspect.Declined},
	{name: "no room", cfg: dnp.Config{LinksMax: 2}, set: func(w *whyTest) {
		w.put("a", 1, 1, replication.Op{})
		w.put("b", 1, 1, replication.Op{})
		w.run(time.Second)
		w.put("door", 1, 1, replication.Op{})
		w.run(time.Second)
	}, first: inspect.NoRoom, text: "2 links"},
	{name: "no LinkId is left", set: func(w *whyTest) {
		w.spaces.Recycle = RecycleTell // otherwise the edge closes the connection
		w.put("tower", 1, 1, replication.Op{})
		w.run(time.Second)
		src := w.spaces.Endpoint.NewSource(dnp.SourceConfig{State: netstate.NewState(w.layout)})
		for none := false; !none; _, none = w.spaces.Endpoint.LinkIDs(w.session.conn) {
			w.session.conn.Link(src, true)
			w.session.conn.Unlink(src, false)
		}
		w.put("door", 1, 1, replication.Op{})
		w.run(time.Second)
	}, first: inspect.NoLinkIDs, text: "has to connect again"},
	{name: "taken over, and the replica is not complete", client: "bob", set: func(w *whyTest) {
		w.put("door", 1, 1, replication.Op{})
		w.run(time.Second)
		epoch, seq := w.store.Position()
		w.headless = true
		w.spaces.ApplyHead(w.now, "arena", epoch, seq+3)
		w.resume("bob")
		w.run(100 * time.Millisecond)
	}, first: inspect.ReplicaBehind, others: []inspect.Code{inspect.InAudience, inspect.Unaligned}, text: "took the session over"},
	{name: "taken over, and the replica is complete", client: "bob", set: func(w *whyTest) {
		w.put("door", 1, 1, replication.Op{})
		w.run(time.Second)
		w.resume("bob")
		w.run(100 * time.Millisecond)
	}, first: inspect.OfferUnanswered, others: []inspect.Code{inspect.InAudience}},
	{name: "the offer waits for others", cfg: dnp.Config{OfferBytesPerSecond: 2000}, set: func(w *whyTest) {
		for i := range 30 {
			w.put(fmt.Sprint("s", i), 1, 900, replication.Op{Priority: 9})
		}
		w.put("door", 1, 1, replication.Op{})
		w.run(200 * time.Millisecond)
	}, first: inspect.OfferQueued, text: "behind"},
	{name: "the offer has no answer", set: func(w *whyTest) {
		w.deaf = true
		w.put("door", 1, 1, replication.Op{})
		w.run(time.Second)
	}, first: inspect.OfferUnanswered},
	{name: "the link is presumed", set: func(w *whyTest) {
		w.mute = true
		w.put("door", 1, 1, replication.Op{})
		w.run(2 * time.Second)
	}, others: []inspect.Code{inspect.LinkPresumed, inspect.UpToDate}},
	{name: "over budget", cfg: dnp.Config{BytesPerSecond: 2000}, set: func(w *whyTest) {
		for i := range 9 {
			w.put(fmt.Sprint("s", i), 1, 400, replication.Op{Priority: 16})
		}
		w.put("door", 1, 1, replication.Op{})
		w.run(20 * time.Second)
		for i := range 9 {
			w.put(fmt.Sprint("s", i), 2, 401, replication.Op{})
		}
		w.put("door", 2, 1, replication.Op{})
		w.run(400 * time.Millisecond)
	}, first: inspect.WaitsForBudget, text: "wait for the budget"},
	{name: "less detail", set: func(w *whyTest) {
		w.put("door", 1, 1, replication.Op{Details: []replication.Detail{{Clients: []string{"alice"}, Precision: 1, Rate: 0.1}}, HasDetails: true})
		w.run(15 * time.Second)
		w.put("door", 2, 1, replication.Op{})
		w.run(12 * time.Second) // the period of the level has its first value
		w.put("door", 3, 1, replication.Op{})
		w.run(100 * time.Millisecond)
		w.put("door", 4, 1, replication.Op{})
		w.run(100 * time.Millisecond)
	}, first: inspect.LevelOfDetail, text: "at most 0.1 changes a second"},
	{name: "less detail, nothing held back", set: func(w *whyTest) {
		w.put("door", 1, 1, replication.Op{Details: []replication.Detail{{Clients: []string{"alice"}, Precision: 4}}, HasDetails: true})
		w.run(3 * time.Second)
	}, others: []inspect.Code{inspect.LevelOfDetail, inspect.UpToDate}, text: "precision times 4"},
	{name: "the client wrote a value", set: func(w *whyTest) {
		w.put("door", 1, 1, replication.Op{Access: replication.Access{Kind: replication.AccessReadWrite}, HasAccess: true})
		w.run(time.Second)
		src := w.seen["door"]
		src.State().Set(0, []byte{9, 0, 0, 0})
		src.Changed(0)
		w.run(300 * time.Millisecond)
	}, others: []inspect.Code{inspect.Linked, inspect.WriteUnsettled}, text: "1 value that the relay has not acknowledged"},
	{name: "a state of the client", key: "client.alice.0", set: func(w *whyTest) {
		src := w.player.NewSource(dnp.SourceConfig{State: netstate.NewState(w.layout), Message: []byte("mine")})
		if err := w.conn.Link(src, false); err != nil {
			w.Fatal(err)
		}
		w.run(time.Second)
	}, others: []inspect.Code{inspect.OwnState, inspect.Linked}},
	{name: "quiet", set: func(w *whyTest) {
		w.put("door", 1, 1, replication.Op{})
		w.run(time.Second)
		w.put("door", 2, 1, replication.Op{})
		w.run(8 * time.Second)
	},
		others: []inspect.Code{inspect.Quiet, inspect.UpToDate}, text: "has not changed for 8.0 s"},
	{name: "repeats to come", set: func(w *whyTest) {
		w.put("door", 1, 1, replication.Op{})
		w.run(time.Second)
		w.put("door", 2, 1, replication.Op{})
		w.run(80 * time.Millisecond)
	}, others: []inspect.Code{inspect.RefreshDue, inspect.UpToDate}},
	{name: "loss", set: func(w *whyTest) {
		w.lossy = rand.New(rand.NewPCG(3, 3))
		for i := range 40 {
			w.put(fmt.Sprint("s", i), 1, 1, replication.Op{})
		}
		w.put("door", 1, 1, replication.Op{})
		w.run(8 * time.Second)
		w.lossy = nil
	}, others: []inspect.Code{inspect.Loss}, text: "% of the datagrams"},
	{name: "a silent client", cfg: dnp.Config{LivenessInterval: -1}, set: func(w *whyTest) {
		w.put("door", 1, 1, replication.Op{})
		w.run(time.Second)
		w.silent = true
		w.run(25 * time.Second)
	}, others: []inspect.Code{inspect.ClientSilent}, text: "datagram of the client came 2"},
	{name: "the carrier is away", set: func(w *whyTest) {
		w.put("door", 1, 1, replication.Op{})
		w.run(time.Second)
		w.spaces.Endpoint.SetRoom(whyPlayer, 0)
		w.put("door", 2, 1, replication.Op{})
		w.run(100 * time.Millisecond)
	}, first: inspect.CarrierAway, others: []inspect.Code{inspect.WaitsForBudget}},
	{name: "the holder is silent", set: func(w *whyTest) {
		w.put("door", 1, 1, replication.Op{})
		w.run(time.Second)
		w.headless = true
		w.run(5 * time.Second)
	}, first: inspect.HolderAway, others: []inspect.Code{inspect.Linked}, text: "for 5"},
	{name: "the replica missed changes", set: func(w *whyTest) {
		w.put("door", 1, 1, replication.Op{})
		w.run(time.Second)
		epoch, seq := w.store.Position()
		w.headless = true
		w.spaces.ApplyHead(w.now, "arena", epoch, seq+3)
		w.run(100 * time.Millisecond)
	}, first: inspect.ReplicaBehind, text: "missed changes"},
}

// TestWhy sets situations up and wants the true reason.
func TestWhy(t *testing.T) {
	for _, c := range situations {
		t.Run(c.name, func(t *testing.T) {
			w := newWhyTest(t, c.cfg)
			c.set(w)
			reasons, text := w.reasons(cmp.Or(c.client, "alice"), cmp.Or(c.key, "door")), ""
			var first inspect.Code
			for _, r := range reasons {
				if r.Blocks && first == "" {
					first = r.Code
				}
				text += fmt.Sprintf("  %s (blocks: %v): %s\n", r.Code, r.Blocks, r.Text)
			}
			if first != c.first {
				t.Errorf("the first reason that blocks is %q, want %q:\n%s", first, c.first, text)
			}
			for _, code := range c.others {
				if !slices.ContainsFunc(reasons, func(r inspect.Reason) bool { return r.Code == code }) {
					t.Errorf("the reason %s is missing:\n%s", code, text)
				}
			}
			if !strings.Contains(text, c.text) {
				t.Errorf("the reasons do not say %q:\n%s", c.text, text)
			}
		})
	}
}

// crowd returns a worker with so many clients, each with so many links, and with what game servers said besides.
func crowd(t testing.TB, clients, links int, ops ...string) *Spaces {
	endpoint, err := dnp.New(dnp.Config{Listen: true, Rand: rand.New(rand.NewPCG(1, 1))})
	if err != nil {
		t.Fatal(err)
	}
	s := New(Config{Host: &requestHost{}, Endpoint: endpoint, Node: "e1", Shards: 1, Linger: time.Hour})
	store := replication.NewStore(replication.StoreConfig{Space: "arena", Epoch: 1, Volatile: true})
	number, _ := wire.ParseValueType("uint8")
	for i := range links {
		store.Publish(start, replication.Publish{Ops: []replication.Op{{
			Kind: replication.OpPut, Key: fmt.Sprint("s", i), HasAudience: true, Audience: replication.Audience{Kind: replication.AudienceAll},
			Values: []replication.PutValue{{ValueDef: replication.ValueDef{Type: number}, Value: replication.Encoded{Type: number, Value: []byte{1}}}},
		}}})
	}
	for _, op := range ops {
		p, bad := payload.JSON.Parse([]byte(op), "")
		if bad != nil {
			t.Fatal(bad)
		}
		if bad := store.Publish(start, p); bad != nil {
			t.Fatal(bad)
		}
	}
	replica := s.Follow(start, "arena")
	for _, out := range store.Advance(start) {
		if out.Kind == replication.OutputBatch {
			replica.Apply(start, out.Data)
		}
	}
	epoch, seq := store.Position()
	s.ApplyHead(start, "arena", epoch, seq)
	if request, ok := replica.Advance(start.Add(time.Second)); ok {
		for _, part := range store.Repair(start, request) {
			replica.ApplyReply(start, part)
		}
	}
	for i := range clients {
		addr := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), 5000)
		claims := newClaims()
		claims.Client = fmt.Sprint("c", i)
		session := s.NewSession(SessionConfig{ID: fmt.Sprint("m", i), Claims: claims, Began: start})
		session.Begin(start, endpoint.LogIn(start, addr, nil, discard{}))
	}
	return s
}

func describeNothing(*inspect.Client, netip.AddrPort) {}

// TestListing reads all clients of a space in pages while clients leave, and compares with those that stayed.
func TestListing(t *testing.T) {
	s := crowd(t, 3000, 2)
	rnd := rand.New(rand.NewPCG(1, 2))
	sessions := s.byName["arena"].sessions
	stay := make(map[string]bool)
	for _, session := range sessions {
		stay[session.Claims.Client] = true
	}
	var got []string
	steps := 0
	for q := (inspect.Query{Max: 400}); ; {
		l := s.List("arena", q, describeNothing)
		for !l.Step(start) {
			steps++
			leaver := s.byName["arena"].sessions[rnd.IntN(len(s.byName["arena"].sessions))]
			delete(stay, leaver.Claims.Client)
			leaver.Handle(start, &dnp.Event{Kind: dnp.EventClosed, Conn: leaver.conn, Reason: dnp.ClosePeer})
		}
		page := l.Page()
		for _, c := range page.Entries {
			got = append(got, c.Client)
			if c.Links.Queued+c.Links.Up+c.Links.Offered != 2 {
				t.Fatalf("client %s has links %+v, want two", c.Client, c.Links)
			}
		}
		if page.Next == "" {
			break
		}
		q.After = page.Next
	}
	if steps < 16 {
		t.Errorf("all pages took %d steps, want several for each", steps)
	}
	all := make(map[string]int)
	for _, c := range got {
		all[c]++
	}
	for c := range stay {
		if all[c] != 1 {
			t.Errorf("client %s, who stayed, is listed %d times, want once", c, all[c])
		}
	}
}

// BenchmarkInquiry measures a step of the search for one client among many, who has many links.
func BenchmarkInquiry(b *testing.B) {
	s := crowd(b, 4000, 100)
	for b.Loop() {
		i := s.Inquire("arena", "c0", "s99")
		i.Step(start)
	}
}

// BenchmarkFacts measures what is known about one client with as many links as it may have.
func BenchmarkFacts(b *testing.B) {
	s := crowd(b, 1, 4096)
	for b.Loop() {
		i := s.Inquire("arena", "c0", "s4000")
		if !i.Step(start) || len(inspect.Reasons(&inspect.Facts{Edge: i.Facts()[0]})) == 0 {
			b.Fatal("the client is not found")
		}
	}
}

// BenchmarkListing measures the steps of a page of clients with many links. A step is all that a turn of the edge has to do
// for people who look.
func BenchmarkListing(b *testing.B) {
	s := crowd(b, 2000, 500)
	var steps []time.Duration
	for b.Loop() {
		l := s.List("arena", inspect.Query{Max: 500}, describeNothing)
		for done := false; !done; {
			begun := time.Now()
			done = l.Step(start)
			steps = append(steps, time.Since(begun))
		}
	}
	slices.Sort(steps)
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(len(steps)), "ns/step")
	b.ReportMetric(float64(steps[len(steps)*99/100].Nanoseconds()), "p99-ns/step")
}

// TestHistoryOfRemovals: a space remembers the last 64 states that ended, as INTERFACES.md says, and no more.
func TestHistoryOfRemovals(t *testing.T) {
	var h history
	start := time.Unix(1e9, 0)
	for i := range 200 {
		h.removed(fmt.Sprint("s", i), start.Add(time.Duration(i)*time.Second))
	}
	for i := range 200 {
		at, ok := h.removal(fmt.Sprint("s", i))
		if want := i >= 200-64; ok != want || ok && !at.Equal(start.Add(time.Duration(i)*time.Second)) {
			t.Errorf("state %d of 200: removal at %v, %v, want %v", i, at, ok, want)
		}
	}
	h.removed("s199", start.Add(time.Hour))
	if at, ok := h.removal("s199"); !ok || !at.Equal(start.Add(time.Hour)) {
		t.Errorf("a state that ended twice: %v, %v, want the later time", at, ok)
	}
}
