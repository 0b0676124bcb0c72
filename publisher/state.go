package publisher

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/dnprelay/dnprelay/replication"
	"github.com/dnprelay/dnprelay/replication/payload"
)

// A Space remembers a removal for removedAge, and removedMax of them: a relay that dies
// may have accepted one without storing it, and its successor restores the state. Of states of others to which it said something it remembers
// the last foreignMax, for the same reason.
const (
	removedAge = time.Minute
	removedMax = 4096
	foreignMax = 4096
)

// copied is the copy of what this game server described.
type copied struct {
	states  map[string]*state
	order   []*state                   // states, in the order in which they came, and as many that are gone at most
	removed []string                   // keys, in the order of their removal
	foreign []string                   // keys of states of others, in the order in which the relay accepted something; may contain others
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

	put    *payload.Put // with the newest values; nil if another program put the state
	defs   []replication.ValueDef
	names  map[string]int
	theirs []bool // a client wrote the value last

	values map[string]json.RawMessage // that this Space said, of another program's state; by name
	who    json.RawMessage            // likewise

	// The positions of what the copy has: of the answers that accepted it, and of the events that named it. They are zero for what no relay has accepted. Another
	// relay takes from the copy what is newer than what it has.
	known    []Position          // of the values
	knownOf  map[string]Position // of values
	knownWho Position            // of the audience
	knownPut Position            // of everything else; of a removed state, of the removal

	kept      bool      // in the list of foreign states
	bound     *binding  // of the Bound that put the state; nil if there is none
	accepted  bool      // a relay has had the state
	removedAt time.Time // zero: the state exists
}

func newState(e op) *state {
	st := &state{key: e.parsed.Key, put: e.put, bound: e.bound, names: make(map[string]int, len(e.parsed.Values)), theirs: make([]bool, len(e.parsed.Values)), known: make([]Position, len(e.parsed.Values))}
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
			return decodeValue(Type(st.put.Values[i].Type), st.defs[i].Struct, raw)
		}
	}
	return decodeValue("", nil, raw)
}

// appendForeign appends a set of what this Space said about the state of another program: what is not of sets counts where the relay has nothing newer.
func (st *state) appendForeign(b []byte, sets map[string]bool) []byte {
	if len(st.values) == 0 {
		return b
	}
	asOf := []byte{'{'}
	form := payload.Op{Op: "set", Key: st.key}
	for _, name := range slices.Sorted(maps.Keys(st.values)) {
		form.Sets = append(form.Sets, payload.Member{Name: name, Value: st.values[name]})
		if !sets[name] {
			if len(asOf) > 1 {
				asOf = append(asOf, ',')
			}
			asOf = payload.AppendPosition(append(append(append(asOf, '"'), name...), `":`...), st.knownOf[name])
		}
	}
	form.AsOf = append(asOf, '}')
	return form.Append(b)
}

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

// appendAssert appends the put that makes the state where the relay does not know it, and otherwise brings it what is newer here than there. The
// values of sets are new.
func (st *state) appendAssert(b []byte, sets map[string]bool) []byte {
	return st.put.Append(b, func(i int) (c replication.Condition, own bool) {
		switch {
		case i < 0:
			return replication.Condition{AsOf: st.knownPut, Given: true}, false
		case len(sets) > 0 && sets[strconv.Itoa(i)]:
			return c, true
		}
		return replication.Condition{AsOf: st.known[i], Given: true}, st.known[i] != st.knownPut
	})
}

