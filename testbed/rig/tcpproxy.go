//go:build linux

package rig

import (
	"net"
	"sync"
)

// chunkMax bounds the data that is forwarded at a time, in bytes.
const chunkMax = 64 << 10

// A TCPProxy forwards connections to one server. It can stall and reset them.
type TCPProxy struct {
	listener net.Listener
	dial     func() (net.Conn, error)
	done     sync.WaitGroup

	mu      sync.Mutex // faults change what follows while connections read it
	conns   map[*net.TCPConn]bool
	stalled chan struct{} // closed at the end of a stall; nil without one
	closed  bool
}

// NewTCPProxy opens a proxy at local, with all sockets on a host.
func NewTCPProxy(h *Host, local, server string) (p *TCPProxy, err error) {
	p = &TCPProxy{conns: map[*net.TCPConn]bool{}}
	p.dial = func() (net.Conn, error) { return h.Dial("tcp", server) }
	err = h.In(func() (err error) {
		p.listener, err = net.Listen("tcp", local)
		return err
	})
	if err != nil {
		return nil, err
	}
	p.done.Go(func() {
		for {
			c, err := p.listener.Accept()
			if err != nil {
				return
			}
			p.done.Go(func() { p.serve(c.(*net.TCPConn)) })
		}
	})
	return p, nil
}

// serve forwards both directions of a connection until its end.
func (p *TCPProxy) serve(client *net.TCPConn) {
	c, err := p.dial()
	if err != nil {
		reset(client)
		return
	}
	server := c.(*net.TCPConn)
	p.keep(client, server)
	var both sync.WaitGroup
	both.Go(func() { p.carry(client, server) })
	both.Go(func() { p.carry(server, client) })
	both.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, client)
	delete(p.conns, server)
}

// keep remembers connections for ResetAll; those of a closed proxy are reset.
func (p *TCPProxy) keep(conns ...*net.TCPConn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		p.conns[c] = true
		if p.closed {
			reset(c)
		}
	}
}

// carry forwards one direction until either side ends, and ends both then.
func (p *TCPProxy) carry(from, to *net.TCPConn) {
	defer to.Close()
	defer from.Close()
	b := make([]byte, chunkMax)
	for {
		n, err := from.Read(b)
		p.wait()
		if _, failed := to.Write(b[:n]); err != nil || failed != nil {
			return
		}
	}
}

func (p *TCPProxy) wait() {
	p.mu.Lock()
	stalled := p.stalled
	p.mu.Unlock()
	if stalled != nil {
		<-stalled
	}
}

// Stall holds all data back, or lets it go on.
func (p *TCPProxy) Stall(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case on && p.stalled == nil:
		p.stalled = make(chan struct{})
	case !on && p.stalled != nil:
		close(p.stalled)
		p.stalled = nil
	}
}

// ResetAll ends all connections with a reset.
func (p *TCPProxy) ResetAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		reset(c)
	}
}

// Close ends the proxy and its connections.
func (p *TCPProxy) Close() {
	_ = p.listener.Close() // fails only if it is closed
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.Stall(false)
	p.ResetAll()
	p.done.Wait()
}

// reset closes a connection with a reset. Both calls fail only on a closed one.
func reset(c *net.TCPConn) {
	_ = c.SetLinger(0)
	_ = c.Close()
}
