package publisher

import (
	"maps"
	"slices"
	"time"
)

// lives are the states of a Space with a time to live. The Space says each of them again three
// times within that, so that the relay removes them only after the game server has ended. The mu
// of the Space is of it.
type lives struct {
	ttl map[string]time.Duration // by key; may contain states that have ended
	at  time.Time                // of the next round
	due []string                 // keys that are to be said again in this round
}

// begin notes that a state with a time to live was put; 0 is none.
func (l *lives) begin(now time.Time, key string, ttl time.Duration) {
	if ttl == 0 {
		delete(l.ttl, key)
		return
	}
	if l.ttl == nil {
		l.ttl = map[string]time.Duration{}
	}
	l.ttl[key] = ttl
	if at := now.Add(ttl / 3); len(l.ttl) == 1 || at.Before(l.at) {
		l.at = at
	}
}

// next returns when the next round begins.
func (l *lives) next() (time.Time, bool) { return l.at, len(l.ttl) > 0 }

// round begins a round if it is due. The shortest time to live decides when the next one begins.
func (l *lives) round(now time.Time) {
	if len(l.ttl) == 0 || now.Before(l.at) {
		return
	}
	l.due = slices.AppendSeq(l.due[:0], maps.Keys(l.ttl))
	l.at = now.Add(slices.Min(slices.Collect(maps.Values(l.ttl))) / 3)
}

// renewable reports whether a part of the states that are due is to become pending.
func (l *lives) renewable(o *outbox) bool { return len(l.due) > 0 && len(o.ops) <= assertMax }

// renew makes the states that are due pending, up to assertMax. To say the audience of a state
// as the copy knows it changes nothing and is short; if the relay does not know the state, results puts it.
func (l *lives) renew(now time.Time, s *Space) {
	l.round(now)
	if !l.renewable(&s.out) {
		return
	}
	n := min(len(l.due), assertMax)
	for _, key := range l.due[:n] {
		if st := s.states[key]; st == nil || st.put == nil || l.ttl[key] == 0 || !st.removedAt.IsZero() {
			delete(l.ttl, key)
			continue
		}
		if !s.pending(topic{topicState, key}) {
			s.out.push(&pendingOp{topic: topic{topicAudience, key}, verb: "audience", assert: true})
		}
	}
	if l.due = l.due[n:]; len(l.due) == 0 {
		l.due = nil
	}
}
