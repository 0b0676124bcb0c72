// Package variant serves clients that speak in Godot's Variants: by WebSocket, with the subprotocols dnp.variant.v3 and
// dnp.variant.v4, and by UDP. DESIGN.md says how, INTERFACES.md what they say.
//
//	a := variant.New(variant.Config{Hub: edge.Hub()})
//	websocket.New(websocket.Config{Adapters: []websocket.Adapter{a}, …})
//	a.ListenUDP(socket, admission) // then Run
//
// It does what sockets, goroutines and clocks are needed for; package protocol has the rest.
package variant

import (
	"maps"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dnprelay/dnprelay/internal/edge/carrier"
	"github.com/dnprelay/dnprelay/internal/edge/variant/protocol"
	"github.com/dnprelay/dnprelay/internal/telemetry"
)

// joinTimeout is how long a client may take to connect and log in inside: longer than an edge lets a login take.
const joinTimeout = 20 * time.Second

// Config is what an Adapter is made of.
type Config struct {
	Hub *carrier.Hub
}

// An Adapter has the peers of an edge.
type Adapter struct {
	cfg       Config
	newcomers carrier.Newcomers // peers that have not joined
	joined    atomic.Uint64     // peers that have

	// mu guards the rest. Peers come and go in goroutines of their own, and metrics look at all.
	mu   sync.Mutex
	live map[*peer]struct{}
	past Counts
}

// Counts are the counters of an Adapter.
type Counts struct {
	protocol.Counts
	WebSocket, UDP int                        // peers
	Joined         uint64                     // peers that joined
	Ended          map[protocol.Reason]uint64 // peers that ended
	Datagrams      [numDatagramDrops]uint64   // by UDP that belong to no session
}

// New returns an Adapter without peers.
func New(cfg Config) *Adapter {
	return &Adapter{cfg: cfg, live: make(map[*peer]struct{}), past: Counts{Ended: make(map[protocol.Reason]uint64)}}
}

// Stats returns the counters.
func (a *Adapter) Stats() Counts {
	a.mu.Lock()
	s := a.past
	s.Ended = maps.Clone(a.past.Ended)
	live := slices.Collect(maps.Keys(a.live))
	a.mu.Unlock() // a peer holds its lock when it takes that of the adapter
	s.Joined = a.joined.Load()
	for _, p := range live {
		p.mu.Lock()
		telemetry.Sum(&s.Counts, p.core.Counts())
		p.mu.Unlock()
		if p.udp {
			s.UDP++
		} else {
			s.WebSocket++
		}
	}
	return s
}

func (a *Adapter) enter(home netip.Addr) bool { return a.newcomers.Enter(home) }

func (a *Adapter) add(p *peer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.live[p] = struct{}{}
}

// remove forgets a peer that has ended.
func (a *Adapter) remove(p *peer) {
	p.mu.Lock()
	counts := *p.core.Counts()
	reason, _ := p.core.Ended()
	p.mu.Unlock()
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.live, p)
	telemetry.Sum(&a.past.Counts, &counts)
	a.past.Ended[reason]++
}
