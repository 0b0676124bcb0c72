package history

import "slices"

// A cut is a time in which the way in of a player is cut. The players of a phase whose way in
// is cut, and the sessions that end for that reason, are counted apart from the others: no
// server can serve a player whose datagrams it does not get.
type cut struct{ from, to int64 } // µs; to is 0 until it ends

// readCut notes the start or the end of a cut.
func (c *checker) readCut(r Record) {
	who := player(r.Who)
	w, ok := c.cuts[who]
	switch {
	case r.Note == CutStart:
		c.cuts[who] = cut{from: r.At}
		c.current().cut[who] = true
	case r.Note == CutEnd && ok:
		w.to = r.At
		c.cuts[who] = w
	default:
		c.violation(r.At, "the history has a cut of %s that neither starts nor ends one: %q", who, r.Note)
	}
}

// stillCut counts the players whose way in is cut when a phase begins.
func (c *checker) stillCut(p *Phase) {
	for who, w := range c.cuts {
		if w.to == 0 {
			p.cut[who] = true
		}
	}
}

// cutEnds reports whether a session ends because the way in of its player is cut, or was cut a
// moment before.
func (c *checker) cutEnds(r Record) bool {
	w, ok := c.cuts[player(r.Who)]
	return ok && (w.to == 0 || r.At <= w.to+gapAfter.Microseconds())
}

// separate separates what the phase counted for players whose way in was cut from the rest.
func (p *Phase) separate() {
	for who, d := range p.stale {
		if p.cut[who] {
			p.CutStale = append(p.CutStale, micros(d))
		} else {
			p.Stale = append(p.Stale, micros(d))
		}
	}
	slices.Sort(p.Stale)
	slices.Sort(p.CutStale)
	for party, n := range p.wrong {
		switch {
		case p.cutParties[party]:
			p.Messages.Excused += n
		case !p.interrupted[player(party)]:
			p.Messages.Stayed += n
		}
	}
}
