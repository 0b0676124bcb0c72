package systest

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/dnp/dnptest"
	"github.com/dnprelay/dnprelay/internal/natsembed"
	"github.com/dnprelay/dnprelay/sessionlog/natsfrom"
	"github.com/dnprelay/dnprelay/subject"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// startRedis starts redis-server, or skips the test, and returns its URL.
func startRedis(t *testing.T) string {
	t.Helper()
	addr := freePorts(t, 1)[0]
	startRedisAt(t, addr)
	return "redis://" + addr
}

func startRedisAt(t *testing.T, addr string) *process {
	t.Helper()
	path, err := exec.LookPath("redis-server")
	if err != nil {
		t.Skip("redis-server is not installed (Debian package redis-server)")
	}
	_, port, _ := net.SplitHostPort(addr)
	p := startCommand(t, exec.Command(path, "--port", port, "--bind", "127.0.0.1", "--save", "", "--dir", t.TempDir()))
	p.says("Ready to accept connections")
	return p
}

// A rescue is two edges with sessions in a log, and a game server and a client that tell
// each other numbers.
type rescue struct {
	*testing.T
	redis    string // URL
	edges    []*process
	addrs    []netip.AddrPort
	webs     []string // where edges show how they are
	swivel   *swivel
	player   *dnptest.Peer
	nc       *nats.Conn
	subjects subject.Names
	client   string
	ended    atomic.Bool

	said   int // by the client
	toSay  int // by the game
	heard  chan int
	cursor uint64
	next   int
}

func newRescue(t *testing.T, more ...string) *rescue { return newRescueAt(t, startRedis(t), more...) }

// newRescueAt has edges look for Redis at a URL.
func newRescueAt(t *testing.T, redis string, more ...string) *rescue {
	r := &rescue{T: t, redis: redis, heard: make(chan int, 1000), webs: freePorts(t, 2)}
	server, err := natsembed.Start(natsembed.Config{Listen: "127.0.0.1:0", Mappings: r.subjects.Mappings(64)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Shutdown)
	start(t, "relay", "serve", "--nats-url", server.URL(), "--http", "127.0.0.1:0").says("serving shards")
	port := netip.MustParseAddrPort(freePorts(t, 1)[0]).Port()
	gossip := freePorts(t, 2)
	for i := range 2 {
		addr := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, byte(2 + i)}), port)
		r.addrs = append(r.addrs, addr)
		args := append([]string{"serve", "--nats-url", server.URL(), "--http", r.webs[i], "--listen", "udp://" + addr.String(), "--open-space", "s",
			"--node", fmt.Sprint("e", i+1), "--workers", "2", "--session-durability", "log", "--redis", redis,
			"--gossip-bind", gossip[i], "--gossip-join", strings.Join(gossip, ",")}, more...)
		r.edges = append(r.edges, start(t, "edge", args...))
	}
	for _, e := range r.edges {
		e.says("bus reached")
	}
	if r.nc, err = nats.Connect(server.URL()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.nc.Close)
	r.swivel = newSwivel(t)
	r.route(0)
	r.listen()
	r.connect()
	return r
}

// route has the balancer send to an edge.
func (r *rescue) route(edge int) { r.swivel.edge.Store(&r.addrs[edge]) }

// connect brings the client, which must stay connected until the test ends.
func (r *rescue) connect() {
	r.Helper()
	joined := make(chan string, 1)
	sub, err := r.nc.Subscribe(r.subjects.Event("s"), func(m *nats.Msg) {
		var ev struct{ Type, Client, Reason string }
		if json.Unmarshal(m.Data, &ev) == nil && ev.Type == "joined" {
			joined <- ev.Client
		} else if ev.Type == "left" {
			r.Errorf("the client left: %s", m.Data)
		}
	})
	if err == nil {
		err = r.nc.Flush()
	}
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() { _ = sub.Unsubscribe() })
	patient := dnptest.Cpp()
	patient.GiveUp = patience // the machine may be slow; TestKeep has clients with their own 3 s
	r.player, err = dnptest.RunUDP(r.Context(), dnptest.Config{Behaviour: patient, Server: r.swivel.addr(), App: dnptest.App{
		Closed: func(reason string) {
			if !r.ended.Load() {
				r.Errorf("the client was disconnected: %s", reason)
			}
		},
	}}, netip.AddrPort{})
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() { r.ended.Store(true); r.player.Close() })
	select {
	case r.client = <-joined:
	case <-time.After(patience):
		r.Fatalf("the client does not join:\n%s", r.edges[0].output)
	}
}

