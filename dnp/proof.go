package dnp

import (
	"encoding/binary"
	"hash/maphash"
	"net/netip"
	"time"

	"github.com/dnprelay/dnprelay/dnp/admit"
	"github.com/dnprelay/dnprelay/dnp/wire"
)

// helloIDs are the LinkIds that hello probes used. Each new number has a new one,
// because libraries answer only the first offer under an id.
type helloIDs struct {
	first wire.LinkID
	n     uint8
}

// helloSkip is the number of LinkIds at the beginning of those for links that no first hello gets. An Endpoint may forget a slot before
// the answer to its hello arrives, as after a forged close. The peer keeps the link of that hello, and takes the offer of
// another link with the same id for a repeat.
const helloSkip = 1024

// firstHello maps n to one of the LinkIds that the first hello of a peer may have.
func firstHello(n uint64) wire.LinkID {
	return 0x8000 + helloSkip + wire.LinkID(n%(listenerHigh-helloSkip))
}

// id returns the LinkId of the hello with this number.
func (h helloIDs) id(number uint8) wire.LinkID {
	return 0x8000 + (h.first-0x8000+wire.LinkID(number))%listenerHigh
}

// number returns the number of the hello with this LinkId; too large if it is that of none.
func (h helloIDs) number(id wire.LinkID) int {
	if id < 0x8000 || id == 0xFFFF {
		return listenerHigh
	}
	return (int(id) - int(h.first) + listenerHigh) % listenerHigh
}

func (h helloIDs) used(id wire.LinkID) bool { return h.number(id) < int(h.n) }

// receiveStranger handles a datagram from an address without connection.
func (e *Endpoint) receiveStranger(from netip.AddrPort, p []byte, now instant, out Sender) {
	cmd, body := wire.Command(p[0]), p[1:]
	if cmd == wire.CommandConnectionRequest {
		e.receiveRequest(from, body, now, out)
		return
	}
	switch u := e.unproven.find(from); {
	case e.cfg.Login != nil && cmd == wire.CommandReliableMessage:
		e.receiveLogin(from, body, now, out)
	case u != nil && e.cfg.Login == nil:
		u.receive(len(p))
		e.receiveUnproven(u, p, now, out)
	case cmd == wire.CommandLinkUp, cmd == wire.CommandLinkDown:
		e.receiveStateless(from, body, now, out)
	case cmd == wire.CommandReliableAck && e.cfg.Login == nil:
		e.receiveStatelessAck(from, body, now)
	default:
		e.drop(DropStranger)
	}
}

// protocolsMax is how many protocols a request may name.
const protocolsMax = 32

// wellFormed reports whether p, what follows the command byte, is a request as clients
// make it: 5 to 67 bytes in all, and as long as its count says.
func wellFormed(p []byte) bool {
	return len(p) >= 4 && len(p) <= 2+2*protocolsMax && len(p) == 2+2*int(p[0])+2*int(p[1])<<8
}

// receiveRequest handles a connection request from an address without connection.
// p is what follows the command byte. The cheapest checks come first.
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
	kind := admit.Request
	switch {
	case e.known(from):
		kind = admit.KnownRequest
	case e.cfg.Login != nil:
		kind = admit.LoginRequest
	}
	verdict := e.judge(from, kind, now)
	switch u := e.unproven.find(from); {
	case verdict > admit.Stateless: // judge counted it
	case !m.Offers(wire.ProtocolDNP1):
		e.refuse(from, wire.NoCommonProtocol, out)
	case u != nil && e.cfg.Login == nil: // the ConnectionAck may have been lost
		u.receive(1 + len(p))
		e.unproven.restart(u, now) // the peer did not heed what was sent before
		e.sendUnproven(u, wire.ConnectionAck{}.Append(out.Datagram(4)), out)
		e.sendProbes(now, out)
	case !e.admits(from, out):
	case e.cfg.Login != nil: // the login will tell who it is
		e.awaitLogin(from, now)
		e.send(from, wire.ConnectionAck{}.Append(out.Datagram(4)), out)
	case kind == admit.KnownRequest:
		e.believe(from, now, out)
	case verdict == admit.Stateless, e.crowded():
		e.answerStateless(from, now, out)
	case e.cfg.Probe == ProbeNone:
		e.believe(from, now, out)
	default:
		e.startProof(from, now, out)
	}
}

