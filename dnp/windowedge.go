package dnp

import "time"

// Libraries that wait for a number near the wrap do not acknowledge repeats of
// those just before it, so one lost acknowledgement there would end the session
// (dnp/PROTOCOL.md, Numbers). This file finds out what they have all the same.

const (
	sendWindowMax = 24 // with the window-edge inference
	edgeDistance  = 30 // numbers before the wrap where libraries do not repeat acknowledgements
	edgePatience  = 900 * time.Millisecond
	edgeGrowth    = 200 * time.Millisecond
	edgeSendings  = 12 // needed before an ambiguous acknowledgement counts; half of ReliableTimeout
)

// widen opens the window one command further where it may be stuck on a lost
// acknowledgement that the peer will not repeat; see infer.
func (c *Conn) widen(now instant) {
	w := &c.send
	if !c.atEdge(now) {
		return
	}
	if w.flight[0].sends >= edgeSendings { // all acknowledgements that count from here on may have come before
		c.inferAgain(now)
	}
	if !c.atEdge(now) || now.sub(w.grewAt) < edgeGrowth {
		return
	}
	w.grewAt = now
	if w.limit = max(w.limit, sendWindowSize); w.limit < sendWindowMax {
		w.limit++
	}
	if missing := w.limit - len(w.flight); missing > 0 && !w.waiting() && c.speaksLong {
		w.noops = missing
	}
}

// inferAgain infers from the highest number that was acknowledged.
func (c *Conn) inferAgain(now instant) {
	w := &c.send
	for i := len(w.flight) - 1; i > 0; i-- {
		if w.flight[i].acked {
			c.infer(w.base()+uint64(i), now)
			break
		}
	}
	c.shift(now)
}

// atEdge reports whether the oldest command waits near the wrap for too long.
func (c *Conn) atEdge(now instant) bool {
	return c.nearWrap() && c.send.flight[0].sends > 0 && now.sub(c.send.flight[0].first) >= edgePatience
}

// nearWrap reports whether the oldest command has one of the last numbers before
// the wrap. Behind the wrap libraries repeat acknowledgements again.
func (c *Conn) nearWrap() bool {
	w, p := &c.send, c.e.cfg.Profile
	if len(w.flight) == 0 {
		return false
	}
	return uint64(p.Seq(w.base())) >= p.Modulus()-edgeDistance
}

// infer uses that a peer accepts a number only if it is not too far beyond the one
// that it waits for, ten in the libraries, eleven across the wrap in the text, and
// sixteen here: whoever acknowledges n has everything up to n-16. That frees a window
// whose oldest acknowledgement was lost near the wrap, where libraries do not repeat
// it. (With ten instead of sixteen two of our own Endpoints lose messages.)
//
// A library that still waits for a number more than ten before the wrap takes one
// from beyond the wrap for an old one and acknowledges it blindly. Then nothing is
// proven, and no other number could tell the two cases apart; but a command that was
// sent edgeSendings times is believed to have arrived once (dnp/PROTOCOL.md,
// Numbers).
func (c *Conn) infer(n uint64, now instant) {
	w, m := &c.send, c.e.cfg.Profile.Modulus()
	blind := w.base()%m < m-sendWindowSize
	for i := range w.flight {
		number, o := w.base()+uint64(i), &w.flight[i]
		if number+recvAhead > n {
			return
		}
		if across := number/m != n/m; o.acked || across && blind && o.sends < edgeSendings {
			continue
		}
		c.e.stats.Inferred++
		c.acked(o)
	}
}
