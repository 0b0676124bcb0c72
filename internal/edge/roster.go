package edge

import (
	"sync"

	"github.com/dnprelay/dnprelay/cluster"
)

// A rosterView is what the edge knows of the others. It is a hint: it decides who tries
// to take a session over, never who has it.
//
// The mutex is there because gossip writes and all workers read.
type rosterView struct {
	self string

	mu     sync.RWMutex
	roster cluster.Roster
	gone   map[string]bool // nodes that left or died and did not come back
}

// alive reports whether a node is there.
func (v *rosterView) alive(node string) bool {
	v.mu.RLock()
	defer v.mu.RUnlock()
	_, ok := v.roster.Member(node)
	return ok
}

// dead reports whether a node was there and is not any more.
func (v *rosterView) dead(node string) bool {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.gone[node]
}

// heir returns which of the edges that work should have what goes by this name, and
// whether it may be this one. It is empty for none.
func (v *rosterView) heir(name string, mayBeSelf bool) string {
	v.mu.RLock()
	defer v.mu.RUnlock()
	var names []string
	for m := range v.roster.All() {
		if m.CanServe() && m.Name != v.self {
			names = append(names, m.Name)
		}
	}
	if mayBeSelf {
		names = append(names, v.self)
	}
	return cluster.Choose(name, names)
}

// SetRoster tells the edge who is there. Sessions of edges that left are taken over.
func (e *Edge) SetRoster(r cluster.Roster) {
	v := &e.roster
	v.mu.Lock()
	d := r.Since(v.roster)
	v.roster = r
	for _, m := range d.Left {
		if len(v.gone) < goneMax {
			v.gone[m.Name] = true
		}
	}
	for _, m := range d.Joined {
		delete(v.gone, m.Name)
	}
	v.mu.Unlock()
	for _, m := range d.Left {
		if m.Role == cluster.RoleEdge && m.Name != e.cfg.Node {
			e.Gone(m.Name)
		}
	}
}

// goneMax bounds the dead that are remembered. One more is found dead by its claims.
const goneMax = 4096

// Gone takes over, with the other edges that work, the sessions that a dead node had.
// Each of them takes those that the name of their log gives it.
func (e *Edge) Gone(node string) {
	if e.cfg.Durable == nil || e.cfg.Durable.Affinity == nil {
		return
	}
	e.cfg.Log.Info("an edge is gone; its sessions are taken over", "edge", node)
	e.inherit(node, inheritRounds)
}
