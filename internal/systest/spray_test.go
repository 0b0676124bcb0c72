package systest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/bus"
	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/cluster/forward"
	"github.com/dnprelay/dnprelay/cluster/gossip"
	"github.com/dnprelay/dnprelay/cluster/memaffinity"
	"github.com/dnprelay/dnprelay/dnp/admit"
	"github.com/dnprelay/dnprelay/dnp/dnptest"
	"github.com/dnprelay/dnprelay/internal/compose"
	"github.com/dnprelay/dnprelay/internal/config"
	"github.com/dnprelay/dnprelay/internal/edge"
	"github.com/dnprelay/dnprelay/internal/edge/takeover"
	"github.com/dnprelay/dnprelay/sessionlog"
	"github.com/dnprelay/dnprelay/sessionlog/memlog"
)

// A pair is two edges with durable sessions on real sockets, which find each other by gossip and
// forward datagrams to each other. They have the same port at two addresses, as behind a
// balancer.
type pair struct {
	*stack
	game     *gameInbox
	log      *sharedLog
	hub      *memaffinity.Hub
	edges    []*edge.Edge
	forwards []*compose.Forwarding
	gossips  []*gossip.Gossip
	addrs    []netip.AddrPort
	keyDelay time.Duration     // until a changed gossip key is in use; 0 for that of production
	client   dnptest.Behaviour // of the clients
}

func newPair(t *testing.T) *pair { return newPairWith(t, keyFile(t, 0), 0) }

// newPairWith starts a pair with the gossip keys of a file. A change of the file is in use after
// keyDelay; 0 means as in production.
func newPairWith(t *testing.T, keys string, keyDelay time.Duration) *pair {
	t.Helper()
	p := &pair{
		client: dnptest.Cpp(), keyDelay: keyDelay, stack: newEdgeless(t), game: &gameInbox{bySession: map[string]*inbox{}}, log: newSharedLog(),
		hub: memaffinity.New(time.Now),
	}
	p.client.GiveUp = patience // a slow machine may need longer than 3 s to acknowledge; the clients of TestTakeover give up after that
	p.add("e1", keys)
	p.add("e2", keys)
	var mu sync.Mutex
	var left []string
	if _, err := p.stack.game.Subscribe(p.subjects.Event("s"), func(m bus.Msg) {
		if bytes.Contains(m.Data, []byte(`"left"`)) {
			mu.Lock()
			defer mu.Unlock()
			left = append(left, string(m.Data))
		}
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if mu.Lock(); t.Failed() {
			p.tellEdges()
			t.Logf("clients that left: %q", left)
		}
		mu.Unlock()
	})
	p.meet()
	return p
}

// add starts another edge, with the gossip keys of a file.
func (p *pair) add(name, keys string) {
	p.Helper()
	var join []string
	for _, g := range p.gossips {
		join = append(join, g.Addr().String())
	}
	g, err := gossip.Open(gossip.Config{
		Self: cluster.Member{Name: name, Role: cluster.RoleEdge, Phase: cluster.PhaseStarting, Shards: 64, Incarnation: uint64(time.Now().UnixMilli())},
		Bind: "127.0.0.1:0", Join: join, KeyFile: keys, KeyPoll: p.keyDelay / 20, KeyDelay: p.keyDelay, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		p.Fatal(err)
	}
	p.gossips = append(p.gossips, g)
	p.start(name, g)
}

// start starts an edge and its parts, which end before it.
func (p *pair) start(name string, g *gossip.Gossip) {
	p.Helper()
	port := uint16(0) // that of the first edge, for all
	if len(p.addrs) > 0 {
		port = p.addrs[0].Port()
	}
	log := slog.New(slog.DiscardHandler)
	fw, err := compose.NewForwarding(&config.Forward{ForwardListen: "127.0.0.1:0"}, admit.Rate{Datagrams: 200, Bytes: 64 << 10}, name, g, log)
	if err != nil {
		p.Fatal(err)
	}
	at := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, byte(len(p.addrs) + 1)}), port)
	e, err := edge.New(edge.Config{
		Node: name, Listeners: []edge.Listener{{Addr: at}}, Workers: 2, Flush: time.Millisecond, OpenSpace: "s", Bus: p.bus(name), Log: log, DrainTimeout: time.Second,
		Durable: &edge.Durable{
			Ports: takeover.Ports{Log: p.log, Secret: []byte("secret"), Affinity: p.hub.Node(name), Forward: fw},
			From:  p.game, DrainLinger: time.Millisecond,
		},
	})
	if err != nil {
		p.Fatal(err)
	}
	fw.Serve(e)
	p.edges, p.forwards, p.addrs = append(p.edges, e), append(p.forwards, fw), append(p.addrs, e.Addrs()[0])
	p.run("gossip of "+name, g.Run)
	p.run("forwarding of "+name, fw.Run)
	p.run("roster of "+name, func(ctx context.Context) error {
		compose.FollowRoster(ctx, g, func(r cluster.Roster) {
			fw.SetRoster(ctx, r)
			e.SetRoster(r)
		})
		return nil
	})
	p.run(name, func(ctx context.Context) error {
		if err := e.Run(ctx); ctx.Err() == nil {
			return err
		}
		return nil // what its drain needs may have ended before
	})
	g.SetPhase(cluster.PhaseReady)
}

