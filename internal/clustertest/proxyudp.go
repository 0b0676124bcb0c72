//go:build linux

package clustertest

import (
	"bytes"
	"net"
	"net/netip"
	"sync"
	"time"
)

// datagramMax is more than any datagram of DNP has.
const datagramMax = 64 << 10

// A udpProxy forwards datagrams between clients and one server, each client through
// a socket of its own, and impairs both directions.
type udpProxy struct {
	front  *net.UDPConn
	server netip.AddrPort
	im     Impairment
	dice   *dice
	dial   func(netip.AddrPort) (*net.UDPConn, error)
	done   sync.WaitGroup

	mu    sync.Mutex // the front reader adds, close removes
	backs map[netip.AddrPort]*net.UDPConn
}

// newUDPProxy opens a proxy at local. Sockets are opened in a namespace, or in this
// one if it is nil.
func newUDPProxy(ns *netns, local, server netip.AddrPort, im Impairment, d *dice) (p *udpProxy, err error) {
	in := func(f func() error) error { return f() }
	if ns != nil {
		in = ns.in
	}
	p = &udpProxy{server: server, im: im, dice: d, backs: map[netip.AddrPort]*net.UDPConn{}}
	p.dial = func(to netip.AddrPort) (c *net.UDPConn, err error) {
		err = in(func() (err error) {
			c, err = net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(to))
			return err
		})
		return c, err
	}
	err = in(func() (err error) {
		p.front, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(local))
		return err
	})
	if err != nil {
		return nil, err
	}
	p.done.Go(p.forward)
	return p, nil
}

// forward takes what clients send, until close.
func (p *udpProxy) forward() {
	buf := make([]byte, datagramMax)
	for {
		n, from, err := p.front.ReadFromUDPAddrPort(buf)
		if err != nil {
			return
		}
		back := p.back(from)
		if back != nil {
			p.pass(buf[:n], func(b []byte) { _, _ = back.Write(b) }) // what cannot be sent is lost, as on any path
		}
	}
}

// back returns the socket of a client towards the server.
func (p *udpProxy) back(client netip.AddrPort) *net.UDPConn {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c, ok := p.backs[client]; ok {
		return c
	}
	c, err := p.dial(p.server)
	if err != nil {
		return nil
	}
	p.backs[client] = c
	p.done.Go(func() {
		buf := make([]byte, datagramMax)
		for {
			n, err := c.Read(buf)
			if isClosed(err) {
				return
			}
			if err == nil {
				p.pass(buf[:n], func(b []byte) { _, _ = p.front.WriteToUDPAddrPort(b, client) })
			}
		}
	})
	return c
}

// pass sends a datagram on as often and as late as the dice say.
func (p *udpProxy) pass(b []byte, send func([]byte)) {
	for _, delay := range p.dice.fates(p.im) {
		if delay <= 0 {
			send(b)
			continue
		}
		copied := bytes.Clone(b)
		time.AfterFunc(delay, func() { send(copied) })
	}
}

func (p *udpProxy) addr() netip.AddrPort { return p.front.LocalAddr().(*net.UDPAddr).AddrPort() }

func (p *udpProxy) close() {
	_ = p.front.Close() // both fail only if they are closed
	p.mu.Lock()
	for _, c := range p.backs {
		_ = c.Close()
	}
	p.mu.Unlock()
	p.done.Wait()
}