// Unproven reports whether the peer at addr asked for a connection and has not proven its
// address yet. It does not know peers that were answered without a slot.
func (e *Endpoint) Unproven(addr netip.AddrPort) bool { return e.unproven.find(addr) != nil }

// proofNumbers is a bound of the numbers, and of the ids of hellos, with which a peer is asked for a proof.
const proofNumbers = 8

// MayProve reports whether a datagram of a peer that is not proven may belong to its attempt to connect: a request,
// a login, or an answer. Any other datagram belongs to a session that somebody else serves.
func (e *Endpoint) MayProve(addr netip.AddrPort, p []byte) bool {
	cmd, seq, numbered := wire.Numbered(p)
	switch cmd {
	case wire.CommandConnectionRequest:
		return true
	case wire.CommandReliableAck:
		return numbered && seq < proofNumbers
	case wire.CommandLinkUp, wire.CommandLinkDown:
		m, err := wire.ParseLinkUp(p[1:]) // both have the same fields
		return err == nil && e.mayBeHello(addr, m.Link)
	}
	return numbered && seq == 0
}

// mayBeHello reports whether a peer that is not proven may have been sent a hello with this id.
func (e *Endpoint) mayBeHello(addr netip.AddrPort, id wire.LinkID) bool {
	if u := e.unproven.find(addr); u != nil && (helloIDs{first: u.hello}).number(id) < proofNumbers {
		return true
	}
	_, _, ok := e.findStateless(addr, id, proofNumbers, e.clock.now)
	return ok
}

// MayBegin reports whether a datagram of a peer without connection may begin one: a request, the
// first reliable message where peers log in, or the answer to a question about the address.
func (e *Endpoint) MayBegin(p []byte) bool {
	switch wire.Command(p[0]) {
	case wire.CommandConnectionRequest, wire.CommandLinkUp, wire.CommandLinkDown:
		return true
	case wire.CommandReliableMessage:
		return e.cfg.Login != nil && len(p) > 2 && p[1] == 0 && p[2] == 0
	}
	return false
}

// An AdmitVerdict is what the owner says about another connection (dnp/PROTOCOL.md, rule
// reject-late).
type AdmitVerdict uint8

const (
	AdmitAccept AdmitVerdict = iota // there is room for it
	AdmitWait                       // not known yet: the peer is told nothing, and repeats its request or login
	AdmitRefuse                     // the peer is told "rejected", which libraries take as final
)

// room reports whether there may be another connection, with this address.
func (e *Endpoint) room(from netip.AddrPort) AdmitVerdict {
	switch {
	case len(e.byAddr) >= connsMax:
		return AdmitRefuse
	case e.cfg.Admit == nil:
		return AdmitAccept
	}
	return e.cfg.Admit(from)
}

// admits reports whether a connection may begin. If not, it tells the peer, or counts that the
// peer has to wait.
func (e *Endpoint) admits(from netip.AddrPort, out Sender) bool {
	switch e.room(from) {
	case AdmitAccept:
		return true
	case AdmitWait:
		e.drop(DropAdmitWaits)
	case AdmitRefuse:
		e.refuse(from, wire.Rejected, out)
	}
	return false
}

func (e *Endpoint) refuse(to netip.AddrPort, result wire.AckResult, out Sender) {
	e.drop(DropRefused)
	e.send(to, wire.ConnectionAck{Result: result}.Append(out.Datagram(4)), out)
}

