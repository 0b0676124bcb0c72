package dnp

// LinkUpdates are neither acknowledged nor numbered, so a lost last update would be
// wrong for ever (dnp/PROTOCOL.md, Updates). A Source that went quiet therefore
// gives what changed lately a new version a few times, which sends it again.

// A refresher is a Source's schedule of such repeats. It belongs to the Source, not
// to the links, so it costs the same for one peer and for a thousand.
type refresher struct {
	timer    timer
	active   bool
	wanted   bool    // a true change was made since the last Flush
	repeated bool    // the version flushed last was a repeat only
	step     uint8   // the next of Config.Refresh
	quiet    instant // the Flush of the last true change
	base     uint32  // values newer than this are to be repeated
}

// flushed notes that the open version went out.
func (s *Source) flushed(now instant) {
	s.dirty = false
	r, steps := &s.refresh, s.e.cfg.Refresh
	r.repeated = !r.wanted
	r.wanted = false
	if r.repeated || len(steps) == 0 {
		return
	}
	if !r.active {
		r.active, r.base = true, s.version-1
	}
	r.step, r.quiet = 0, now
	// A timer that is set already is early at worst; onTimer looks again. That
	// keeps a busy Source from moving its timer at every Flush.
	if at := now.add(steps[0]); r.timer.place == 0 || r.timer.at > at {
		s.e.timers.set(&r.timer, at)
	}
}

// onTimer repeats what changed lately, if the Source is quiet for long enough.
func (s *Source) onTimer(now instant) {
	r, steps := &s.refresh, s.e.cfg.Refresh
	due := r.quiet.add(steps[r.step])
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
	s.e.timers.set(&r.timer, r.quiet.add(steps[r.step]))
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
