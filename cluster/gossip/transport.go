package gossip

import (
	"context"
	"net"
	"time"

	"github.com/hashicorp/memberlist"
)

// A dialling is memberlist's own transport, but what it dials ends when the node
// does: nobody should have to wait for an address that is silent.
type dialling struct {
	*memberlist.NetTransport
	ctx context.Context
}

// DialAddressTimeout connects to another node.
func (t dialling) DialAddressTimeout(a memberlist.Address, timeout time.Duration) (net.Conn, error) {
	d := net.Dialer{Timeout: timeout}
	return d.DialContext(t.ctx, "tcp", a.Addr)
}

// DialTimeout connects to another node.
func (t dialling) DialTimeout(addr string, timeout time.Duration) (net.Conn, error) {
	return t.DialAddressTimeout(memberlist.Address{Addr: addr}, timeout)
}
