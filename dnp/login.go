package dnp

import (
	"net/netip"
	"time"

	"github.com/dnprelay/dnprelay/dnp/wire"
)

// A LoginVerdict is what the owner says about a login.
type LoginVerdict uint8

const (
	LoginWait   LoginVerdict = iota // not known yet: LogIn may follow; meanwhile the peer repeats itself
	LoginAccept                     // the connection begins
	LoginRefuse                     // the peer is told with ConnectionClose
)

// A LoginFunc judges the first reliable message of a peer, which aliases the datagram.
// The value that it returns is the [Conn.Data] of the connection. It must not call the
// Endpoint.
type LoginFunc func(now time.Time, from netip.AddrPort, message []byte) (LoginVerdict, any)

// loginMax is the largest login in bytes: what libraries send as one command 4.
const loginMax = 1357

// Where peers have to log in, a request is answered and forgotten: the ConnectionAck
// is shorter than it, so there is nothing to gain from forging one, and nothing to
// fill. The connection begins with reliable command 0, if it is a message that the
// owner accepts. It is acknowledged and not passed on; what came before or with
// another number, the peer repeats.
//
// receiveLogin handles a command 4 from an address without connection. p is what
// follows the command byte.
func (e *Endpoint) receiveLogin(from netip.AddrPort, p []byte, now instant, out Sender) {
	m, err := wire.ParseReliableMessage(p)
	switch {
	case err != nil || len(m.Data) == 0:
		e.drop(DropTruncated)
		return
	case m.Seq != 0 || len(m.Data) > loginMax:
		e.drop(DropUnproven)
		return
	case !e.pass(e.cfg.Gate.Login(e.clock.time(now), from)):
		return
	case !e.room(from):
		e.refuseLogin(from, out)
		return
	}
	switch verdict, data := e.cfg.Login(e.clock.time(now), from, m.Data); verdict {
	case LoginAccept:
		e.loggedIn(from, data, now, out)
	case LoginRefuse:
		e.refuseLogin(from, out)
	default:
		e.drop(DropLoginWaits)
	}
}

func (e *Endpoint) refuseLogin(to netip.AddrPort, out Sender) {
	e.drop(DropLoginRefused)
	e.send(to, wire.AppendConnectionClose(out.Datagram(1)), out)
}

// LogIn begins the connection of a peer whose login had to wait, as if LoginAccept had
// been said. It returns nil if there is no room any more. EventConnected follows.
func (e *Endpoint) LogIn(now time.Time, addr netip.AddrPort, data any, out Sender) *Conn {
	t := e.clock.advance(now)
	if e.byAddr[addr] != nil {
		return nil
	}
	if !e.room(addr) {
		e.refuseLogin(addr, out)
		return nil
	}
	return e.loggedIn(addr, data, t, out)
}

// RefuseLogin tells a peer whose login had to wait that it is not let in.
func (e *Endpoint) RefuseLogin(addr netip.AddrPort, out Sender) {
	if e.byAddr[addr] == nil {
		e.refuseLogin(addr, out)
	}
}

// loggedIn makes the connection of a peer whose command 0 was its login.
func (e *Endpoint) loggedIn(addr netip.AddrPort, data any, now instant, out Sender) *Conn {
	c := e.add(addr, now)
	c.talked, c.data = true, data
	c.recv.next = 1
	c.acknowledge(0, out)
	if e.cfg.Probe == ProbePing {
		c.send.noops = 1 // shows whether the peer can be asked for a sign of life
	}
	e.established(c, now)
	return c
}
