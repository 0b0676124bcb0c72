package takeover

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/dnprelay/dnprelay/cluster"
)

// goneMax bounds the dead nodes that are remembered. Beyond the bound,
// a dead node is recognised by Served.Alive.
const goneMax = 4096

// A View is what an edge knows of the other edges. It never changes, so it may be shared
// between goroutines. It is a hint: it decides which edge tries to take a session over,
// never which edge has it.
type View struct {
	self   string
	roster cluster.Roster
	edges  []string        // the other edges of the roster, in order
	gone   map[string]bool // nodes that were in the roster, left or died, and did not come back

	// alone says that gossip lost all other edges: they are dead, or this one is cut off, perhaps
	// together with a relay.
	alone bool
}

// NewView returns the view of an edge that knows of no other.
func NewView(self string) *View { return &View{self: self} }

// With returns the view after the roster changed, and the other edges that left.
func (v *View) With(r cluster.Roster) (next *View, left []string) {
	joined, gone := r.Since(v.roster)
	next = &View{self: v.self, roster: r, gone: maps.Clone(v.gone)}
	if next.gone == nil {
		next.gone = make(map[string]bool)
	}
	for _, m := range gone {
		if len(next.gone) < goneMax {
			next.gone[m.Name] = true
		}
		if m.Role == cluster.RoleEdge && m.Name != v.self {
			left = append(left, m.Name)
		}
	}
	for _, m := range joined {
		delete(next.gone, m.Name)
	}
	for m := range r.All() {
		if m.Role == cluster.RoleEdge && m.Name != v.self {
			next.edges = append(next.edges, m.Name)
		}
	}
	next.alone = r.Len() > 0 && len(next.edges) == 0 && (v.alone || len(v.edges) > 0)
	return next, left
}

// Edges returns the number of other edges.
func (v *View) Edges() int { return len(v.edges) }

func (v *View) inRoster(node string) bool {
	_, ok := v.roster.Member(node)
	return ok
}

// ready returns all other edges that are ready.
func (v *View) ready() (names []string) {
	for m := range v.roster.All() {
		if m.CanServe() && m.Name != v.self {
			names = append(names, m.Name)
		}
	}
	return names
}

// listensAt reports whether an edge may have clients that talk to a port: it listens there, or has
// not told its ports.
func listensAt(m cluster.Member, port uint16) bool {
	ports := m.Ports(cluster.ServiceDNP)
	return len(ports) == 0 || slices.Contains(ports, port)
}

// readyAt returns all other edges that are ready and may have clients that talk to a port.
func (v *View) readyAt(port uint16) []string {
	return slices.DeleteFunc(v.ready(), func(name string) bool {
		m, _ := v.roster.Member(name)
		return !listensAt(m, port)
	})
}

// elsewhereMax bounds the edges that Elsewhere names.
const elsewhereMax = 8

// Elsewhere returns the other edges, with their ports, if there are some and none of them may take over
// clients that talk to a port, because clients cannot talk to another one. Otherwise it returns nothing.
func (v *View) Elsewhere(port uint16) (edges []string) {
	for m := range v.candidates() {
		if listensAt(m, port) {
			return nil
		}
		if len(edges) < elsewhereMax {
			edges = append(edges, fmt.Sprintf("%s at %s", m.Name, strings.Trim(fmt.Sprint(m.Ports(cluster.ServiceDNP)), "[]")))
		}
	}
	return edges
}

// successor returns which of the other edges that are ready should have the session with
// this name; empty for none.
func (v *View) successor(name string) string { return cluster.Choose(name, v.ready()) }

// inherited returns those of the claims of a dead edge that this edge should take
// over. An edge takes over all claims of an earlier process of its own, whose end the
// others may not have noticed.
func (v *View) inherited(node string, claims []string) (names []string) {
	if node == v.self {
		return claims
	}
	edges := append(v.ready(), v.self)
	for _, name := range claims {
		if cluster.Choose(name, edges) == v.self {
			names = append(names, name)
		}
	}
	return names
}

// candidates are the other edges that are ready or start.
func (v *View) candidates() iter.Seq[cluster.Member] {
	return func(yield func(cluster.Member) bool) {
		for m := range v.roster.All() {
			if m.Role == cluster.RoleEdge && m.Name != v.self && m.Phase <= cluster.PhaseReady && !yield(m) {
				return
			}
		}
	}
}

// MaySucceed reports whether any other edge is ready or starts and may have clients of one of the
// ports, and so could take sessions over soon, and whether gossip says anything at all.
func (v *View) MaySucceed(ports []uint16) (gossip, any bool) {
	for m := range v.candidates() {
		if slices.ContainsFunc(ports, func(port uint16) bool { return listensAt(m, port) }) {
			return true, true
		}
	}
	return v.roster.Len() > 0, false
}
