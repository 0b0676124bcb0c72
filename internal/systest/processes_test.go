package systest

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/bus"
	"github.com/dnprelay/dnprelay/bus/natsbus"
	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/cluster/lease"
	"github.com/dnprelay/dnprelay/cluster/natslease"
	"github.com/dnprelay/dnprelay/dnp/dnptest"
	"github.com/dnprelay/dnprelay/internal/buildtest"
	"github.com/dnprelay/dnprelay/internal/natsembed"
	"github.com/dnprelay/dnprelay/internal/natstest"
	"github.com/dnprelay/dnprelay/subject"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// TestMain runs the tests, after which no goroutine may be left. First it runs the simulations, one
// after the other. Those that are marked as parallel mostly wait for processes and sockets, so more
// of them run at once than a small machine has cores; -parallel changes their number.
func TestMain(m *testing.M) {
	if conf := os.Getenv(natsServerEnv); conf != "" {
		os.Exit(natsServer(conf))
	}
	if err := flag.Set("test.parallel", "4"); err != nil {
		panic(err)
	}
	natstest.VerifyNoLeaks(cleaned{m})
}

// A cleaned run of all tests leaves neither binaries nor idle connections.
type cleaned struct{ *testing.M }

func (m cleaned) Run() int {
	defer func() {
		http.DefaultClient.CloseIdleConnections()
		buildtest.Remove()
	}()
	return m.M.Run()
}

// A process is a running command.
type process struct {
	*testing.T
	cmd    *exec.Cmd
	output *lockedBuffer
	ended  chan struct{}
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func start(t *testing.T, name string, args ...string) *process {
	t.Helper()
	if len(args) > 0 && args[0] == "dev" { // several run at once, and these ports are fixed
		for _, flag := range []string{"--websocket", "--webtransport", "--variant", "--lludp", "--console"} {
			if !slices.Contains(args, flag) {
				args = append(slices.Clone(args), flag, "")
			}
		}
	}
	if raceDetector {
		t.Skip("it starts programs, in which the race detector is not; make test runs it")
	}
	return startCommand(t, exec.Command(buildtest.Program(t, name), args...))
}

// startCommand starts a command that ends with the test at the latest.
func startCommand(t *testing.T, cmd *exec.Cmd) *process {
	t.Helper()
	p := &process{T: t, cmd: cmd, output: &lockedBuffer{}, ended: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = p.output, p.output
	p.cmd.WaitDelay = patience // a process that the command started and left may have its output
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = p.cmd.Wait()
		close(p.ended)
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.ended
	})
	return p
}

// says waits until the process has printed a text.
func (p *process) says(text string) {
	p.Helper()
	for end := time.Now().Add(patience); !strings.Contains(p.output.String(), text); {
		select {
		case <-p.ended:
		case <-time.After(5 * time.Millisecond):
			if time.Now().Before(end) {
				continue
			}
		}
		if !strings.Contains(p.output.String(), text) {
			p.Fatalf("no %q in:\n%s", text, p.output)
		}
	}
}

// ends waits for the process to end, and wants this exit code and these texts in the output.
func (p *process) ends(code int, texts ...string) {
	p.Helper()
	select {
	case <-p.ended:
	case <-time.After(patience):
		p.Fatalf("the process does not end:\n%s", p.output)
	}
	if got := p.cmd.ProcessState.ExitCode(); got != code {
		p.Errorf("exit code %d, want %d:\n%s", got, code, p.output)
	}
	for _, text := range texts {
		if !strings.Contains(p.output.String(), text) {
			p.Errorf("no %q in:\n%s", text, p.output)
		}
	}
}

// kill ends the process as a crash would.
func (p *process) kill() {
	p.Helper()
	if err := p.cmd.Process.Kill(); err != nil {
		p.Fatal(err)
	}
	<-p.ended
}

func (p *process) term() {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		p.Fatal(err)
	}
}

func dev(t *testing.T, args ...string) *process {
	return start(t, "relay", append([]string{"dev", "--listen", "udp://127.0.0.1:0", "--nats-listen", "127.0.0.1:0", "--http", "127.0.0.1:0"}, args...)...)
}

func TestDevStartsAndDrains(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	for range 2 { // the second start finds the data of the first
		p := dev(t, "--data", data)
		p.says("dnpctl watch")
		p.term()
		p.ends(0)
	}
}

