package replication

import (
	"slices"
	"time"
)

// Refused events that one client causes: as many at once, and then one each pause. What
// goes beyond is counted, and the next event says how many that were. A client that
// floods its edge with writes must not flood the game servers.
const (
	refusedAtOnce = 10
	refusedPause  = 200 * time.Millisecond
)

// A pace lets something happen once each step, and up to so many times at once. The
// zero value has not seen anything yet.
type pace struct {
	full time.Duration // when it is as if nothing had ever happened
}

// take reports whether it may happen at now, and if so counts it.
func (p *pace) take(now, step time.Duration, atOnce int) bool {
	if p.full-now > step*time.Duration(atOnce-1) {
		return false
	}
	p.full = max(p.full, now) + step
	return true
}

// paceOf returns the pace of a rate: what a second allows may come at once, at least one.
func paceOf(rate float64) (step time.Duration, atOnce int) {
	return time.Duration(float64(time.Second) / rate), max(1, int(rate))
}

// A ratedValue is how often one session wrote a value that has a rate.
type ratedValue struct {
	index int
	pace  pace
}

// rated reports whether a session may write value i now.
func (m *writeMark) rated(now time.Duration, i int, rate float64) bool {
	at := slices.IndexFunc(m.rates, func(v ratedValue) bool { return v.index == i })
	if at < 0 {
		at = len(m.rates)
		m.rates = append(m.rates, ratedValue{index: i})
	}
	step, atOnce := paceOf(rate)
	return m.rates[at].pace.take(now, step, atOnce)
}

// age is the time since the first write, which no change of the clock moves.
func (s *Store) age(now time.Time) time.Duration {
	if s.began.IsZero() {
		s.began = now
	}
	return now.Sub(s.began)
}

// bound takes those values out of the edit that the client may not write, and tells
// game servers. A value that is what the state has already is no write: repetitions
// carry what was applied, and what a game server put is not refused to anybody.
func (s *Store) bound(now time.Time, st *stored, w *Write, m *writeMark) (refused []uint16) {
	var why [refusals][]EventValue
	kept := s.edit.values[:0]
	for _, v := range s.edit.values {
		r := s.refusal(now, st, v, m)
		if r == refusedNot {
			kept = append(kept, v)
			continue
		}
		s.stats.refused(r)
		refused = append(refused, uint16(v.index))
		why[r] = append(why[r], st.eventValue(v.index, s.edit.bytes[v.off:v.off+v.n]))
	}
	s.edit.values = kept
	for r, values := range why {
		if len(values) > 0 {
			r := Refusal(r)
			s.tellRefused(now, &Event{Client: w.Client, Session: w.Session, Key: st.desc.Key, Values: values, Code: r.Code(), Reason: r.String()})
		}
	}
	return refused
}

// refusal reports why one edited value may not be written. Only a write that would be
// applied counts for the rate.
func (s *Store) refusal(now time.Time, st *stored, v edited, m *writeMark) Refusal {
	d, enc := &st.schema.defs[v.index], s.edit.bytes[v.off:v.off+v.n]
	if !st.isNull(v.index) && string(st.values.Value(v.index)) == string(enc) {
		return refusedNot
	}
	if r := d.Bounds.refuses(d.Type, enc); r != refusedNot {
		return r
	}
	if d.Bounds == nil || d.Bounds.Rate == 0 || st.filtered(v.index, enc, false) || m.rated(s.age(now), v.index, d.Bounds.Rate) {
		return refusedNot
	}
	return RefusedRate
}

// tellRefused tells game servers of a refused write, not more often than they can bear.
func (s *Store) tellRefused(now time.Time, e *Event) {
	t := &s.strangers
	if p := s.clients[e.Client]; p != nil {
		t = &p.told
	}
	if !t.pace.take(s.age(now), refusedPause, refusedAtOnce) {
		t.missed++
		s.stats.RefusedUntold++
		return
	}
	e.Type, e.Space, e.Time, e.Missed = EventRefused, s.cfg.Space, now, t.missed
	t.missed = 0
	s.send(Output{Kind: OutputEvent, Event: e})
}

// told is what game servers were told of the refused writes of a client.
type told struct {
	pace   pace
	missed uint64 // events since the last one
}
