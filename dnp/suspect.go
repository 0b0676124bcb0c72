package dnp

import "time"

// Who forges datagrams of a client without seeing its traffic has to guess numbers,
// and a number that fits is one in 6,500. So many that do not fit are an attack, or a
// client that is badly broken.
const (
	suspectMisses = 50          // reliable numbers outside the window
	suspectTime   = time.Second // in which they arrive
	suspectPause  = time.Minute // between two alarms of a connection
)

// A suspicion counts the misses of a connection.
type suspicion struct {
	misses uint8
	since  instant // the first of them
	quiet  instant // no alarm before
}

// outside takes note of a reliable number outside the window.
func (c *Conn) outside(now instant) {
	c.e.drop(DropOutsideWindow)
	s := &c.suspicion
	if s.misses == 0 || now.sub(s.since) >= suspectTime {
		s.misses, s.since = 0, now
	}
	if s.misses++; s.misses <= suspectMisses {
		return
	}
	s.misses = 0
	if now >= s.quiet {
		s.quiet = now.add(suspectPause)
		c.e.stats.Alarms++
		c.e.event(Event{Kind: EventSuspect, Conn: c})
	}
}