// TestDevWithoutAdapters: relay dev goes on without an adapter whose usual port another program has. edge serve, which was told the port, fails.
func TestDevWithoutAdapters(t *testing.T) {
	t.Parallel()
	for flag, addr := range map[string]string{"--lludp": "127.0.0.1:9000", "--variant": "127.0.0.1:3415"} {
		at, err := net.ResolveUDPAddr("udp", addr)
		if err != nil {
			t.Fatal(err)
		}
		if socket, err := net.ListenUDP("udp", at); err == nil { // otherwise another program has it
			t.Cleanup(func() { socket.Close() })
		}
		p := dev(t, flag, addr)
		p.says("dnpctl watch")
		start(t, "edge", "serve", "--nats-url", devNATS.FindStringSubmatch(p.output.String())[1], "--listen", "udp://127.0.0.1:0", "--http", "", flag, addr).ends(1, flag, "in use")
	}
}

// TestDevPassesItsCheck runs what relay dev proposes, and the check of helm test against it.
func TestDevPassesItsCheck(t *testing.T) {
	t.Parallel()
	ports := freePorts(t, 2)
	d := start(t, "relay", "dev", "--listen", "udp://"+ports[0], "--nats-listen", ports[1], "--http", "", "--open-space", "lobby")
	d.says("dnpctl events")
	_, text, _ := strings.Cut(d.output.String(), "Try in another terminal:\n")
	tries, patient := strings.Split(text, "\n"), " --timeout "+patience.String()
	startCommand(t, exec.Command("sh", "-c", tries[0]+" --count 2"+patient)).ends(0, "+ ")
	startCommand(t, exec.Command("sh", "-c", tries[1]+patient)).ends(0, "ok, position")
	if want := " events lobby --nats-url nats://" + ports[1]; !strings.HasSuffix(tries[2], want) {
		t.Errorf("relay dev proposes %q, want %q", tries[2], want)
	}
	check := func(space string, timeout time.Duration) *process {
		return start(t, "dnpctl", "check", space, ports[0], "--nats-url", "nats://"+ports[1], "--timeout", timeout.String())
	}
	check("lobby", patience).ends(0, "a relay accepted a state in space lobby", "the client received the state", "the client received the change", "the deployment works")
	check("another", 2*time.Second).ends(1, "not within 2s: ")
}

func TestDevPortInUse(t *testing.T) {
	t.Parallel()
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	udp, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()
	for _, addr := range []string{tcp.Addr().String(), udp.LocalAddr().String()} {
		var starts []*process
		if addr == udp.LocalAddr().String() {
			starts = append(starts, start(t, "relay", "dev", "--listen", "udp://"+addr, "--nats-listen", "127.0.0.1:0", "--http", ""))
		} else {
			starts = append(starts, dev(t, "--nats-listen", addr), dev(t, "--http", addr))
		}
		flags := []string{"--listen"}
		if len(starts) == 2 {
			flags = []string{"--nats-listen", ""}
		}
		for i, p := range starts {
			p.ends(1, "in use", addr, flags[i]) // the flag says how to choose another address
			if n := strings.Count(p.output.String(), "relay: "); n != 1 {
				t.Errorf("%d lines give the reason, want one:\n%s", n, p.output)
			}
		}
	}
}

func TestDevFolder(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	dev(t, "--data", filepath.Join(file, "folder")).ends(1, "data folder")
}

func TestFlagProblems(t *testing.T) {
	t.Parallel()
	start(t, "relay", "dev", "--tick", "5", "--client-states", "maybe").ends(2, "2 problems", "--tick", "--client-states")
	start(t, "relay", "serve", "--shards", "0", "--ingress", "x").ends(2, "--shards", "--ingress")
	start(t, "edge", "serve", "--workers=-1", "--open-space", "a b").ends(2, "--workers", "--open-space")
}

func TestServeWithoutNATS(t *testing.T) {
	t.Parallel()
	const nowhere = "nats://127.0.0.1:1"
	start(t, "edge", "serve", "--nats-url", nowhere, "--start-timeout", "10ms", "--http", "").ends(1, "gave up")
	p := start(t, "relay", "serve", "--nats-url", nowhere, "--http", "")
	p.says("trying again")
	p.term()
	p.ends(0)
}