func (e *Endpoint) startProof(from netip.AddrPort, now instant, out Sender) {
	u := e.addUnproven(from, now)
	u.in = 5
	if u.byHello = e.cfg.Probe == ProbeHello; u.byHello {
		u.hello = firstHello(e.cfg.Rand.Uint64())
	}
	e.sendUnproven(u, wire.ConnectionAck{}.Append(out.Datagram(4)), out)
	e.sendProbes(now, out) // the first probe is due at once
}

func (e *Endpoint) addUnproven(from netip.AddrPort, now instant) *unproven {
	u, evicted := e.unproven.insert(from, now)
	if evicted {
		e.drop(DropEvicted)
	}
	return u
}

// sendProbes sends the probes that are due and forgets peers that did not answer.
func (e *Endpoint) sendProbes(now instant, out Sender) {
	for u, last := e.unproven.nextDue(now); u != nil; u, last = e.unproven.nextDue(now) {
		if last {
			e.unproven.remove(u)
			if e.cfg.Login == nil {
				e.drop(DropUnproven)
			}
			continue
		}
		if !u.patient || now.sub(u.created) >= helloPatience {
			e.sendProbe(u, out)
		}
	}
}

func (e *Endpoint) sendProbe(u *unproven, out Sender) {
	if !u.byHello {
		e.sendUnproven(u, wire.ReliableMessageLong{}.Append(out.Datagram(4)), out)
		return
	}
	if u.acked && u.number+1 < helloMax { // the answer was lost; under this number and id there will be no other
		u.number++
		u.acked = false
	}
	m := wire.LinkState{Seq: wire.Seq(u.number), Link: helloIDs{first: u.hello}.id(u.number), ReadOnly: true, Message: helloMessage}
	e.sendUnproven(u, m.Append(out.Datagram(11)), out)
}

var helloMessage = []byte{'h'}

// sendUnproven sends b unless that would make forged requests worthwhile.
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
	switch proven, reason := e.proves(u, cmd, body, now); {
	case cmd == wire.CommandConnectionClose:
		e.unproven.remove(u)
		e.drop(DropUnproven)
	case proven:
		peer := *u
		e.unproven.remove(u)
		c := e.proven(peer, now, out)
		if c == nil {
			return
		}
		if isReliable(cmd, e.cfg.Profile) {
			c.receive(p, now, out)
		} else if cmd == wire.CommandReliableAck {
			c.receiveAck(body, now)
		}
		c.settle(now)
	case reason != dropNothing:
		e.drop(reason)
	}
}

// proves reports whether the datagram shows that the peer receives what is sent to its
// address. The acknowledgement of a hello is neither a proof nor a reason to drop it.
func (e *Endpoint) proves(u *unproven, cmd wire.Command, body []byte, now instant) (proven bool, reason DropReason) {
	switch cmd {
	case wire.CommandReliableAck:
		m, err := wire.ParseReliableAck(body)
		switch {
		case err != nil:
			return false, DropTruncated
		case m.Seq != wire.Seq(u.number) || m.Code != wire.AckSuccess:
			return false, DropUnproven
		}
		u.acked = u.byHello
		return !u.byHello, dropNothing
	case wire.CommandLinkUp, wire.CommandLinkDown:
		m, err := wire.ParseLinkUp(body) // both have the same fields
		switch {
		case err != nil:
			return false, DropTruncated
		case u.byHello && u.number == 0 && now < e.statelessUntil && e.isStateless(u.addr, m.Link, now):
			u.hello = m.Link // of the epoch before the one in which the slot was taken
		case !u.byHello || m.Link != (helloIDs{first: u.hello}).id(u.number):
			return false, DropUnproven
		}
		return true, dropNothing
	}
	if !isReliable(cmd, e.cfg.Profile) || u.byHello {
		return false, DropUnproven
	}
	seq, reason := checkReliable(cmd, body)
	if reason == dropNothing && seq >= recvAhead {
		reason = DropOutsideWindow
	}
	return reason == dropNothing, reason
}

