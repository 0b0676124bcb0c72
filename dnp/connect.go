package dnp

import (
	"net/netip"
	"time"

	"github.com/dnprelay/dnprelay/dnp/wire"
)

// A connecting is the client's side of the handshake.
type connecting struct {
	since, next instant // the attempt, the next request
	until       instant // when to give up
}

func (a *connecting) nextTimeout() instant { return min(a.next, a.until) }

// Connect asks the server at this address for a connection. EventConnected or
// EventClosed follows. Errors are ErrConnected and ErrConns.
func (e *Endpoint) Connect(now time.Time, to netip.AddrPort) (*Conn, error) {
	t := e.clock.advance(now)
	if e.byAddr[to] != nil {
		return nil, ErrConnected
	}
	if e.count >= e.cfg.ConnsMax {
		return nil, ErrConns
	}
	c := e.add(to, t)
	c.client = true
	c.state = connConnecting
	c.connect = connecting{since: t, next: t, until: t.add(e.cfg.ConnectTimeout)}
	c.wake()
	return c, nil
}

func (c *Conn) pumpConnect(now instant, out Sender) {
	a := &c.connect
	switch {
	case now >= a.until:
		c.quietly(CloseTimeout)
	case now >= a.next:
		a.next = now.add(c.e.cfg.ConnectResend)
		c.emit(wire.AppendConnectionRequest(out.Datagram(5)), out)
	}
}

// receiveConnecting handles a datagram while the server has not answered. A client
// hears nothing else than the answer (dnp/PROTOCOL.md, Connecting).
func (c *Conn) receiveConnecting(p []byte, now instant, out Sender) {
	if wire.Command(p[0]) != wire.CommandConnectionAck {
		c.e.drop(DropUnexpected)
		return
	}
	m, err := wire.ParseConnectionAck(p[1:])
	switch {
	case err != nil:
		c.e.drop(DropTruncated)
	case m.Result == wire.Accepted && m.Protocol == wire.ProtocolDNP1:
		c.state = connEstablished
		c.e.established(c, now)
	case m.Result == wire.NoCommonProtocol, m.Result == wire.Accepted:
		c.quietly(CloseNoProtocol)
	default: // unknown results mean rejected
		c.quietly(CloseRejected)
	}
}
