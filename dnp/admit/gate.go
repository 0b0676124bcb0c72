package admit

import (
	"cmp"
	"errors"
	"hash/maphash"
	"net/netip"
	"time"
)

// A Verdict is the decision of a Gate about a datagram.
type Verdict uint8

const (
	Pass        Verdict = iota
	Stateless           // too many to remember: answer without storing anything
	LimitedOne          // the bucket of the address (IPv4) or the /64 (IPv6) is empty
	LimitedNet          // the bucket of the /24 or the /56 is empty
	LimitedSite         // the bucket of the /48 is empty; IPv6 only
	LimitedAll          // the bucket for all is empty
	Late                // not a request, from an address whose session has just ended

	NumVerdicts = int(iota)
)

// A Config limits what passes a Gate. Rates are per second; buckets hold burstFactor
// seconds of them.
type Config struct {
	// AddressRate is how many requests and logins pass from one IPv4 address or one
	// IPv6 /64. A /24 and a /56 have netFactor times as many, a /48 siteFactor times.
	// 0 is off.
	AddressRate float64

	// Rate is how many pass from all addresses. 0 is off. It protects the processor:
	// under a flood it refuses mostly forged requests, but also those of players.
	Rate float64

	// StatefulRate is how many requests pass; those beyond are judged Stateless. 0 is
	// 2,000; negative is no bound.
	StatefulRate float64

	// LoginRate is how many logins pass from all addresses, because checking a
	// signature or asking a service costs more than forging a login. 0 is 1,000;
	// negative is no bound.
	LoginRate float64
}

const (
	burstFactor = 4  // seconds: 20 requests at once where 5 a second are allowed
	netFactor   = 10 // of AddressRate
	siteFactor  = 20

	statefulRate = 2000
	loginRate    = 1000

	oneBuckets  = 16384 // in a Gate
	netBuckets  = 4096
	siteBuckets = 4096
	tombstones  = 4096
)

// A Gate judges datagrams from addresses without connection. New makes one. A nil Gate
// passes everything.
type Gate struct {
	base     time.Time
	ones     table
	nets     table
	sites    table
	all      single
	stateful single
	logins   single // of proven addresses
	unproven single // of others
	tombs    graveyard
}

// New returns a Gate and allocates all the memory that it will use.
func New(cfg Config) (*Gate, error) {
	if cfg.AddressRate < 0 || cfg.Rate < 0 {
		return nil, errors.New("admit: a rate is negative")
	}
	seed := maphash.MakeSeed()
	return &Gate{
		ones:     newTable(oneBuckets, cfg.AddressRate, seed, 1),
		nets:     newTable(netBuckets, netFactor*cfg.AddressRate, seed, 2),
		sites:    newTable(siteBuckets, siteFactor*cfg.AddressRate, seed, 3),
		all:      newSingle(cfg.Rate),
		stateful: newSingle(cmp.Or(cfg.StatefulRate, statefulRate)),
		logins:   newSingle(cmp.Or(cfg.LoginRate, loginRate) * (1 - unprovenShare)),
		unproven: newSingle(cmp.Or(cfg.LoginRate, loginRate) * unprovenShare),
		tombs:    graveyard{slots: make([]tomb, tombstones), seed: seed},
	}, nil
}

// A Kind says what a datagram would begin.
type Kind uint8

const (
	Request      Kind = iota // a connection request, which takes memory if it is remembered
	LoginRequest             // a connection request of a peer that has to log in, which takes nothing
	Login                    // a login from an address that may be forged
	Answer                   // the answer to a stateless probe, which costs less than a login
	ProvenLogin              // a login from an address that answered one
	KnownRequest             // a connection request from an address that its owner vouches for
	KnownLogin               // a login from such an address
)

// unprovenShare is the share of logins whose addresses may be forged. It is small, because one
// beyond it costs its client only half a second.
const unprovenShare = 0.25

// Judge judges a datagram. A Login that is judged Stateless is not to be looked at before its
// address is proven: no forged login takes anything from a ProvenLogin.
func (g *Gate) Judge(now time.Time, from netip.AddrPort, kind Kind) Verdict {
	if g == nil {
		return Pass
	}
	t := g.since(now)
	request := kind <= LoginRequest || kind == KnownRequest
	switch v := g.tombs.judge(t, from, request); {
	case v != Pass, kind == LoginRequest, kind == KnownRequest: // who vouches for an address bounds what comes from it
		return v
	case kind == KnownLogin && !g.logins.take(t):
		return LimitedAll
	case kind == KnownLogin:
		return Pass
	}
	if kind == Login && !g.unproven.take(t) {
		return Stateless // most datagrams of a flood get no further
	}
	v := g.limit(t, from.Addr(), kind == ProvenLogin)
	switch {
	case kind == Login && v != Pass:
		return Stateless
	case v != Pass:
		return v
	case kind == Request && !g.stateful.take(t):
		return Stateless
	case kind == ProvenLogin && !g.logins.take(t):
		return LimitedAll
	}
	return Pass
}

// Closed notes the end of a session: for lateFor, late datagrams from its address begin
// nothing, unless a request arrives first.
func (g *Gate) Closed(now time.Time, addr netip.AddrPort) {
	if g != nil {
		g.tombs.bury(g.since(now), addr)
	}
}

// limit takes a token from every bucket of an address, or none. The bucket for all is for
// addresses that are not proven.
func (g *Gate) limit(t int64, addr netip.Addr, proven bool) Verdict {
	var set []*bucket
	if g.ones.rate > 0 {
		var room [3]*bucket
		set = g.find(room[:0], t, addr, proven)
	}
	for i, b := range set {
		if b.tokens < 1 {
			return LimitedOne + Verdict(i)
		}
	}
	if !proven && !g.all.take(t) {
		return LimitedAll
	}
	for _, b := range set {
		b.tokens--
	}
	return Pass
}

// find appends the buckets of an address, refilled, the narrowest first. An IPv4 address
// has two, an IPv6 address three.
func (g *Gate) find(set []*bucket, t int64, addr netip.Addr, proven bool) []*bucket {
	ip := addr.As16()
	if addr.Unmap().Is4() {
		return append(set, g.ones.find(t, ip[:], proven), g.nets.find(t, ip[:15], proven))
	}
	return append(set, g.ones.find(t, ip[:8], proven), g.nets.find(t, ip[:7], proven), g.sites.find(t, ip[:6], proven))
}

// since returns the nanoseconds since the Gate was first used.
func (g *Gate) since(now time.Time) int64 {
	if g.base.IsZero() {
		g.base = now
	}
	return int64(now.Sub(g.base))
}
