package dnp

import (
	"net/netip"

	"github.com/dnprelay/dnprelay/dnp/admit"
	"github.com/dnprelay/dnprelay/dnp/wire"
)

// helloIDs are the LinkIds that hello probes used. Each new number has a new one,
// because libraries answer only the first offer under an id.
type helloIDs struct {
	first wire.LinkID
	n     uint8
}

// id returns the LinkId of the hello with this number.
func (h helloIDs) id(number uint8) wire.LinkID {
	return 0x8000 + (h.first-0x8000+wire.LinkID(number))%listenerHigh
}

func (h helloIDs) used(id wire.LinkID) bool {
	for i := range h.n {
		if h.id(i) == id {
			return true
		}
	}
	return false
}

// receiveStranger handles a datagram from an address without connection.
func (e *Endpoint) receiveStranger(from netip.AddrPort, p []byte, now instant, out Sender) {
	cmd, body := wire.Command(p[0]), p[1:]
	if cmd == wire.CommandConnectionRequest {
		e.receiveRequest(from, body, now, out)
		return
	}
	switch u := e.unproven.find(from); {
	case u != nil:
		u.in += uint16(min(len(p), 1<<12)) // enough to pay for all probes, and cannot overflow below
		u.in = min(u.in, 1<<13)
		e.receiveUnproven(u, p, now, out)
	case e.cfg.Login != nil && cmd == wire.CommandReliableMessage:
		e.receiveLogin(from, body, now, out)
	case cmd == wire.CommandLinkUp, cmd == wire.CommandLinkDown:
		e.receiveStateless(from, body, now, out)
	case cmd == wire.CommandReliableAck:
		e.receiveStatelessAck(from, body, now)
	default:
		e.drop(DropStranger)
	}
}

// protocolsMax is how many protocols a request may name.
const protocolsMax = 32

// wellFormed reports whether p, what follows the command byte, is a request as clients
// make it: 5 to 67 bytes in all, as many as it says.
func wellFormed(p []byte) bool {
	return len(p) >= 4 && len(p) <= 2+2*protocolsMax && len(p) == 2+2*int(p[0])+2*int(p[1])<<8
}

// receiveRequest handles a connection request from an address without connection.
// p is what follows the command byte. What costs least comes first.
func (e *Endpoint) receiveRequest(from netip.AddrPort, p []byte, now instant, out Sender) {
	if !e.cfg.Listen {
		e.drop(DropNotListening)
		return
	}
	m, err := wire.ParseConnectionRequest(p)
	if err != nil || !wellFormed(p) {
		e.drop(DropBadRequest)
		return
	}
	verdict := e.cfg.Gate.Request(e.clock.time(now), from)
	switch u := e.unproven.find(from); {
	case !e.pass(verdict):
	case !m.Offers(wire.ProtocolDNP1):
		e.refuse(from, wire.NoCommonProtocol, out)
	case u != nil: // the ConnectionAck may have been lost
		u.in = min(u.in+5, 1<<13)
		e.unproven.restart(u, now) // what was sent before, the peer did not heed
		e.acceptRequest(u, out)
		e.proveSome(now, out)
	case !e.room(from):
		e.refuse(from, wire.Rejected, out)
	case e.cfg.Login != nil: // the login will tell who it is
		e.send(from, wire.ConnectionAck{}.Append(out.Datagram(4)), out)
	case verdict == admit.Stateless, e.crowded():
		e.answerStateless(from, now, out)
	case e.cfg.Probe == ProbeNone:
		c := e.add(from, now)
		e.send(from, wire.ConnectionAck{}.Append(out.Datagram(4)), out)
		e.established(c, now)
	default:
		e.startProof(from, now, out)
	}
}

// Greets reports whether the peer at addr asked for a connection and has not proven its
// address yet. Peers of which nothing is kept are not known.
func (e *Endpoint) Greets(addr netip.AddrPort) bool { return e.unproven.find(addr) != nil }

// room reports whether there may be another connection, with this address.
func (e *Endpoint) room(from netip.AddrPort) bool {
	return e.count < e.cfg.ConnsMax && (e.cfg.Admit == nil || e.cfg.Admit(from))
}

func (e *Endpoint) refuse(to netip.AddrPort, result wire.AckResult, out Sender) {
	e.drop(DropRefused)
	e.send(to, wire.ConnectionAck{Result: result}.Append(out.Datagram(4)), out)
}

func (e *Endpoint) startProof(from netip.AddrPort, now instant, out Sender) {
	u, evicted := e.unproven.insert(from, now)
	if evicted {
		e.drop(DropEvicted)
	}
	u.in = 5
	if e.cfg.Probe == ProbeHello {
		u.hello = 0x8000 + wire.LinkID(e.cfg.Rand.UintN(listenerHigh))
	}
	e.acceptRequest(u, out)
	e.proveSome(now, out) // the first probe is due at once
}

func (e *Endpoint) acceptRequest(u *unproven, out Sender) {
	e.sendUnproven(u, wire.ConnectionAck{}.Append(out.Datagram(4)), out)
}

