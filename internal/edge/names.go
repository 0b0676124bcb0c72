package edge

import (
	"slices"
	"sync"
)

// A nameSet is the logs of the sessions that the workers of an edge have, look at, or have
// given to another edge that did not say yet that it has them. The mutex is there because
// workers ask about the sessions of all.
type nameSet struct {
	mu  sync.Mutex
	set map[nameAt]struct{}
}

// A nameAt is a log and a worker that looks at it. There may be two of one log, when one
// worker takes over what another does not know yet to have lost.
type nameAt struct {
	name  string
	at    *Worker
	given bool // to another edge
}

func (n *nameSet) enter(at nameAt) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.set == nil {
		n.set = make(map[nameAt]struct{})
	}
	n.set[at] = struct{}{}
}

func (n *nameSet) leave(at nameAt) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.set, at)
}

// has reports whether one of the workers has a session, looks at it, or gives it away.
func (n *nameSet) has(name string, workers []*Worker) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.ContainsFunc(workers, func(w *Worker) bool {
		_, here := n.set[nameAt{name: name, at: w}]
		_, given := n.set[nameAt{name, w, true}]
		return here || given
	})
}
