package protocol

import (
	"time"

	"github.com/dnprelay/dnprelay/godot/variant"
)

// Bounds of what is on its way to a peer by WebSocket. Engines drop what arrives between two frames of the game beyond
// 64 KiB or 1,024 messages, so less has to be on its way, as far as the peer has not confirmed that it came. In what it has not
// confirmed no value can be replaced by a newer one, either.
const (
	streamBytesMax    = 40 << 10
	streamMessagesMax = 500

	// streamSize is the longest message: one with the longest value, and its name.
	streamSize = 20 << 10

	// markBytes is about how many bytes are confirmed together.
	markBytes = 4 << 10
	marksMax  = 32
)

// Times of a stream.
const (
	streamIdle  = 15 * time.Second // after which the peer has to confirm something, so that proxies keep the connection
	confirmTime = 10 * time.Second // for which a peer may confirm nothing
)

// A Stream is the connection of a peer whose messages arrive in order and complete.
type Stream struct {
	core          *Core
	mark          uint32
	marks         []mark // that the peer has not confirmed, the oldest first
	bytes         int    // sent since the latest mark
	messages      int
	wayBytes      int // not confirmed
	wayMessages   int
	sentAt        time.Time
	endedAt       time.Time
	confirmNeeded time.Time // when the connection ends unless the peer confirms a mark
}

type mark struct {
	mark            uint32
	bytes, messages int
}

// NewStream returns a Stream that waits for the hello of its peer.
func NewStream(cfg Config, now time.Time) *Stream {
	return &Stream{core: newCore(cfg, streamSize, false, now), sentAt: now}
}

// Core returns the part that does not depend on the carrier.
func (s *Stream) Core() *Core { return s.core }

// Receive handles a message of the peer. If it returns a time other than 0, nothing has happened, and the caller calls again when
// it is over: the peer sends more than it may, or more than the edge takes.
func (s *Stream) Receive(now time.Time, p []byte) (wait time.Duration) {
	c := s.core
	if wait = c.in.wait(now); wait > 0 {
		return wait
	}
	v, err := variant.Decode(c.cfg.Dialect, p)
	if err != nil {
		c.malformed(err.Error())
		return 0
	}
	if c.handle(now, v) != nil {
		return busyPause
	}
	c.in.take(len(p) + messageCost)
	return 0
}

// messageCost is what a message costs besides its bytes.
const messageCost = 64

// busyPause is how long a peer waits that the edge cannot serve yet.
const busyPause = 20 * time.Millisecond

// Advance emits what the peer may get. It returns a mark for the peer to confirm behind that, or 0. The bytes are valid during
// the call.
func (s *Stream) Advance(now time.Time, emit func(p []byte)) uint32 {
	c := s.core
	for s.open() {
		p, t, ok := c.ordered()
		if !ok {
			break
		}
		s.emit(now, p, emit)
		c.arrived(now, t)
	}
	for s.open() {
		p, ok := c.looseMessage(c.size)
		if !ok {
			break
		}
		s.emit(now, p, emit)
	}
	if c.flushAt.IsZero() || now.Before(c.flushAt) {
		return s.newMark(now)
	}
	for s.open() {
		p, ok := c.values(c.size)
		if !ok {
			break
		}
		s.emit(now, p, emit)
	}
	if c.dirty.head == nil {
		c.flushAt = time.Time{}
	}
	return s.newMark(now)
}

func (s *Stream) emit(now time.Time, p []byte, emit func(p []byte)) {
	emit(p)
	s.bytes += len(p)
	s.messages++
	s.wayBytes += len(p)
	s.wayMessages++
	s.sentAt = now
}

// open reports whether more may be on its way.
func (s *Stream) open() bool {
	return s.wayBytes < streamBytesMax-streamSize && s.wayMessages < streamMessagesMax
}

func (s *Stream) newMark(now time.Time) uint32 {
	idle := now.Sub(s.sentAt) >= streamIdle
	switch {
	case s.messages == 0 && !idle:
		return 0
	case len(s.marks) >= marksMax, len(s.marks) > 0 && s.bytes < markBytes && s.open() && !idle:
		return 0
	}
	if len(s.marks) == 0 {
		s.confirmNeeded = now.Add(confirmTime)
	}
	s.mark++
	s.marks = append(s.marks, mark{s.mark, s.bytes, s.messages})
	s.bytes, s.messages, s.sentAt = 0, 0, now
	return s.mark
}

// Confirmed notes that a mark, and all before it, came to the peer.
func (s *Stream) Confirmed(now time.Time, confirmed uint32) {
	for i := range s.marks {
		if s.marks[i].mark != confirmed {
			continue
		}
		for _, m := range s.marks[:i+1] {
			s.wayBytes -= m.bytes
			s.wayMessages -= m.messages
		}
		s.marks = append(s.marks[:0], s.marks[i+1:]...)
		s.confirmNeeded = time.Time{}
		if len(s.marks) > 0 {
			s.confirmNeeded = now.Add(confirmTime)
		}
		return
	}
}

// NextTimeout returns when Advance has something to do; the zero time is never.
func (s *Stream) NextTimeout() time.Time {
	due := s.sentAt.Add(streamIdle)
	if s.open() {
		due = earlier(due, s.core.nextTimeout())
	}
	if s.messages > 0 && len(s.marks) == 0 {
		due = past
	}
	if !s.endedAt.IsZero() {
		return earlier(due, s.endedAt.Add(lingerTime))
	}
	return earlier(due, s.confirmNeeded)
}

// Expire ends the connection of a peer that confirms nothing.
func (s *Stream) Expire(now time.Time) {
	if !s.confirmNeeded.IsZero() && !now.Before(s.confirmNeeded) {
		s.core.End(Slow, "")
	}
}

// Over reports whether a connection that has ended can be closed: nothing waits to be sent, or the peer does not take it.
func (s *Stream) Over(now time.Time) bool {
	c := s.core
	if c.phase != ended {
		return false
	}
	if s.endedAt.IsZero() {
		s.endedAt = now
	}
	return c.order.head == nil && len(c.rest) == 0 || now.Sub(s.endedAt) >= lingerTime
}
