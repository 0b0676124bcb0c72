package edge

import (
	"net/netip"
	"sync"
)

// A roll counts the sessions of an edge by address, because the kernel spreads the
// ports of one address over all workers.
//
// The mutex is there because no worker can own what all count. It is taken when a
// session begins or ends, and for each request that came through the Gate.
type roll struct {
	most, each int // sessions of the edge, and of one address; each 0 is no bound

	mu     sync.Mutex
	n      int
	byHome map[netip.Addr]int // as many as there are sessions
}

func newRoll(most, each int) *roll {
	return &roll{most: most, each: each, byHome: make(map[netip.Addr]int)}
}

// home returns the address itself, or that of the /64, which is what one client has of
// IPv6.
func home(a netip.Addr) netip.Addr {
	if a = a.Unmap(); a.Is4() || !a.IsValid() {
		return a
	}
	p, _ := a.WithZone("").Prefix(64) // fails for no IPv6 address
	return p.Addr()
}

// room reports whether another session of this address may begin.
func (r *roll) room(a netip.Addr) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.n < r.most && (r.each == 0 || r.byHome[home(a)] < r.each)
}

func (r *roll) enter(a netip.Addr) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.n++
	r.byHome[home(a)]++
}

func (r *roll) leave(a netip.Addr) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.n--
	if r.byHome[home(a)]--; r.byHome[home(a)] == 0 {
		delete(r.byHome, home(a))
	}
}
