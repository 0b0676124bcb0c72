package natslog

import (
	"io"
	"net"
	"strings"
	"sync"
	"testing"
)

// A proxy stands between a client and the servers, and spoils their connection.
type proxy struct {
	listener net.Listener
	servers  []string

	mu      sync.Mutex
	changed *sync.Cond
	conns   map[net.Conn]bool
	deaf    bool // what servers say is thrown away
	stuck   bool // what the client says is not taken
	closed  bool
	running sync.WaitGroup
}

// newProxy returns a proxy for servers with these URLs, that ends with the test.
func newProxy(t testing.TB, urls string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{listener: l, conns: map[net.Conn]bool{}}
	p.changed = sync.NewCond(&p.mu)
	for _, u := range strings.Split(urls, ",") {
		p.servers = append(p.servers, strings.TrimPrefix(u, "nats://"))
	}
	p.running.Go(p.accept)
	t.Cleanup(func() {
		l.Close()
		p.set(func() { p.closed, p.stuck = true, false })
		p.cut()
		p.running.Wait()
	})
	return p
}

func (p *proxy) url() string { return "nats://" + p.listener.Addr().String() }

func (p *proxy) set(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
	p.changed.Broadcast()
}

func (p *proxy) setDeaf(deaf bool)   { p.set(func() { p.deaf = deaf }) }
func (p *proxy) setStuck(stuck bool) { p.set(func() { p.stuck = stuck }) }

// cut breaks all connections.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		c.Close()
	}
}

func (p *proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		if server := p.dial(); server == nil || !p.keep(client, server) {
			client.Close()
		}
	}
}

func (p *proxy) dial() net.Conn {
	for _, s := range p.servers {
		if c, err := net.Dial("tcp", s); err == nil {
			return c
		}
	}
	return nil
}

func (p *proxy) keep(client, server net.Conn) bool {
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

func (p *proxy) copy(to, from net.Conn, ofClient bool) {
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

func (p *proxy) forget(conns ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		c.Close()
		delete(p.conns, c)
	}
}
