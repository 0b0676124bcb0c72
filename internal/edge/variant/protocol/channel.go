package protocol

import (
	"crypto/subtle"
	"math"
	"time"
)

// Bounds of what a Channel sends.
const (
	outRate  = 256 << 10 // bytes per second, as to every client
	outBurst = 64 << 10

	// The window is how many bytes of numbered messages may be unacknowledged: engines keep 64 KiB for a socket.
	windowMin   = 2 * DatagramMax
	windowFirst = 8 * DatagramMax
	windowMax   = 24 * DatagramMax
)

// Times of a Channel.
const (
	resendFirst = 300 * time.Millisecond // before the round trip is known
	resendMin   = 100 * time.Millisecond // clients acknowledge once per frame of the game
	resendMax   = time.Second

	keepAlive   = 2 * time.Second  // after which an edge says something
	silenceTime = 15 * time.Second // after which a peer that says nothing is gone
	stuckTime   = 30 * time.Second // for which a peer may acknowledge nothing that waits for it
	lingerTime  = 3 * time.Second  // for which the last messages are repeated
)

// A Channel is the connection of a peer by datagrams, which get lost and overtake each other. What is not newest-wins is numbered
// and repeated until it is acknowledged. Values are sent once when they change, and numbered when they have been quiet.
type Channel struct {
	core   *Core
	cookie Cookie

	// To the peer.
	sent     []sent // not acknowledged, the oldest first
	first    int64  // number of sent[0]
	top      int    // how many of sent were sent at least once
	next     int    // the first of sent that has to be sent, or sent again
	nextSize int    // bytes of sent[:next]
	window   int
	loose    int64 // datagrams without numbers
	out      bucket
	sentAt   time.Time
	progress time.Time // when the peer acknowledged something, or nothing waited
	resendAt time.Time // zero for no message
	backoff  int
	halvedAt time.Time     // when the window became smaller
	trip     time.Duration // smoothed round trip; 0 before the first
	datagram []byte

	// From the peer.
	received int64 // number of the last message that arrived with all before it
	newest   int64 // of the datagrams without numbers, 0 or less
	ackDue   bool
	heardAt  time.Time

	endedAt time.Time
}

// A sent is a numbered message on its way.
type sent struct {
	data  []byte
	t     ticket
	at    time.Time
	again bool // it was sent more than once, so its acknowledgement tells no round trip
}

// NewChannel returns a Channel for a peer that has proven its address with the cookie.
func NewChannel(cfg Config, k Cookie, now time.Time) *Channel {
	return &Channel{
		core: newCore(cfg, DatagramMax-frameOverhead, true, now), cookie: k, first: 1, window: windowFirst,
		out: newBucket(outRate, outBurst, now), sentAt: now, progress: now, heardAt: now,
	}
}

// Core returns the part that does not depend on the carrier.
func (c *Channel) Core() *Core { return c.core }

// Owns reports whether a Frame belongs to this session.
func (c *Channel) Owns(f *Frame) bool {
	return f.Dialect == c.core.cfg.Dialect && subtle.ConstantTimeCompare(f.Cookie, c.cookie[:]) == 1
}

// Precedes reports whether a valid cookie is newer than that of this session, so that its peer has begun anew.
func (c *Channel) Precedes(k *Cookie) bool { return k.newer(&c.cookie) }

// Receive handles a Frame that the Channel owns.
func (c *Channel) Receive(now time.Time, f *Frame) {
	c.heardAt = now
	c.acknowledged(now, f.Ack)
	drops := &c.core.counts.Drops
	if f.messages.Len() == 0 {
		return
	}
	if c.core.in.wait(now) > 0 {
		drops[DropRate]++
		return
	}
	c.core.in.take(f.Size + messageCost)
	if f.Number <= 0 {
		c.receiveLoose(now, f)
		return
	}
	c.ackDue = true
	number := f.Number
	for m := f.messages; m.Next(); number++ {
		switch {
		case number <= c.received:
			drops[DropRepeat]++
		case number > c.received+1:
			drops[DropGap]++
			return
		case c.core.handle(now, m.Value()) != nil:
			return
		default:
			c.received = number
		}
	}
}

