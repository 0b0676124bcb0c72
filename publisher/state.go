package publisher

import (
	"cmp"
	"encoding/json"
	"slices"
	"strconv"
	"time"

	"github.com/dnprelay/dnprelay/replication"
)

// A Space remembers a removal for removedAge, and removedMax of them: a relay that dies
// may have accepted one without storing it, and its successor restores the state.
const (
	removedAge = time.Minute
	removedMax = 4096
)

// copied is the copy of what this game server described.
type copied struct {
	states  map[string]*state
	order   []*state                   // states, in the order in which they came, and as many that are gone at most
	removed []string                   // keys, in the order of their removal
	groups  map[string]map[string]bool // of clients: true = join, false = leave

	interests map[string]namedInterest
	eyes      map[string]json.RawMessage // of clients
}

// A namedInterest is an interest as the relay was told, or is to be.
type namedInterest struct {
	text json.RawMessage
	gone bool
}

// A state is the copy of one state. The mu of the Space is of it.
type state struct {
	key  string
	gone bool // not in the copy any more

	put    *putJSON // with the newest values; nil if another program put the state
	defs   []replication.ValueDef
	names  map[string]int
	theirs []bool // a client wrote the value last

	values map[string]json.RawMessage // of another program's state, until the relay accepts them
	who    json.RawMessage            // likewise

	bound     *binding  // of the Bound that put the state; nil if there is none
	accepted  bool      // a relay has had the state
	removedAt time.Time // zero: the state exists
}

func newState(e op) *state {
	st := &state{key: e.parsed.Key, put: e.put, bound: e.bound, names: make(map[string]int, len(e.parsed.Values)), theirs: make([]bool, len(e.parsed.Values))}
	for i, v := range e.parsed.Values {
		st.defs = append(st.defs, v.ValueDef)
		if v.Name != "" {
			st.names[v.Name] = i
		}
	}
	return st
}

// index returns the index of the value that a name, or an index in digits, means.
func (st *state) index(name string) (i int, ok bool) {
	if i, ok = st.names[name]; ok {
		return i, true
	}
	i, err := strconv.Atoi(name)
	return i, err == nil && i >= 0 && i < len(st.defs)
}

// decode returns a value that an event names in the Go type of its type. st may be nil.
func (st *state) decode(name string, raw json.RawMessage) any {
	if st != nil && st.put != nil {
		if i, ok := st.index(name); ok {
			return decodeValue(st.put.Values[i].Type, st.put.Values[i].Fields, raw)
		}
	}
	return decodeValue("", nil, raw)
}

// writable reports whether clients may write the state.
func (st *state) writable() bool { return string(st.put.Access) != string(readOnly) }

// check checks the values of a Set.
func (st *state) check(e op) error {
	for _, set := range e.parsed.Sets {
		i, ok := st.index(set.Name)
		if !ok {
			return opError(e.source, replication.CodeBadRequest, "there is no value %q", set.Name)
		}
		if err := checkValue(e.source, valueName(st.defs[i].Name, i), st.defs[i], set.Value); err != nil {
			return err
		}
	}
	return nil
}

// set applies the values of a Set and returns which ones they are.
func (st *state) set(values map[string]json.RawMessage) map[string]bool {
	sets := make(map[string]bool, len(values))
	for name, v := range values {
		if st.put == nil {
			st.values[name], sets[name] = v, true
			continue
		}
		i, _ := st.index(name)
		st.put.Values[i].Value, st.theirs[i] = v, false
		st.bound.adopt(i, v, true)
		sets[strconv.Itoa(i)] = true
	}
	return sets
}

// appendPut appends the put that makes the state. Unless the relay lacks the state, the
// put leaves out values that clients wrote, so that the relay keeps its own.
func (st *state) appendPut(b []byte, fresh bool) []byte {
	return st.put.append(b, fresh || !st.writable(), st.theirs)
}

