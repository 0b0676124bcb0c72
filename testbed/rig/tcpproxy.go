//go:build linux

package rig

import (
	"net"
	"sync"
	"time"
)

// chunkMax bounds what is forwarded at a time, in bytes, and queueMax the chunks that are
// under way in one direction. Beyond, the sender waits, as for a full window.
const (
	chunkMax = 64 << 10
	queueMax = 256
)

// A TCPProxy forwards connections to one server. It can delay what it carries, stall, and
// reset the connections.
type TCPProxy struct {
	listener net.Listener
	dial     func() (net.Conn, error)
	delay    time.Duration
	done     sync.WaitGroup

	mu      sync.Mutex // of what faults change while connections read it
	pairs   map[*tcpPair]struct{}
	stalled chan struct{} // closed when a stall ends; nil without one
	closed  bool
}

type tcpPair struct{ client, server *net.TCPConn }

// NewTCPProxy opens a proxy at local, with all sockets on a host.
func NewTCPProxy(h *Host, local, server string, delay time.Duration) (p *TCPProxy, err error) {
	p = &TCPProxy{delay: delay, pairs: map[*tcpPair]struct{}{}}
	p.dial = func() (net.Conn, error) { return h.Dial("tcp", server) }
	err = h.In(func() (err error) {
		p.listener, err = net.Listen("tcp", local)
		return err
	})
	if err != nil {
		return nil, err
	}
	p.done.Go(p.accept)
	return p, nil
}

func (p *TCPProxy) accept() {
	for {
		c, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.done.Go(func() { p.serve(c.(*net.TCPConn)) })
	}
}

func (p *TCPProxy) serve(client *net.TCPConn) {
	c, err := p.dial()
	if err != nil {
		reset(client)
		return
	}
	pair := &tcpPair{client: client, server: c.(*net.TCPConn)}
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		pair.reset()
		return
	}
	p.pairs[pair] = struct{}{}
	p.mu.Unlock()
	var both sync.WaitGroup
	both.Go(func() { p.carry(pair.client, pair.server) })
	both.Go(func() { p.carry(pair.server, pair.client) })
	both.Wait()
	p.mu.Lock()
	delete(p.pairs, pair)
	p.mu.Unlock()
}

// carry forwards one direction until either side ends, and ends both then.
func (p *TCPProxy) carry(from, to *net.TCPConn) {
	type chunk struct {
		due time.Time
		b   []byte
	}
	queue := make(chan chunk, queueMax)
	var writer sync.WaitGroup
	writer.Go(func() {
		for c := range queue {
			time.Sleep(time.Until(c.due))
			p.wait()
			if _, err := to.Write(c.b); err != nil {
				_ = from.Close() // ends the reader; the rest of the queue fails the same way
			}
		}
		_ = to.Close()
	})
	for {
		b := make([]byte, chunkMax)
		n, err := from.Read(b)
		if n > 0 {
			queue <- chunk{time.Now().Add(p.delay), b[:n]}
		}
		if err != nil {
			break
		}
	}
	close(queue)
	writer.Wait()
}

// wait returns when there is no stall.
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
	for pair := range p.pairs {
		pair.reset()
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

func (p *tcpPair) reset() {
	reset(p.client)
	reset(p.server)
}

// reset closes a connection with a reset. Both calls fail only on a closed one.
func reset(c *net.TCPConn) {
	_ = c.SetLinger(0)
	_ = c.Close()
}