func (c *Channel) receiveLoose(now time.Time, f *Frame) {
	if f.Number < 0 && f.Number >= c.newest {
		c.core.counts.Drops[DropStale]++
		return
	}
	c.newest = min(c.newest, f.Number)
	for m := f.messages; m.Next(); {
		_ = c.core.handle(now, m.Value()) // what the edge cannot take is lost, and counted
	}
}

// acknowledged notes that all messages up to a number arrived.
func (c *Channel) acknowledged(now time.Time, ack int64) {
	if ack < c.first || ack >= c.first+int64(c.top) { // nothing new, or not sent
		if c.next > 0 && c.trip > 0 && now.Sub(c.sent[0].at) > missingAfter(c.trip) {
			c.resend(now)
		}
		return
	}
	n := int(ack - c.first + 1)
	for i := range c.sent[:n] {
		m := &c.sent[i]
		if i == n-1 && !m.again {
			c.measure(now.Sub(m.at))
		}
		c.core.arrived(now, m.t)
		if i < c.next {
			c.nextSize -= len(m.data)
		}
		c.window = min(windowMax, c.window+len(m.data))
	}
	rest := copy(c.sent, c.sent[n:])
	clear(c.sent[rest:])
	c.sent, c.first, c.top, c.next = c.sent[:rest], c.first+int64(n), c.top-n, max(0, c.next-n)
	c.progress, c.backoff, c.resendAt = now, 0, time.Time{}
	if c.next > 0 {
		c.resendAt = now.Add(c.resendAfter())
	}
}

func (c *Channel) measure(d time.Duration) {
	if c.trip == 0 {
		c.trip = d
		return
	}
	c.trip += (d - c.trip) / 8
}

// missingAfter returns how long after a message the peer would have acknowledged it in what it sends: a peer that speaks and does
// not has not got it.
func missingAfter(trip time.Duration) time.Duration { return trip + trip/4 + 20*time.Millisecond }

// resendAfter returns how long to wait for an acknowledgement.
func (c *Channel) resendAfter() time.Duration { return resendAfter(c.trip, c.backoff) }

// resendAfter is twice the round trip, and twice that after each time without an acknowledgement.
func resendAfter(trip time.Duration, backoff int) time.Duration {
	d := 2 * trip
	if trip == 0 {
		d = resendFirst
	}
	return min(max(d, resendMin)<<min(backoff, 8), resendMax)
}

// Advance emits what is due. The bytes are valid during the call.
func (c *Channel) Advance(now time.Time, emit func(p []byte)) {
	c.expire(now)
	c.core.settle(now)
	if !c.resendAt.IsZero() && !now.Before(c.resendAt) {
		c.backoff++
		c.resend(now)
	}
	c.numbered(now, emit)
	c.unnumbered(now, emit)
	if c.ackDue || now.Sub(c.sentAt) >= keepAlive {
		w := c.frame(0)
		c.emit(now, &w, emit)
	}
	if c.core.phase == ended && c.endedAt.IsZero() {
		c.endedAt = now
	}
}

// expire ends the connection of a peer that says nothing, or takes nothing.
func (c *Channel) expire(now time.Time) {
	if len(c.sent) == 0 {
		c.progress = now
	}
	switch {
	case c.core.phase == ended:
	case now.Sub(c.heardAt) >= silenceTime:
		c.core.End(Silent, "")
	case now.Sub(c.progress) >= stuckTime:
		c.core.End(Slow, "")
	case c.first+int64(len(c.sent)) >= numberMax-windowMax || c.received >= numberMax-1 || c.loose >= numberMax-1:
		c.core.End(Leaving, "the numbers of the session are used up")
	}
}

// resend has everything sent again that was not acknowledged in time: peers take messages in order only.
func (c *Channel) resend(now time.Time) {
	kept := c.sent[:c.next]
	for i := range kept {
		kept[i].again = true
		if p, ok := c.core.again(kept[i].t); ok {
			kept[i].data = append(kept[i].data[:0], p...)
		}
	}
	c.core.counts.Repeats += uint64(c.next)
	c.next, c.nextSize, c.resendAt = 0, 0, time.Time{}
	if now.Sub(c.halvedAt) > c.trip { // one loss is one sign
		c.window, c.halvedAt = max(windowMin, c.window/2), now
	}
}

