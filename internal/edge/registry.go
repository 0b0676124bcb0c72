package edge

import (
	"net/netip"
	"sync"

	"github.com/dnprelay/dnprelay/internal/auth"
	"github.com/dnprelay/dnprelay/internal/edge/carrier"
)

// A registry counts the sessions of an edge by address, because the kernel spreads the
// ports of one address over all workers.
//
// The mutex is there because no worker can own a count to which all contribute. It is
// locked when a session begins or ends, and for each request that came through the Gate.
//
// The address of a carried client says nothing of its network, whose connections carrier.Hub counts.
type registry struct {
	sessionsMax, perNetworkMax int // of the edge, and of one network; 0 is no bound for a network

	mu       sync.Mutex
	sessions auth.Places
}

func (r *registry) room(a netip.Addr) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.sessions.All() < r.sessionsMax && (r.perNetworkMax == 0 || carrier.Carried(a) || r.sessions.Of(a) < r.perNetworkMax)
}

func (r *registry) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.sessions.All()
}

func (r *registry) enter(a netip.Addr) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sessions.Enter(a)
}

func (r *registry) leave(a netip.Addr) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sessions.Leave(a)
}
