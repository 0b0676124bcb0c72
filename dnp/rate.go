package dnp

import (
	"time"

	"github.com/dnprelay/dnprelay/dnp/wire"
)

const (
	rateBurst    = 2 * time.Second  // that a connection's buckets hold
	floodFactor  = 2                // times the limit, for floodSeconds in a row, are abuse
	floodSeconds = 10               //
	banTime      = 60 * time.Second // after abuse

	// What we send asks for answers, two per reliable command (acknowledgement, LinkUp),
	// and a peer that gets many links must not be punished for them.
	answersPerCommand = 2
	answersMax        = 512 // that may be owed
	answerSize        = 8   // bytes of the longest
)

// A rateLimit is what a connection may still send. Each bucket is kept as the time at
// which it will be full again.
type rateLimit struct {
	datagrams, bytes instant
	owed             uint16 // answers that we asked for
	bad              uint8  // seconds in a row with floodFactor times the limit
	second           instant
	count            uint32 // datagrams of this second
	volume           uint32 // their bytes
}

// asks notes that a reliable command goes out.
func (r *rateLimit) asks() { r.owed = min(r.owed+answersPerCommand, answersMax) }

// allow reports whether a datagram may be looked at. It is asked before anything else,
// because a connection that sends too much must not cost more than being counted.
// flood says that this has gone on for too long.
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

// limited reports whether a datagram of a connection is to be ignored because the peer
// sends too much.
func (c *Conn) limited(p []byte, now instant) bool {
	cfg := &c.e.cfg
	if c.client || cfg.RateDatagrams <= 0 && cfg.RateBytes <= 0 {
		return false
	}
	ok, flood := c.rate.allow(cfg, p, now)
	if ok {
		return false
	}
	c.e.drop(DropRate)
	if flood {
		c.Close(CloseAbuse)
		c.e.cfg.Gate.Ban(c.e.clock.time(now), c.addr, banTime)
	}
	return true
}
