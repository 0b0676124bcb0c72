package forward

import "time"

// Times of heartbeats. They are those of failover that a client does not notice: it
// repeats itself every 0.5 s and gives up after 3.
const (
	// BeatInterval is the time between two heartbeats.
	BeatInterval = 100 * time.Millisecond

	// SuspectAfter is how long a peer that is watched may be silent.
	SuspectAfter = 400 * time.Millisecond

	// stallAfter is how late Advance may be called. Later, this process stood still
	// itself, and what it did not hear says nothing.
	stallAfter = 200 * time.Millisecond

	// goneAfter is how long a peer that the roster does not have may be silent.
	goneAfter = 2 * time.Second
)

// Liveness says how a peer is. It is a hint: a false suspicion costs a hand-over.
type Liveness uint8

// The states of life.
const (
	Gone      Liveness = iota // not in the roster, and not heard
	Alive                     // heard within SuspectAfter
	Suspect                   // watched, and not heard for so long
	Unwatched                 // in the roster, and others watch it
)

// String returns the name of l.
func (l Liveness) String() string {
	return [...]string{"gone", "alive", "suspect", "unwatched"}[min(l, Unwatched)]
}

// Liveness returns how a node is.
func (r *Router) Liveness(now time.Time, node string) Liveness {
	p := r.byName[node]
	if p == nil {
		return Gone
	}
	return r.liveness(r.since(now), p)
}

func (r *Router) liveness(now time.Duration, p *peer) Liveness {
	silent := now - p.heard
	switch {
	case !p.listed && silent >= goneAfter:
		return Gone
	case silent < SuspectAfter:
		return Alive
	case p.watch, p.told == Suspect: // also when the roster has dropped it since: it is dead, not unlisted
		return Suspect
	case !p.listed:
		return Alive // until it is gone
	}
	return Unwatched
}

// reachable reports whether there is hope that p takes a datagram.
func (r *Router) reachable(now time.Duration, p *peer) bool {
	is := r.liveness(now, p)
	return is == Alive || is == Unwatched
}

// A Change says that a node lives otherwise than before.
type Change struct {
	Node string
	Is   Liveness
}

// Advance sends heartbeats when they are due and returns who lives otherwise than it
// said last; the slice is valid until the next call. After this process stood still,
// everybody has SuspectAfter again to be heard, so Advance comes before anything else of
// a turn.
func (r *Router) Advance(now time.Time, out Sender) []Change {
	at := r.since(now)
	if at < r.nextBeat {
		return nil
	}
	if r.nextBeat > 0 && at-r.nextBeat > stallAfter {
		r.stats.Stalls++
		for _, p := range r.peers {
			p.heard = at
		}
	}
	r.nextBeat = at + BeatInterval
	r.beat(out)
	return r.compare(at)
}

// beat sends heartbeats.
func (r *Router) beat(out Sender) {
	if len(r.ring) == 0 {
		return
	}
	for _, p := range r.peers {
		if p.beat {
			r.seal(p, TypeBeat, nil, out)
			r.stats.BeatsOut++
		}
	}
}

// compare returns whose life changed since it was called last.
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
func (r *Router) NextTimeout() time.Time { return r.start.Add(r.nextBeat) }
