package publisher

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/dnprelay/dnprelay/replication"
)

// check checks ops against the copy, with those before them.
func (s *Space) check(list []op) error {
	put := map[string]*state{} // by an op before
	fresh := 0
	for _, e := range list {
		switch o := e.source.(type) {
		case Put:
			put[o.Key] = newState(e)
			if s.states[o.Key] == nil {
				fresh++
			}
		case Set:
			st := put[o.Key]
			if st == nil {
				st = s.states[o.Key]
			}
			switch {
			case st == nil: // somebody else's
				fresh++
			case !st.removedAt.IsZero():
				return opError(o, replication.CodeUnknownState, "the state was removed")
			case st.put != nil:
				if err := st.check(e); err != nil {
					return err
				}
			}
		case Audience:
			if s.states[o.Key] == nil {
				fresh++
			}
		case Group:
			if s.groups[o.Client] == nil && len(s.groups) >= s.p.cfg.StatesMax {
				return opError(o, replication.CodeTooLarge, "more than %d clients", s.p.cfg.StatesMax)
			}
		}
	}
	if fresh > 0 && len(s.states)+fresh > s.p.cfg.StatesMax {
		return opError(list[0].source, replication.CodeTooLarge, "more than %d states", s.p.cfg.StatesMax)
	}
	return nil
}

// say takes an op into the copy, and remembers that the relay has to hear of it.
func (s *Space) say(now time.Time, e op, x *waiter) {
	w := &word{topic: topic{topicState, e.parsed.Key}, op: e.source.name()}
	switch o := e.source.(type) {
	case Put:
		st := newState(e)
		if old := s.states[o.Key]; old != nil {
			st.accepted = old.accepted
		}
		s.states[o.Key], w.put = st, true
	case Set:
		w.sets = s.state(o.Key).set(e.values)
	case Remove:
		st := s.state(o.Key)
		*st = state{put: st.put, values: st.values, accepted: true, removedAt: now}
		s.removed = append(s.removed, o.Key)
		s.forgetRemoved(now)
	case Audience:
		st := s.state(o.Key)
		if st.put != nil {
			st.put.Audience, w.put = e.who, true
		} else {
			st.who, w.topic.kind = e.who, topicAudience
		}
	case Group:
		w.topic = topic{topicGroups, o.Client}
		s.group(o)
	}
	w.add(x)
	s.out.push(w)
}

// state returns what is known of a key: nothing, if somebody else put it.
func (s *Space) state(key string) *state {
	st, ok := s.states[key]
	if !ok {
		st = &state{values: map[string]json.RawMessage{}}
		s.states[key] = st
	}
	return st
}

func (s *Space) group(o Group) {
	groups := s.groups[o.Client]
	if groups == nil {
		groups = map[string]bool{}
		s.groups[o.Client] = groups
	}
	for _, g := range o.Join {
		groups[g] = true
	}
	for _, g := range o.Leave {
		groups[g] = false
	}
}

// forgetRemoved forgets removals that are certain to be stored, and the oldest if
// there are too many.
func (s *Space) forgetRemoved(now time.Time) {
	for len(s.removed) > 0 {
		key := s.removed[0]
		st := s.states[key]
		if st != nil && !st.removedAt.IsZero() {
			if now.Sub(st.removedAt) < removedAge && len(s.removed) <= removedMax {
				return
			}
			delete(s.states, key)
		}
		s.removed = slices.Delete(s.removed, 0, 1)
	}
}

// assert says everything again, to a relay that took the space over. Values that
// clients wrote are the relay's: whatever it has is newer than what the events said,
// unless it has no such state.
func (s *Space) assert() {
	for key, st := range s.states {
		switch {
		case st.put == nil:
		case !st.removedAt.IsZero():
			s.out.push(&word{topic: topic{topicState, key}, op: "remove " + key})
		case st.writable():
			s.out.push(&word{topic: topic{topicAudience, key}, op: "audience " + key})
			s.out.push(&word{topic: topic{topicState, key}, op: "set " + key, sets: st.ours()})
		default:
			s.out.push(&word{topic: topic{topicState, key}, op: "put " + key, put: true})
		}
	}
	for client := range s.groups {
		s.out.push(&word{topic: topic{topicGroups, client}, op: "group " + client})
	}
}

// encodeWord returns the op for a word, with the newest values; nil if there is
// nothing left to say.
func (s *Space) encodeWord(w *word) any {
	name := w.topic.name
	if w.topic.kind == topicGroups {
		return encodeGroups(name, s.groups[name])
	}
	st := s.states[name]
	switch {
	case st == nil:
		return nil
	case w.topic.kind == topicAudience && st.put != nil && st.removedAt.IsZero():
		return audienceJSON{"audience", name, st.put.Audience}
	case w.topic.kind == topicAudience && st.who != nil:
		return audienceJSON{"audience", name, st.who}
	case w.topic.kind == topicAudience:
		return nil
	case !st.removedAt.IsZero():
		return removeJSON{"remove", name}
	case w.put && st.put != nil:
		return st.encodePut(w.fresh)
	}
	return st.encodeSet(name, w.sets)
}

func encodeGroups(client string, groups map[string]bool) any {
	if len(groups) == 0 {
		return nil
	}
	form := groupJSON{Op: "group", Client: client}
	for g, in := range groups {
		if in {
			form.Join = append(form.Join, g)
		} else {
			form.Leave = append(form.Leave, g)
		}
	}
	return form
}

// clear forgets all states. What was said of them and is not accepted is not said again.
func (s *Space) clear(time.Time) error {
	clear(s.states)
	s.removed = nil
	return nil
}