// meet waits until all edges can forward to each other.
func (p *pair) meet() {
	p.Helper()
	for i, f := range p.forwards {
		eventually(p.T, fmt.Sprintf("edge %d is ready", i+1), p.edges[i].Ready)
		for j := range p.forwards {
			if name := fmt.Sprint("e", j+1); i != j {
				eventually(p.T, fmt.Sprintf("edge %d knows %s", i+1, name), func() bool {
					is := f.Liveness(name)
					return is == forward.Alive || is == forward.Unwatched
				})
			}
		}
	}
}

// balance connects a client over a balancer.
func (p *pair) balance(pick func() netip.AddrPort) (*balancer, *dnptest.Peer) {
	p.Helper()
	b := newBalancer(p.T, pick)
	peer := runClient(p.T, b.addr(), p.client, dnptest.App{})
	p.Cleanup(func() {
		if p.Failed() {
			_ = peer.Do(func(_ time.Time, c *dnptest.Client) {
				p.Logf("a client: %v %s, %d queued, %+v", c.Phase(), c.Reason(), c.Queued(), c.Stats)
			})
		}
	})
	return b, peer
}

// A sharedLog is a memlog for several goroutines in real time. Its mutex stands for the single
// goroutine that a memlog needs.
type sharedLog struct {
	mu  sync.Mutex
	log *memlog.Store
}

func newSharedLog() *sharedLog {
	s := &sharedLog{}
	s.log = memlog.New(memlog.Config{Rand: rand.New(rand.NewPCG(1, 2)), Schedule: func(d time.Duration, f func()) {
		time.AfterFunc(d, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			f()
		})
	}})
	return s
}

func (s *sharedLog) Append(w sessionlog.Write, answer func(sessionlog.Answer)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log.Append(w, answer)
}

func (s *sharedLog) Read(log string, answer func(sessionlog.Answer)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log.Read(log, answer)
}

func (p *pair) say(peer *dnptest.Peer, text string) {
	p.Helper()
	if err := peer.Do(func(now time.Time, c *dnptest.Client) {
		if err := c.Send(now, []byte(text)); err != nil {
			p.Errorf("send: %v, the client is %v: %s", err, c.Phase(), c.Reason())
		}
	}); err != nil {
		p.Fatal(err)
	}
}

func (p *pair) tell(client, text string) {
	p.Helper()
	if err := p.stack.game.Publish(bus.Msg{Subject: p.subjects.To("s", client), Data: []byte(text)}); err != nil {
		p.Fatal(err)
	}
}

// inOrder checks that the texts are "m 0", "m 1" and so on.
func (p *pair) inOrder(why string, texts []string, n int) {
	p.Helper()
	if len(texts) != n {
		p.Fatalf("%s: %d messages, want %d: %q", why, len(texts), n, texts)
	}
	for i, text := range texts {
		if want := fmt.Sprint("m ", i); text != want {
			p.Fatalf("%s: message %d is %q, want %q", why, i, text, want)
		}
	}
}