// appendSet appends a set of these values as the copy has them; nothing if none is left.
func (st *state) appendSet(b []byte, key string, sets map[string]bool) []byte {
	start := len(b)
	b = append(append(append(b, `{"op":"set","key":"`...), key...), `","values":{`...)
	first := len(b)
	for name := range sets {
		var value json.RawMessage
		if st.put == nil {
			value = st.values[name]
		} else if i, err := strconv.Atoi(name); err == nil && i < len(st.put.Values) && !st.theirs[i] {
			value = st.put.Values[i].Value
		} else {
			continue
		}
		if len(b) > first {
			b = append(b, ',')
		}
		b = append(append(appendText(b, name), ':'), value...)
	}
	if len(b) == first {
		return b[:start]
	}
	return append(b, "}}"...)
}

// ours returns the values that no client wrote last.
func (st *state) ours() map[string]bool {
	sets := map[string]bool{}
	for i, theirs := range st.theirs {
		if !theirs {
			sets[strconv.Itoa(i)] = true
		}
	}
	return sets
}

// check checks ops against the copy, each as if the ops before it were applied.
func (s *Space) check(list []op) error {
	put := map[string]*state{} // by an op before
	fresh := 0
	for _, e := range list {
		key := e.parsed.Key
		known := s.states[key]
		switch o := e.source.(type) {
		case Put:
			put[key] = newState(e)
		case Set:
			known = cmp.Or(put[key], known)
			switch {
			case known == nil: // another program's
			case !known.removedAt.IsZero():
				return opError(o, replication.CodeUnknownState, "the state was removed")
			case known.put != nil:
				if err := known.check(e); err != nil {
					return err
				}
			}
		case Group:
			if s.groups[o.Client] == nil && len(s.groups) >= s.p.cfg.StatesMax {
				return opError(o, replication.CodeTooLarge, "more than %d clients", s.p.cfg.StatesMax)
			}
			continue
		case Eye:
			if s.eyes[o.Client] == nil && len(s.eyes) >= s.p.cfg.StatesMax {
				return opError(o, replication.CodeTooLarge, "more than %d clients", s.p.cfg.StatesMax)
			}
			continue
		case Interest:
			if _, known := s.interests[o.Name]; !known && len(s.interests) >= replication.InterestsMax {
				return opError(o, replication.CodeTooLarge, "more than %d interests", replication.InterestsMax)
			}
			continue
		case Remove:
			continue
		}
		if known == nil {
			fresh++
		}
	}
	if fresh > 0 && len(s.states)+fresh > s.p.cfg.StatesMax {
		return opError(list[0].source, replication.CodeTooLarge, "more than %d states", s.p.cfg.StatesMax)
	}
	return nil
}

// apply applies an op to the copy and makes it pending.
func (s *Space) apply(now time.Time, e op, w *waiter) {
	p := &pendingOp{topic: topic{topicState, e.parsed.Key}, verb: verb(e.source), trace: e.trace}
	switch o := e.source.(type) {
	case Put:
		st := newState(e)
		if old := s.states[o.Key]; old != nil {
			st.accepted = old.accepted
			if old.put != nil && st.put.Interest == nil {
				st.put.Interest = old.put.Interest // as the relay leaves it
			}
			if st.put.TTL == "" && old.put != nil && old.put.TTL != "" {
				st.put.TTL = "0s" // without it the relay would keep the time to live
			}
			old.bound.end()
		}
		s.add(st)
		p.put = true
		s.lives.begin(now, o.Key, o.TTL)
	case Set:
		p.sets = s.state(o.Key).set(e.values)
	case Remove:
		st := s.state(o.Key)
		st.bound.end()
		*st = state{key: st.key, put: st.put, values: st.values, accepted: true, removedAt: now}
		s.removed = append(s.removed, o.Key)
		s.forgetRemoved(now)
	case Audience:
		st := s.state(o.Key)
		if st.put != nil {
			st.put.Audience, p.put = e.who, true
		} else {
			st.who, p.topic.kind = e.who, topicAudience
		}
	case Group:
		p.topic = topic{topicGroups, o.Client}
		s.group(o)
	case Interest:
		p.topic = topic{topicInterest, o.Name}
		s.interests[o.Name] = namedInterest{e.text, len(o.Bands) == 0}
	case Eye:
		p.topic = topic{topicEyes, o.Client}
		s.eyes[o.Client] = e.text
	}
	p.addWaiter(w)
	s.out.push(p)
}

