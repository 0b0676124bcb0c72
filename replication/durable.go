package replication

import (
	"hash/crc32"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/dnprelay/dnprelay/dnp/netstate"
	"github.com/dnprelay/dnprelay/replication/view"
)

// numberMax is the highest number that Restore accepts; an EntityId has room for 2^56.
const numberMax = 1 << 55

// A Durable is one state in the form of the durable store.
type Durable struct {
	Number uint64
	Data   []byte // Describe, all keyframes and StoredAt; nil for a removed state
}

// A durableQueue lists the states that changed since they were stored, oldest change first.
// States of clients are not stored.
type durableQueue struct {
	off     bool // nothing is stored
	entries []unstoredState
}

type unstoredState struct {
	st    *stored
	since time.Time
}

// add queues st, whose change is as old as now.
func (q *durableQueue) add(now time.Time, st *stored) {
	if q.off || st.unstored || st.owned != nil {
		return
	}
	st.unstored = true
	q.entries = append(q.entries, unstoredState{st, now})
}

// DirtySince returns the time of the oldest change that is not stored.
func (s *Store) DirtySince() (time.Time, bool) {
	if len(s.unstored.entries) == 0 {
		return time.Time{}, false
	}
	return s.unstored.entries[0].since, true
}

// Dirty returns the number of states that wait to be stored.
func (s *Store) Dirty() int { return len(s.unstored.entries) }

// TakeDirty removes up to n states from the queue, oldest change first, and appends them to b.
// The caller owns their bytes, and calls MarkDirty for those that it could not store.
func (s *Store) TakeDirty(b []Durable, n int) []Durable {
	n = min(n, len(s.unstored.entries))
	for _, e := range s.unstored.entries[:n] {
		e.st.unstored = false
		d := Durable{Number: e.st.Number}
		if !e.st.dead {
			d.Data = e.st.appendStored(nil)
			d.Data = s.batch.last().appendRecord(d.Data, e.st.Number)
		}
		b = append(b, d)
	}
	s.unstored.entries = slices.Delete(s.unstored.entries, 0, n)
	return b
}

// Has reports whether there is a state with this number.
func (s *Store) Has(number uint64) bool { return s.states.byNumber[number] != nil }

// Removed iterates over the numbers of the states that were removed, and which TakeDirty has not returned since.
func (s *Store) Removed() iter.Seq[uint64] {
	return func(yield func(uint64) bool) {
		for _, st := range s.batch.removed {
			if st.dead && !yield(st.Number) {
				return
			}
		}
		for _, e := range s.unstored.entries {
			if e.st.dead && !yield(e.st.Number) {
				return
			}
		}
	}
}

// appendStored appends what the durable store has of a state, but StoredAt.
func (st *stored) appendStored(b []byte) []byte {
	return st.appendRecords(b, nil, appendStoredDescribe(nil, st.Desc))
}

// MarkDirty puts states from TakeDirty back at the front of the queue, in this order, because they were not
// stored. since is the time of their change. A number without a state stands for one that has ended.
func (s *Store) MarkDirty(since time.Time, numbers ...uint64) {
	front := make([]unstoredState, 0, len(numbers))
	for _, number := range numbers {
		st := s.states.byNumber[number]
		if st == nil {
			st = &stored{State: State{Number: number, dead: true}}
		}
		if !st.unstored {
			st.unstored = true
			front = append(front, unstoredState{st, since})
		}
	}
	s.unstored.entries = slices.Insert(s.unstored.entries, 0, front...)
}

// MarkAllDirty queues all states, for a durable store that has lost what it had.
func (s *Store) MarkAllDirty(now time.Time) {
	for _, st := range s.states.all {
		if !st.dead {
			s.unstored.add(now, st)
		}
	}
}

// Restore adds a state from the durable store; nil data stands for a removed state. The caller
// must restore before the first Publish, Write or Advance. A state may come twice; it is the same
// then.
//
// Two states with one key are stored if a former holder did not have the first one and made
// another. The later one, which has the higher number, stays, whichever comes first. Restore returns
// the number of the other, which the caller gives to MarkDirty before it serves the space, so that the
// durable store deletes it; 0 for none.
//
// The Store does not emit restored states: replicas see the higher epoch and ask for what
// differs. The time to live of a restored state begins with the first Advance, because its publisher
// may have had no holder to publish to. After an error the store is unchanged, except that it does
// not assign the number.
func (s *Store) Restore(number uint64, data []byte) (replaced uint64, err error) {
	if number > numberMax {
		return 0, errMessage
	}
	s.next = max(s.next, number+1)
	if data == nil || s.states.byNumber[number] != nil {
		return 0, nil
	}
	a := assembly{number: number}
	if err := a.durable(&s.schemas, data); err != nil {
		a.release(&s.schemas)
		return 0, errMessage
	}
	other, views := s.states.byKey[a.st.Desc.Key], s.states.views+len(a.st.schema.ranges)
	if other != nil && other.Number > number {
		a.release(&s.schemas)
		return number, nil
	}
	if other != nil {
		views -= len(other.schema.ranges)
	}
	if views > viewsMaxMax {
		a.release(&s.schemas)
		return 0, errMessage
	}
	if other != nil { // no replica knows it in this epoch
		s.refs.free(other.refs)
		other.refs, other.introduced, replaced = nil, false, other.Number
		s.detach(other)
	}
	st := &stored{State: *a.st, introduced: true, dirty: netstate.NewMask(len(a.st.schema.defs)), said: &said{all: a.position}}
	s.scratch = appendDescribe(s.scratch[:0], st.Desc)
	st.sum = crc32.ChecksumIEEE(s.scratch)
	for range st.schema.ranges {
		st.refs = append(st.refs, s.refs.allocate(st))
	}
	s.states.insert(st)
	s.expiries.restore(st)
	s.records.use(st.Desc.Interest, 1)
	return replaced, nil
}