// proven makes the connection of a peer that answered the probe. It returns nil, and
// tells the peer, if there is no room for it. A peer that would have to wait was told that it
// is connected, and waits as a connection.
//
// The probe used up reliable numbers. A ping that was not acknowledged stays in
// the send window as what it is. A hello was delivered if its link was answered,
// and so was everything before it.
func (e *Endpoint) proven(peer unproven, now instant, out Sender) *Conn {
	if e.room(peer.addr) == AdmitRefuse {
		e.drop(DropRefused)
		e.send(peer.addr, wire.AppendConnectionClose(out.Datagram(1)), out)
		return nil
	}
	c := e.add(peer.addr, now)
	c.life.spoke = true
	if peer.byHello {
		hello := helloIDs{first: peer.hello, n: peer.number + 1}
		c.links.ids.hello = hello
		c.send.next = uint64(hello.n)
		for i := range hello.n {
			c.links.takeDown(hello.id(i))
		}
		c.send.keepsFirst(peer.step != hello.n, false, e.cfg.Profile) // without a slot nobody counted
	} else {
		c.send.add(outgoing{kind: SentProbe, sends: uint16(peer.step), first: peer.created, last: now})
		c.send.keepsFirst(peer.step > 1, true, e.cfg.Profile)
	}
	e.established(c, now)
	return c
}

// Under a flood of requests there is no slot for each. They are then answered with
// ConnectionAck and one hello, 15 bytes for 5, and leave no state: the LinkId of the
// hello is a keyed hash of the peer's address, so the peer's LinkUp or LinkDown, which
// has that LinkId, tells all that a slot would. The price is that a lost hello is not
// repeated; such a client has to connect again.

// statelessWindow is how long a hello can be answered at least. Twice as long is the
// most. Time is divided into epochs of this length.
const statelessWindow = 5 * time.Second

// statelessID returns the LinkId of the hello for a peer in an epoch.
func (e *Endpoint) statelessID(addr netip.AddrPort, epoch uint64) wire.LinkID {
	var b [26]byte
	ip := addr.Addr().As16()
	copy(b[:], ip[:])
	binary.LittleEndian.PutUint16(b[16:], addr.Port())
	binary.LittleEndian.PutUint64(b[18:], epoch)
	return firstHello(maphash.Bytes(e.unproven.seed, b[:]))
}

// findStateless looks for the hello with this id among the first ones, less than limit, that the
// peer may have been sent in this epoch or in the one before.
func (e *Endpoint) findStateless(addr netip.AddrPort, id wire.LinkID, limit int, now instant) (hellos helloIDs, number int, ok bool) {
	epoch := statelessEpoch(now)
	for back := range min(epoch, 1) + 1 {
		hellos.first = e.statelessID(addr, epoch-back)
		if number = hellos.number(id); number < limit {
			return hellos, number, true
		}
	}
	return helloIDs{}, 0, false
}

// isStateless reports whether id is that of a hello which the peer was sent a short time ago.
func (e *Endpoint) isStateless(addr netip.AddrPort, id wire.LinkID, now instant) bool {
	_, _, ok := e.findStateless(addr, id, 1, now)
	return ok
}

func statelessEpoch(now instant) uint64 { return uint64(now) / uint64(statelessWindow) }

// crowded reports whether the table has so many peers that a flood is likely.
func (e *Endpoint) crowded() bool {
	return e.cfg.Gate != nil && 2*e.unproven.n >= max(e.unproven.max, 1)
}

// answerStateless answers a request without taking a slot.
func (e *Endpoint) answerStateless(to netip.AddrPort, now instant, out Sender) {
	e.stats.Stateless++
	e.statelessUntil = now.add(2 * statelessWindow)
	e.send(to, wire.ConnectionAck{}.Append(out.Datagram(4)), out)
	m := wire.LinkState{Link: e.statelessID(to, statelessEpoch(now)), ReadOnly: true, Message: helloMessage}
	e.send(to, m.Append(out.Datagram(11)), out)
}

// helloPatience is how long a peer that acknowledged a hello may take to answer it.
const helloPatience = 400 * time.Millisecond

