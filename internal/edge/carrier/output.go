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
	c := o.conn(to)
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
	if n := len(o.dirty); n == 0 || o.dirty[n-1] != c {
		o.dirty = append(o.dirty, c)
	}
}

// conn returns the connection of a client, or nil. The datagrams of a client come together, so most need no look into the Hub,
// which all workers share.
func (o *Output) conn(to netip.AddrPort) *Conn {
	if n := len(o.dirty); n > 0 && o.dirty[n-1].addr == to {
		return o.dirty[n-1]
	}
	return o.Hub.Conn(to)
}

// Flush has everything written.
func (o *Output) Flush() error {
	for i, c := range o.dirty {
		c.ready.Wake()
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
