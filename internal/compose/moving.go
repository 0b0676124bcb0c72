package compose

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/dnprelay/dnprelay/bus"
	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/internal/turn"
)

// A NATS server that is cut off from the other servers answers its clients, but what they publish reaches
// nobody elsewhere. A relay announces itself over NATS twice a second. A node that has heard no
// other relay for relaysSilence, although gossip says that there is one, leaves its server.
const (
	relaysSilence = 3 * time.Second
	relaysLook    = 500 * time.Millisecond
)

// A relaySilence knows for how long a node has heard no other relay over one NATS server.
type relaySilence struct{ since time.Time }

// useless reports whether the server is useless. heard is when the node heard another relay last; zero if it
// never did, because its server may not allow that. others says that there is another relay.
func (s *relaySilence) useless(now, heard time.Time, connected, others bool) bool {
	if s.since.Before(heard) {
		s.since = heard
	}
	if heard.IsZero() || !connected || !others {
		s.since = now
	}
	if now.Sub(s.since) < relaysSilence {
		return false
	}
	s.since = now // the next server gets as much time
	return true
}

// watchRelays moves the connections away from a useless server, until ctx ends. others reports whether there is
// another relay.
func (n *node) watchRelays(ctx context.Context, others func() bool) error {
	var heard atomic.Pointer[time.Time]
	heard.Store(&time.Time{})
	end, err := n.bus.Subscribe(n.subjects.RelayAll(), func(m bus.Msg) {
		if relay, ok := n.subjects.ParseRelay(m.Subject); ok && relay != n.name {
			now := time.Now()
			heard.Store(&now)
		}
	})
	if err != nil {
		return nil // the bus is closed
	}
	defer end()
	silence := relaySilence{time.Now()}
	for now := range turn.After(ctx, relaysLook) {
		if silence.useless(now, *heard.Load(), n.bus.Connected(), others()) {
			n.leave(n.bus.Server())
		}
	}
	return nil
}

// leave moves all connections to a server to the next one.
func (n *node) leave(server string) {
	n.log.Warn("leaving a NATS server over which no relay is heard", "server", server, "silence", relaysSilence)
	for _, b := range n.buses {
		b.Move(server)
	}
}

// otherRelays reports whether gossip knows another relay that is ready.
func (n *node) otherRelays() bool {
	if n.gossip == nil {
		return false
	}
	for m := range n.gossip.Roster().All() {
		if m.Role == cluster.RoleRelay && m.Phase == cluster.PhaseReady && m.Name != n.name {
			return true
		}
	}
	return false
}
