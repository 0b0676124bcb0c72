package clustertest

import "time"

// trackMax is how many moments a track keeps; older ones are forgotten. It is some
// minutes at the pace of the game server.
const trackMax = 1 << 14

// A track is the moments at which something happened, in order. Whoever has it
// guards it.
type track struct{ at []time.Time }

func (t *track) add(now time.Time) {
	if len(t.at) == trackMax {
		t.at = append(t.at[:0], t.at[trackMax/2:]...)
	}
	t.at = append(t.at, now)
}

// gap returns the longest time between from and to in which nothing happened. What
// happened before counts as having happened until from.
func (t *track) gap(from, to time.Time) (longest time.Duration) {
	last := from
	for _, at := range t.at {
		if at.Before(from) {
			continue
		}
		if at.After(to) {
			break
		}
		longest = max(longest, at.Sub(last))
		last = at
	}
	return max(longest, to.Sub(last))
}

// first returns the first moment that is not before from.
func (t *track) first(from time.Time) (time.Time, bool) {
	for _, at := range t.at {
		if !at.Before(from) {
			return at, true
		}
	}
	return time.Time{}, false
}
