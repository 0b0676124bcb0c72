package dnp

import "time"

// LinkUpdates are neither acknowledged nor numbered, so a lost last update would be
// wrong for ever (dnp/PROTOCOL.md, Updates). A Source that went quiet therefore
// gives what changed lately a new version a few times, which sends it again.

// A refresher is a Source's schedule of such repeats. It belongs to the Source, not
// to the links, so it costs the same for one peer and for a thousand.
type refresher struct {
	timer    timer
	active   bool
	wanted   bool          // a true change was made since the last Flush
	repeated bool          // the version flushed last was a repeat only
	step     uint8         // the next of Config.Refresh
	quiet    instant       // the Flush of the last true change
	base     uint32        // values newer than this are to be repeated
	shift    time.Duration // by which a rhythm of changes puts the repeats off
}

// rhythmMax is the longest pause between changes that counts as a rhythm, 8 Hz. It
// puts a repeat off by at most 127 ms, so that three of the default steps still come
// within 630 ms of the last change.
const rhythmMax = 125 * time.Millisecond

// rhythmShift returns by how much repeats are put off of a Source whose values were
// all replaced after so long: the next change is expected after as long again, and
// makes up for a loss as well as a repeat would. Without it, states that change ten
// times a second would be sent twenty times.
func rhythmShift(pause, first time.Duration) time.Duration {
	if pause < first || pause > rhythmMax {
		return 0
	}
	return max(0, pause+pause/2-first)
}

// flushed notes that the open version went out.
func (s *Source) flushed(now instant) {
	s.dirty = false
	r, steps := &s.refresh, s.e.cfg.Refresh
	r.repeated = !r.wanted
	r.wanted = false
	if !r.repeated {
		s.real, s.realAt = s.version, now
	}
	if r.repeated || len(steps) == 0 {
		return
	}
	switch {
	case !r.active:
		r.active, r.base, r.shift = true, s.version-1, 0
	case s.replaced():
		r.base, r.shift = s.version-1, rhythmShift(now.sub(r.quiet), steps[0])
	default: // what the others would lack must not wait for the rhythm of one value
		r.shift = 0
	}
	r.step, r.quiet = 0, now
	// A timer that is set already is early at worst; onTimer looks again. That
	// keeps a busy Source from moving its timer at every Flush.
	if at := now.add(steps[0] + r.shift); r.timer.place == 0 || r.timer.at > at {
		s.e.timers.set(&r.timer, at)
	}
}

// replaced reports whether the newest change gave new values to all that is to be
// repeated, so that nobody needs what was sent before.
func (s *Source) replaced() bool {
	for _, version := range s.changed {
		if version > s.refresh.base && version != s.version {
			return false
		}
	}
	return true
}

// onTimer repeats what changed lately, if the Source is quiet for long enough.
func (s *Source) onTimer(now instant) {
	r, steps := &s.refresh, s.e.cfg.Refresh
	due := r.quiet.add(steps[r.step] + r.shift)
	if r.wanted { // Flush starts again
		due = now.add(steps[0])
	}
	if now < due {
		s.e.timers.set(&r.timer, due)
		return
	}
	s.repeat()
	if r.step++; int(r.step) == len(steps) {
		r.active = false
		s.e.timers.remove(&r.timer)
		return
	}
	s.e.timers.set(&r.timer, r.quiet.add(steps[r.step]+r.shift))
}

// repeat gives the values of the last burst of changes a new version.
func (s *Source) repeat() {
	s.e.stats.Refreshes++
	s.touch()
	for i, version := range s.changed {
		if version > s.refresh.base {
			s.changed[i] = s.version
		}
	}
}