// TestServe runs a relay and an edge as in a cluster.
func TestServe(t *testing.T) {
	t.Parallel()
	var subjects subject.Names
	nats := startNATS(t, natsembed.Config{})
	r := start(t, "relay", "serve", "--nats-url", nats.URL(), "--http", "127.0.0.1:0")
	e := start(t, "edge", "serve", "--nats-url", nats.URL(), "--http", "127.0.0.1:0", "--listen", "udp://127.0.0.1:0")
	r.says("serving shards")
	e.says("bus reached")
	var b *natsbus.Bus
	eventually(t, "NATS takes a connection", func() bool {
		var err error
		b, err = natsbus.Connect(natsbus.Config{URL: nats.URL()})
		return err == nil
	})
	defer b.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for answered := false; !answered; {
		answer := make(chan string, 1)
		b.Request(bus.Msg{Subject: subjects.Publish("demo", ""), Data: []byte(towerPut)}, time.Second, func(m bus.Msg, _ error) { answer <- string(m.Data) })
		select {
		case a := <-answer:
			answered = strings.HasPrefix(a, `{"epoch"`)
		case <-ctx.Done():
			t.Fatal("the relay does not answer")
		}
	}
	e.term()
	e.ends(0)
	r.term()
	r.ends(0)
}

// TestReadyAnswers: when a relay says that it is ready, it answers publishes for every shard.
func TestReadyAnswers(t *testing.T) {
	t.Parallel()
	var subjects subject.Names
	nats := startNATS(t, natsembed.Config{})
	b, err := natsbus.Connect(natsbus.Config{URL: nats.URL()})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	web := freePorts(t, 1)[0]
	r := start(t, "relay", "serve", "--nats-url", nats.URL(), "--http", web)
	waited := false
	for end := time.Now().Add(patience); ; {
		answer, err := http.Get("http://" + web + "/readyz")
		if err == nil {
			text, _ := io.ReadAll(answer.Body)
			_ = answer.Body.Close()
			waited = waited || strings.Contains(string(text), `"shards"`)
			if answer.StatusCode == http.StatusOK {
				break
			}
		}
		if time.Now().After(end) {
			t.Fatal("the relay does not become ready")
		}
	}
	const spaces = 256 // of which some are in each shard
	type result struct {
		data string
		err  error
	}
	answers := make(chan result, spaces)
	for i := range spaces {
		b.Request(bus.Msg{Subject: subjects.Publish(fmt.Sprint("space", i), ""), Data: []byte(towerPut)}, patience, func(m bus.Msg, err error) { answers <- result{string(m.Data), err} })
	}
	for range spaces {
		if a := <-answers; a.err != nil || !strings.HasPrefix(a.data, `{"epoch"`) {
			t.Errorf("right after the relay was ready, a publish has the answer %q, %v", a.data, a.err)
		}
	}
	if !waited {
		t.Error("the relay never said that it waits for shards")
	}
	r.term()
	r.ends(0)
}

var devNATS = regexp.MustCompile(`game servers  (\S+)`)

// TestDevKeepsSessions runs relay dev with durable sessions. The messages of clients are stored for game servers, also
// for those of a second start.
func TestDevKeepsSessions(t *testing.T) {
	t.Parallel()
	ports := freePorts(t, 2)
	addr, web := ports[0], ports[1]
	data := t.TempDir()
	for round := range 2 {
		p := start(t, "relay", "dev", "--data", data, "--session-durability", "log", "--listen", "udp://"+addr,
			"--nats-listen", "127.0.0.1:0", "--http", web)
		p.says("dnpctl watch")
		eventually(t, "ready", func() bool {
			h, status := readiness(t, web)
			return status == http.StatusOK && h.Ready && len(h.Missing) == 0
		})
		nc, err := nats.Connect(devNATS.FindStringSubmatch(p.output.String())[1])
		if err != nil {
			t.Fatal(err)
		}
		if n := streamed(t, nc); n != round {
			t.Errorf("start %d finds %d messages, want %d", round+1, n, round)
		}
		hello(t, netip.MustParseAddrPort(addr))
		eventually(t, "the client's message is stored", func() bool { return streamed(t, nc) == round+1 })
		nc.Close()
		p.term()
		p.ends(0)
	}
}

