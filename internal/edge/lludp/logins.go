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
	byCode    map[uint32]*peer
	byNetwork map[netip.Prefix]int
	reserved  int // logins in progress
}

func newLogins() logins {
	return logins{byCode: map[uint32]*peer{}, byNetwork: map[netip.Prefix]int{}}
}

// reserve takes a place for a login from an address. put or release ends it.
func (l *logins) reserve(home netip.Addr) bool {
	n := auth.HomeNetwork(home)
	if len(l.byCode)+l.reserved >= loginsMax || l.byNetwork[n] >= loginsPerNetwork {
		return false
	}
	l.reserved++
	l.byNetwork[n]++
	return true
}

// release gives a place back that reserve took.
func (l *logins) release(home netip.Addr) {
	l.reserved--
	l.leave(home)
}

func (l *logins) leave(home netip.Addr) {
	n := auth.HomeNetwork(home)
	if l.byNetwork[n]--; l.byNetwork[n] == 0 {
		delete(l.byNetwork, n)
	}
}

// free reports whether no login has this code.
func (l *logins) free(code uint32) bool { return l.byCode[code] == nil }

// put has a login wait, in the place that reserve took.
func (l *logins) put(p *peer) {
	l.reserved--
	l.byCode[p.opening.Code] = p
}

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
	l.leave(p.home)
	return true
}
