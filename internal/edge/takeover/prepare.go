package takeover

import (
	"slices"
	"time"
)

// Bounds of an edge that is asked to prepare spaces. It refuses before the other edge stops
// waiting.
const (
	prepareMax   = ConsentTime * 3 / 4
	preparingMax = 256 // requests that wait, per worker
)

// A preparer follows spaces for other edges, which drain.
type preparer struct {
	*base
	preparing []preparation
}

// A preparation is spaces whose states the worker is asked to have.
type preparation struct {
	spaces []string
	until  time.Time
	done   func(ok bool)
}

// Prepare follows spaces and calls done, on this turn or a later one: with true when the
// worker has their states, and with false when that takes too long.
func (p *preparer) Prepare(now time.Time, spaces []string, done func(ok bool)) {
	if len(p.preparing) >= preparingMax {
		done(false)
		return
	}
	for _, name := range spaces {
		p.host.Follow(now, name)
	}
	p.preparing = append(p.preparing, preparation{spaces, now.Add(prepareMax), done})
}

// advancePreparing answers requests whose spaces are complete, or took too long, and returns
// when there is more to do. It names no time for a space that becomes complete: each message
// of a space makes the worker turn.
func (p *preparer) advancePreparing(now, next time.Time) time.Time {
	p.preparing = slices.DeleteFunc(p.preparing, func(x preparation) bool {
		missing := slices.ContainsFunc(x.spaces, func(name string) bool { return !p.host.Follow(now, name) })
		if missing && now.Before(x.until) {
			next = earlier(next, x.until)
			return false
		}
		x.done(!missing)
		return true
	})
	return next
}
