package replication

import (
	"time"

	"github.com/dnprelay/dnprelay/internal/turn/heap"
)

// The range of a time to live. The longest is arbitrary.
const (
	TTLMin = time.Second
	TTLMax = 7 * 24 * time.Hour
)

// checkTTL reports what is wrong with a time to live; 0 is none.
func checkTTL(ttl time.Duration) *Error {
	if ttl != 0 && (ttl < TTLMin || ttl > TTLMax) {
		return Errorf(CodeBadRequest, "ttl %v: want %v to %v, or 0s for none", ttl, TTLMin, TTLMax)
	}
	return nil
}

// expiredMax is how many states end for their age between two batches. The others end with the next
// batches, so that a publisher whose states all end at once costs neither a long turn nor a flood of
// events. The number is arbitrary: with a tick of 50 ms a whole space ends in less than four seconds.
const expiredMax = 1000

// An expiry is when a state ends unless a publisher mentions it before.
type expiry struct {
	until time.Time // zero for a restored state until the first Advance
	due   time.Time // when expiries looks at it, not later than until
	place int       // belongs to the heap
}

// expires reports whether st is in the heap of the states with a time to live.
func (st *stored) expires() bool { return st.expiry != nil && st.expiry.place > 0 }

// expiries are the states with a time to live. Its size is that of the table of states at most.
type expiries struct {
	heap      *heap.Heap[*stored]
	ended     int       // since the last batch, at most expiredMax
	mentioned []*stored // by the ops of the publish that is being applied
}

func newExpiries() expiries {
	less := func(a, b *stored) bool { return a.expiry.due.Before(b.expiry.due) }
	return expiries{heap: heap.New(less, func(st *stored) *int { return &st.expiry.place })}
}

// next returns when the next state may end.
func (e *expiries) next() (time.Time, bool) {
	st, ok := e.heap.First()
	if !ok {
		return time.Time{}, false
	}
	return st.expiry.due, true
}

// mention notes that an op was applied to st. The time of st begins again when all ops of the
// publish were applied, because a publish that is rolled back changes nothing.
func (e *expiries) mention(st *stored) {
	if st.Desc.TTL > 0 || st.expires() {
		e.mentioned = append(e.mentioned, st)
	}
}

// commit begins the time of the states that the ops of a publish mentioned. For one that is
// mentioned all the time this costs a comparison: expired corrects its place in the heap.
func (e *expiries) commit(now time.Time) {
	for _, st := range e.mentioned {
		switch {
		case st.dead, st.Desc.TTL == 0 && !st.expires():
		case st.Desc.TTL == 0:
			e.heap.Remove(st)
		default:
			e.begin(now, st)
		}
	}
	e.rollback()
}

// rollback forgets what the ops of a publish mentioned.
func (e *expiries) rollback() {
	clear(e.mentioned)
	e.mentioned = e.mentioned[:0]
}

// begin begins the time of st.
func (e *expiries) begin(now time.Time, st *stored) {
	if st.expiry == nil {
		st.expiry = &expiry{}
	}
	x := st.expiry
	x.until = now.Add(st.Desc.TTL)
	if x.place == 0 || x.until.Before(x.due) {
		x.due = x.until
		e.heap.Set(st)
	}
}

// restore adds a restored state, whose time begins with the first Advance.
func (e *expiries) restore(st *stored) {
	if st.Desc.TTL > 0 {
		st.expiry = &expiry{}
		e.heap.Set(st)
	}
}

// expired removes a state whose time is over, and returns it.
func (e *expiries) expired(now time.Time) (*stored, bool) {
	for {
		st, ok := e.heap.First()
		if !ok || now.Before(st.expiry.due) {
			return nil, false
		}
		x := st.expiry
		if x.until.IsZero() {
			x.until = now.Add(st.Desc.TTL)
		}
		if !now.Before(x.until) {
			e.heap.Remove(st)
			return st, true
		}
		x.due = x.until
		e.heap.Set(st)
	}
}

// expire removes the states whose time is over, at most expiredMax of them until the next batch.
// Game servers hear of each behind the batch that removes it.
func (s *Store) expire(now time.Time) {
	for s.expiries.ended < expiredMax {
		st, ok := s.expiries.expired(now)
		if !ok {
			return
		}
		s.expiries.ended++
		s.stats.Expired++
		s.detach(st)
		s.batch.send(Output{Kind: OutputEvent, Event: &Event{Type: EventExpired, Space: s.cfg.Space, Time: now, Key: st.Desc.Key}})
	}
}
