package forward

import (
	"slices"
	"time"

	"github.com/dnprelay/dnprelay/dnp/admit"
	"github.com/dnprelay/dnprelay/dnp/wire"
)

const (
	likelyRange = 24 // commands in flight, the client's or the owner's
	offersMax   = 4  // of the owner that are remembered until they are answered
)

// noLink is no LinkID that an owner offers.
const noLink = wire.LinkID(0)

// returned notes a datagram of the owner to the client.
func (e *fenceEntry) returned(p []byte) {
	cmd, seq, ok := wire.Numbered(p)
	switch ahead := seq - e.sent; { // modulo 65536; in a profile that counts modulo 65535, one off
	case !ok:
		return
	case cmd == wire.CommandReliableAck:
		e.acknowledged = seq
		return
	case -ahead < 32:
		e.awaited |= 1 << -ahead
	default:
		e.sent, e.awaited = seq, e.awaited<<ahead|1
	}
	e.allowance.ExpectAnswers()
	if id, ok := offered(p); ok {
		copy(e.offers[1:], e.offers[:])
		e.offers[0] = id
	}
}

// offered returns the link that a datagram offers.
func offered(p []byte) (wire.LinkID, bool) {
	r := wire.NewReader(p[3:])
	id := wire.LinkID(r.Uint16())
	return id, wire.Command(p[0]) == wire.CommandReliableLinkState && r.Err() == nil
}

// allow reports whether to forward a datagram in the name of the client. The rate is that of an
// edge for the clients that it serves: what a stranger sends in the name of a client costs the
// owner no more because it comes to another edge. Beyond it goes what is likely the client's: a
// stranger does not see the numbers and links of what was returned to the client lately.
func (e *fenceEntry) allow(rate admit.Rate, now time.Duration, p []byte) bool {
	if e.allowance.Take(rate, now, p) || e.answers(p) {
		return true
	}
	likely, next := e.likely(p)
	return likely && e.allowance.TakeSpare(now, next)
}

// answers reports whether a datagram answers what was returned to the client lately and has not been
// answered. It counts as answered then.
func (e *fenceEntry) answers(p []byte) bool {
	r := wire.NewReader(p)
	switch cmd, n := wire.Command(r.Uint8()), r.Uint16(); {
	case r.Err() != nil:
	case cmd == wire.CommandReliableAck:
		bit := uint32(1) << (e.sent - wire.Seq(n))
		if e.awaited&bit != 0 && (len(p) < 4 || wire.AckCode(p[3]) == wire.AckSuccess) {
			e.awaited &^= bit
			return true
		}
	case cmd == wire.CommandLinkUp, cmd == wire.CommandLinkDown:
		if i := slices.Index(e.offers[:], wire.LinkID(n)); i >= 0 && wire.LinkID(n) != noLink {
			e.offers[i] = noLink
			return true
		}
	}
	return false
}

// likely reports whether a datagram has a number near those that were returned to the client
// lately, and whether it is one of the client's next commands: other numbers can be guessed more easily.
func (e *fenceEntry) likely(p []byte) (likely, next bool) {
	cmd, seq, ok := wire.Numbered(p)
	near := e.acknowledged
	if cmd == wire.CommandReliableAck {
		near = e.sent
	}
	ahead := seq - near // modulo 65536; in a profile that counts modulo 65535, one off
	return ok && ahead+likelyRange <= 2*likelyRange, ahead > 0 && ahead <= likelyRange && cmd != wire.CommandReliableAck
}
