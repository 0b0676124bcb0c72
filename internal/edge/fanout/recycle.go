package fanout

import (
	"time"

	"github.com/dnprelay/dnprelay/dnp"
	"github.com/dnprelay/dnprelay/replication"
)

// Recycle says what becomes of a session whose LinkIds are nearly used up, or whose client would soon process
// commands of an earlier lap (dnp/PROTOCOL.md, The lap). Only another connection helps.
type Recycle uint8

const (
	// RecycleClose closes the connection at a quiet moment after nine tenths of the LinkIds or
	// three quarters of a lap, or when all are used up.
	RecycleClose Recycle = iota
	// RecycleTell only tells the game servers. A connection ends all the same when its lap is over.
	RecycleTell
)

// A moment is quiet when no reliable command was under way for quietTime, and the holder has
// what the client wrote. Both times are arbitrary. A game server that sends a client messages all the time leaves no
// such moment, and messages use up numbers: towards the end of a lap it is enough that nothing is under way.
const (
	quietTime     = time.Second
	quietInterval = quietTime / 10 // between two looks
)

// The reasons in the event of a session that has no LinkId left, or comes to the end of a lap.
const (
	reasonUsedUp = "used_up"
	reasonLap    = "lap"
)

// A recycling waits for a quiet moment in which to close the connection of a session.
type recycling struct {
	lookAt  time.Time // zero while the session needs no other connection
	quietAt time.Time // when the moment is quiet, if nothing is exchanged until then
	traffic dnp.Traffic
	lap     bool // the session comes to the end of a lap
}

// recycleSoon counts and tells game servers, with a reason, that a session needs another connection.
func (s *Session) recycleSoon(now time.Time, counter *uint64, reason string) {
	*counter++
	s.emit(now, replication.Event{Type: replication.EventRecycle, Reason: reason})
	s.recycle(now)
}

// recycle ends a session without LinkIds, or begins to wait for a quiet moment.
func (s *Session) recycle(now time.Time) {
	few, none := s.Endpoint.LinkIDs(s.conn)
	lap := dnp.LapNear(s.conn)
	switch {
	case !few && !lap || s.Recycle == RecycleTell:
	case none:
		s.conn.Close(dnp.CloseRecycle)
	default:
		s.recycling = recycling{lookAt: now, quietAt: now.Add(quietTime), lap: lap}
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
	if r.lap && idle && len(s.commands.open) == 0 {
		r.quietAt = now
	}
	if !now.Before(r.quietAt) && len(s.writes.list) == 0 {
		s.conn.Close(dnp.CloseRecycle)
		r.lookAt = time.Time{}
		return next
	}
	r.lookAt = now.Add(quietInterval)
	return earlier(next, r.lookAt)
}
