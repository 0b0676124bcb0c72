package dnp

import (
	"time"

	"github.com/dnprelay/dnprelay/dnp/wire"
)

const (
	rateBurst = 2 * time.Second // what a connection's buckets hold

	// What we send asks for answers, two per reliable command (acknowledgement, LinkUp).
	// They do not count, so that a peer is not punished for being offered many links.
	answersPerCommand = 2
	answersMax        = 512 // expected answers that are remembered
	answerSize        = 8   // a generous bound of their bytes: the longest has 4

	// What a peer sends beyond its limit may be forged, so it does not end the connection,
	// and leaves room for datagrams that are evidence of the peer: so many per second.
	spareRate = 100
)

// A rateLimit is what a connection may still send. Each bucket is stored as the time at
// which it will be full again.
type rateLimit struct {
	datagrams, bytes, spare instant
	owed                    uint16 // answers that we asked for
}

// expectAnswers notes that a reliable command is sent.
func (r *rateLimit) expectAnswers() { r.owed = min(r.owed+answersPerCommand, answersMax) }

// allow reports whether a datagram may be handled. It is called before anything else,
// because a datagram beyond the limit must not cost more than being counted.
func (r *rateLimit) allow(cfg *Config, p []byte, now instant) bool {
	if r.owed > 0 && len(p) <= answerSize && isAnswer(wire.Command(p[0])) {
		r.owed--
		return true
	}
	d, b := max(r.datagrams, now), max(r.bytes, now)
	if cfg.RateDatagrams > 0 {
		d = d.add(time.Second / time.Duration(cfg.RateDatagrams))
	}
	if cfg.RateBytes > 0 {
		b = b.add(time.Duration(len(p)) * time.Second / time.Duration(cfg.RateBytes))
	}
	if d.sub(now) > rateBurst || b.sub(now) > rateBurst {
		return false
	}
	r.datagrams, r.bytes = d, b
	return true
}

// allowSpare reports whether one more datagram may be handled that is evidence of the peer.
func (r *rateLimit) allowSpare(now instant) bool {
	s := max(r.spare, now).add(time.Second / spareRate)
	if s.sub(now) > rateBurst {
		return false
	}
	r.spare = s
	return true
}

func isAnswer(cmd wire.Command) bool {
	return cmd == wire.CommandReliableAck || cmd == wire.CommandLinkUp || cmd == wire.CommandLinkDown
}

// limited reports whether to ignore a datagram because there are too many in the name of the
// peer. It counts the datagram.
func (e *Endpoint) limited(c *Conn, p []byte, now instant) bool {
	cfg := &e.cfg
	if c.client || cfg.RateDatagrams <= 0 && cfg.RateBytes <= 0 || c.limit.allow(cfg, p, now) {
		return false
	}
	if e.Evident(c, p) && c.limit.allowSpare(now) {
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
