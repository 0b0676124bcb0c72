package dnp

import "time"

// limited reports whether to ignore a datagram because there are too many in the name of the
// peer. It counts the datagram.
func (e *Endpoint) limited(c *Conn, p []byte, now instant) bool {
	at := time.Duration(now)
	if c.client || c.limit.Take(e.cfg.Rate, at, p) {
		return false
	}
	if v := e.evidence(c, p); v == awaited || v != noEvidence && c.limit.TakeSpare(at, v == newCommand) {
		return false
	}
	e.drop(DropRate)
	return true
}

// An attacker who forges datagrams of a client without seeing its traffic has to guess
// numbers, and one number in 6,500 fits. Many that do not fit are an attack, or a client
// that is badly broken.
const (
	suspectMisses = 50          // reliable numbers outside the window
	suspectTime   = time.Second // in which they arrive
	suspectPause  = time.Minute // between two alarms of a connection
)

// A suspicion counts the reliable numbers of a connection that are outside the window.
type suspicion struct {
	misses uint8
	since  instant // the first of them
	quiet  instant // no alarm before
}

// miss counts a number and reports whether to raise the alarm.
func (s *suspicion) miss(now instant) (alarm bool) {
	if s.misses == 0 || now.sub(s.since) >= suspectTime {
		s.misses, s.since = 0, now
	}
	if s.misses++; s.misses <= suspectMisses {
		return false
	}
	s.misses = 0
	if now < s.quiet {
		return false
	}
	s.quiet = now.add(suspectPause)
	return true
}