// numbered sends messages in order while the window and the rate allow it.
func (c *Channel) numbered(now time.Time, emit func(p []byte)) {
	for c.out.wait(now) == 0 {
		w := c.frame(c.first + int64(c.next))
		for c.nextSize < c.window && c.more() {
			m := &c.sent[c.next]
			if len(m.data) > w.room() {
				break
			}
			w.add(m.data)
			m.at = now
			c.next++
			c.top = max(c.top, c.next)
			c.nextSize += len(m.data)
		}
		if w.empty() {
			return
		}
		c.emit(now, &w, emit)
		if c.resendAt.IsZero() {
			c.resendAt = now.Add(c.resendAfter())
		}
	}
}

// more reports whether there is a message to send, at c.sent[c.next].
func (c *Channel) more() bool {
	if c.next < len(c.sent) {
		return true
	}
	p, t, ok := c.core.ordered()
	if ok {
		c.sent = append(c.sent, sent{data: append([]byte(nil), p...), t: t})
	}
	return ok
}

// unnumbered sends unreliable messages and values.
func (c *Channel) unnumbered(now time.Time, emit func(p []byte)) {
	values := !c.core.flushAt.IsZero() && !now.Before(c.core.flushAt)
	for c.out.wait(now) == 0 {
		w := c.frame(-c.loose - 1)
		for {
			p, ok := c.core.looseMessage(w.room())
			if !ok {
				break
			}
			w.add(p)
		}
		for values {
			p, ok := c.core.values(min(w.room(), c.core.size))
			if !ok {
				break
			}
			w.add(p)
		}
		if w.empty() {
			break
		}
		c.loose++
		c.emit(now, &w, emit)
	}
	if c.core.dirty.head == nil {
		c.core.flushAt = time.Time{}
	}
}

func (c *Channel) frame(number int64) frameWriter {
	return newFrame(c.datagram[:0], c.core.cfg.Dialect, &c.cookie, c.received, number)
}

func (c *Channel) emit(now time.Time, w *frameWriter, emit func(p []byte)) {
	c.datagram = w.done()
	c.out.take(len(c.datagram))
	c.ackDue, c.sentAt = false, now
	emit(c.datagram)
}

// NextTimeout returns when Advance has something to do.
func (c *Channel) NextTimeout(now time.Time) time.Time {
	due := earlier(earlier(c.sentAt.Add(keepAlive), c.resendAt), c.core.settleAt)
	switch {
	case c.ackDue, c.core.phase == ended && c.endedAt.IsZero():
		return past
	case c.core.phase == ended:
		due = earlier(due, c.endedAt.Add(lingerTime))
	default:
		due = earlier(due, c.heardAt.Add(silenceTime))
	}
	waits := c.core.dirty.head != nil || len(c.core.loose) > 0 || c.nextSize < c.window && (c.next < len(c.sent) || c.core.order.head != nil || len(c.core.rest) > 0)
	if !waits {
		return due
	}
	at := now.Add(c.out.wait(now))
	if c.core.order.head == nil && len(c.core.rest) == 0 && len(c.core.loose) == 0 && c.next == len(c.sent) && c.core.flushAt.After(at) {
		at = c.core.flushAt
	}
	return earlier(due, at)
}

// Over reports whether a connection that has ended can be forgotten: the peer has acknowledged its end, or had the time for it.
func (c *Channel) Over(now time.Time) bool {
	if c.endedAt.IsZero() {
		return false
	}
	told := c.core.bye != nil && len(c.sent) == 0 && c.core.order.head == nil && len(c.core.rest) == 0
	return told || c.core.reason == Silent || now.Sub(c.endedAt) >= lingerTime
}

// LastWord returns a datagram for a peer that did not acknowledge the end of its connection, nil if it need not be told. It
// says bye without a number, because messages before it may be missing.
func (c *Channel) LastWord() []byte {
	if c.core.bye == nil || len(c.sent) == 0 && c.core.order.head == nil {
		return nil
	}
	w := c.frame(math.MinInt32 + 1)
	w.add(c.core.bye)
	return w.done()
}
