package dnp

import (
	"time"

	"github.com/dnprelay/dnprelay/dnp/wire"
)

const (
	rateBurst    = 2 * time.Second  // what a connection's buckets hold
	floodFactor  = 2                // a second with this many times the limit is a bad second
	floodSeconds = 10               // so many bad seconds in a row are abuse
	banTime      = 60 * time.Second // after abuse

	// What we send asks for answers, two per reliable command (acknowledgement, LinkUp).
	// They do not count, so that a peer is not punished for being offered many links.
	answersPerCommand = 2
	answersMax        = 512 // expected answers that are remembered
	answerSize        = 8   // a generous bound of their bytes: the longest has 4
)

// A rateLimit is what a connection may still send. Each bucket is stored as the time at
// which it will be full again.
type rateLimit struct {
	datagrams, bytes instant
	owed             uint16 // answers that we asked for
	bad              uint8  // bad seconds in a row
	second           instant
	count            uint32 // datagrams of this second
	volume           uint32 // their bytes
}

// expectAnswers notes that a reliable command is sent.
func (r *rateLimit) expectAnswers() { r.owed = min(r.owed+answersPerCommand, answersMax) }

// allow reports whether a datagram may be handled. It is called before anything else,
// because a datagram beyond the limit must not cost more than being counted. flood
// reports that the peer exceeded the limit for too long.
func (r *rateLimit) allow(cfg *Config, p []byte, now instant) (ok, flood bool) {
	if r.owed > 0 && len(p) <= answerSize && isAnswer(wire.Command(p[0])) {
		r.owed--
		return true, false
	}
	flood = r.watch(cfg, len(p), now)
	d, b := max(r.datagrams, now), max(r.bytes, now)
	if cfg.RateDatagrams > 0 {
		d = d.add(time.Second / time.Duration(cfg.RateDatagrams))
	}
	if cfg.RateBytes > 0 {
		b = b.add(time.Duration(len(p)) * time.Second / time.Duration(cfg.RateBytes))
	}
	if d.sub(now) > rateBurst || b.sub(now) > rateBurst {
		return false, flood
	}
	r.datagrams, r.bytes = d, b
	return true, flood
}

// watch counts what the peer sends and reports whether it floods us.
func (r *rateLimit) watch(cfg *Config, size int, now instant) bool {
	if now.sub(r.second) >= time.Second {
		over := cfg.RateDatagrams > 0 && int(r.count) >= floodFactor*cfg.RateDatagrams ||
			cfg.RateBytes > 0 && int(r.volume) >= floodFactor*cfg.RateBytes
		if over && now.sub(r.second) < 2*time.Second {
			r.bad++
		} else {
			r.bad = 0
		}
		r.second, r.count, r.volume = now, 0, 0
	}
	r.count++
	r.volume += uint32(size)
	return r.bad >= floodSeconds
}

func isAnswer(cmd wire.Command) bool {
	return cmd == wire.CommandReliableAck || cmd == wire.CommandLinkUp || cmd == wire.CommandLinkDown
}

// limited reports whether to ignore a datagram because the peer sends too much. It
// counts the datagram, and closes the connection of a peer that floods us.
func (e *Endpoint) limited(c *Conn, p []byte, now instant) bool {
	cfg := &e.cfg
	if c.client || cfg.RateDatagrams <= 0 && cfg.RateBytes <= 0 {
		return false
	}
	ok, flood := c.limit.allow(cfg, p, now)
	if ok {
		return false
	}
	e.drop(DropRate)
	if flood {
		c.Close(CloseAbuse)
		cfg.Gate.Ban(e.clock.time(now), c.addr, banTime)
	}
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
