package gossip

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/cluster"
	"github.com/hashicorp/memberlist"
	"go.uber.org/goleak"
)

// patience is how long a test waits before it gives up.
const patience = 60 * time.Second

var verbose = flag.Bool("gossip.log", false, "print the logs of the nodes")

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// A node is a Gossip on loopback that runs until the test ends.
type node struct {
	*Gossip
	t     *testing.T
	leave context.CancelFunc
	ended chan struct{}
	err   error // of Run
	logs  *logged
}

// logged keeps the log of a node.
type logged struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if *verbose {
		os.Stderr.Write(p)
	}
	return l.text.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func relay(name string) cluster.Member {
	return cluster.Member{Name: name, Role: cluster.RoleRelay, Phase: cluster.PhaseReady, Shards: 64, Incarnation: 1}
}

// start opens and runs a node. Each function may change its configuration.
func start(t *testing.T, name string, change ...func(*Config)) *node {
	t.Helper()
	n := &node{t: t, ended: make(chan struct{}), logs: &logged{}}
	level := slog.LevelInfo
	if *verbose {
		level = slog.LevelDebug
	}
	cfg := Config{
		Self: relay(name), Bind: "127.0.0.1:0", RejoinInterval: 200 * time.Millisecond,
		Log: slog.New(slog.NewTextHandler(n.logs, &slog.HandlerOptions{Level: level})).With("node", name),
	}
	for _, c := range change {
		c(&cfg)
	}
	g, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	n.Gossip = g
	ctx, cancel := context.WithCancel(context.Background())
	n.leave = cancel
	go func() {
		defer close(n.ended)
		n.err = g.Run(ctx)
	}()
	t.Cleanup(func() {
		n.leave()
		n.wait()
	})
	return n
}

// wait waits until Run has ended and returns its error.
func (n *node) wait() error {
	n.t.Helper()
	select {
	case <-n.ended:
		return n.err
	case <-time.After(patience):
		n.t.Fatalf("Run of %s does not end", n.cfg.Self.Name)
		return nil
	}
}

// kill ends a node without telling the others.
func (n *node) kill() {
	n.Close()
	n.leave()
}

// until waits for a roster of n.
func (n *node) until(why string, ok func(cluster.Roster) bool) time.Time {
	n.t.Helper()
	limit := time.After(patience)
	for !ok(n.Roster()) {
		select {
		case <-n.Changes():
		case <-limit:
			n.t.Fatalf("%s: %s, sees %s; log:\n%s", n.cfg.Self.Name, why, names(n.Roster()), n.logs)
		}
	}
	return time.Now()
}

func names(r cluster.Roster) string {
	var list []string
	for m := range r.All() {
		list = append(list, fmt.Sprintf("%s(%v %v)", m.Name, m.Gossip, m.Phase))
	}
	return strings.Join(list, " ")
}

// sees waits for a roster with this number of members.
func sees(count int) func(cluster.Roster) bool {
	return func(r cluster.Roster) bool { return r.Len() == count }
}

// eventually waits for a condition that no channel reports.
func eventually(t *testing.T, why string, ok func() bool) {
	t.Helper()
	limit := time.After(patience)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-limit:
			t.Fatal(why)
		}
	}
}

func joining(n ...*node) func(*Config) {
	return func(c *Config) {
		for _, n := range n {
			c.Join = append(c.Join, n.Addr().String())
		}
	}
}

// startAll starts relays that join the first, and waits until each sees all.
func startAll(t *testing.T, prefix string, count int, change ...func(*Config)) (list []*node) {
	t.Helper()
	for i := range count {
		c := change
		if i > 0 {
			c = append([]func(*Config){joining(list[0])}, change...)
		}
		list = append(list, start(t, fmt.Sprintf("%s-%d", prefix, i), c...))
	}
	for _, n := range list {
		n.until("all see all", sees(count))
	}
	return list
}

// keyed gives a node a key file of its own with these lines.
func keyed(t *testing.T, lines ...string) func(*Config) {
	return func(c *Config) {
		c.KeyFile = filepath.Join(t.TempDir(), "gossip.key")
		writeKeys(t, c.KeyFile, lines...)
	}
}

// writeKeys replaces a file in one step, as Kubernetes does.
func writeKeys(t *testing.T, file string, lines ...string) {
	t.Helper()
	if err := os.WriteFile(file+".new", []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		t.Fatal(err)
	}
}

var (
	keyA = strings.Repeat("a1", 32)
	keyB = "QkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkI="
	keyC = strings.Repeat("c3", 16)
)

// A wall separates the nodes of different sides.
type wall struct {
	mu   sync.Mutex
	side map[netip.AddrPort]int
}

func (w *wall) put(side int, nodes ...*node) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.side == nil {
		w.side = map[netip.AddrPort]int{}
	}
	for _, n := range nodes {
		w.side[n.Addr()] = side
	}
}

func (w *wall) between(a, b netip.AddrPort) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.side[a] != w.side[b]
}

// build puts a node behind the wall. The node forgets dead members soon.
func (w *wall) build(c *Config) {
	c.spoil = func(m *memberlist.Config) {
		self := netip.MustParseAddrPort(fmt.Sprintf("%s:%d", m.AdvertiseAddr, m.AdvertisePort))
		m.Transport = walled{m.Transport.(memberlist.NodeAwareTransport), w, self}
		m.GossipToTheDeadTime = 100 * time.Millisecond
	}
}

type walled struct {
	memberlist.NodeAwareTransport
	wall *wall
	self netip.AddrPort
}

func (w walled) WriteToAddress(b []byte, a memberlist.Address) (time.Time, error) {
	if w.wall.between(w.self, netip.MustParseAddrPort(a.Addr)) {
		return time.Now(), nil // lost
	}
	return w.NodeAwareTransport.WriteToAddress(b, a)
}

func (w walled) DialAddressTimeout(a memberlist.Address, timeout time.Duration) (net.Conn, error) {
	if w.wall.between(w.self, netip.MustParseAddrPort(a.Addr)) {
		return nil, errors.New("a wall is between")
	}
	return w.NodeAwareTransport.DialAddressTimeout(a, timeout)
}
