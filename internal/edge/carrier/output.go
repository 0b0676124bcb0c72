package carrier

import (
	"net/netip"

	"github.com/dnprelay/dnprelay/dnp"
)

// An Output sends datagrams to carried clients, and all others by UDP. One worker owns it.
type Output struct {
	UDP interface {
		dnp.Sender
		Flush() error
	}
	Hub *Hub

	dirty []*Conn          // that have something for their writers
	full  []netip.AddrPort // that take nothing more
}

// Datagram implements dnp.Sender.
func (o *Output) Datagram(size int) []byte { return o.UDP.Datagram(size) }

// Send implements dnp.Sender.
func (o *Output) Send(to netip.AddrPort, b []byte) {
	if !Carried(to.Addr()) {
		o.UDP.Send(to, b)
		return
	}
	c := o.Hub.Conn(to)
	if c == nil {
		o.Hub.counts.outLost.Add(1)
		return
	}
	ok, full := c.send(b)
	if !ok {
		o.Hub.counts.outLost.Add(1)
		return
	}
	if full {
		o.Hub.counts.full.Add(1)
		o.full = append(o.full, to)
	}
	if n := len(o.dirty); n == 0 || o.dirty[n-1] != c { // the datagrams of a client come together
		o.dirty = append(o.dirty, c)
	}
}

// Flush has everything written.
func (o *Output) Flush() error {
	for i, c := range o.dirty {
		signal(c.ready)
		o.dirty[i] = nil
	}
	o.dirty = o.dirty[:0]
	return o.UDP.Flush()
}

// Full returns, once, the clients that take nothing more until Receiver.Writable. The list is valid until the next Send.
func (o *Output) Full() []netip.AddrPort {
	list := o.full
	o.full = o.full[:0]
	return list
}
