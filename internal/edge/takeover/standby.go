package takeover

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/sessionlog"
)

// An edge can take a session over only if it has the states of the session's space. If an edge is lost
// together with the relay that holds the space, no other edge can get them in time. So each worker asks
// other edges to follow the spaces of its sessions. It repeats that sooner than they forget a space without
// sessions.
const (
	standbyInterval = 10 * time.Second
	standbySoon     = time.Second // while the worker has no session

	// standbyEdges is how many edges, besides those with sessions in it, follow a space. All edges choose
	// the same ones for a space.
	standbyEdges = 4

	// standbySpaces bounds the spaces of a worker that others are asked to follow: those with most sessions.
	standbySpaces = 64
)

// A standby has other edges follow the spaces of the worker's sessions, in case this edge dies.
type standby struct {
	*base
	at time.Time // when to ask again
}

// advanceStandby asks the other edges if it is time, and returns when it is time again.
func (s *standby) advanceStandby(now, next time.Time) time.Time {
	if len(s.byName) == 0 || s.leaving {
		return next
	}
	if s.at.After(now) {
		return earlier(next, s.at)
	}
	wanted := followers(s.spaces(), s.host.View().ready())
	for _, node := range slices.Sorted(maps.Keys(wanted)) {
		s.host.Ask(node, Request{Prepare: wanted[node]}, func(time.Time, error) {}) // without an answer it is asked again all the same
	}
	s.at = now.Add(standbyInterval)
	if len(wanted) == 0 {
		s.at = now.Add(standbySoon)
	}
	return earlier(next, s.at)
}

// spaces returns the spaces with most sessions of this worker, in the order of names.
func (s *standby) spaces() []string {
	sessions := make(map[string]int)
	for _, x := range s.byName {
		if x.Log.Phase() == sessionlog.Owning {
			sessions[x.About.Space]++
		}
	}
	names := slices.SortedFunc(maps.Keys(sessions), func(a, b string) int {
		return cmp.Or(cmp.Compare(sessions[b], sessions[a]), cmp.Compare(a, b))
	})
	return slices.Sorted(slices.Values(names[:min(len(names), standbySpaces)]))
}

// followers returns which of the edges should follow which spaces.
func followers(spaces, edges []string) map[string][]string {
	wanted := make(map[string][]string)
	for _, space := range spaces {
		nodes := slices.SortedFunc(slices.Values(edges), func(a, b string) int {
			return cmp.Or(cmp.Compare(cluster.Draw(b, space), cluster.Draw(a, space)), cmp.Compare(a, b))
		})
		for _, node := range nodes[:min(len(nodes), standbyEdges)] {
			wanted[node] = append(wanted[node], space)
		}
	}
	return wanted
}
