package systest

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/cluster/redisaffinity"
	"github.com/dnprelay/dnprelay/dnp/dnptest"
	verdict "github.com/dnprelay/dnprelay/internal/fence"
	"github.com/dnprelay/dnprelay/internal/natsembed"
	"github.com/dnprelay/dnprelay/internal/telemetry"
	"github.com/dnprelay/dnprelay/sessionlog"
	"github.com/dnprelay/dnprelay/sessionlog/natsfrom"
	"github.com/dnprelay/dnprelay/sessionlog/natslog"
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

// A rescue is two edges with durable sessions, and a game server and a client that send each
// other numbered messages.
type rescue struct {
	*testing.T
	redis    string // the URLs of its servers
	edges    []*process
	addrs    []netip.AddrPort
	webs     []string // HTTP addresses of the edges
	balancer *balancer
	player   *dnptest.Peer
	nc       *nats.Conn
	subjects subject.Names
	client   string
	ended    atomic.Bool

	said   int // messages that the client sent
	told   int // messages of the game that an edge accepted
	heard  chan int
	cursor uint64
	next   int
}

func newRescue(t *testing.T, more ...string) *rescue { return newRescueAt(t, startRedis(t), more...) }

// newRescueAt starts a rescue whose edges look for Redis at some URLs.
func newRescueAt(t *testing.T, redis string, more ...string) *rescue {
	r := newRescueEdges(t, redis, more...)
	r.listen()
	r.connect()
	return r
}

// newRescueEdges starts the edges of a rescue without its game server and its client. EDGE in a flag is the address of an edge,
// without a port. A balancer sends clients to the first.
func newRescueEdges(t *testing.T, redis string, more ...string) *rescue {
	r := &rescue{T: t, redis: redis, heard: make(chan int, 1000), webs: freePorts(t, 2)}
	server := startNATS(t, natsembed.Config{})
	start(t, "relay", "serve", "--nats-url", server.URL(), "--http", "127.0.0.1:0").says("serving shards")
	port := netip.MustParseAddrPort(freePorts(t, 1)[0]).Port()
	gossip := freePorts(t, 2)
	for i := range 2 {
		addr := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, byte(2 + i)}), port)
		r.addrs = append(r.addrs, addr)
		args := append([]string{"serve", "--nats-url", server.URL(), "--http", r.webs[i], "--listen", "udp://" + addr.String(), "--open-space", "s",
			"--node", fmt.Sprint("e", i+1), "--workers", "2", "--session-durability", "log", "--redis", redis,
			"--gossip-bind", gossip[i], "--gossip-join", strings.Join(gossip, ",")}, more...)
		for j, arg := range args {
			args[j] = strings.ReplaceAll(arg, "EDGE", addr.Addr().String())
		}
		r.edges = append(r.edges, start(t, "edge", args...))
	}
	for _, e := range r.edges {
		e.says("bus reached")
	}
	var err error
	if r.nc, err = nats.Connect(server.URL()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.nc.Close)
	r.balancer = newBalancer(t, nil)
	r.route(0)
	return r
}

// route makes the balancer send to an edge.
func (r *rescue) route(edge int) { r.balancer.route(r.addrs[edge]) }

// connect connects the client, which must stay connected until the test ends.
func (r *rescue) connect() {
	r.Helper()
	patient := dnptest.Cpp()
	patient.GiveUp = patience // the machine may be slow; the clients of TestTakeover give up after their own 3 s
	r.joins(func() {
		r.player = runClient(r.T, r.balancer.addr(), patient, dnptest.App{Closed: func(reason string) {
			if !r.ended.Load() {
				r.Errorf("the client was disconnected: %s", reason)
			}
		}})
	})
}

