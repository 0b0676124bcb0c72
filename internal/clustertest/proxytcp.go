//go:build linux

package clustertest

import (
	"errors"
	"net"
	"sync"
	"time"
)

// chunkMax is how much is forwarded at a time, and queueMax how many of these are
// under way in one direction; beyond, the sender waits, as for a full window.
const (
	chunkMax = 64 << 10
	queueMax = 256
)

// A tcpProxy forwards connections to one server. It can delay what it carries, hold
// it back without a word, and reset the connections.
type tcpProxy struct {
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

// newTCPProxy opens a proxy at local. Sockets are opened in a namespace, or in this
// one if it is nil.
func newTCPProxy(ns *netns, local, server string, delay time.Duration) (p *tcpProxy, err error) {
	p = &tcpProxy{delay: delay, pairs: map[*tcpPair]struct{}{}}
	listen := func() (err error) {
		p.listener, err = net.Listen("tcp", local)
		return err
	}
	if ns == nil {
		p.dial = func() (net.Conn, error) { return net.DialTimeout("tcp", server, dialTimeout) }
		err = listen()
	} else {
		p.dial = func() (net.Conn, error) { return ns.Dial("tcp", server) }
		err = ns.in(listen)
	}
	if err != nil {
		return nil, err
	}
	p.done.Go(p.accept)
	return p, nil
}

func (p *tcpProxy) accept() {
	for {
		c, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.done.Go(func() { p.serve(c.(*net.TCPConn)) })
	}
}

func (p *tcpProxy) serve(client *net.TCPConn) {
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
func (p *tcpProxy) carry(from, to *net.TCPConn) {
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
				_ = from.Close() // so that the reader ends; what is left in the queue fails the same way
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
func (p *tcpProxy) wait() {
	p.mu.Lock()
	stalled := p.stalled
	p.mu.Unlock()
	if stalled != nil {
		<-stalled
	}
}

// stall holds everything back, or lets it go on.
func (p *tcpProxy) stall(on bool) {
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

// resetAll ends all connections with a reset.
func (p *tcpProxy) resetAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for pair := range p.pairs {
		pair.reset()
	}
}

func (p *tcpProxy) close() {
	_ = p.listener.Close() // fails only if it is closed
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.stall(false)
	p.resetAll()
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

func isClosed(err error) bool { return errors.Is(err, net.ErrClosed) }
