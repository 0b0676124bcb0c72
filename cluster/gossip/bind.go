package gossip

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/memberlist"
)

// bindTries is how often listen looks for a free port: the kernel chooses one for TCP, and another
// program may use it for UDP.
const bindTries = 10

// listen opens the ports of gossip.
func listen(bind string, logger *log.Logger) (*memberlist.NetTransport, error) {
	addr, err := parseBind(bind)
	if err != nil {
		return nil, err
	}
	tries := 1
	if addr.Port() == 0 {
		tries = bindTries
	}
	for ; ; tries-- {
		t, err := memberlist.NewNetTransport(&memberlist.NetTransportConfig{
			BindAddrs: []string{addr.Addr().String()}, BindPort: int(addr.Port()), Logger: logger,
		})
		if err == nil {
			return t, nil
		}
		if tries <= 1 {
			return nil, bindError(bind, err)
		}
	}
}

// bindError says in one line why a port cannot be opened. memberlist keeps only the text of the cause.
func bindError(bind string, err error) error {
	text := err.Error()
	switch {
	case strings.Contains(text, "address already in use"):
		return fmt.Errorf("gossip: %s is in use by another program or node; choose another --gossip-bind", bind)
	case strings.Contains(text, "cannot assign requested address"):
		return fmt.Errorf("gossip: %s is not an address of this machine; set --gossip-bind to one, and --gossip-advertise to what others see", bind)
	case strings.Contains(text, "permission denied"):
		return fmt.Errorf("gossip: no permission to listen on %s; choose a --gossip-bind with a port from 1024 on", bind)
	}
	return fmt.Errorf("gossip: listen on %s: %w", bind, err)
}

// parseBind parses [ADDRESS]:PORT. Without an address it returns the one that stands for all addresses
// of the machine: where there is IPv6, Go listens for it on 0.0.0.0, too.
func parseBind(bind string) (netip.AddrPort, error) {
	host, port, err := net.SplitHostPort(bind)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("gossip: bind to %q: want [ADDRESS]:PORT", bind)
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("gossip: bind to %q: want a port from 0 to 65535", bind)
	}
	addr := netip.IPv4Unspecified()
	switch host {
	case "":
	case "localhost":
		addr = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	default:
		if addr, err = netip.ParseAddr(host); err != nil {
			return netip.AddrPort{}, fmt.Errorf("gossip: bind to %q: want an IP address of this machine", bind)
		}
	}
	return netip.AddrPortFrom(addr.Unmap(), uint16(n)), nil
}

var errNoAddress = errors.New("gossip: this machine has no address that others could reach; set --gossip-advertise")

// advertised returns the address at which the others reach a node that listens on bound: the one that
// was asked for, the one it is bound to, or the best one of the machine.
func advertised(asked string, bound netip.AddrPort, machine []netip.Addr) (netip.AddrPort, error) {
	if asked != "" {
		if a, err := netip.ParseAddrPort(asked); err == nil {
			return netip.AddrPortFrom(a.Addr().Unmap(), a.Port()), nil
		}
		a, err := netip.ParseAddr(strings.Trim(asked, "[]"))
		if err != nil || a.IsUnspecified() {
			return netip.AddrPort{}, fmt.Errorf("gossip: advertise %q: want an IP address, with or without :PORT", asked)
		}
		return netip.AddrPortFrom(a.Unmap(), bound.Port()), nil
	}
	if !bound.Addr().IsUnspecified() {
		return bound, nil
	}
	best, score := netip.Addr{}, 0
	for _, a := range machine {
		if s := reach(a); s > score && (a.Is6() || bound.Addr().Is4()) {
			best, score = a, s
		}
	}
	if score == 0 {
		for _, a := range machine { // bound to [::], which receives IPv4, too
			if s := reach(a); s > score {
				best, score = a, s
			}
		}
	}
	if score == 0 {
		return netip.AddrPort{}, errNoAddress
	}
	return netip.AddrPortFrom(best, bound.Port()), nil
}

// reach scores how well other nodes reach an address: private ones best, because clusters live in
// private networks; link-local ones not at all, which is 0.
func reach(a netip.Addr) int {
	switch {
	case !a.IsGlobalUnicast():
		return 0
	case a.IsPrivate() && a.Is4():
		return 4
	case a.Is4():
		return 3
	case a.IsPrivate():
		return 2
	}
	return 1
}

// machineAddresses returns the addresses of this machine.
func machineAddresses() (list []netip.Addr) {
	addrs, _ := net.InterfaceAddrs() // without any there is nothing to choose from
	for _, a := range addrs {
		if prefix, err := netip.ParsePrefix(a.String()); err == nil {
			list = append(list, prefix.Addr().Unmap().WithZone(""))
		}
	}
	return list
}

// A dialling is memberlist's transport, except that its connections end with ctx: a node that stops
// must not wait for another that is silent.
type dialling struct {
	*memberlist.NetTransport
	ctx context.Context
}

// DialAddressTimeout connects to another node.
func (t dialling) DialAddressTimeout(a memberlist.Address, timeout time.Duration) (net.Conn, error) {
	d := net.Dialer{Timeout: timeout}
	conn, err := d.DialContext(t.ctx, "tcp", a.Addr)
	if err != nil {
		return nil, err
	}
	return ending{conn, context.AfterFunc(t.ctx, func() { conn.Close() })}, nil
}

// DialTimeout connects to another node.
func (t dialling) DialTimeout(addr string, timeout time.Duration) (net.Conn, error) {
	return t.DialAddressTimeout(memberlist.Address{Addr: addr}, timeout)
}

// An ending is a connection that ends with the context.
type ending struct {
	net.Conn
	forget func() bool
}

// Close closes the connection.
func (e ending) Close() error {
	e.forget()
	return e.Conn.Close()
}