// TestSpray sends each datagram of each client to an edge at random. No client may notice.
func TestSpray(t *testing.T) {
	t.Parallel()
	const clients, messages = 8, 60
	p := newPair(t)
	p.publish(lampPut)
	var peers []*dnptest.Peer
	for range clients {
		_, peer := p.balance(anyOf(p.addrs))
		peers = append(peers, peer)
	}
	for i := range messages {
		for _, peer := range peers {
			p.until(peer, "connected", func(c *dnptest.Client) bool { return c.Phase() == dnptest.Connected && c.Queued() < 5 })
			p.say(peer, fmt.Sprint("m ", i))
		}
	}
	boxes := p.game.await(p, clients, messages)
	if len(boxes) != clients {
		t.Errorf("%d sessions of %d clients", len(boxes), clients)
	}
	for i := range messages {
		for _, b := range boxes {
			p.tell(b.client, fmt.Sprint("m ", i))
		}
	}
	for _, b := range boxes {
		p.inOrder("the game has the messages of "+b.client, b.texts, messages)
	}
	for _, peer := range peers {
		p.until(peer, "all messages arrive", func(c *dnptest.Client) bool { return len(c.Messages) >= messages })
		_ = peer.Do(func(_ time.Time, c *dnptest.Client) {
			var texts []string
			for _, m := range c.Messages {
				texts = append(texts, string(m.Data))
			}
			p.inOrder("a client has the messages of the game", texts, messages)
			if c.Phase() != dnptest.Connected {
				t.Errorf("a client is %v: %s", c.Phase(), c.Reason())
			}
		})
		p.sees(peer, "L", u16(1))
	}
	p.tellStats()
}

// tellEdges logs what edges have counted.
func (p *pair) tellEdges() {
	p.Helper()
	for i, e := range p.edges {
		if s, err := e.Stats(p.ctx); err == nil {
			p.Logf("edge %d: %+v %+v", i+1, s.Durable, s.Protocol)
		}
	}
}

// tellStats logs the forwarding counters of each edge, and fails if an edge forwarded nothing.
func (p *pair) tellStats() {
	p.Helper()
	for i, f := range p.forwards {
		for end := time.Now().Add(patience); f.Stats().In == 0 && f.Stats().Owner == 0; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				p.Fatalf("edge %d forwarded nothing", i+1)
			}
		}
		s := f.Stats()
		p.Logf("edge %d: %d forwarded, %d taken, %d answers back, %d answers taken, %d orphans, drops %v", i+1, s.In, s.Owner, s.Out, s.Client, s.Orphans, s.Drops)
	}
}

// TestReroute moves a client to the other edge with a balancer that lets no answer of the first
// edge in. The first edge goes on serving the client, through the address that the client knows.
func TestReroute(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	b, peer := p.balance(func() netip.AddrPort { return p.addrs[0] })
	p.until(peer, "connected", func(c *dnptest.Client) bool { return c.Phase() == dnptest.Connected })
	p.say(peer, "m 0")
	client := p.game.await(p, 1, 1)[0].client
	b.routeOnly(p.addrs[1])
	p.say(peer, "m 1")
	p.inOrder("the game hears of one session", p.game.await(p, 1, 2)[0].texts, 2)
	p.tell(client, "m 0")
	p.until(peer, "the balancer lets the answer in", func(c *dnptest.Client) bool { return len(c.Messages) == 1 && c.Queued() == 0 })
	b.routeOnly(p.addrs[0])
	p.say(peer, "m 2")
	p.tell(client, "m 1")
	p.until(peer, "and back", func(c *dnptest.Client) bool { return len(c.Messages) == 2 && c.Queued() == 0 })
	p.tellStats()
}

// A gameInbox is the game servers' side: it keeps each message once, by its number, as a game
// server does.
type gameInbox struct {
	mu        sync.Mutex
	bySession map[string]*inbox
	doubled   int
}

type inbox struct {
	client string
	next   uint64 // the lowest number that has not been seen
	texts  []string
}

type feed struct {
	g         *gameInbox
	box       *inbox
	delivered func(uint64)
}

