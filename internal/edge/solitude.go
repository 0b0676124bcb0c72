package edge

import (
	"time"

	"github.com/dnprelay/dnprelay/cluster"
)

// alonePatience is how long an edge that drains waits while no other is known that works or
// begins. One that was restarted in place is back by then, in its phase starting at least;
// and with closeTime there is enough left of the ten seconds that container runtimes give a
// process to tell its clients that it ends.
const alonePatience = 5 * time.Second

// A solitude is since when there is no edge that could take sessions, or may be able to soon.
type solitude struct {
	since time.Time
	alone bool
}

// hopeless reports whether it is no use to wait for an heir. Without gossip, nobody could
// ever come.
func (s *solitude) hopeless(now time.Time, gossips, company bool) bool {
	switch {
	case company:
		s.alone = false
	case !gossips:
		return true
	case !s.alone:
		s.alone, s.since = true, now
	}
	return s.alone && now.Sub(s.since) >= alonePatience
}

// company reports whether there are other edges that work or begin, and whether anybody
// says who is there.
func (v *rosterView) company() (gossips, company bool) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	for m := range v.roster.All() {
		if m.Role == cluster.RoleEdge && m.Name != v.self && m.Phase <= cluster.PhaseReady {
			return true, true
		}
	}
	return v.roster.Len() > 0, false
}
