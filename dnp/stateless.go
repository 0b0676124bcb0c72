package dnp

import (
	"encoding/binary"
	"hash/maphash"
	"net/netip"
	"time"

	"github.com/dnprelay/dnprelay/dnp/admit"
	"github.com/dnprelay/dnprelay/dnp/wire"
)

// Under a flood of requests there is no slot for each. They are then answered with
// ConnectionAck and one hello, 15 bytes for 5, and nothing is kept: the LinkId of the
// hello is a keyed hash of the peer's address, so its LinkUp or LinkDown, which has
// that LinkId, tells all that a slot would. The price is that a hello that gets lost is
// not repeated; such a client has to connect again.

// statelessWindow is how long a hello can be answered at least. Twice as long is the
// most.
const statelessWindow = 5 * time.Second

// statelessID returns the LinkId of the hello for a peer at a time.
func (e *Endpoint) statelessID(addr netip.AddrPort, window uint64) wire.LinkID {
	var b [26]byte
	ip := addr.Addr().As16()
	copy(b[:], ip[:])
	binary.LittleEndian.PutUint16(b[16:], addr.Port())
	binary.LittleEndian.PutUint64(b[18:], window)
	return 0x8000 + wire.LinkID(maphash.Bytes(e.unproven.seed, b[:])%listenerHigh)
}

func window(now instant) uint64 { return uint64(now) / uint64(statelessWindow) }

// crowded reports whether the table has so many peers that a flood is likely.
func (e *Endpoint) crowded() bool {
	return e.cfg.Gate != nil && 2*e.unproven.n >= max(e.unproven.max, 1)
}

// answerStateless answers a request without keeping anything.
func (e *Endpoint) answerStateless(to netip.AddrPort, now instant, out Sender) {
	e.stats.Stateless++
	e.statelessUntil = now.add(2 * statelessWindow)
	e.send(to, wire.ConnectionAck{}.Append(out.Datagram(4)), out)
	m := wire.LinkState{Link: e.statelessID(to, window(now)), ReadOnly: true, Message: helloMessage}
	e.send(to, m.Append(out.Datagram(11)), out)
}

// helloPatience is how long a peer that acknowledged a hello may take to answer it.
const helloPatience = 400 * time.Millisecond

// receiveStatelessAck handles the acknowledgement of a hello of which nothing is kept.
// The answer comes behind it, or was lost; from then on the peer has a slot, from which
// the hello is repeated.
func (e *Endpoint) receiveStatelessAck(from netip.AddrPort, p []byte, now instant) {
	m, err := wire.ParseReliableAck(p)
	if err != nil || m.Seq != 0 || now >= e.statelessUntil || e.unproven.max == 0 || !e.pass(e.cfg.Gate.Answer(e.clock.time(now), from)) {
		e.drop(DropStranger)
		return
	}
	u, evicted := e.unproven.insert(from, now)
	if evicted {
		e.drop(DropEvicted)
	}
	u.in, u.byHello, u.acked = uint16(1+len(p)), true, true
	u.hello = e.statelessID(from, window(now))
}

// receiveStateless handles a LinkUp or LinkDown of a peer of which nothing is kept.
func (e *Endpoint) receiveStateless(from netip.AddrPort, p []byte, now instant, out Sender) {
	m, err := wire.ParseLinkUp(p) // both have the same fields
	switch {
	case err != nil:
		e.drop(DropTruncated)
		return
	case now >= e.statelessUntil:
		e.drop(DropStranger)
		return
	case !e.pass(e.cfg.Gate.Answer(e.clock.time(now), from)): // also makes guessing slow
		return
	}
	w := window(now)
	if m.Link != e.statelessID(from, w) && (w == 0 || m.Link != e.statelessID(from, w-1)) {
		e.drop(DropUnproven)
		return
	}
	e.proven(unproven{addr: from, hello: m.Link}, ProbeHello, now, out)
}

// verdictDrops says which counter a refusal of the Gate belongs to.
var verdictDrops = [admit.NumVerdicts]DropReason{
	admit.LimitedOne: DropAddressRate, admit.LimitedNet: DropNetworkRate, admit.LimitedSite: DropNetworkRate,
	admit.LimitedAll: DropConnectRate, admit.Late: DropLate, admit.Banned: DropBanned,
}

// pass reports whether the Gate lets something in, and counts it if not.
func (e *Endpoint) pass(v admit.Verdict) bool {
	if v == admit.Pass || v == admit.Stateless {
		return true
	}
	e.drop(verdictDrops[v])
	return false
}
