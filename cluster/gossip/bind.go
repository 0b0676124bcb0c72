package gossip

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/dnprelay/dnprelay/cluster"
	"github.com/hashicorp/memberlist"
)

// bindTries is how often listen looks for a free port: the kernel chooses one for TCP, and another
// program may use it for UDP.
const bindTries = 10

// listen opens the ports of gossip and returns the address to which they are bound.
func listen(bind string, logger *log.Logger) (t *memberlist.NetTransport, bound netip.AddrPort, err error) {
	addr, err := cluster.ParseBind(bind, "0.0.0.0")
	if err != nil {
		return nil, addr, fmt.Errorf("gossip: bind: %w", err)
	}
	tries := 1
	if addr.Port() == 0 {
		tries = bindTries
	}
	for range tries {
		t, err = memberlist.NewNetTransport(&memberlist.NetTransportConfig{
			BindAddrs: []string{addr.Addr().String()}, BindPort: int(addr.Port()), Logger: logger,
		})
		if err == nil {
			return t, netip.AddrPortFrom(addr.Addr(), uint16(t.GetAutoBindPort())), nil
		}
	}
	return nil, addr, bindError(bind, err)
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

var errNoAddress = errors.New("gossip: this machine has no address that others could reach; set --gossip-advertise")

// advertised returns the address at which the others reach a node that listens on bound: the one that
// was asked for, the one it is bound to, or the best one of the machine.
func advertised(asked string, bound netip.AddrPort, machine []netip.Addr) (netip.AddrPort, error) {
	if asked != "" {
		addr, err := cluster.ParseAdvertised(asked, bound.Port())
		if err != nil {
			err = fmt.Errorf("gossip: advertise: %w", err)
		}
		return addr, err
	}
	if !bound.Addr().IsUnspecified() {
		return bound, nil
	}
	best, most := netip.Addr{}, 0
	for _, a := range machine {
		if score := reach(a, bound.Addr()); score > most {
			best, most = a, score
		}
	}
	if most == 0 {
		return netip.AddrPort{}, errNoAddress
	}
	return netip.AddrPortFrom(best, bound.Port()), nil
}

// reach scores how well others reach a node that is bound to [::], which receives IPv4, too, or 0.0.0.0 at
// an address of its machine. The family that it is bound to is best; then private addresses are, because
// clusters live in private networks. Link-local ones score 0: not at all.
func reach(a, bound netip.Addr) int {
	if !a.IsGlobalUnicast() {
		return 0
	}
	score := 1
	if a.IsPrivate() {
		score++
	}
	if a.Is4() == bound.Is4() {
		score += 2
	}
	return score
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

// DialAddressTimeout connects to another node. memberlist dials in no other way.
func (t dialling) DialAddressTimeout(a memberlist.Address, timeout time.Duration) (net.Conn, error) {
	d := net.Dialer{Timeout: timeout}
	conn, err := d.DialContext(t.ctx, "tcp", a.Addr)
	if err != nil {
		return nil, err
	}
	return ending{conn, context.AfterFunc(t.ctx, func() { conn.Close() })}, nil
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