// receiveStatelessAck handles the acknowledgement of a stateless hello. The answer
// follows, or was lost; the peer gets a slot, from which the hello is repeated.
func (e *Endpoint) receiveStatelessAck(from netip.AddrPort, p []byte, now instant) {
	m, err := wire.ParseReliableAck(p)
	switch {
	case err != nil || m.Seq != 0 || now >= e.statelessUntil || e.unproven.max == 0:
		e.drop(DropStranger)
	case e.judge(from, admit.Answer, now) == admit.Pass:
		u := e.addUnproven(from, now)
		u.in, u.byHello, u.acked, u.patient = uint16(1+len(p)), true, true, true
		u.hello = e.statelessID(from, statelessEpoch(now))
	}
}

// receiveStateless handles a LinkUp or LinkDown of a peer without slot.
func (e *Endpoint) receiveStateless(from netip.AddrPort, p []byte, now instant, out Sender) {
	m, err := wire.ParseLinkUp(p) // both have the same fields
	switch {
	case err != nil:
		e.drop(DropTruncated)
	case now >= e.statelessUntil:
		e.drop(DropStranger)
	case e.cfg.Login != nil:
		e.receiveGreeted(from, m.Link, now)
	case e.judge(from, admit.Answer, now) != admit.Pass: // which counted it, and makes guessing slow
	case !e.isStateless(from, m.Link, now):
		e.drop(DropUnproven)
	default:
		e.proven(unproven{addr: from, hello: m.Link, byHello: true}, now, out)
	}
}

// Where peers have to log in, and so many logins come that most must be forged, a login is
// answered with a greeting, a hello that leaves no state and is no longer than the login, and
// looked at when that is answered. LinkUp and LinkDown may get lost, so there are two
// greetings, in turn: one pause later, when the peer repeats its login, it gets the other.
//
// An answer can be guessed, one in 8,000 at best, and lets one refused login be looked at.
const (
	greetings     = 2
	greetingSize  = 11
	greetingPause = 500 * time.Millisecond // the pause after which libraries repeat a reliable command
)

// greet sends the greeting of this moment to a peer whose login has size bytes.
func (e *Endpoint) greet(to netip.AddrPort, size int, now instant, out Sender) {
	e.stats.Stateless++
	if size >= greetingSize {
		e.sendGreeting(to, now, out)
	}
}

func (e *Endpoint) sendGreeting(to netip.AddrPort, now instant, out Sender) {
	e.statelessUntil = now.add(2 * statelessWindow)
	hellos, n := helloIDs{first: e.statelessID(to, statelessEpoch(now))}, uint8(uint64(now)/uint64(greetingPause)%greetings)
	m := wire.LinkState{Seq: wire.Seq(n), Link: hellos.id(n), ReadOnly: true, Message: helloMessage}
	e.send(to, m.Append(out.Datagram(greetingSize)), out)
}

// receiveGreeted handles the LinkUp or LinkDown of a peer that has to log in. If that answers
// a greeting, the next login of the peer is judged as that of a proven address.
func (e *Endpoint) receiveGreeted(from netip.AddrPort, id wire.LinkID, now instant) {
	hellos, n, ok := e.findStateless(from, id, greetings, now)
	if !ok {
		e.drop(DropUnproven)
		return
	}
	u := e.unproven.find(from)
	if u == nil {
		u = e.addUnproven(from, now)
	}
	u.hello, u.number = hellos.first, max(u.number, uint8(n)+1)
}

