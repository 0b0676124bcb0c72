package lludp

import (
	"net/netip"
	"time"

	"github.com/dnprelay/dnprelay/internal/auth"
	"github.com/dnprelay/dnprelay/lludp/wire"
)

// Bounds of logins that wait for their circuit. All numbers are arbitrary.
const (
	loginsMax        = 1024
	loginsPerNetwork = 32
	loginLife        = 30 * time.Second
)

// logins are the viewers that have logged in and not opened their circuit, by code. A code opens one circuit, from the network of the
// login.
type logins struct {
	byCode map[uint32]*peer
	places auth.Places // of these, and of logins in progress
}

// reserve takes a place for a login from an address. put or release ends it.
func (l *logins) reserve(home netip.Addr) bool {
	if l.places.All() >= loginsMax || l.places.Of(home) >= loginsPerNetwork {
		return false
	}
	l.places.Enter(home)
	return true
}

// release gives a place back that reserve took.
func (l *logins) release(home netip.Addr) { l.places.Leave(home) }

// free reports whether no login has this code.
func (l *logins) free(code uint32) bool { return l.byCode[code] == nil }

// put has a login wait, in the place that reserve took.
func (l *logins) put(p *peer) { l.byCode[p.opening.Code] = p }

// take returns the login that an opening from an address belongs to, and removes it. Guesses leave it where it is.
func (l *logins) take(o wire.Opening, from netip.Addr) (p *peer, why ignored) {
	switch p = l.byCode[o.Code]; {
	case p == nil || p.opening != o:
		return nil, unknownCode
	case auth.HomeNetwork(from) != auth.HomeNetwork(p.home):
		return nil, otherNetwork
	}
	l.remove(p)
	return p, 0
}

// remove reports whether a login waited, and removes it.
func (l *logins) remove(p *peer) bool {
	if l.byCode[p.opening.Code] != p {
		return false
	}
	delete(l.byCode, p.opening.Code)
	l.places.Leave(p.home)
	return true
}
