package carrier

import (
	"net/netip"
	"sync"

	"github.com/dnprelay/dnprelay/internal/auth"
)

// Bounds of QUIC connections without a session. All numbers are arbitrary; a connection costs some 50 KiB.
const (
	// newcomersMax is how many there may be.
	newcomersMax = 4096

	// newcomersFree is up to how many there may be as many of one network as there are. With more, each
	// network has newcomersPerNetwork at most, so a single one cannot shut the others out.
	newcomersFree       = 512
	newcomersPerNetwork = 64

	// newcomersUnproven is from how many on a client has to prove its address first, because it might be forged.
	newcomersUnproven = 128
)

// Newcomers counts the QUIC connections whose clients have no place in a Hub yet.
type Newcomers struct {
	mu     sync.Mutex // connections begin and end in goroutines of their own
	places auth.Places
}

// Enter counts a connection from an address, unless there are too many. Leave ends it.
func (n *Newcomers) Enter(home netip.Addr) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	all := n.places.All()
	if all >= newcomersMax || all >= newcomersFree && n.places.Of(home) >= newcomersPerNetwork {
		return false
	}
	n.places.Enter(home)
	return true
}

// Leave ends the counting of a connection that entered.
func (n *Newcomers) Leave(home netip.Addr) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.places.Leave(home)
}

// Crowded reports whether clients have to prove their addresses before they enter.
func (n *Newcomers) Crowded() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.places.All() >= newcomersUnproven
}