// startGreeted begins a connection with the greetings as its first commands, because the peer
// may have processed them. It has processed those that it answered, and everything before;
// others are repeated until they are acknowledged. A logged connection always begins so: a
// forged login may make another Endpoint greet the peer, whose greetings then take the place
// of these, and of nothing that matters.
func (e *Endpoint) startGreeted(c *Conn, now instant, out Sender) {
	hellos, processed := helloIDs{e.statelessID(c.addr, statelessEpoch(now)), greetings}, uint8(0)
	if u := e.unproven.find(c.addr); u != nil {
		hellos.first, processed = u.hello, u.number
		e.unproven.remove(u)
	} else if now >= e.statelessUntil && !e.cfg.Logged {
		return
	}
	c.links.ids.hello = hellos
	c.send.next = uint64(processed)
	c.send.keepsFirst(now < e.statelessUntil || processed > 0, false, e.cfg.Profile)
	for n := range uint8(greetings) {
		id := hellos.id(n)
		if n < processed {
			c.links.takeDown(id)
			continue
		}
		number, o := c.send.add(outgoing{kind: SentFrozen, takeDown: true, link: id, data: standIn(id)})
		if !e.cfg.Logged {
			c.transmit(number, o, now, out)
		}
	}
}

// A LoginVerdict is what the owner says about a login.
type LoginVerdict uint8

const (
	LoginWait   LoginVerdict = iota // not known yet: LogIn may follow; meanwhile the peer repeats its login
	LoginAccept                     // the connection begins
	LoginRefuse                     // the peer is told with ConnectionClose, once it has proved its address
)

// A LoginFunc judges the first reliable message of a peer, which aliases the datagram.
// The value that it returns is the [Conn.Data] of the connection. It must not call the
// Endpoint.
type LoginFunc func(now time.Time, from netip.AddrPort, message []byte) (LoginVerdict, any)

// receiveLogin handles a command 4 from an address without connection. p is what
// follows the command byte.
//
// Where peers have to log in, a request is answered and forgotten: the ConnectionAck
// is shorter than it, so an attacker gains nothing by forging one, and there is no
// table to fill. The connection begins with reliable command 0, if it is a message that
// the owner accepts. It is acknowledged and not passed on; the peer repeats commands
// that came before, or with another number.
func (e *Endpoint) receiveLogin(from netip.AddrPort, p []byte, now instant, out Sender) {
	m, err := wire.ParseReliableMessage(p)
	switch {
	case err != nil || len(m.Data) == 0:
		e.drop(DropTruncated)
		return
	case m.Seq != 0 || len(m.Data) > WholeMax:
		e.drop(DropUnproven)
		return
	}
	e.silent.forget(from)
	kind := admit.Login
	switch {
	case e.known(from):
		kind = admit.KnownLogin
	case e.unproven.find(from) != nil:
		kind = admit.ProvenLogin
	}
	switch verdict := e.judge(from, kind, now); {
	case verdict == admit.Stateless:
		e.greet(from, 1+len(p), now, out)
		return
	case verdict != admit.Pass: // judge counted it
		return
	}
	verdict, data := LoginRefuse, any(nil)
	switch e.room(from) {
	case AdmitAccept:
		verdict, data = e.cfg.Login(e.clock.time(now), from, m.Data)
	case AdmitWait:
		verdict = LoginWait
	}
	switch {
	case verdict == LoginAccept:
		e.loggedIn(from, data, now, out)
	case verdict == LoginRefuse && kind == admit.Login: // somebody may have sent it in the name of a client that plays
		e.drop(DropLoginRefused)
		e.greet(from, 1+len(p), now, out)
	case verdict == LoginRefuse:
		e.refuseLogin(from, out)
	default:
		e.drop(DropLoginWaits)
	}
}

// refuseLogin tells a peer that it is refused, if it proved its address.
func (e *Endpoint) refuseLogin(to netip.AddrPort, out Sender) {
	e.drop(DropLoginRefused)
	switch u := e.unproven.find(to); {
	case u != nil:
		e.unproven.remove(u)
	case !e.known(to):
		return // its next login is greeted, and judged again when it has answered
	}
	e.send(to, wire.AppendConnectionClose(out.Datagram(1)), out)
}