// hello connects a client, sends a message and waits until it is acknowledged.
func hello(t *testing.T, server netip.AddrPort) {
	t.Helper()
	patient := dnptest.Cpp()
	patient.GiveUp = patience
	player := runClient(t, server, patient, dnptest.App{})
	defer player.Close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	err := player.Until(ctx, func(c *dnptest.Client) bool { return c.Phase() == dnptest.Connected && len(c.Links()) > 0 })
	if err != nil {
		t.Fatalf("the client sees no state: %v", err)
	}
	if err := player.Do(func(now time.Time, c *dnptest.Client) { err = c.Send(now, []byte("hello")) }); err != nil {
		t.Fatal(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := player.Until(ctx, func(c *dnptest.Client) bool { return c.Queued() == 0 }); err != nil {
		t.Fatalf("the client's message is not acknowledged: %v", err)
	}
}

// A farm is three NATS servers, three relays and two edges, each a process, and a player at each
// edge.
type farm struct {
	*testing.T
	nats     []*process
	urls     []string
	relays   map[string]*process
	common   []string // flags of every node
	join     string
	nc       *nats.Conn
	js       jetstream.JetStream
	subjects subject.Names
	players  []*dnptest.Peer
}

// farmShard is the shard of space s.
var farmShard = cluster.Shard("s", 64)

func newFarm(t *testing.T) *farm {
	f := &farm{T: t, relays: map[string]*process{}}
	f.nats, f.urls = startNATSServers(t)
	key := keyFile(t, 0xa1)
	gossip := freePorts(t, 3)
	f.join = strings.Join(gossip, ",")
	f.common = []string{"serve", "--nats-url", strings.Join(f.urls, ","), "--http", "127.0.0.1:0"}
	for i, addr := range gossip {
		name := fmt.Sprint("r", i+1)
		f.relays[name] = start(t, "relay", append(f.common, "--node", name, "--replicas", "3", "--tick", "1ms",
			"--gossip-bind", addr, "--gossip-join", f.join, "--gossip-key-file", key)...)
	}
	ports := freePorts(t, 2)
	for i, port := range ports {
		start(t, "edge", append(f.common, "--node", fmt.Sprint("e", i+1), "--listen", "udp://"+port, "--open-space", "s", "--workers", "1",
			"--gossip-bind", "127.0.0.1:0", "--gossip-join", f.join, "--gossip-key-file", key)...).says("bus reached")
	}
	var err error
	if f.nc, err = nats.Connect(strings.Join(f.urls, ","), nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.nc.Close)
	f.js = jetStream(t, f.nc)
	for _, port := range ports {
		f.connect(port)
	}
	return f
}

// connect connects a player to an edge. The player must stay connected and keep its links until
// the test ends.
func (f *farm) connect(edge string) {
	f.Helper()
	ended := false // the test
	app := dnptest.App{
		Closed: func(reason string) {
			if !ended {
				f.Errorf("the player at %s was disconnected: %s", edge, reason)
			}
		},
		LinkDown: func(l *dnptest.Link) {
			if string(l.Message) != "G" {
				f.Errorf("the player at %s lost its link to %s", edge, l.Message)
			}
		},
	}
	p := runClient(f.T, netip.MustParseAddrPort(edge), dnptest.Cpp(), app)
	f.Cleanup(func() {
		_ = p.Do(func(time.Time, *dnptest.Client) { ended = true }) // fails if the peer ended before
	})
	f.players = append(f.players, p)
}

// publish publishes until a relay accepts it.
func (f *farm) publish(body string) {
	f.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		m, err := f.nc.Request(f.subjects.Publish("s", ""), []byte(body), 300*time.Millisecond)
		var a struct {
			Epoch uint64
			Error json.RawMessage
		}
		if err == nil && json.Unmarshal(m.Data, &a) == nil && a.Error == nil && a.Epoch != 0 {
			return
		}
		if time.Now().After(end) {
			f.Fatalf("publish %s: %v", body, err)
		}
	}
}

// see waits until both players see a value.
func (f *farm) see(message string, value []byte) {
	f.Helper()
	ctx, cancel := context.WithTimeout(f.Context(), patience)
	defer cancel()
	for i, p := range f.players {
		if err := p.Until(ctx, func(c *dnptest.Client) bool { return string(c.Value(message, 0)) == string(value) }); err != nil {
			f.Fatalf("player %d does not see %s = % x: %v", i, message, value, err)
		}
	}
}

// holder waits until the store names a running relay as the holder of the space, and returns it.
func (f *farm) holder() (name string, p *process) {
	f.Helper()
	f.stream("a running relay holds the space", func(s jetstream.Stream) bool {
		m, err := s.GetLastMsgForSubject(f.Context(), f.subjects.StoreOwn(farmShard))
		if err != nil {
			return false
		}
		own := lease.ParseOwner(m.Sequence, m.Data)
		name, p = own.Node, f.relays[own.Node]
		return p != nil
	})
	return name, p
}

// stream waits until ok reports true of the stream of the space.
func (f *farm) stream(what string, ok func(jetstream.Stream) bool) {
	f.Helper()
	eventually(f.T, what, func() bool {
		s, err := f.js.Stream(f.Context(), natslease.StreamName(farmShard%4))
		return err == nil && ok(s)
	})
}

// TestProcesses kills the holder of a space, drains the next one, and kills a NATS server while
// two players are connected, who must notice no more than a pause.
func TestProcesses(t *testing.T) {
	t.Parallel()
	f := newFarm(t)
	f.publish(towerPut)
	f.publish(`{"op":"put","key":"keep","message":"K","values":[{"type":"uint16","value":5}]}`)
	f.publish(`{"op":"put","key":"gone","message":"G","values":[{"type":"uint16","value":1}]}`)
	f.see("G", u16(1))
	f.publish(`{"op":"remove","key":"gone"}`)
	f.see("T", f32(93.5))
	f.see("K", u16(5))
	f.stored("keep")
	f.refused()

	name, holder := f.holder()
	holder.kill()
	delete(f.relays, name)
	f.publish(`{"op":"set","key":"tower","values":{"hp":1}}`)
	f.see("T", f32(1))

	name, holder = f.holder()
	holder.term()
	holder.ends(0)
	delete(f.relays, name)
	f.publish(`{"op":"set","key":"tower","values":{"hp":2}}`)
	f.see("T", f32(2))

	f.nats[f.leader()].kill()
	f.publish(`{"op":"set","key":"tower","values":{"hp":3}}`)
	f.see("T", f32(3))
	f.see("K", u16(5)) // no publisher repeated it
	f.see("G", nil)    // and it did not come back
}

// stored waits until a state is in the store. Everything that was put before it is stored then,
// too, because the oldest change is stored first.
func (f *farm) stored(key string) {
	f.Helper()
	f.stream(key+" is stored", func(s jetstream.Stream) bool {
		info, err := s.Info(f.Context(), jetstream.WithSubjectFilter(f.subjects.StoreKeyframeAll(farmShard)))
		return err == nil && len(info.State.Subjects) >= 3
	})
}

// leader returns the index of the NATS server that leads the stream of the space.
func (f *farm) leader() (index int) {
	f.Helper()
	f.stream("the stream has a leader", func(s jetstream.Stream) bool {
		c := s.CachedInfo().Cluster
		if c == nil || c.Leader == "" {
			return false
		}
		index = int(c.Leader[len(c.Leader)-1] - '1')
		return true
	})
	return index
}

// refused starts relays that do not fit the others: one with another key, one with another
// number of shards. Each gives the reason in one line, and the others are not disturbed.
func (f *farm) refused() {
	f.Helper()
	for _, c := range []struct {
		args  []string
		code  int
		lines int
		says  string
	}{
		{[]string{"--gossip-key-file", keyFile(f.T, 0xb2), "--gossip-bind", "127.0.0.1:0", "--gossip-join", f.join}, 1, 1, "key"},
		{[]string{"--shards", "32"}, 2, 2, "64"}, // the second line names --help
	} {
		p := start(f.T, "relay", append(append(f.common, "--node", "stranger", "--log-level", "error"), c.args...)...)
		p.ends(c.code, c.says)
		if n := strings.Count(p.output.String(), "\n"); n != c.lines {
			f.Errorf("%q: %d lines give the reason, want %d:\n%s", c.args, n, c.lines, p.output)
		}
	}
}