// durable reads all records of a stored state.
func (a *assembly) durable(c *schemas, data []byte) error {
	records := view.NewRecords(data)
	for m, ok := records.Next(); ok; m, ok = records.Next() {
		if m.Ref != view.NoRef || m.Entity.State() != a.number {
			return errMessage
		}
		if m.Message == view.StoredAt {
			if a.position, ok = readPosition(m.Data); !ok {
				return errMessage
			}
			continue
		}
		if err := a.record(c, m.Entity.View(), m); err != nil {
			return err
		}
	}
	if records.Err() != nil || !a.whole() {
		return errMessage
	}
	return nil
}

// record reads one record of view n.
func (a *assembly) record(c *schemas, n int, m view.Record) error {
	switch m.Message {
	case view.DescribePart:
		if len(a.parts)+len(m.Data) > describeMax {
			return errMessage
		}
		a.parts = append(a.parts, m.Data...)
		return nil
	case view.Describe:
		return a.describe(c, m.Data)
	case view.Keyframe:
		return a.keyframe(n, m.Data)
	}
	return errMessage
}

// An assembly builds one state from its records: DescribeParts and Describe, then the keyframe
// of every view in order. The state becomes visible when it is whole.
type assembly struct {
	number uint64
	parts  []byte // of the Describe
	st     *State // from the Describe on; holds its schema
	next   int    // view whose keyframe comes next

	position Position // of StoredAt; zero for a state that was stored without, which anything said since is later than
}

// describe reads the Describe and acquires its schema until release.
func (a *assembly) describe(c *schemas, data []byte) error {
	if len(a.parts) > 0 {
		data = append(a.parts, data...)
		a.parts = nil
	}
	desc, err := parseDescribe(data)
	if err != nil {
		return err
	}
	a.release(c)
	schema := c.acquire(desc.Values, desc.ValueMax)
	desc.Values = schema.defs
	st := newState(a.number, desc, schema)
	st.sum = crc32.ChecksumIEEE(data)
	a.st, a.next = &st, 0
	return nil
}

// keyframe reads the keyframe of view n.
func (a *assembly) keyframe(n int, data []byte) error {
	if a.st == nil || n != a.next || a.whole() {
		return errMessage
	}
	c := a.st.schema
	values, ok := view.ReadKeyframe(data, c.fields, c.ranges[n])
	if !ok {
		return errMessage
	}
	for i, value, null, ok := values.Next(); ok; i, value, null, ok = values.Next() {
		if !null && c.tooLong(i, value) {
			return errMessage
		}
		a.st.set(i, value, null)
	}
	a.next++
	return nil
}

// whole reports whether the state is complete.
func (a *assembly) whole() bool { return a.st != nil && a.next == len(a.st.schema.ranges) }

// release releases the schema.
func (a *assembly) release(c *schemas) {
	if a.st != nil {
		c.release(a.st.schema)
		a.st = nil
	}
}

// Stored is what the holder of a space stores, at one position: a copy for tools, which the answer to a request for it
// makes. A replica does for nothing that only the authority needs, as bounds, fields and times to live.
type Stored struct {
	Space string
	Store *Store // once the answer is whole; its Position is that of the copy

	id   uint64
	part uint16 // that comes next
}

// Request returns the repair request, to which each Stored belongs that Apply fills.
func (c *Stored) Request() []byte {
	q := RepairRequest{Kind: RepairStored, Space: c.Space}
	request := q.append(nil)
	*c = Stored{Space: c.Space, id: RequestID(request)}
	return request
}

// Apply adds a part of the answer, and reports whether it was the last. After an error the request has to be made again.
func (c *Stored) Apply(part []byte) (whole bool, err error) {
	h, p, err := view.Parse(part)
	switch {
	case err != nil || h.Flags&view.FlagKeyframes == 0 || h.Prev != c.id || h.Epoch == 0:
		return false, errMessage
	case h.Part == 0 && c.Store == nil:
		c.Store = NewStore(StoreConfig{Space: c.Space, Epoch: h.Epoch, Volatile: true})
		c.Store.batch.seq = h.Seq
	case h.Part != c.part || h.Epoch != c.Store.batch.epoch || h.Seq != c.Store.batch.seq:
		return false, errMessage
	}
	c.part++
	records := view.NewRecords(p)
	for number, state := uint64(0), []byte(nil); ; {
		m, ok := records.Next()
		if n := m.Entity.State(); !ok || n != number {
			if len(state) > 0 {
				if _, err := c.Store.Restore(number, state); err != nil {
					return false, err
				}
			}
			number, state = n, state[:0]
		}
		if !ok {
			return h.Flags&view.FlagLast != 0, records.Err()
		}
		state = m.Append(state)
	}
}

// Beside returns what the space has beside states, in the order of their names: the named interests, and the clients with
// groups, and with eyes of their own.
func (c *Stored) Beside() (interests, groups, eyes []string) {
	for _, key := range slices.Sorted(maps.Keys(c.Store.states.byKey)) {
		switch token, name, _ := strings.Cut(key, "."); {
		case name == "": // the eye of all clients, and the key of a state
		case token == interestToken && !IsInline(name):
			interests = append(interests, name)
		case token == groupsToken:
			groups = append(groups, name)
		case token == eyesToken:
			eyes = append(eyes, name)
		}
	}
	return interests, groups, eyes
}