// joins waits until the client that start starts has joined. It fails the test when a client leaves before its end.
func (r *rescue) joins(start func()) {
	r.Helper()
	joined := make(chan string, 1)
	sub, err := r.nc.Subscribe(r.subjects.Event("s"), func(m *nats.Msg) {
		var ev struct{ Type, Client, Reason string }
		if json.Unmarshal(m.Data, &ev) == nil && ev.Type == "joined" {
			joined <- ev.Client
		} else if ev.Type == "left" && !r.ended.Load() {
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
	start()
	r.Cleanup(func() { r.ended.Store(true) })
	select {
	case r.client = <-joined:
	case <-time.After(patience):
		r.Fatalf("the client did not join:\n%s", r.edges[0].output)
	}
}

// listen consumes DNP_FROM as a game server does.
func (r *rescue) listen() {
	r.Helper()
	c, err := jetStream(r.T, r.nc).OrderedConsumer(r.Context(), natsfrom.StreamName, jetstream.OrderedConsumerConfig{})
	if err != nil {
		r.Fatal(err)
	}
	consume, err := c.Consume(func(m jetstream.Msg) {
		number, err := strconv.ParseUint(m.Headers().Get("Dnp-Number"), 10, 64)
		if m.Headers().Get("Dnp-Request") == "0" { // the hello, of which game servers need only the number
			r.cursor = max(r.cursor, number+1)
			return
		}
		n, bad := strconv.Atoi(strings.TrimPrefix(string(m.Data()), "c"))
		if err != nil || bad != nil {
			r.Errorf("%q has the number %q", m.Data(), m.Headers().Get("Dnp-Number"))
			return
		}
		if number < r.cursor {
			return // published again by an edge that did not know
		}
		if n != r.next {
			r.Errorf("the game got message %d, want %d", n, r.next)
		}
		r.cursor, r.next = number+1, n+1
		r.heard <- n
	})
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(consume.Stop)
}

// talk sends n messages in each direction, and waits until they have arrived, once and in order.
func (r *rescue) talk(n int) {
	r.Helper()
	for range n {
		r.say()
		r.tell()
	}
	r.hear(n)
	ctx, cancel := context.WithTimeout(r.Context(), patience)
	defer cancel()
	if err := r.player.Until(ctx, func(c *dnptest.Client) bool { return len(c.Messages) >= r.told }); err != nil {
		r.Fatalf("the client does not get the messages of the game: %v", err)
	}
	_ = r.player.Do(func(_ time.Time, c *dnptest.Client) {
		for i, m := range c.Messages {
			if string(m.Data) != fmt.Sprintf("g%d", i) {
				r.Errorf("message %d of the game is %q", i, m.Data)
			}
		}
	})
}

// say sends the client's next message.
func (r *rescue) say() {
	r.Helper()
	if err := r.player.Do(func(now time.Time, c *dnptest.Client) { _ = c.Send(now, fmt.Appendf(nil, "c%d", r.said)) }); err != nil {
		r.Fatal(err)
	}
	r.said++
}

// hear waits until the game has the client's newest n messages.
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

// tell sends a message to the client until an edge accepts it.
func (r *rescue) tell() {
	r.Helper()
	for end := time.Now().Add(patience); ; {
		m := nats.NewMsg(r.subjects.To("s", r.client))
		m.Data = fmt.Appendf(nil, "g%d", r.told)
		m.Header.Set("Dnp-Token", strconv.Itoa(r.told+1))
		answer, err := r.nc.RequestMsg(m, 300*time.Millisecond)
		if err == nil && !strings.Contains(string(answer.Data), "error") {
			r.told++
			return
		}
		if time.Now().After(end) {
			r.Fatalf("no edge accepts a message for the client: %v %v", answer, err)
		}
		time.Sleep(5 * time.Millisecond) // no edge has the client for a moment
	}
}

// TestRescue kills the edge of a client. The balancer then sends the client's datagrams to
// another edge.
//
// The test shows that real processes, NATS and Redis work together, and that no message is lost,
// doubled or out of order. It does not show that the client's own limit of 3 s is met: a busy
// machine can take that long to run five processes, so this client waits for 30 s. TestTakeover
// runs in virtual time; its clients give up after 3 s, and it fails when one does.
func TestRescue(t *testing.T) {
	t.Parallel()
	r := newRescue(t)
	r.talk(20)
	r.edges[0].kill()
	r.route(1)
	start := time.Now()
	r.talk(20)
	t.Logf("20 messages each way, %v after the kill", time.Since(start).Round(time.Millisecond))
	r.talk(20)
}

// TestRescueDrain drains the edge of a client. The edge hands the session over although the
// client sends nothing.
func TestRescueDrain(t *testing.T) {
	t.Parallel()
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

// TestRescueSpray sends the datagrams of a client in turn to the edge that serves its session
// and to one that forwards them. On a busy machine the second edge may take the session over
// because it hears nothing of the first; then the first one forwards. An edge that takes the
// session over has nothing to forward.
func TestRescueSpray(t *testing.T) {
	t.Parallel()
	r := newRescue(t, "--gossip-key-file", keyFile(t, 0x0f), "--forward-listen", "127.0.0.1:0")
	eventually(t, "the edges know each other", func() bool {
		return r.metric(0, `dnp_forward_peers`) == 1 && r.metric(1, `dnp_forward_peers`) == 1
	})
	r.talk(10)
	r.balancer.alternate(r.addrs)
	eventually(t, "at least 20 datagrams are forwarded", func() bool {
		r.talk(40)
		const forwarded = `dnp_session_orphans_total{fate="forwarded"}`
		return r.metric(0, forwarded)+r.metric(1, forwarded) >= 20
	})
}

// misses waits until both edges report that they are ready and miss exactly these services.
func (r *rescue) misses(what ...string) {
	r.Helper()
	for _, web := range r.webs {
		eventually(r.T, "ready, and missing "+strings.Join(what, ", "), func() bool {
			h, status := readiness(r.T, web)
			return status == http.StatusOK && h.Ready && slices.Equal(h.Missing, what)
		})
	}
}

// TestRescueWithoutRedis starts the edges without Redis. They serve, report that Redis is
// missing, and recover the session of a dead edge with the log alone. One Redis server or two may appear, and
// disappear again.
func TestRescueWithoutRedis(t *testing.T) {
	t.Parallel()
	addrs := freePorts(t, 2)
	r := newRescueAt(t, "redis://"+addrs[0]+",redis://"+addrs[1])
	writes := func(server string) string { return `dnp_session_affinity_writes_total{server="` + server + `"}` }
	r.misses("redis")
	r.talk(10)
	r.shows(0, writes(addrs[1]), 0)

	second := startRedisAt(t, addrs[1])
	r.misses("redis/" + addrs[0])
	eventually(t, "the session is claimed, although it began before", func() bool { return r.metric(0, writes(addrs[1])) > 0 })
	r.talk(10)
	r.shows(0, writes(addrs[0]), 0)

	first := startRedisAt(t, addrs[0])
	r.misses()
	eventually(t, "the session is claimed in the other server, too", func() bool { return r.metric(0, writes(addrs[0])) > 0 })
	second.kill()
	r.misses("redis/" + addrs[1])
	r.shows(0, `dnp_session_affinity_up{server="`+addrs[1]+`"}`, 0)
	r.talk(10)

	first.kill()
	r.misses("redis")
	r.edges[0].kill()
	r.route(1)
	r.talk(20)
	r.shows(1, `dnp_session_adopted_total`, 1)
}

// signal sends a signal, such as SIGSTOP.
func (p *process) signal(s syscall.Signal) {
	p.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.Fatal(err)
	}
}

// TestRescueStop stops the edge of a client, lets another edge take the session over, and
// resumes the first. The first edge finds datagrams that the client sent meanwhile. Nothing that
// it does is accepted: the newest write and the only later epoch in the log are those of the
// other edge, and neither the stream for game servers nor Redis takes anything from the first.
// The test only logs how many datagrams the first edge sends, because a process can be stopped
// in the middle of sending; TestWoken counts them.
func TestRescueStop(t *testing.T) {
	t.Parallel()
	r := newRescue(t, "--workers", "1") // with more, a session may move within its edge, which adds an epoch
	r.talk(20)
	r.edges[0].signal(syscall.SIGSTOP)
	const unheard = 5
	for range unheard { // they go to the stopped edge; the repetitions go to the other
		r.say()
	}
	seen := r.balancer.fromClient()
	eventually(t, "the client sends the messages to the stopped edge", func() bool { return r.balancer.fromClient() >= seen+unheard })
	r.route(1)
	r.hear(unheard)
	r.talk(20)
	before := r.balancer.fromEdge(r.addrs[0])
	r.edges[0].signal(syscall.SIGCONT)
	r.shows(0, `dnp_session_lost_total`, 1)
	r.shows(0, `dnp_session_durable`, 0)
	r.talk(20)

	if r.metric(0, `dnp_session_adopted_total`) > 0 {
		t.Skip("the machine is so slow that the first edge took the other one for dead and adopted the session, as it may")
	}
	log, redis := r.owners(t.Context())
	for where, s := range map[string]cluster.Served{"the log": log, "Redis": redis} {
		if s.Node != "e2" || s.Epoch != 2 {
			t.Errorf("%s names %s as the owner in epoch %d, want e2 in epoch 2", where, s.Node, s.Epoch)
		}
	}
	r.shows(1, `dnp_session_lost_total`, 0)
	if n := streamed(t, r.nc); n != r.said {
		t.Errorf("the stream has %d messages, want the %d that the client sent", n, r.said)
	}
	t.Logf("the resumed edge sent %d datagrams to the client", r.balancer.fromEdge(r.addrs[0])-before)
}

// owners returns the owner of the session according to its log and according to Redis.
func (r *rescue) owners(ctx context.Context) (log, redis cluster.Served) {
	r.Helper()
	ctx, stop := context.WithCancel(ctx)
	conn, err := nats.Connect(r.nc.ConnectedUrl(), nats.ReconnectBufSize(-1))
	if err != nil {
		r.Fatal(err)
	}
	defer conn.Close()
	l, err := natslog.Open(ctx, natslog.Config{Conn: conn, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		r.Fatal(err)
	}
	a, err := redisaffinity.Open(redisaffinity.Config{URLs: strings.Split(r.redis, ","), Node: "observer", Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		r.Fatal(err)
	}
	ended := make(chan struct{}, 2)
	go func() { l.Run(ctx); ended <- struct{}{} }()
	go func() { a.Run(ctx); ended <- struct{}{} }()
	defer func() { stop(); <-ended; <-ended }()
	name := sessionlog.Key(l.Secret(), r.balancer.behind(), r.addrs[0].Port())
	eventually(r.T, "the log is read", func() bool {
		answer := make(chan sessionlog.Answer, 1)
		l.Read(name, func(a sessionlog.Answer) { answer <- a })
		log, err = owner(<-answer)
		return err == nil
	})
	eventually(r.T, "Redis answers", func() bool {
		answer := make(chan error, 1)
		a.Find(name, func(s cluster.Served, err error) { redis = s; answer <- err })
		return <-answer == nil
	})
	return log, redis
}

// owner returns the writer of the newest entry of a log.
func owner(a sessionlog.Answer) (s cluster.Served, err error) {
	if a.Verdict != verdict.OK || len(a.Entries) == 0 {
		return s, fmt.Errorf("%v, %d entries", a.Verdict, len(a.Entries))
	}
	for _, e := range a.Entries {
		k, err := sessionlog.ParseBlock(e.Data)
		if err != nil {
			return s, err
		}
		if k.Ckpt != nil {
			s.Node = k.Ckpt.Node
		}
		if k.Adopt != nil {
			s.Node = *k.Adopt
		}
		s.Epoch = k.Epoch
	}
	return s, nil
}

// streamed returns how many messages of clients are in the stream for game servers.
func streamed(t *testing.T, nc *nats.Conn) int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	s, err := jetStream(t, nc).Stream(ctx, natsfrom.StreamName)
	if err != nil {
		t.Fatal(err)
	}
	return int(s.CachedInfo().State.Msgs)
}

// metric returns the value of a metric, named with its labels, at /metrics of an edge.
func (r *rescue) metric(edge int, name string) float64 {
	r.Helper()
	return shown(r.T, r.webs[edge], name)
}

// shown returns the number that a node shows as a metric without labels.
func shown(t *testing.T, web, name string) float64 {
	t.Helper()
	for line := range strings.Lines(get(t, "http://"+web+"/metrics")) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			v, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			if err != nil {
				t.Fatal(err)
			}
			return v
		}
	}
	t.Fatalf("the node at %s does not show %s", web, name)
	return 0
}

// shows waits until an edge shows a value: counters may be a quarter of a second old.
func (r *rescue) shows(edge int, name string, want float64) {
	r.Helper()
	eventually(r.T, fmt.Sprintf("edge %d shows %s %v", edge+1, name, want), func() bool { return r.metric(edge, name) == want })
}

// readiness returns what a node answers at /readyz, and with which status.
func readiness(t *testing.T, web string) (h telemetry.Health, status int) {
	t.Helper()
	answer, err := http.Get("http://" + web + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if err := json.NewDecoder(answer.Body).Decode(&h); err != nil {
		t.Fatal(err)
	}
	return h, answer.StatusCode
}