// state returns the copy of a state; it makes an empty one if another program put the state.
func (s *copied) state(key string) *state {
	st, ok := s.states[key]
	if !ok {
		st = &state{key: key, values: map[string]json.RawMessage{}}
		s.add(st)
	}
	return st
}

// add adds a state, in the place of one with the same key if there is one.
func (s *copied) add(st *state) {
	s.forget(st.key)
	s.states[st.key] = st
	if s.order = append(s.order, st); len(s.order) > 2*len(s.states) {
		s.order = slices.DeleteFunc(s.order, func(st *state) bool { return st.gone })
	}
}

// forget removes a state from the copy.
func (s *copied) forget(key string) {
	if st := s.states[key]; st != nil {
		st.gone = true
		delete(s.states, key)
	}
}

func (s *copied) group(o Group) {
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

// forgetRemoved forgets removals that every relay has stored by this time, and the oldest
// ones beyond removedMax.
func (s *copied) forgetRemoved(now time.Time) {
	for len(s.removed) > 0 {
		key := s.removed[0]
		st := s.states[key]
		if st != nil && !st.removedAt.IsZero() {
			if now.Sub(st.removedAt) < removedAge && len(s.removed) <= removedMax {
				return
			}
			s.forget(key)
		}
		s.removed = s.removed[1:]
	}
}

// clear forgets all states. What is pending about them is not sent.
func (s *Space) clear(time.Time) error {
	for _, st := range s.states {
		st.bound.end()
	}
	clear(s.states)
	clear(s.interests)
	s.order, s.removed, s.asserting, s.lives = nil, nil, nil, lives{}
	return nil
}

// written applies the values that a client wrote, except those about which a newer op of
// this Space is pending.
func (s *Space) written(ev eventJSON) {
	st := s.states[ev.Key]
	if st == nil || st.put == nil || !st.removedAt.IsZero() {
		return
	}
	p := s.out.ops[topic{topicState, ev.Key}]
	for name, v := range ev.Values {
		i, ok := st.index(name)
		if !ok || p != nil && (p.put || p.sets[strconv.Itoa(i)]) {
			continue
		}
		if st.bound.adopt(i, v, false) {
			st.put.Values[i].Value, st.theirs[i] = v, true
		}
	}
}

// reassert makes the whole copy pending, for a relay that took the space over. It leaves
// out values that clients wrote: unless the relay lacks the state, its values are newer
// than those of the events.
//
// A copy may be large, so that run makes it pending in parts: a Post between them does not wait for all of it.
func (s *Space) reassert() {
	s.asserting = slices.Clone(s.order) // a new relay gets them as the first one did, and memory is read in the order in which it was written
	for name := range s.interests {     // before the states that have them
		s.out.push(&pendingOp{topic: topic{topicInterest, name}, verb: "interest"})
	}
	for client := range s.eyes {
		s.out.push(&pendingOp{topic: topic{topicEyes, client}, verb: "eye"})
	}
	for client := range s.groups {
		s.out.push(&pendingOp{topic: topic{topicGroups, client}, verb: "group"})
	}
}

// assertMax is how many states of a copy become pending at once, when no more than that is pending already.
const assertMax = 1024

// assertable reports whether a part of the copy is to become pending.
func (s *Space) assertable() bool { return len(s.asserting) > 0 && len(s.out.ops) <= assertMax }

// assertSome makes the next states of the copy pending, up to most.
func (s *Space) assertSome(most int) {
	n := min(len(s.asserting), most)
	for _, st := range s.asserting[:n] {
		switch {
		case st.gone || st.put == nil: // a state that was put again is pending or accepted
		case !st.removedAt.IsZero():
			s.out.push(&pendingOp{topic: topic{topicState, st.key}, state: st, verb: "remove"})
		case st.writable():
			s.out.push(&pendingOp{topic: topic{topicAudience, st.key}, state: st, verb: "audience"})
			s.out.push(&pendingOp{topic: topic{topicState, st.key}, state: st, verb: "set", sets: st.ours()})
		default:
			s.out.push(&pendingOp{topic: topic{topicState, st.key}, state: st, verb: "put", put: true})
		}
	}
	if s.asserting = s.asserting[n:]; len(s.asserting) == 0 {
		s.asserting = nil
	}
}

// appendPending appends the JSON form of a pending op with the newest values; nothing if the
// op has nothing to say.
func (s *copied) appendPending(b []byte, p *pendingOp) []byte {
	name := p.topic.name
	if p.topic.kind == topicGroups {
		return appendGroups(b, name, s.groups[name])
	}
	if p.topic.kind == topicInterest {
		return append(b, s.interests[name].text...)
	}
	if p.topic.kind == topicEyes {
		return append(b, s.eyes[name]...)
	}
	st := s.of(p)
	switch {
	case st == nil:
		return b
	case p.topic.kind == topicAudience && st.put != nil && st.removedAt.IsZero():
		return append(b, mustMarshal(changeJSON{Op: "audience", Key: name, Audience: st.put.Audience})...)
	case p.topic.kind == topicAudience && st.who != nil:
		return append(b, mustMarshal(changeJSON{Op: "audience", Key: name, Audience: st.who})...)
	case p.topic.kind == topicAudience:
		return b
	case !st.removedAt.IsZero():
		return append(b, mustMarshal(changeJSON{Op: "remove", Key: name})...)
	case p.put && st.put != nil:
		return st.appendPut(b, p.fresh)
	}
	return st.appendSet(b, name, p.sets)
}

// of returns the state that an op is about; nil if the copy has none. The map of a large copy is mostly not in the caches of the processor,
// so a look at it takes as long as a fifth of everything else that a state costs which a new relay is told.
func (s *copied) of(p *pendingOp) *state {
	if p.state != nil && !p.state.gone {
		return p.state
	}
	return s.states[p.topic.name]
}

func appendGroups(b []byte, client string, groups map[string]bool) []byte {
	if len(groups) == 0 {
		return b
	}
	form := clientJSON{Op: "group", Client: client}
	for g, in := range groups {
		if in {
			form.Join = append(form.Join, g)
		} else {
			form.Leave = append(form.Leave, g)
		}
	}
	return append(b, mustMarshal(form)...)
}

// A State is the copy of a state that this game server put.
type State struct {
	Key      string
	Values   []StateValue
	Accepted bool // a relay has had the state
	Pending  bool // a change has yet to be accepted
}

// A StateValue is a value of a State.
type StateValue struct {
	Name   string // the index in digits if the value has no name
	Type   Type
	Value  any  // in the Go type of its type, as those of events; nil for null
	Client bool // a client wrote it last
}

// Value returns the value with a name, nil if there is none.
func (s State) Value(name string) any {
	for _, v := range s.Values {
		if v.Name == name {
			return v.Value
		}
	}
	return nil
}

// State returns the copy of a state: what this game server said last, and what clients wrote since. It reports false
// for a state that this game server did not put, or removed.
func (s *Space) State(key string) (State, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drain()
	st := s.states[key]
	if st == nil || st.put == nil || !st.removedAt.IsZero() {
		return State{}, false
	}
	out := State{Key: key, Accepted: st.accepted, Pending: s.pending(topic{topicState, key}) || s.pending(topic{topicAudience, key})}
	for i, v := range st.put.Values {
		raw := v.Value
		if raw == nil {
			raw = json.RawMessage("null")
		}
		out.Values = append(out.Values, StateValue{cmp.Or(v.Name, strconv.Itoa(i)), v.Type, decodeValue(v.Type, v.Fields, raw), st.theirs[i]})
	}
	return out, true
}
