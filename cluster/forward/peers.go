package forward

import (
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/dnprelay/dnprelay/cluster"
)

// A Peer is another edge, as the roster has it.
type Peer struct {
	Name string         // of the node
	ID   uint64         // of the process, see Config.ID
	Addr netip.AddrPort // where it takes cluster datagrams
}

// A peer is one process of another edge.
type peer struct {
	Peer
	listed     bool          // it is in the roster
	heard      time.Duration // when its last datagram was accepted, or when this edge began to listen to it
	watch      bool          // it sends heartbeats to this edge
	heartbeats bool          // this edge sends heartbeats to it
	told       Liveness      // what Advance returned last

	counter uint64 // of the last datagram that was sealed for it
	window  window // of the datagrams that came from it
	seals   []seal // one for each key of the ring, in that order; nil until they are needed
}

// In a cluster of more than meshMax edges, each edge sends heartbeats to as many as watchers
// says. In a smaller one it sends them to all.
const (
	watchers = 5
	meshMax  = 64
)

// SetPeers sets the edges that are there, with or without this one. Of more than PeersMax it
// leaves out those that come last by name. The router goes on to exchange datagrams with a
// process that left the list while it hears it.
func (r *Router) SetPeers(now time.Time, list []Peer) {
	list = r.usable(list)
	at := r.since(now)
	for _, p := range r.peers {
		p.listed = false
	}
	old := r.peers
	r.peers = nil
	for _, l := range list {
		p := r.meet(at, l)
		p.listed = true
		r.peers = append(r.peers, p)
	}
	for _, p := range old {
		if !p.listed {
			r.depart(p)
		}
	}
	r.assign(at)
}

// usable returns the peers of list in the order of names, without this edge.
func (r *Router) usable(list []Peer) []Peer {
	list = slices.DeleteFunc(slices.Clone(list), func(p Peer) bool {
		return p.ID == 0 || p.ID == r.cfg.ID || p.Name == r.cfg.Node || !p.Addr.IsValid()
	})
	slices.SortStableFunc(list, func(a, b Peer) int { return strings.Compare(a.Name, b.Name) })
	list = slices.CompactFunc(list, func(a, b Peer) bool { return a.Name == b.Name })
	return list[:min(len(list), PeersMax)]
}

// meet returns the peer for a process. If the process was there before, its window is still
// known, so that the router accepts nothing twice. For a process that may have been
// forgotten, counters go on behind all that were ever used.
func (r *Router) meet(now time.Duration, l Peer) *peer {
	p := r.byID[l.ID]
	if p == nil {
		p = &peer{heard: now, counter: r.counterMax}
		r.byID[l.ID] = p
	} else if i := slices.Index(r.departed, p); i >= 0 {
		r.departed = slices.Delete(r.departed, i, i+1)
		p.heard = now
	}
	p.Peer = l
	r.byName[l.Name] = p
	return p
}

// depart keeps a process that left the roster. If this edge watched it, it still does:
// gossip may notice a death before heartbeats do.
func (r *Router) depart(p *peer) {
	p.heartbeats = false
	r.departed = append(r.departed, p)
	if len(r.departed) > departedMax {
		oldest := r.departed[0]
		r.departed = slices.Delete(r.departed, 0, 1)
		delete(r.byID, oldest.ID)
		if r.byName[oldest.Name] == oldest {
			delete(r.byName, oldest.Name)
		}
	}
}

// assign decides which peers get heartbeats of this edge, and which have to send it some.
func (r *Router) assign(now time.Duration) {
	names := make([]string, 0, len(r.peers)+1)
	names = append(names, r.cfg.Node)
	for _, p := range r.peers {
		names = append(names, p.Name)
	}
	for _, p := range r.peers {
		watch := watches(names, r.cfg.Node, p.Name)
		if watch && !p.watch {
			p.heard = now // the peer may need a moment to learn that this edge watches it
		}
		p.watch, p.heartbeats = watch, watches(names, p.Name, r.cfg.Node)
	}
}