// appendSet appends a set of these values as the copy has them; nothing if none is left.
func (st *state) appendSet(b []byte, key string, sets map[string]bool) []byte {
	var few [8]payload.Member // so that few values are no memory of their own
	form := payload.Op{Op: "set", Key: key, Sets: few[:0]}
	for name := range sets {
		if st.put == nil {
			form.Sets = append(form.Sets, payload.Member{Name: name, Value: st.values[name]})
		} else if i, err := strconv.Atoi(name); err == nil && i < len(st.put.Values) && !st.theirs[i] {
			form.Sets = append(form.Sets, payload.Member{Name: name, Value: st.put.Values[i].Value})
		}
	}
	if len(form.Sets) == 0 {
		return b
	}
	return form.Append(b)
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
	p := &pendingOp{topic: topic{topicState, e.parsed.Key}, verb: verb(e.source), trace: e.trace, changed: true}
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
		if p.topic.kind = topicAudience; st.put != nil {
			st.put.Audience = e.who
		} else {
			st.who = e.who
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
		st = &state{key: key, values: map[string]json.RawMessage{}, knownOf: map[string]Position{}}
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
	s.order, s.removed, s.foreign, s.asserting, s.lives = nil, nil, nil, nil, lives{}
	return nil
}

// written applies the values that a client wrote, except those that an op of this Space changes later, and those of which the copy has a later
// position. Answers and events come in the order in which the relay applied ops and writes, so an op without an answer is later than the write,
// unless its answer was lost. So the write is looked at again when the answer is there; of a write and an op at one position the op is then taken to be later.
func (s *Space) written(ev eventJSON, again bool) {
	st := s.states[ev.Key]
	if st == nil || st.put == nil || !st.removedAt.IsZero() {
		return
	}
	at, t := Position{Epoch: ev.Epoch, Seq: ev.Seq}, topic{topicState, ev.Key}
	if s.inFlight[t] != nil {
		s.unplaced.add(t, ev)
	}
	late := false
	for name, v := range ev.Values {
		i, ok := st.index(name)
		if !ok || st.known[i].After(at) || again && st.known[i] == at || s.inFlight[t].changes(i) || s.out.ops[t].changes(i) {
			continue
		}
		if st.bound.adopt(i, v, false) {
			st.put.Values[i].Value, st.theirs[i], st.known[i] = v, true, at
			late = late || at.Epoch < s.epoch
		}
	}
	if late { // the relay that holds the space may lack it
		s.out.push(&pendingOp{topic: t, state: st, verb: "put", assert: true})
	}
}

// unplaced are what clients wrote to states while ops about them had no answer, by state. Such a write is later than the op if the answer
// came late, because the relay had to be asked for it.
type unplaced map[topic][]eventJSON

// unplacedMax bounds them for a state. Beyond it, the copy may lack a write.
const unplacedMax = 64

func (u unplaced) add(t topic, ev eventJSON) {
	if len(u[t]) < unplacedMax {
		u[t] = append(u[t], ev)
	}
}

func (u unplaced) take(t topic) []eventJSON {
	list := u[t]
	delete(u, t)
	return list
}

// reassert makes the whole copy pending, for a relay that took the space over. What that relay has may be newer than the copy: clients and
// other publishers went on. So each part of the copy has the position at which it was said, and the relay takes what is newer than its own.
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
		case st.gone: // a state that was put again is pending or accepted
		case !st.removedAt.IsZero():
			s.out.push(&pendingOp{topic: topic{topicState, st.key}, state: st, verb: "remove", assert: true})
		case st.put != nil:
			s.out.push(&pendingOp{topic: topic{topicState, st.key}, state: st, verb: "put", assert: true})
			if st.knownWho.After(st.knownPut) {
				s.out.push(&pendingOp{topic: topic{topicAudience, st.key}, state: st, verb: "audience", assert: true})
			}
		default:
			s.out.assertForeign(st)
		}
	}
	if s.asserting = s.asserting[n:]; len(s.asserting) == 0 {
		s.asserting = nil
	}
}

// assertForeign makes pending what this Space said about the state of another program or a client.
func (o *outbox) assertForeign(st *state) {
	if st.who != nil {
		o.push(&pendingOp{topic: topic{topicAudience, st.key}, state: st, verb: "audience", assert: true})
	}
	if len(st.values) > 0 {
		o.push(&pendingOp{topic: topic{topicState, st.key}, state: st, verb: "set", assert: true})
	}
}

// appendPending appends the JSON form of a pending op with the newest values; nothing if the
// op has nothing to say.
func (s *copied) appendPending(b []byte, p *pendingOp) []byte {
	name := p.topic.name
	switch p.topic.kind {
	case topicGroups:
		return appendGroups(b, name, s.groups[name])
	case topicInterest:
		return append(b, s.interests[name].text...)
	case topicEyes:
		return append(b, s.eyes[name]...)
	}
	st := s.of(p)
	switch {
	case st == nil:
		return b
	case p.topic.kind == topicAudience:
		who := st.who
		if st.put != nil {
			who = st.put.Audience
		}
		if who == nil || !st.removedAt.IsZero() {
			return b
		}
		return (&payload.Op{Op: "audience", Key: name, Audience: who, AsOf: asOf(st.knownWho, p.asserts())}).Append(b)
	case !st.removedAt.IsZero():
		return (&payload.Op{Op: "remove", Key: name, AsOf: asOf(st.knownPut, p.asserts())}).Append(b)
	case p.put && st.put != nil:
		return st.put.Append(b, nil)
	case p.assert && st.put != nil:
		return st.appendAssert(b, p.sets)
	case p.assert:
		return st.appendForeign(b, p.sets)
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
	form := payload.Op{Op: "group", Client: client}
	for g, in := range groups {
		if in {
			form.Join = append(form.Join, g)
		} else {
			form.Leave = append(form.Leave, g)
		}
	}
	return form.Append(b)
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
		out.Values = append(out.Values, StateValue{cmp.Or(v.Name, strconv.Itoa(i)), Type(v.Type), decodeValue(Type(v.Type), st.defs[i].Struct, raw), st.theirs[i]})
	}
	return out, true
}
