package takeover

import (
	"maps"
	"slices"
	"time"

	"github.com/dnprelay/dnprelay/cluster"
)

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
	alone time.Time // since when no candidate is known; zero if one is
}

// Update takes what View.MaySucceed says at a time. It reports whether there is hope: there
// is none after no candidate was known for hopePatience, and none without gossip, because no
// candidate can become known.
func (h *Hope) Update(now time.Time, gossip, candidates bool) bool {
	switch {
	case candidates:
		h.alone = time.Time{}
	case h.alone.IsZero():
		h.alone = now
	}
	return candidates || gossip && now.Sub(h.alone) < hopePatience
}