func (g *gameInbox) Begin(_, client, id string, delivered func(uint64)) edge.Feed {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.bySession[id] == nil {
		g.bySession[id] = &inbox{client: client}
	}
	return &feed{g, g.bySession[id], delivered}
}

func (f *feed) Deliver(m sessionlog.Message) {
	f.g.mu.Lock()
	defer f.g.mu.Unlock()
	if m.Number < f.box.next {
		f.g.doubled++ // an adoption delivers messages again that may not have arrived
	} else {
		f.box.next = m.Number + 1
		f.box.texts = append(f.box.texts, string(m.Data))
	}
	go f.delivered(m.Number) // never before Deliver returns
}

func (f *feed) End() {}

// await waits until this number of sessions have n messages each, and returns all.
func (g *gameInbox) await(p *pair, sessions, n int) (list []inbox) {
	p.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		list = nil
		enough := 0
		g.mu.Lock()
		for _, b := range g.bySession {
			list = append(list, inbox{client: b.client, texts: append([]string(nil), b.texts...)})
			if len(b.texts) >= n {
				enough++
			}
		}
		g.mu.Unlock()
		if enough >= sessions {
			return list
		}
		if time.Now().After(end) {
			p.Fatalf("%d sessions, %d of them have %d messages, %d came twice; want %d sessions: %v", len(list), enough, n, g.doubled, sessions, list)
		}
	}
}

// keyFile returns a file with one gossip key, which begins with this byte.
func keyFile(t *testing.T, b byte) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "keys")
	writeKey(t, file, b)
	return file
}

// writeKey writes a key that no other test has: its nodes may still send to ports that nodes of this test have now.
func writeKey(t *testing.T, file string, b byte) {
	t.Helper()
	key := sha256.Sum256(fmt.Appendf(nil, "%d %s", os.Getpid(), t.Name()))
	key[0] = b
	if err := os.WriteFile(file, []byte(hex.EncodeToString(key[:])), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestKeysChange replaces the gossip key while two edges forward a client's datagrams to each
// other, until they have forgotten the old key. The client's messages arrive, and an edge that
// joins then and never knew the old key forwards to them as well: datagrams are sealed with the
// current gossip key.
func TestKeysChange(t *testing.T) {
	t.Parallel()
	const delay = 2 * time.Second // forwarding reads the gossip keys once per second
	keys := keyFile(t, 0)
	p := newPairWith(t, keys, delay)
	b, peer := p.balance(anyOf(p.addrs))
	said := 0
	pace := time.NewTicker(50 * time.Millisecond) // a client that sends more is taken for a flood
	defer pace.Stop()
	sayUntil := func(what string, done func() bool) {
		t.Helper()
		for end := time.Now().Add(patience); !done(); <-pace.C {
			if time.Now().After(end) {
				t.Fatalf("not within %v: %s", patience, what)
			}
			p.until(peer, "connected", func(c *dnptest.Client) bool { return c.Phase() == dnptest.Connected && c.Queued() < 5 })
			p.say(peer, fmt.Sprint("m ", said))
			said++
		}
	}
	sayUntil("the client's datagrams are forwarded", func() bool { return p.taken() > 0 })
	writeKey(t, keys, 1)
	sayUntil("both edges have another key", func() bool { return p.onlyKey(1) })
	before := p.taken()
	sayUntil("the edges go on forwarding", func() bool { return p.taken() >= before+5 })
	p.add("e3", keyFile(t, 1))
	p.meet()
	b.spread(p.addrs)
	sayUntil("the third edge takes answers for its clients, or datagrams of its sessions", func() bool {
		stats := p.forwards[2].Stats()
		return stats.Client+stats.Owner >= 5
	})
	p.inOrder("the game has the client's messages", p.game.await(p, 1, said)[0].texts, said)
}

// onlyKey reports whether both edges know this key and no other.
func (p *pair) onlyKey(b byte) bool {
	for _, g := range p.gossips {
		if keys := g.Keys(); len(keys) != 1 || keys[0][0] != b {
			return false
		}
	}
	return true
}

// taken returns how many datagrams of clients the edges took from each other.
func (p *pair) taken() (n uint64) {
	for _, f := range p.forwards {
		n += f.Stats().Owner
	}
	return n
}