// watches reports whether one edge watches another. In a small cluster all edges do, and in
// a larger one the five that draw the highest numbers for it.
func watches(names []string, watcher, watched string) bool {
	if len(names) <= meshMax {
		return true
	}
	mine, better := cluster.Draw(watcher, watched), 0
	for _, n := range names {
		if n == watched || n == watcher {
			continue
		}
		if d := cluster.Draw(n, watched); d > mine || d == mine && n < watcher {
			if better++; better == watchers {
				return false
			}
		}
	}
	return true
}

// Times of heartbeats. They are short enough for a failover that a client does not notice:
// it repeats itself every 0.5 s and gives up after 3 s.
const (
	// HeartbeatInterval is the time between two heartbeats.
	HeartbeatInterval = 100 * time.Millisecond

	// SuspectAfter is how long a watched peer may be silent.
	SuspectAfter = 400 * time.Millisecond

	// stallAfter is how late Advance may be called. When it is called later, this process
	// was stopped, and the silence of its peers means nothing.
	stallAfter = 200 * time.Millisecond

	// goneAfter is how long a peer that is not in the roster may be silent.
	goneAfter = 2 * time.Second
)

// Liveness is what the router believes about a peer. A false suspicion costs a hand-over.
type Liveness uint8

// The states of life.
const (
	Gone      Liveness = iota // not in the roster, and not heard
	Alive                     // heard within SuspectAfter
	Suspect                   // watched, and not heard for so long
	Unwatched                 // in the roster, and watched by other edges
)

// String returns the name of l.
func (l Liveness) String() string {
	return [...]string{"gone", "alive", "suspect", "unwatched"}[min(l, Unwatched)]
}

func (r *Router) liveness(now time.Duration, p *peer) Liveness {
	silent := now - p.heard
	switch {
	case !p.listed && silent >= goneAfter:
		return Gone
	case silent < SuspectAfter:
		return Alive
	case p.watch: // also after it left the roster: it would still send heartbeats if it lived
		return Suspect
	case !p.listed:
		return Alive // until it is gone
	}
	return Unwatched
}

// reachable reports whether p may take a datagram.
func (r *Router) reachable(now time.Duration, p *peer) bool {
	is := r.liveness(now, p)
	return is == Alive || is == Unwatched
}

// A Change says that the liveness of a node changed.
type Change struct {
	Node string
	Is   Liveness
}

// Advance sends heartbeats when they are due, and returns the peers whose liveness changed
// since it was called last; the slice is valid until the next call. After this process was
// stopped, each peer has SuspectAfter again to be heard, so Advance comes first in a turn.
func (r *Router) Advance(now time.Time, out Sender) []Change {
	at := r.since(now)
	if at < r.nextHeartbeat {
		return nil
	}
	if r.nextHeartbeat > 0 && at-r.nextHeartbeat > stallAfter {
		r.stats.Stalls++
		for _, p := range r.peers {
			p.heard = at
		}
	}
	r.nextHeartbeat = at + HeartbeatInterval
	for _, p := range r.peers {
		if p.heartbeats && len(r.ring) > 0 {
			r.seal(p, TypeHeartbeat, nil, out)
			r.stats.HeartbeatsOut++
		}
	}
	return r.compare(at)
}

// compare returns the peers whose liveness changed since it was called last.
func (r *Router) compare(now time.Duration) []Change {
	r.changes = r.changes[:0]
	for _, list := range [2][]*peer{r.peers, r.departed} {
		for _, p := range list {
			if is := r.liveness(now, p); is != p.told && r.byName[p.Name] == p {
				p.told = is
				r.changes = append(r.changes, Change{p.Name, is})
			}
		}
	}
	return r.changes
}

// NextTimeout returns when Advance must be called.
func (r *Router) NextTimeout() time.Time { return r.start.Add(r.nextHeartbeat) }
