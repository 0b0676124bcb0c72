package natstest

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"
)

// readyTimeout is how long a server or the cluster may take to get ready. It is large, because tests share
// the machine.
const readyTimeout = 60 * time.Second

// A Cluster is a number of servers in this process. It belongs to one test goroutine. Of several servers,
// server 0 has the tag dnprelay-log-1, and so on.
type Cluster struct {
	addresses
	servers []*server.Server // nil if stopped
	change  []func(*server.Options)
}

// addresses are where the servers of a cluster listen and store.
type addresses struct {
	folder  string
	routes  string
	clients []int // ports
	peers   []int
}

func newAddresses(t testing.TB, n int) addresses {
	t.Helper()
	ports := FreePorts(t, 2*n)
	a := addresses{folder: Dir(t), clients: ports[:n], peers: ports[n:]}
	var routes []string
	for _, p := range a.peers {
		routes = append(routes, fmt.Sprintf("nats://127.0.0.1:%d", p))
	}
	a.routes = strings.Join(routes, ",")
	return a
}

// Start starts n servers and waits until they have a leader. They end with the test. change changes the
// configuration of each.
func Start(t testing.TB, n int, change ...func(*server.Options)) *Cluster {
	t.Helper()
	c := &Cluster{addresses: newAddresses(t, n), servers: make([]*server.Server, n), change: change}
	t.Cleanup(func() {
		for i := range c.servers {
			c.Stop(i)
		}
	})
	for i := range n {
		c.launch(t, i)
	}
	c.wait(t)
	return c
}

// Wipe removes what server i, which is stopped, has stored.
func (a *addresses) Wipe(t testing.TB, i int) {
	t.Helper()
	if err := os.RemoveAll(filepath.Join(a.folder, strconv.Itoa(i))); err != nil {
		t.Fatal(err)
	}
}

// Save copies what server i has stored. The function that it returns puts the copy in the place of what the server stored since. The
// caller stops the server before both.
func (a *addresses) Save(t testing.TB, i int) (restore func()) {
	t.Helper()
	folder, saved := filepath.Join(a.folder, strconv.Itoa(i)), filepath.Join(Dir(t), "saved")
	if err := os.CopyFS(saved, os.DirFS(folder)); err != nil {
		t.Fatal(err)
	}
	return func() {
		t.Helper()
		a.Wipe(t, i)
		if err := os.CopyFS(folder, os.DirFS(saved)); err != nil {
			t.Fatal(err)
		}
	}
}

// Stop stops server i, if it runs, and waits until it has stopped.
func (c *Cluster) Stop(i int) {
	if s := c.servers[i]; s != nil {
		c.servers[i] = nil
		s.Shutdown()
		s.WaitForShutdown()
	}
}

// Restart starts server i again on its port and with its folder, and waits until it is part of the cluster.
func (c *Cluster) Restart(t testing.TB, i int) {
	t.Helper()
	c.launch(t, i)
	c.wait(t)
}

// RestartAll starts all servers again, none of which runs, and waits until they are a cluster.
func (c *Cluster) RestartAll(t testing.TB) {
	t.Helper()
	for i := range c.servers {
		c.launch(t, i)
	}
	c.wait(t)
}

// URL returns the addresses of all servers.
func (a *addresses) URL() string {
	var all []string
	for _, p := range a.clients {
		all = append(all, fmt.Sprintf("nats://127.0.0.1:%d", p))
	}
	return strings.Join(all, ",")
}

