package dnp

import (
	"time"

	"github.com/dnprelay/dnprelay/dnp/wire"
)

// restartPatience is how long after a first request an address must have been
// silent otherwise for a further request to be believed.
const restartPatience = 2 * time.Second

// DNP has no keep-alive, so a silent peer may be content, dead, or restarted. This
// file asks: a command 10 without flags and data is acknowledged by every library
// since 1.2 and seen by no application. To an older one it would be fatal.

// probe asks a silent peer for a sign of life. Whatever is in flight asks as well.
func (c *Conn) probe(now instant) {
	if now >= c.probeAt() {
		c.ask()
	}
}

// ask queues the probe, if the peer understands it and nothing else asks already.
func (c *Conn) ask() {
	if w := &c.send; c.speaksLong && len(w.flight) == 0 && !w.waiting() && c.e.cfg.Profile.Long() {
		w.noops = 1
		c.wake()
	}
}

func (c *Conn) probeAt() instant {
	interval := c.e.cfg.LivenessInterval
	if interval <= 0 || !c.speaksLong || len(c.send.flight) > 0 || c.send.waiting() {
		return never
	}
	return c.heard.add(interval)
}

// overdue reports whether the connection has to end.
func (c *Conn) overdue(now instant) (CloseReason, bool) {
	switch {
	case now >= c.peerClosedAt():
		return ClosePeer, true
	case now >= c.idleAt():
		return CloseIdle, true
	case now >= c.holeAt():
		return CloseHole, true
	}
	return 0, false
}

func (c *Conn) idleAt() instant {
	if c.e.cfg.IdleTimeout <= 0 {
		return never
	}
	return c.heard.add(c.e.cfg.IdleTimeout)
}

func (c *Conn) peerClosedAt() instant {
	if c.peerClosed == never {
		return never
	}
	return c.peerClosed.add(max(c.e.cfg.CloseDelay, 0))
}

func (c *Conn) livenessTimeout() instant { return min(c.probeAt(), c.idleAt(), c.peerClosedAt()) }

// receiveClose handles a ConnectionClose: one byte that anybody can forge. It
// counts when the peer stays silent after it; one that can answer is asked.
func (c *Conn) receiveClose(now instant) {
	if c.client || c.e.cfg.CloseDelay < 0 {
		c.peerClosed = now - instant(max(c.e.cfg.CloseDelay, 0))
		c.wake()
		return
	}
	if c.peerClosed == never {
		c.peerClosed = now
		c.ask()
	}
}

// receiveRequest handles a request from an address that has a connection: a late
// copy, a forgery, or a client that started again. A client that connects hears
// nothing but a ConnectionAck, so whoever says anything else did not start again.
func (c *Conn) receiveRequest(p []byte, now instant, out Sender) {
	m, err := wire.ParseConnectionRequest(p)
	switch {
	case err != nil:
		c.e.drop(DropTruncated)
	case c.client || !m.Offers(wire.ProtocolDNP1):
		c.e.drop(DropUnexpected)
	case !c.talked: // the ConnectionAck may have been lost
		c.emit(wire.ConnectionAck{}.Append(out.Datagram(4)), out)
	case c.restart == never && c.peerClosed == never:
		c.e.drop(DropUnexpected)
		c.restart = now
		c.ask()
	case c.peerClosed == never && now.sub(c.restart) < restartPatience:
		c.e.drop(DropUnexpected)
	default:
		c.startAgain(p, now, out)
	}
}

// startAgain ends the session and treats the request as a stranger's.
func (c *Conn) startAgain(p []byte, now instant, out Sender) {
	e, addr := c.e, c.addr
	reason := CloseRestarted
	if c.peerClosed != never {
		reason = ClosePeer
	}
	if c.log != nil { // the peer asks again when the end is stored
		c.Close(reason)
		return
	}
	c.quietly(reason)
	e.receiveRequest(addr, p, now, out)
}
