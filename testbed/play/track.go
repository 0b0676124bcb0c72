//go:build linux

package play

import "time"

// trackMax bounds the moments of a track; the older half is dropped when it is full. At
// 50 Hz it covers some minutes.
const trackMax = 1 << 14

// A Track is the moments of an event, in order. Its owner guards it.
type Track struct{ at []time.Time }

// Add appends a moment.
func (t *Track) Add(now time.Time) {
	if len(t.at) == trackMax {
		t.at = append(t.at[:0], t.at[trackMax/2:]...)
	}
	t.at = append(t.at, now)
}

// Gap returns the longest time between from and to without an event, as if one happened
// at from.
func (t *Track) Gap(from, to time.Time) (longest time.Duration) {
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

// First returns the first moment that is not before from.
func (t *Track) First(from time.Time) (time.Time, bool) {
	for _, at := range t.at {
		if !at.Before(from) {
			return at, true
		}
	}
	return time.Time{}, false
}
