package dnp

import "time"

// Refresh repairs what is lost now and then; the scrub repairs the rest. It goes
// round the links of a connection for ever and makes all their values due again,
// about a datagram's worth at a time.

// A scrubber is a connection's place in its round.
type scrubber struct {
	at   instant // the next step
	slot int
}

// scrubGrid is where steps of the round stand in time. On an otherwise idle edge of
// 1,000 clients every step was a wake-up of its own; now 20 a second serve all.
const scrubGrid = 50 * time.Millisecond

// startScrub begins somewhere in the interval, so that connections made together
// are not scrubbed together.
func (c *Conn) startScrub(now instant) {
	c.scrub.at = never
	if interval := c.e.cfg.ScrubInterval; interval > 0 {
		const golden = 0.6180339887
		turn := float64(c.handle) * golden
		c.scrub.at = now.add(interval/2 + time.Duration(float64(interval)*(turn-float64(int(turn))))).upTo(scrubGrid)
	}
}

// scrubSome does one step of the round, if it is due.
func (c *Conn) scrubSome(now instant) {
	if now < c.scrub.at {
		return
	}
	sent, from := 0, c.scrub.slot
	for c.scrub.slot < len(c.links.l) && sent < c.e.cfg.DatagramMax {
		sent += c.scrubLink(c.scrub.slot, now)
		c.scrub.slot++
	}
	share := float64(1)
	if n := len(c.links.l); n > 0 {
		share = float64(c.scrub.slot-from) / float64(n)
	}
	if c.scrub.slot >= len(c.links.l) {
		c.scrub.slot = 0
	}
	c.scrub.at = now.add(scrubPause(c.e.cfg.ScrubInterval, share, sent, c.e.cfg.ScrubBytesPerSecond)).upTo(scrubGrid)
}

// scrubPause returns how long to wait after a step: its share of the round, or as
// long as its bytes are to take.
func scrubPause(interval time.Duration, share float64, sent, bytesPerSecond int) time.Duration {
	byShare := time.Duration(float64(interval) * share)
	byRate := time.Duration(sent) * time.Second / time.Duration(bytesPerSecond)
	return max(byShare, byRate, time.Millisecond)
}

// scrubLink makes all values of a link due, and LinkUp if the peer may lack that. It
// returns about how many bytes of values that will send.
func (c *Conn) scrubLink(slot int, now instant) int {
	l := &c.links.l[slot]
	if l.has(linkUnheard) && l.phase == LinkUp { // all LinkUps may have been lost
		c.ups.again(l.id, now)
	}
	if !l.weSend() || l.has(linkWaiting) { // what waits is sent anyway; the next round is soon enough
		return 0
	}
	l.sent = 0
	s := c.e.sources[l.source]
	if l.has(linkByPeer) {
		if l.sent = c.peer[l.id].base; l.sent >= s.settled() {
			return 0
		}
	}
	c.e.stats.Scrubs++
	c.markRepeat(slot)
	return s.updateSize()
}
