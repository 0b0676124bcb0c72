package takeover

import (
	"maps"
	"slices"
	"time"

	"github.com/dnprelay/dnprelay/cluster"
)

// goneMax bounds the dead nodes that are remembered. One more is found dead by its claims.
const goneMax = 4096

// A View is what an edge knows of the other edges. It never changes, so it may be shared
// between goroutines. It is a hint: it decides which edge tries to take a session over,
// never which edge has it.
type View struct {
	self   string
	roster cluster.Roster
	gone   map[string]bool // nodes that left or died and did not come back
}

// NewView returns the view of an edge that knows of no other.
func NewView(self string) *View { return &View{self: self} }

// With returns the view after the roster changed, and the other edges that left.
func (v *View) With(r cluster.Roster) (next *View, left []string) {
	d := r.Since(v.roster)
	next = &View{self: v.self, roster: r, gone: maps.Clone(v.gone)}
	if next.gone == nil {
		next.gone = make(map[string]bool)
	}
	for _, m := range d.Left {
		if len(next.gone) < goneMax {
			next.gone[m.Name] = true
		}
		if m.Role == cluster.RoleEdge && m.Name != v.self {
			left = append(left, m.Name)
		}
	}
	for _, m := range d.Joined {
		delete(next.gone, m.Name)
	}
	return next, left
}

// inRoster reports whether a node is in the roster.
func (v *View) inRoster(node string) bool {
	_, ok := v.roster.Member(node)
	return ok
}

// hasLeft reports whether a node was in the roster and left it.
func (v *View) hasLeft(node string) bool { return v.gone[node] }

// format returns the lowest format that all members read.
func (v *View) format() uint8 { return v.roster.Format() }

// ready returns all other edges that are ready.
func (v *View) ready() (names []string) {
	for m := range v.roster.All() {
		if m.CanServe() && m.Name != v.self {
			names = append(names, m.Name)
		}
	}
	return names
}

// successor returns which of the other edges that are ready should have the session with
// this name; empty for none.
func (v *View) successor(name string) string { return cluster.Choose(name, v.ready()) }

// Inherited returns those of the orphaned claims of a dead edge that this edge should take
// over. An edge takes over all claims of an earlier process of its own, whose end the
// others may not have noticed.
func (v *View) Inherited(node string, claims []string) (names []string) {
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

// MaySucceed reports whether any other edge is ready or starts, and so could take sessions
// over soon, and whether gossip says anything at all.
func (v *View) MaySucceed() (gossip, any bool) {
	for m := range v.roster.All() {
		if m.Role == cluster.RoleEdge && m.Name != v.self && m.Phase <= cluster.PhaseReady {
			return true, true
		}
	}
	return v.roster.Len() > 0, false
}

// Times of an edge that looks for successors of its sessions.
const (
	preparedTime   = 10 * time.Second // for which an answer counts; an edge follows spaces without sessions for longer
	candidatePause = time.Second      // before an edge that refused is asked again, or given anything
)

// candidates are the other edges that may succeed this one. A session is handed over only
// to an edge that has the states of its space: until that edge has them it claims nothing,
// and the session has no owner meanwhile. So an edge that drains asks the others to
// prepare, and hands sessions over to those that say that they did.
type candidates struct {
	byNode map[string]*candidate
	spaces []string // that they are asked to prepare
}

type candidate struct {
	asking bool
	until  time.Time // for how long it is prepared
	again  time.Time // when it may be asked again
}

// update notes the edges that are ready, and the spaces that they have to prepare. It
// returns the edges to be asked.
func (c *candidates) update(now time.Time, nodes, spaces []string) (ask []string) {
	if slices.ContainsFunc(spaces, func(name string) bool { return !slices.Contains(c.spaces, name) }) {
		c.byNode = nil // earlier answers were about other spaces
	}
	if c.byNode == nil {
		c.byNode = make(map[string]*candidate)
	}
	c.spaces = spaces
	maps.DeleteFunc(c.byNode, func(node string, _ *candidate) bool { return !slices.Contains(nodes, node) })
	for _, node := range nodes {
		x := c.byNode[node]
		if x == nil {
			x = &candidate{}
			c.byNode[node] = x
		}
		if !x.asking && !x.again.After(now) {
			x.asking = true
			ask = append(ask, node)
		}
	}
	return ask
}

// answered notes whether an edge has prepared spaces. It reports whether that makes it a
// successor.
func (c *candidates) answered(now time.Time, node string, spaces []string, err error) bool {
	x := c.byNode[node]
	if x == nil || slices.ContainsFunc(c.spaces, func(name string) bool { return !slices.Contains(spaces, name) }) {
		return false // the question was about other spaces
	}
	x.asking = false
	if err != nil {
		c.failed(now, node)
		return false
	}
	x.until, x.again = now.Add(preparedTime), now.Add(preparedTime/2)
	return true
}

// failed notes that an edge refused a session or did not answer.
func (c *candidates) failed(now time.Time, node string) {
	if x := c.byNode[node]; x != nil {
		x.until, x.again = time.Time{}, now.Add(candidatePause)
	}
}

// successor returns which of the edges that are ready and prepared should have a session;
// empty for none.
func (c *candidates) successor(now time.Time, name string, ready []string) string {
	return cluster.Choose(name, slices.DeleteFunc(ready, func(node string) bool {
		x := c.byNode[node]
		return x == nil || !x.until.After(now)
	}))
}

// hopePatience is how long an edge that drains waits while no candidate is known. An edge
// that was restarted in place is back by then, in its phase starting at least; and there
// is enough left of the ten seconds that container runtimes give a process to tell its
// clients that it ends.
const hopePatience = 5 * time.Second

// A Hope says whether an edge that drains may still find a successor for its sessions.
type Hope struct {
	alone bool
	since time.Time
}

// Update takes what View.Candidates says at a time. It reports whether there is hope: there
// is none after no candidate was known for hopePatience, and none without gossip, because no
// candidate can become known.
func (h *Hope) Update(now time.Time, gossip, candidates bool) bool {
	switch {
	case candidates:
		h.alone = false
	case !gossip:
		return false
	case !h.alone:
		h.alone, h.since = true, now
	}
	return !h.alone || now.Sub(h.since) < hopePatience
}