// listen consumes DNP_FROM as a game server does.
func (r *rescue) listen() {
	r.Helper()
	js, err := jetstream.New(r.nc)
	if err != nil {
		r.Fatal(err)
	}
	c, err := js.OrderedConsumer(r.Context(), natsfrom.StreamName, jetstream.OrderedConsumerConfig{})
	if err != nil {
		r.Fatal(err)
	}
	consume, err := c.Consume(func(m jetstream.Msg) {
		number, err := strconv.ParseUint(m.Headers().Get("Dnp-Number"), 10, 64)
		n, bad := strconv.Atoi(strings.TrimPrefix(string(m.Data()), "c"))
		if err != nil || bad != nil {
			r.Errorf("%q has the number %q", m.Data(), m.Headers().Get("Dnp-Number"))
			return
		}
		if number < r.cursor {
			return // said again by an edge that did not know
		}
		if n != r.next {
			r.Errorf("the game gets message %d, want %d", n, r.next)
		}
		r.cursor, r.next = number+1, n+1
		r.heard <- n
	})
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(consume.Stop)
}

// talk has both sides say n messages, and waits until they have arrived, once and in
// order.
func (r *rescue) talk(n int) {
	r.Helper()
	for range n {
		r.say()
		r.tell()
	}
	r.hear(n)
	ctx, cancel := context.WithTimeout(r.Context(), patience)
	defer cancel()
	if err := r.player.Until(ctx, func(c *dnptest.Client) bool { return len(c.Messages) >= r.toSay }); err != nil {
		r.Fatalf("the client gets %v", err)
	}
	_ = r.player.Do(func(_ time.Time, c *dnptest.Client) {
		for i, m := range c.Messages {
			if string(m.Data) != fmt.Sprintf("g%d", i) {
				r.Errorf("message %d of the game is %q", i, m.Data)
			}
		}
	})
}

// say has the client say the next message.
func (r *rescue) say() {
	r.Helper()
	if err := r.player.Do(func(now time.Time, c *dnptest.Client) { _ = c.Send(now, fmt.Appendf(nil, "c%d", r.said)) }); err != nil {
		r.Fatal(err)
	}
	r.said++
}

// hear waits until the game has the newest n messages of the client.
func (r *rescue) hear(n int) {
	r.Helper()
	for want := r.said - n; want < r.said; want++ {
		select {
		case <-r.heard:
		case <-time.After(patience):
			r.Fatalf("the game does not get message %d", want)
		}
	}
}

// tell says a message to the client until an edge has it.
func (r *rescue) tell() {
	r.Helper()
	for end := time.Now().Add(patience); ; {
		m := nats.NewMsg(r.subjects.To("s", r.client))
		m.Data = fmt.Appendf(nil, "g%d", r.toSay)
		m.Header.Set("Dnp-Token", strconv.Itoa(r.toSay+1))
		answer, err := r.nc.RequestMsg(m, 300*time.Millisecond)
		if err == nil && !strings.Contains(string(answer.Data), "error") {
			r.toSay++
			return
		}
		if time.Now().After(end) {
			r.Fatalf("no edge accepts a message for the client: %v %v", answer, err)
		}
		time.Sleep(5 * time.Millisecond) // no edge has the client for a moment
	}
}

// TestRescue kills the edge of a client, whose datagrams another one gets then.
//
// It shows that real processes, NATS and Redis play together, and nothing is lost, doubled or
// out of order. That a client's own limit of 3 s is met it does not show, because a busy
// machine can take that long to run five processes: its client waits for 30 s. TestKeep,
// where time is virtual, has clients with their own 3 s, and fails when one gives up.
func TestRescue(t *testing.T) {
	r := newRescue(t)
	r.talk(20)
	r.edges[0].kill()
	r.route(1)
	start := time.Now()
	r.talk(20)
	t.Logf("20 messages each way, %v after the kill", time.Since(start).Round(time.Millisecond))
	r.talk(20)
}

// TestRescueDrain lets the edge of a client leave. It hands the client over although
// nothing is heard of it.
func TestRescueDrain(t *testing.T) {
	r := newRescue(t)
	r.talk(20)
	r.edges[0].term()
	r.edges[0].ends(0, "handing sessions over")
	r.route(1)
	r.talk(20)
	if text := r.edges[0].output.String(); strings.Contains(text, "no edge takes") {
		t.Errorf("the session was not handed over:\n%s", text)
	}
}

// TestRescueSpray sends the datagrams of a client by turns to the edge that has its session
// and to one that forwards them. On a busy machine the other edge may take the session over, as
// one that hears nothing of the first; then the first one forwards. An edge that takes a session
// instead of forwarding to it has nothing to forward.
func TestRescueSpray(t *testing.T) {
	keys := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(keys, []byte(strings.Repeat("0f", 32)), 0o600); err != nil {
		t.Fatal(err)
	}
	r := newRescue(t, "--gossip-key-file", keys, "--forward-listen", "127.0.0.1:0")
	eventually(t, "the edges hear each other", func() bool {
		return r.metric(0, `dnp_forward_peers`) == 1 && r.metric(1, `dnp_forward_peers`) == 1
	})
	r.talk(10)
	r.swivel.second.Store(&r.addrs[1])
	eventually(t, "every second datagram, of 40 messages and their acknowledgements, was forwarded", func() bool {
		r.talk(40)
		const forwarded = `dnp_session_orphans_total{fate="forwarded"}`
		return r.metric(0, forwarded)+r.metric(1, forwarded) >= 20
	})
}
