package redisaffinity

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/cluster"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	// The library's goroutine that looks whether a server is back ends up to a second after its pool.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"))
}

// patience is how long a test waits before it fails.
const patience = 30 * time.Second

// A server is a real redis-server.
type server struct {
	t    testing.TB
	port int
	args []string

	cmd   *exec.Cmd
	ended chan struct{} // closed when cmd has ended
}

// startServer starts redis-server on a free port, or skips the test.
func startServer(t testing.TB, args ...string) *server {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Skip("redis-server is not installed (Debian package redis-server); miniredis stands in for it in other tests")
	}
	s := &server{t: t, args: args}
	t.Cleanup(s.stop)
	for end := time.Now().Add(patience); time.Now().Before(end); {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		s.port = l.Addr().(*net.TCPAddr).Port
		l.Close()
		if s.launch() {
			return s
		}
	}
	t.Fatal("no redis-server gets a port")
	return nil
}

// start starts a server on the port that it had before.
func (s *server) start() {
	s.t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if s.launch() {
			return
		}
	}
	s.t.Fatal("redis-server does not listen")
}

// launch starts a server. It reports false if that ends, because another process has the port, such as the server of another test.
func (s *server) launch() bool {
	args := append([]string{"--port", strconv.Itoa(s.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", s.t.TempDir()}, s.args...)
	cmd := exec.Command("redis-server", args...)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		s.t.Fatal(err)
	}
	ready, ended := make(chan struct{}, 1), make(chan struct{})
	go func() {
		defer close(ended)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if strings.Contains(lines.Text(), "Ready to accept connections") {
				select {
				case ready <- struct{}{}:
				default: // it says so for each kind of connection
				}
			}
		}
		_ = cmd.Wait()
	}()
	s.cmd, s.ended = cmd, ended
	select {
	case <-ready:
		return true
	case <-ended:
		s.cmd = nil
	case <-time.After(patience):
		s.stop()
	}
	return false
}

func (s *server) stop() {
	if s.cmd != nil {
		s.cmd.Process.Kill()
		<-s.ended
		s.cmd = nil
	}
}

func (s *server) signal(sig syscall.Signal) { s.cmd.Process.Signal(sig) }
func (s *server) addr() string              { return "127.0.0.1:" + strconv.Itoa(s.port) }
func (s *server) url() string               { return "redis://" + s.addr() }

// client returns an ordinary client of the server, which ends with the test.
func client(t testing.TB, url string) *redis.Client {
	t.Helper()
	o, err := redis.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	c := redis.NewClient(o)
	t.Cleanup(func() { c.Close() })
	return c
}

// A node is an Affinity that runs until the test ends or kill is called.
type node struct {
	*Affinity
	cfg      Config
	kill     func()
	replaced chan string
}

// start runs a node with one server. Renewals are quick, so that tests do not wait for them.
func start(t testing.TB, url, name string, change func(*Config)) *node {
	t.Helper()
	return startAll(t, []string{url}, name, change, nil)
}

// startAll runs a node with some servers. adapt may change it before it runs.
func startAll(t testing.TB, urls []string, name string, change func(*Config), adapt func(*Affinity)) *node {
	t.Helper()
	cfg := Config{URLs: urls, Node: name, Renew: 50 * time.Millisecond, Lease: 20 * time.Millisecond, LeaseTTL: time.Second, TryTTL: time.Minute,
		Timeout: 5 * time.Second}
	if change != nil {
		change(&cfg)
	}
	a, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if adapt != nil {
		adapt(a)
	}
	n := &node{Affinity: a, cfg: cfg, replaced: make(chan string, 100)}
	a.OnReplaced(func(name string, by cluster.Served) { n.replaced <- fmt.Sprintf("%s %s %d", name, by.Node, by.Epoch) })
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { a.Run(ctx); close(done) }()
	n.kill = func() { cancel(); <-done }
	t.Cleanup(n.kill)
	return n
}

// until waits for a condition.
func until(t testing.TB, why string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !f(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal(why)
		}
	}
}

// Err returns why no server answers; nil if one does.
func (n *node) Err() (err error) {
	for _, s := range n.Servers() {
		if err = s.Err; err == nil {
			return nil
		}
	}
	return err
}

// Stats returns the counters of the first server.
func (n *node) Stats() Stats { return n.Servers()[0].Stats }

// ready waits until a server answers.
func (n *node) ready(t testing.TB) *node {
	t.Helper()
	until(t, "Redis is there and the node does not see it", func() bool { return n.Err() == nil })
	return n
}

// sees waits until the node sees that all servers answer, except those that are away.
func (n *node) sees(t testing.TB, away ...bool) *node {
	t.Helper()
	until(t, fmt.Sprintf("%s does not see which servers answer; away are %v", n.cfg.Node, away), func() bool {
		for i, s := range n.Servers() {
			if (s.Err != nil) != (i < len(away) && away[i]) {
				return false
			}
		}
		return true
	})
	return n
}

// wrote waits until a server has what the node claims.
func (n *node) wrote(t testing.TB, server int) {
	t.Helper()
	s := n.servers[server]
	until(t, fmt.Sprintf("%s does not write its claims to server %d", n.cfg.Node, server), func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, c := range s.claims {
			if c.next.IsZero() {
				return false
			}
		}
		return true
	})
}

// find asks and waits.
func (n *node) find(t testing.TB, name string) (s cluster.Served, err error) {
	t.Helper()
	done := make(chan bool, 1)
	n.Find(name, func(x cluster.Served, e error) { s, err = x, e; done <- true })
	select {
	case <-done:
		return s, err
	case <-time.After(patience):
		t.Fatal("the question is not answered")
		return s, nil
	}
}
