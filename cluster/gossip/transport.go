package gossip

import (
	"context"
	"net"
	"time"

	"github.com/hashicorp/memberlist"
)

// A dialling is memberlist's own transport, but what it dials ends when the node
// does: nobody should have to wait for another that is silent.
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

// An ending is a connection that ends when the node does.
type ending struct {
	net.Conn
	forget func() bool
}

// Close closes the connection.
func (e ending) Close() error {
	e.forget()
	return e.Conn.Close()
}
