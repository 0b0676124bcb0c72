package forward

import (
	"fmt"
	"testing"
)

// TestWatchers: in a small cluster all watch all; in a large one each edge has five that
// watch it, all edges agree on which, and the work is shared out.
func TestWatchers(t *testing.T) {
	for _, n := range []int{2, meshMax, meshMax + 1, 300} {
		var names []string
		for i := range n {
			names = append(names, fmt.Sprint("edge-", i))
		}
		most := 0
		watching := map[string]int{}
		for _, watched := range names {
			count := 0
			for _, watcher := range names {
				if watcher != watched && watches(names, watcher, watched) {
					count++
					watching[watcher]++
				}
			}
			if want := min(n-1, watchers); n > meshMax && count != want || n <= meshMax && count != n-1 {
				t.Errorf("of %d edges %d watch %s", n, count, watched)
			}
		}
		for _, c := range watching {
			most = max(most, c)
		}
		if n > meshMax && most > 6*watchers {
			t.Errorf("of %d edges one watches %d", n, most)
		}
	}
}

// TestUnwatched: an edge that this one does not watch is not suspected, and gets datagrams.
func TestUnwatched(t *testing.T) {
	var names []string
	for i := range meshMax + 10 {
		names = append(names, fmt.Sprint("edge-", i))
	}
	w := newWorld(t, names...)
	a := w.nodes[names[0]]
	var watched, unwatched int
	w.now = w.now.Add(SuspectAfter)
	for _, p := range a.peers {
		switch a.Liveness(w.now, p.Name) {
		case Suspect:
			watched++
		case Unwatched:
			unwatched++
			if !a.In(w.now, p.Name, client(1), 0, []byte("x"), a) {
				t.Errorf("a datagram for an edge that others watch")
			}
		}
	}
	if watched == 0 || watched+unwatched != len(names)-1 {
		t.Errorf("%d are watched and silent, %d are not watched, of %d", watched, unwatched, len(names)-1)
	}
	a.take()
	a.Advance(w.now, a)
	if n := len(a.take()); n != watchers {
		t.Errorf("%d heartbeats, want %d", n, watchers)
	}
}