// LogIn begins the connection of a peer whose login had to wait, as LoginAccept would
// have. It returns nil if there is no room for it, or none yet. EventConnected follows.
func (e *Endpoint) LogIn(now time.Time, addr netip.AddrPort, data any, out Sender) *Conn {
	t := e.clock.advance(now)
	if e.byAddr[addr] != nil {
		return nil
	}
	switch e.room(addr) {
	case AdmitRefuse:
		e.refuseLogin(addr, out)
		return nil
	case AdmitWait:
		e.drop(DropLoginWaits)
		return nil
	}
	return e.loggedIn(addr, data, t, out)
}

// RefuseLogin tells a peer whose login had to wait that it is refused.
func (e *Endpoint) RefuseLogin(addr netip.AddrPort, out Sender) {
	if e.byAddr[addr] == nil {
		e.refuseLogin(addr, out)
	}
}

// A peer that has to log in and sends no message takes itself for connected, and sees nothing. It is
// remembered in a small table, greeted twice shortly before Config.LoginTimeout, and then told with
// ConnectionClose if it answered: others could make requests in the name of a client that plays
// elsewhere (dnp/PROTOCOL.md, login-time). Once it sends a message the table forgets it, because its library gives up by itself, 3 s
// later at the latest, if that is not acknowledged.
const (
	silentMax       = 256 // peers in the table, so that forged requests cause few greetings; the oldest makes room, and is not told
	loginTimeoutMin = 2 * time.Second
)

func newSilentTable(cfg *Config) unprovenTable {
	if !cfg.Listen || cfg.Login == nil || cfg.LoginTimeout == 0 {
		return unprovenTable{}
	}
	return newTable(min(silentMax, cfg.UnprovenMax), cfg.LoginTimeout-2*greetingPause, cfg.LoginTimeout-greetingPause, cfg.LoginTimeout)
}

// awaitLogin remembers when a peer asked for a connection that it has to log in for.
func (e *Endpoint) awaitLogin(from netip.AddrPort, now instant) {
	if u := e.silent.find(from); u != nil { // the ConnectionAck was lost
		e.silent.restart(u, now)
	} else if e.silent.max > 0 {
		if _, evicted := e.silent.insert(from, now); evicted {
			e.drop(DropEvicted)
		}
	}
}

// closeSilent greets peers that have sent no message since their request, and tells them that it is
// too late.
func (e *Endpoint) closeSilent(now instant, out Sender) {
	for u, last := e.silent.nextDue(now); u != nil; u, last = e.silent.nextDue(now) {
		addr := u.addr
		switch {
		case e.byAddr[addr] != nil: // it was handed over by another Endpoint
			e.silent.remove(u)
		case !last:
			e.sendGreeting(addr, now, out)
		default:
			e.silent.remove(u)
			e.endSilent(addr, out)
		}
	}
}

// endSilent tells a peer that proved its address that it did not log in in time.
func (e *Endpoint) endSilent(to netip.AddrPort, out Sender) {
	if u := e.unproven.find(to); u != nil {
		e.unproven.remove(u)
		e.drop(DropLoginTimeout)
		e.send(to, wire.AppendConnectionClose(out.Datagram(1)), out)
	}
}

// Overhear notes a datagram of a peer that the owner does not give to the Endpoint. One that is no
// part of an attempt to connect shows that somebody else serves the peer, which is then not asked to
// log in here.
func (e *Endpoint) Overhear(from netip.AddrPort, p []byte) {
	if e.silent.n > 0 && len(p) > 0 && !e.MayProve(from, p) {
		e.silent.forget(from)
	}
}

// loggedIn makes the connection of a peer whose command 0 was its login.
func (e *Endpoint) loggedIn(addr netip.AddrPort, data any, now instant, out Sender) *Conn {
	c := e.add(addr, now)
	c.life.spoke, c.data = true, data
	c.recv.next = 1
	// This does not wait for the log. If the process dies before the log knows the
	// connection, nothing else was promised, and the peer has to log in again.
	c.acknowledge(0, out)
	e.startGreeted(c, now, out)
	if e.cfg.Probe == ProbePing {
		c.send.probes = 1 // shows whether the peer understands probes
	}
	e.established(c, now)
	return c
}
