package auth

import "net/netip"

// HomeNetwork returns the network that belongs to one client: an IPv4 address or IPv6 /64.
func HomeNetwork(a netip.Addr) netip.Prefix {
	a = a.Unmap().WithZone("")
	bits := 64
	if a.Is4() {
		bits = 32
	}
	p, _ := a.Prefix(bits) // fails only for an invalid address, which has the zero prefix
	return p
}

// Places counts what clients take up, in all and for each network that belongs to one client. The zero value is ready. One goroutine
// at a time may use it.
type Places struct {
	all int
	of  map[netip.Prefix]int // of networks that have any
}

// All returns how many there are.
func (p *Places) All() int { return p.all }

// Of returns how many the network of an address has.
func (p *Places) Of(a netip.Addr) int { return p.of[HomeNetwork(a)] }

// Enter counts one more for the network of an address. Leave takes it back.
func (p *Places) Enter(a netip.Addr) {
	if p.of == nil {
		p.of = make(map[netip.Prefix]int)
	}
	p.all++
	p.of[HomeNetwork(a)]++
}

// Leave counts one less for the network of an address.
func (p *Places) Leave(a netip.Addr) {
	n := HomeNetwork(a)
	p.all--
	if p.of[n]--; p.of[n] == 0 {
		delete(p.of, n)
	}
}
