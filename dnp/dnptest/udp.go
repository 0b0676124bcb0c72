package dnptest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"
)

// ErrPeerClosed reports that a Peer has ended.
var ErrPeerClosed = errors.New("dnptest: peer is closed")

// readBuffer is enough for the largest UDP datagram.
const readBuffer = 1 << 16

// A Peer is a [Client] on a UDP socket. One goroutine owns the client and one reads the
// socket; both end before Close returns. Any goroutine may call its methods, but the
// functions of an App must not.
type Peer struct {
	conn    *net.UDPConn
	client  *Client
	stop    context.CancelFunc
	ended   <-chan struct{} // of the context
	calls   chan func()
	packets chan packet
	waiting []waiter // owned by loop
	running sync.WaitGroup
}

type packet struct {
	from netip.AddrPort
	p    []byte
}

type waiter struct {
	done func(c *Client) bool
	ok   chan struct{}
}

// RunUDP opens a socket at local (the zero value for any address), connects a
// client to cfg.Server through it, or waits for a request if cfg.Listen is set,
// and runs it until ctx ends or Close is called. cfg.Send is set by RunUDP.
//
// The client gets only datagrams of its peer, also if its behaviour would take those of others
// ([Behaviour].ChecksSource): all tests of a machine share the ports of its loopback address, and an edge of
// another test goes on sending to a client that is gone, whose port this client may have now.
func RunUDP(ctx context.Context, cfg Config, local netip.AddrPort) (*Peer, error) {
	var laddr *net.UDPAddr
	if local.IsValid() {
		laddr = net.UDPAddrFromAddrPort(local)
	}
	conn, err := net.ListenUDP("udp", laddr)
	if err != nil {
		return nil, fmt.Errorf("open socket of the peer: %w", err)
	}
	ctx, stop := context.WithCancel(ctx)
	p := &Peer{conn: conn, stop: stop, ended: ctx.Done(), calls: make(chan func()), packets: make(chan packet)}
	cfg.Send = func(b []byte) { _, _ = conn.WriteToUDPAddrPort(b, p.client.cfg.Server) } // a datagram that is not sent is lost
	p.client = NewClient(cfg)
	p.running.Go(p.read)
	p.running.Go(p.loop)
	return p, nil
}

// Addr returns the address of the socket.
func (p *Peer) Addr() netip.AddrPort {
	a := p.conn.LocalAddr().(*net.UDPAddr).AddrPort()
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
}

// Do calls f with the client on the goroutine that owns it.
func (p *Peer) Do(f func(now time.Time, c *Client)) error {
	called := make(chan struct{})
	call := func() { f(time.Now(), p.client); close(called) }
	select {
	case p.calls <- call:
		<-called
		return nil
	case <-p.ended:
		return ErrPeerClosed
	}
}

// Until waits until done reports true. It calls done after every event of the client.
// The error is that of ctx, or ErrPeerClosed.
func (p *Peer) Until(ctx context.Context, done func(c *Client) bool) error {
	w := waiter{done: done, ok: make(chan struct{})}
	if err := p.Do(func(time.Time, *Client) { p.waiting = append(p.waiting, w) }); err != nil {
		return err
	}
	select {
	case <-w.ok:
		return nil
	case <-p.ended:
		return ErrPeerClosed
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Write has the application set value i of the newest link with this link message, and returns when the library has sent the
// value. A library forgets a change that waits for its tick when the server repeats the older value meanwhile
// ([Behaviour].RemoteClearsLocal), so an application that means it sets the value again.
func (p *Peer) Write(ctx context.Context, message string, i int, value []byte) error {
	return p.Until(ctx, written(message, i, value))
}

// written returns a function that sets a value, again if it has to, and reports whether it was sent.
func written(message string, i int, value []byte) func(c *Client) bool {
	set := false
	return func(c *Client) bool {
		l := c.LinkNamed(message)
		if l == nil || l.State == nil {
			return false
		}
		if set && bytes.Equal(l.State.Value(i), value) {
			return !l.pending
		}
		set = true
		c.Set(l, i, value)
		return false
	}
}

// Close ends the peer without sending ConnectionClose; a caller that wants one calls
// Client.Close in Do before. Close waits for the goroutines.
func (p *Peer) Close() {
	p.stop()
	p.running.Wait()
}

// loop owns the client. It ends with the context, and closes the socket, which
// ends read.
func (p *Peer) loop() {
	defer p.conn.Close()
	if !p.client.cfg.Listen {
		p.client.Connect(time.Now())
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-p.ended:
			return
		case call := <-p.calls:
			call()
		case d := <-p.packets:
			p.receive(d)
		case <-timer.C:
			p.client.Advance(time.Now())
		}
		p.wake()
		p.arm(timer)
	}
}

func (p *Peer) receive(d packet) {
	if p.client.cfg.Listen && p.client.phase != Connected {
		p.client.cfg.Server = d.from
	}
	if d.from == p.client.cfg.Server {
		p.client.Receive(time.Now(), d.from, d.p)
	}
}

// wake ends the calls of Until whose condition holds.
func (p *Peer) wake() {
	rest := p.waiting[:0]
	for _, w := range p.waiting {
		if w.done(p.client) {
			close(w.ok)
			continue
		}
		rest = append(rest, w)
	}
	p.waiting = rest
}

func (p *Peer) arm(timer *time.Timer) {
	timer.Stop()
	if due, ok := p.client.NextTimeout(); ok {
		timer.Reset(max(0, time.Until(due)))
	}
}

func (p *Peer) read() {
	buf := make([]byte, readBuffer)
	for {
		n, from, err := p.conn.ReadFromUDPAddrPort(buf)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue // the kernel reports an earlier datagram that was refused
		}
		d := packet{netip.AddrPortFrom(from.Addr().Unmap(), from.Port()), bytes.Clone(buf[:n])}
		select {
		case p.packets <- d:
		case <-p.ended:
			return
		}
	}
}