// proveSome sends the probes that are due and forgets peers that did not answer.
func (e *Endpoint) proveSome(now instant, out Sender) {
	for u, last := e.unproven.nextDue(now); u != nil; u, last = e.unproven.nextDue(now) {
		if last {
			e.unproven.remove(u)
			e.drop(DropUnproven)
			continue
		}
		if !u.byHello || now.sub(u.created) >= helloPatience {
			e.sendProbe(u, out)
		}
	}
}

// probe returns how u proves its address.
func (e *Endpoint) probe(u *unproven) Probe {
	if u.byHello {
		return ProbeHello
	}
	return e.cfg.Probe
}

func (e *Endpoint) sendProbe(u *unproven, out Sender) {
	if e.probe(u) == ProbePing {
		e.sendUnproven(u, wire.ReliableMessageLong{}.Append(out.Datagram(4)), out)
		return
	}
	if u.acked && u.number+1 < helloMax { // the answer was lost; under this number and id there is no other
		u.number++
		u.acked = false
	}
	m := wire.LinkState{Seq: wire.Seq(u.number), Link: helloIDs{first: u.hello}.id(u.number), ReadOnly: true, Message: helloMessage}
	e.sendUnproven(u, m.Append(out.Datagram(11)), out)
}

var helloMessage = []byte{'h'}

// sendUnproven sends b unless that would make forged requests pay.
func (e *Endpoint) sendUnproven(u *unproven, b []byte, out Sender) {
	if int(u.out)+len(b) > unprovenFactor*int(u.in) {
		e.drop(DropUnproven)
		return
	}
	u.out += uint16(len(b))
	e.send(u.addr, b, out)
}

// receiveUnproven looks for the proof.
func (e *Endpoint) receiveUnproven(u *unproven, p []byte, now instant, out Sender) {
	cmd, body := wire.Command(p[0]), p[1:]
	switch proof := e.proves(u, cmd, body); {
	case cmd == wire.CommandConnectionClose:
		e.unproven.remove(u)
		e.drop(DropUnproven)
	case proof == dropNothing:
		peer := *u
		e.unproven.remove(u)
		c := e.proven(peer, e.probe(&peer), now, out)
		if c == nil {
			return
		}
		if isReliable(cmd) {
			c.receive(p, now, out)
		} else if cmd == wire.CommandReliableAck {
			c.receiveAck(body, now)
		}
		c.settle(now)
	case proof != helloAcked:
		e.drop(proof)
	}
}

// helloAcked is what proves returns for the acknowledgement of a hello: neither a
// proof nor an error.
const helloAcked = DropReason(NumDropReasons + 1)

// proves returns dropNothing if the datagram shows that the peer receives what is
// sent to its address.
func (e *Endpoint) proves(u *unproven, cmd wire.Command, body []byte) DropReason {
	hello := e.probe(u) == ProbeHello
	switch cmd {
	case wire.CommandReliableAck:
		m, err := wire.ParseReliableAck(body)
		switch {
		case err != nil:
			return DropTruncated
		case m.Seq != wire.Seq(u.number) || m.Code != wire.AckSuccess:
			return DropUnproven
		case hello:
			u.acked = true
			return helloAcked
		}
		return dropNothing
	case wire.CommandLinkUp, wire.CommandLinkDown:
		m, err := wire.ParseLinkUp(body) // both have the same fields
		switch {
		case err != nil:
			return DropTruncated
		case !hello || m.Link != (helloIDs{first: u.hello}).id(u.number):
			return DropUnproven
		}
		return dropNothing
	}
	if !isReliable(cmd) || hello || cmd >= wire.CommandReliableMessageLong && !e.cfg.Profile.Long() {
		return DropUnproven
	}
	seq, reason := checkReliable(cmd, body)
	if reason == dropNothing && seq >= recvAhead {
		return DropOutsideWindow
	}
	return reason
}

func isReliable(cmd wire.Command) bool {
	switch cmd {
	case wire.CommandReliableMessage, wire.CommandReliableLinkState,
		wire.CommandReliableMessageLong, wire.CommandReliableLinkStateLong:
		return true
	}
	return false
}

// proven makes the connection of a peer that answered the probe. It returns nil, and
// tells the peer, if there is no room for it.
//
// The probe used up reliable numbers. A ping that was not acknowledged stays in
// the send window as what it is. A hello was delivered if its link was answered,
// and so was everything before it.
func (e *Endpoint) proven(peer unproven, probe Probe, now instant, out Sender) *Conn {
	if !e.room(peer.addr) {
		e.drop(DropRefused)
		e.send(peer.addr, wire.AppendConnectionClose(out.Datagram(1)), out)
		return nil
	}
	c := e.add(peer.addr, now)
	c.talked = true
	switch probe {
	case ProbePing:
		c.send.next = 1
		c.send.flight = append(c.send.flight, outgoing{kind: outNoop, sends: uint16(peer.step), first: peer.created, last: now})
	case ProbeHello:
		c.hello = helloIDs{first: peer.hello, n: peer.number + 1}
		c.send.next = uint64(peer.number) + 1
		for i := range c.hello.n {
			c.takeDown(c.hello.id(i))
		}
	}
	e.established(c, now)
	return c
}
