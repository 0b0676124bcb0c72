package natstest

import (
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

// A Proxy disturbs the connection between a client and the servers.
type Proxy struct {
	listener net.Listener
	servers  []string

	mu      sync.Mutex
	changed *sync.Cond
	conns   map[net.Conn]bool
	deaf    bool // messages of the servers are dropped
	stuck   bool // messages of the client are not read
	closed  bool
	running sync.WaitGroup
}

// NewProxy returns a proxy for the servers of a cluster, or for those with the indexes only, which ends with the
// test. Clients use [Proxy.Connect] or [Proxy.URL].
func NewProxy(t testing.TB, c *Cluster, only ...int) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{listener: l, conns: map[net.Conn]bool{}}
	p.changed = sync.NewCond(&p.mu)
	for i, port := range c.clients {
		if len(only) == 0 || slices.Contains(only, i) {
			p.servers = append(p.servers, fmt.Sprintf("127.0.0.1:%d", port))
		}
	}
	p.running.Go(p.accept)
	t.Cleanup(func() {
		l.Close()
		p.set(func() { p.closed, p.stuck = true, false })
		p.Cut()
		p.running.Wait()
	})
	return p
}

// Connect returns a connection through the proxy, like Cluster.Connect.
func (p *Proxy) Connect(t testing.TB, c *Cluster) *nats.Conn {
	t.Helper()
	return c.Connect(t, nats.IgnoreDiscoveredServers(), nats.Timeout(time.Second), func(o *nats.Options) error {
		o.Url, o.Servers = p.URL(), nil
		return nil
	})
}

// URL returns the address of the proxy.
func (p *Proxy) URL() string { return "nats://" + p.listener.Addr().String() }

func (p *Proxy) set(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
	p.changed.Broadcast()
}

// SetDeaf drops the messages of the servers to the client, or stops doing so.
func (p *Proxy) SetDeaf(deaf bool) { p.set(func() { p.deaf = deaf }) }

// SetStuck stops reading from the client, so that its connection fills up, or reads again.
func (p *Proxy) SetStuck(stuck bool) { p.set(func() { p.stuck = stuck }) }

// Cut breaks all connections.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		c.Close()
	}
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		if server := p.dial(); server == nil || !p.connect(client, server) {
			client.Close()
		}
	}
}

func (p *Proxy) dial() net.Conn {
	for _, s := range p.servers {
		if c, err := net.Dial("tcp", s); err == nil {
			return c
		}
	}
	return nil
}

func (p *Proxy) connect(client, server net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		server.Close()
		return false
	}
	p.conns[client], p.conns[server] = true, true
	p.running.Go(func() { p.copy(server, client, true) })
	p.running.Go(func() { p.copy(client, server, false) })
	return true
}

func (p *Proxy) copy(to, from net.Conn, ofClient bool) {
	defer p.forget(to, from)
	b := make([]byte, 32<<10)
	for {
		n, err := from.Read(b)
		if err != nil {
			return
		}
		p.mu.Lock()
		for ofClient && p.stuck {
			p.changed.Wait()
		}
		drop := !ofClient && p.deaf
		p.mu.Unlock()
		if drop {
			continue
		}
		if _, err := to.Write(b[:n]); err != nil && err != io.EOF {
			return
		}
	}
}

func (p *Proxy) forget(conns ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		c.Close()
		delete(p.conns, c)
	}
}
