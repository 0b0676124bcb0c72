package dnp

import (
	"time"

	"github.com/dnprelay/dnprelay/dnp/wire"
)

// restartPatience is how long after a first request the connection ignores further
// ones. If the peer sends nothing else meanwhile, the next request starts a new session.
const restartPatience = 2 * time.Second

// closeDelay is how long a peer must be silent after its ConnectionClose before the
// connection ends, because one forged byte must not end a session. A client does not wait.
const closeDelay = 2 * time.Second

// A liveness is what is known of a peer's life. DNP has no keep-alive, so a silent
// peer may be content, dead, or restarted. The connection asks with a probe: every
// library since 1.2 acknowledges a command 10 without flags and data, and shows it to
// no application. To an older one it would be fatal.
type liveness struct {
	heard      instant // when a valid datagram arrived last
	peerClosed instant // when a ConnectionClose arrived that nothing contradicted; never
	restart    instant // when a request arrived that nothing contradicted; never
	spoke      bool    // the peer sent something else than requests
}

// hear notes a datagram that only a living peer of this session sends. It clears
// all suspicion that the session is over.
func (l *liveness) hear(now instant) {
	l.heard, l.spoke = now, true
	l.peerClosed, l.restart = never, never
}

func (l *liveness) hearIf(valid bool, now instant) {
	if valid {
		l.hear(now)
	}
}

func (l *liveness) idleAt(cfg *Config) instant {
	if cfg.IdleTimeout <= 0 {
		return never
	}
	return l.heard.add(cfg.IdleTimeout)
}

func (l *liveness) peerClosedAt() instant {
	if l.peerClosed == never {
		return never
	}
	return l.peerClosed.add(closeDelay)
}

func (l *liveness) nextTimeout(cfg *Config) instant { return min(l.idleAt(cfg), l.peerClosedAt()) }

// overdue reports whether the connection has to end.
func (c *Conn) overdue(now instant) (CloseReason, bool) {
	switch cfg := &c.e.cfg; {
	case now >= c.life.peerClosedAt():
		return ClosePeer, true
	case now >= c.life.idleAt(cfg):
		return CloseIdle, true
	case now >= c.recv.holeAt(cfg, c.client, c.log != nil):
		return CloseHole, true
	}
	return 0, false
}

// receiveClose handles a ConnectionClose: one byte that anybody can forge. It counts
// if the peer stays silent after it. A peer that understands probes gets one.
func (c *Conn) receiveClose(now instant) {
	if c.client {
		c.life.peerClosed = now - instant(closeDelay)
		c.wake()
		return
	}
	if c.life.peerClosed == never {
		c.life.peerClosed = now
		c.send.queueProbe(&c.e.cfg)
	}
}

// receiveRequest handles a request from an address that has a connection: a late
// copy, a forgery, or a client that started again. A client that connects ignores
// everything but a ConnectionAck, so a peer that sends anything else did not start again.
func (c *Conn) receiveRequest(p []byte, now instant, out Sender) {
	m, err := wire.ParseConnectionRequest(p)
	l := &c.life
	switch {
	case err != nil:
		c.e.drop(DropTruncated)
	case c.client || !m.Offers(wire.ProtocolDNP1):
		c.e.drop(DropUnexpected)
	case !l.spoke: // the ConnectionAck may have been lost
		c.emit(wire.ConnectionAck{}.Append(out.Datagram(4)), out)
	case l.restart == never && l.peerClosed == never:
		c.e.drop(DropUnexpected)
		l.restart = now
		c.send.queueProbe(&c.e.cfg)
	case l.peerClosed == never && now.sub(l.restart) < restartPatience:
		c.e.drop(DropUnexpected)
	default:
		c.startAgain(p, now, out)
	}
}

// startAgain ends the session and handles the request like one from a new address.
func (c *Conn) startAgain(p []byte, now instant, out Sender) {
	e, addr := c.e, c.addr
	reason := CloseRestarted
	if c.life.peerClosed != never {
		reason = ClosePeer
	}
	if c.log != nil { // when the end is stored, the peer asks again
		c.Close(reason)
		return
	}
	c.endSilently(reason)
	e.receiveRequest(addr, p, now, out)
}
