package forward

import (
	"slices"
	"strings"
	"time"

	"github.com/dnprelay/dnprelay/cluster"
)

// watchers is how many edges each edge sends heartbeats to where there are more than
// meshMax; else it sends them to all.
const (
	watchers = 5
	meshMax  = 64
)

// SetPeers sets who is there, which may contain this edge. Of more than PeersMax, those
// that come last by name are left out. A process that is not among them any more, but is
// heard, is still talked to.
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

// meet returns the peer for a process. If it was here before, what came from it is still
// known, so that nothing is accepted twice. For one that may have been forgotten, counters
// go on behind all that were ever used.
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

// depart keeps a process that is not in the roster any more, for a while. If it was
// watched it still is: gossip may notice a death before heartbeats do.
func (r *Router) depart(p *peer) {
	p.beat = false
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

// assign decides who is sent heartbeats and who is to send some.
func (r *Router) assign(now time.Duration) {
	names := make([]string, 0, len(r.peers)+1)
	names = append(names, r.cfg.Node)
	for _, p := range r.peers {
		names = append(names, p.Name)
	}
	for _, p := range r.peers {
		watch := watches(names, r.cfg.Node, p.Name)
		if watch && !p.watch {
			p.heard = now // it may need a moment to learn that it is watched
		}
		p.watch, p.beat = watch, watches(names, p.Name, r.cfg.Node)
	}
}

// watches reports whether one edge watches another: all do in a small cluster, and
// else the five that draw the highest numbers for it.
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
