package fanout

import (
	"time"

	"github.com/dnprelay/dnprelay/dnp"
	"github.com/dnprelay/dnprelay/replication"
)

// Recycle says what becomes of a session whose LinkIds are nearly used up. DNP has no way to use
// one again, so only another connection helps.
type Recycle uint8

const (
	// RecycleClose closes the connection at a quiet moment after nine tenths of the LinkIds,
	// or when all are used up.
	RecycleClose Recycle = iota
	// RecycleTell only tells the game servers.
	RecycleTell
)

// A moment is quiet when no reliable command was under way for quietTime, and the holder has
// what the client wrote. Both times are arbitrary.
const (
	quietTime     = time.Second
	quietInterval = quietTime / 10 // between two looks
)

// reasonUsedUp is in the event of a session that has no LinkId left.
const reasonUsedUp = "used_up"

// A recycling waits for a quiet moment in which to close the connection of a session.
type recycling struct {
	lookAt  time.Time // zero while the session has enough LinkIds
	quietAt time.Time // when the moment is quiet, if nothing is exchanged until then
	traffic dnp.Traffic
}

// fewLinkIDs tells game servers that the LinkIds of a session are nearly used up.
func (s *Session) fewLinkIDs(now time.Time) {
	s.counts.LinkIDsFew++
	s.emit(now, replication.Event{Type: replication.EventRecycle})
	s.recycle(now)
}

// noLinkIDs tells game servers that a session has no LinkId left, and ends it.
func (s *Session) noLinkIDs(now time.Time) {
	s.counts.LinkIDsUsedUp++
	s.emit(now, replication.Event{Type: replication.EventRecycle, Reason: reasonUsedUp})
	s.recycle(now)
}

// recycle ends a session without LinkIds, or begins to wait for a quiet moment.
func (s *Session) recycle(now time.Time) {
	few, none := s.Endpoint.LinkIDs(s.conn)
	switch {
	case !few || s.Recycle == RecycleTell:
	case none:
		s.conn.Close(dnp.CloseRecycle)
	default:
		s.recycling = recycling{lookAt: now, quietAt: now.Add(quietTime)}
	}
}

// advance closes the connection of a session if the moment is quiet, and returns when to look
// again.
func (r *recycling) advance(now, next time.Time, s *Session) time.Time {
	if r.lookAt.IsZero() {
		return next
	}
	if now.Before(r.lookAt) {
		return earlier(next, r.lookAt)
	}
	traffic, idle := s.Endpoint.Traffic(s.conn)
	if !idle || traffic != r.traffic {
		r.traffic, r.quietAt = traffic, now.Add(quietTime)
	}
	if !now.Before(r.quietAt) && len(s.writes.list) == 0 {
		s.conn.Close(dnp.CloseRecycle)
		r.lookAt = time.Time{}
		return next
	}
	r.lookAt = now.Add(quietInterval)
	return earlier(next, r.lookAt)
}