// Connect returns a connection to any of the servers, which finds another server when its own stops, and
// keeps nothing for later meanwhile. It ends with the test.
func (a *addresses) Connect(t testing.TB, opts ...nats.Option) *nats.Conn {
	t.Helper()
	opts = append([]nats.Option{
		nats.MaxReconnects(-1), nats.ReconnectWait(20 * time.Millisecond), nats.ReconnectJitter(10*time.Millisecond, 0),
		nats.ReconnectBufSize(-1),
	}, opts...)
	nc, err := nats.Connect(a.URL(), opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

// MetaLeader returns the index of the server that leads the cluster, as far as the running servers know; -1 for
// none.
func (c *Cluster) MetaLeader() int {
	for i, s := range c.servers {
		if s != nil && s.JetStreamIsLeader() {
			return i
		}
	}
	return -1
}

// StreamLeader returns the index of the server that leads a stream; -1 for none.
func (c *Cluster) StreamLeader(stream string) int {
	for i, s := range c.servers {
		if s != nil && (len(c.servers) == 1 || s.JetStreamIsStreamLeader("$G", stream)) {
			return i
		}
	}
	return -1
}

// options returns the configuration of server i.
func (a *addresses) options(i int) *server.Options {
	o := &server.Options{
		ServerName: "n" + strconv.Itoa(i), Host: "127.0.0.1", Port: a.clients[i],
		JetStream: true, StoreDir: filepath.Join(a.folder, strconv.Itoa(i)), DisableJetStreamBanner: true, NoSigs: true, NoLog: true,
	}
	if len(a.clients) > 1 {
		o.Tags.Add(fmt.Sprint("dnprelay-log-", i+1))
		o.Cluster = server.ClusterOpts{Name: "test", Host: "127.0.0.1", Port: a.peers[i], PoolSize: -1}
		o.Routes = server.RoutesFromStr(a.routes)
	}
	return o
}

func (c *Cluster) launch(t testing.TB, i int) {
	t.Helper()
	o := c.options(i)
	for _, change := range c.change {
		change(o)
	}
	s, err := server.NewServer(o)
	if err != nil {
		t.Fatal(err)
	}
	c.servers[i] = s
	s.Start()
	if !s.ReadyForConnections(readyTimeout) {
		t.Fatalf("NATS server %d is not ready", i)
	}
}

// wait waits until the running servers have a leader and know it.
func (c *Cluster) wait(t testing.TB) {
	t.Helper()
	if len(c.servers) == 1 {
		return
	}
	for end := time.Now().Add(readyTimeout); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		leader, current := false, true
		for _, s := range c.servers {
			if s != nil {
				leader = leader || s.JetStreamIsLeader()
				current = current && s.JetStreamIsCurrent()
			}
		}
		if leader && current {
			return
		}
	}
	t.Fatal("the NATS cluster has no leader")
}

const portRange = 20_000

// A process tries ports in turn, from a random one on, so that its tests that run at once get
// different ones.
var (
	firstPort  = rand.IntN(portRange)
	triedPorts atomic.Int64
)

// FreePorts chooses TCP ports on loopback below the range from which systems take those of outgoing
// connections. A connection, even one that a server attempts to a peer that does not run yet,
// could otherwise take a port before its server starts.
func FreePorts(t testing.TB, n int) (ports []int) {
	t.Helper()
	for tries := 0; len(ports) < n; tries++ {
		port := 10_000 + (firstPort+int(triedPorts.Add(1)))%portRange
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil && tries < 1000 {
			continue // it is in use
		}
		if err != nil {
			t.Fatal(err)
		}
		l.Close()
		ports = append(ports, port)
	}
	return ports
}

// Dir returns a new folder for the store of a nats-server, in memory where that is possible, which is removed at the end of the
// test. Unlike testing.TB.TempDir it does not fail the test while the server, which may write
// its stream state for some time after WaitForShutdown, fills the folder again.
func Dir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp(storeRoot(), "nats-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for end := time.Now().Add(10 * time.Second); os.RemoveAll(dir) != nil && time.Now().Before(end); {
			time.Sleep(10 * time.Millisecond)
		}
	})
	return dir
}

// inServer is the package of nats-server in the names of its functions.
const inServer = "github.com/nats-io/nats-server/v2/server"

// VerifyNoLeaks runs all tests of a package and fails if goroutines are left, except for three that a
// nats-server leaves if it is shut down while it makes a stream.
func VerifyNoLeaks(m goleak.TestingM) {
	serve() // if this is a process of Processes
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction(inServer+".(*fileStore).flushStreamStateLoop"), goleak.IgnoreAnyFunction(inServer+".(*msgBlock).flushLoop"), goleak.IgnoreAnyFunction(inServer+"/ats.Register.func1"))
}
