package lludp

import (
	"time"

	"github.com/dnprelay/dnprelay/lludp/wire"
)

// Rules of the reference viewer (llcircuit.cpp, llcircuit.h).
const (
	pingMin      = 100 * time.Millisecond // least average
	pingMax      = 2 * time.Second        // greatest average
	pingBlocked  = 3                      // a circuit with more unanswered pings is blocked
	pingReleased = 2                      // until no more than these are unanswered
	resendFactor = 5                      // times the average ping, before a packet is repeated
)

// pinging is the state of a circuit's own pings.
type pinging struct {
	id         uint8 // of the newest
	at         time.Time
	unanswered int
	blocked    bool
	average    time.Duration // 0 before the first answer
}

// start notes a new ping and returns its id.
func (p *pinging) start(now time.Time) uint8 {
	p.id++
	p.at = now
	p.unanswered = min(p.unanswered+1, 255)
	p.blocked = p.blocked || p.unanswered > pingBlocked
	return p.id
}

// complete processes the answer to a ping, and reports false if no such ping is unanswered. The
// answer to an older ping took one interval longer for each ping since.
func (p *pinging) complete(now time.Time, id uint8, interval time.Duration) bool {
	since := int(p.id - id)
	if since >= p.unanswered {
		return false
	}
	p.unanswered = since
	p.blocked = p.blocked && since > pingReleased
	p.average = averagePing(p.average, time.Duration(since)*interval+now.Sub(p.at))
	return true
}

// averagePing follows a longer ping at once and a shorter one by a fifth.
func averagePing(average, ping time.Duration) time.Duration {
	if average > 0 {
		ping = max(ping, (4*average+ping)/5)
	}
	return min(max(ping, pingMin), pingMax)
}

// resendAfter returns how long a packet waits for its acknowledgement.
func resendAfter(least, average time.Duration) time.Duration {
	return max(least, resendFactor*average)
}

// sendPing sends a ping, which also reports the oldest packet without an acknowledgement.
func (c *Circuit) sendPing(now time.Time, out Sender) {
	oldest, ok := c.flight.oldest()
	if !ok {
		oldest = c.last
	}
	m := wire.StartPing{ID: c.pings.start(now), Oldest: oldest}
	c.transmit(wire.StartPingCheck, m.Append(c.body[:0]), out)
}
