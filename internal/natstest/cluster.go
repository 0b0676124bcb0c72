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

// A Cluster is a number of servers in this process. It belongs to one test goroutine.
type Cluster struct {
	folder  string
	routes  string
	clients []int // ports
	peers   []int
	servers []*server.Server // nil if stopped
}

// Start starts n servers and waits until they have a leader. They end with the test.
func Start(t testing.TB, n int) *Cluster {
	t.Helper()
	c := &Cluster{folder: Dir(t), servers: make([]*server.Server, n)}
	ports := FreePorts(t, 2*n)
	c.clients, c.peers = ports[:n], ports[n:]
	var routes []string
	for _, p := range c.peers {
		routes = append(routes, fmt.Sprintf("nats://127.0.0.1:%d", p))
	}
	c.routes = strings.Join(routes, ",")
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

// URL returns the addresses of all servers.
func (c *Cluster) URL() string {
	var all []string
	for _, p := range c.clients {
		all = append(all, fmt.Sprintf("nats://127.0.0.1:%d", p))
	}
	return strings.Join(all, ",")
}

// Connect returns a connection to any of the servers, which finds another server when its own stops, and
// keeps nothing for later meanwhile. It ends with the test.
func (c *Cluster) Connect(t testing.TB, opts ...nats.Option) *nats.Conn {
	t.Helper()
	opts = append([]nats.Option{
		nats.MaxReconnects(-1), nats.ReconnectWait(20 * time.Millisecond), nats.ReconnectJitter(10*time.Millisecond, 0),
		nats.ReconnectBufSize(-1),
	}, opts...)
	nc, err := nats.Connect(c.URL(), opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
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

func (c *Cluster) launch(t testing.TB, i int) {
	t.Helper()
	o := &server.Options{
		ServerName: "n" + strconv.Itoa(i), Host: "127.0.0.1", Port: c.clients[i],
		JetStream: true, StoreDir: filepath.Join(c.folder, strconv.Itoa(i)), DisableJetStreamBanner: true, NoSigs: true, NoLog: true,
	}
	if len(c.servers) > 1 {
		o.Cluster = server.ClusterOpts{Name: "test", Host: "127.0.0.1", Port: c.peers[i], PoolSize: -1}
		o.Routes = server.RoutesFromStr(c.routes)
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

// Dir returns a new folder for the store of a nats-server, which is removed at the end of the
// test. Unlike testing.TB.TempDir it does not fail the test while the server, which may write
// its stream state for some time after WaitForShutdown, fills the folder again.
func Dir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "nats-")
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

// VerifyNoLeaks runs all tests of a package and fails if goroutines are left, except for two that a
// nats-server leaves if it is shut down while it makes a stream.
func VerifyNoLeaks(m goleak.TestingM) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction(inServer+".(*fileStore).flushStreamStateLoop"), goleak.IgnoreAnyFunction(inServer+"/ats.Register.func1"))
}
