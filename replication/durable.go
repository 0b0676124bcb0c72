package replication

import (
	"hash/crc32"
	"slices"
	"time"

	"github.com/dnprelay/dnprelay/dnp/netstate"
	"github.com/dnprelay/dnprelay/replication/view"
)

// numberMax is the highest number that Restore accepts; an EntityId has room for 2^56.
const numberMax = 1 << 55

// A Durable is one state in the form of the durable store.
type Durable struct {
	Number uint64
	Data   []byte // Describe and all keyframes; nil for a removed state
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
		d := Durable{Number: e.st.number}
		if !e.st.dead {
			d.Data = e.st.appendDurable(nil)
		}
		b = append(b, d)
	}
	s.unstored.entries = slices.Delete(s.unstored.entries, 0, n)
	return b
}

// MarkDirty puts a state from TakeDirty back at the front of the queue because it was not
// stored. since is the time of its change.
func (s *Store) MarkDirty(since time.Time, number uint64) {
	st := s.states.byNumber[number]
	if st == nil {
		st = &stored{number: number, dead: true}
	}
	if st.unstored {
		return
	}
	st.unstored = true
	s.unstored.entries = slices.Insert(s.unstored.entries, 0, unstoredState{st, since})
}

// appendDurable appends the records that Restore reads, addressed by EntityId.
func (st *stored) appendDurable(b []byte) []byte {
	b = appendDescribeRecords(b, view.NoRef, view.Entity(st.number, 0), appendStoredDescribe(nil, &st.desc))
	for i, r := range st.schema.ranges {
		var start int
		b, start = view.Begin(b, view.NoRef, view.Entity(st.number, i), view.Keyframe)
		b = view.End(view.AppendKeyframe(b, st.values, st.nulls, st.schema.fields, r), start)
	}
	return b
}

// Restore adds a state from the durable store; nil data stands for a removed state. The caller
// must restore before the first Publish, Write or Advance.
//
// The Store does not emit restored states: replicas see the higher epoch and ask for what
// differs. After an error the store is unchanged, except that it does not assign the number.
func (s *Store) Restore(number uint64, data []byte) error {
	if number > numberMax {
		return errMessage
	}
	s.next = max(s.next, number+1)
	if data == nil {
		return nil
	}
	a := assembly{number: number}
	if err := a.durable(&s.schemas, data); err != nil || s.states.byNumber[number] != nil || s.states.byKey[a.desc.Key] != nil ||
		s.states.views+len(a.schema.ranges) > viewsMaxMax {
		a.release(&s.schemas)
		return errMessage
	}
	s.scratch = appendDescribe(s.scratch[:0], a.desc)
	st := &stored{
		number: number, desc: *a.desc, schema: a.schema, sum: crc32.ChecksumIEEE(s.scratch), introduced: true,
		values: a.values, nulls: a.nulls, dirty: netstate.NewMask(len(a.schema.defs)),
	}
	for range st.schema.ranges {
		st.refs = append(st.refs, s.refs.allocate())
	}
	s.states.insert(st)
	return nil
}

// durable reads all records of a stored state.
func (a *assembly) durable(c *schemas, data []byte) error {
	records := view.NewRecords(data)
	for {
		m, ok := records.Next()
		if !ok {
			break
		}
		if m.Ref != view.NoRef || m.Entity.State() != a.number {
			return errMessage
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
		return a.part(m.Data)
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
	desc   *Description
	sum    uint32 // CRC-32 of the Describe
	schema *schema
	values *netstate.State
	nulls  netstate.Mask
	next   int // view whose keyframe comes next
}

// part reads a DescribePart.
func (a *assembly) part(data []byte) error {
	if len(a.parts)+len(data) > describeMax {
		return errMessage
	}
	a.parts = append(a.parts, data...)
	return nil
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
	a.sum = crc32.ChecksumIEEE(data)
	a.schema = c.acquire(desc.Values, desc.ValueMax)
	desc.Values = a.schema.defs
	a.desc, a.next = desc, 0
	a.values, a.nulls = a.schema.values()
	return nil
}

// keyframe reads the keyframe of view n.
func (a *assembly) keyframe(n int, data []byte) error {
	if a.schema == nil || n != a.next || a.whole() {
		return errMessage
	}
	k, ok := view.ReadKeyframe(data, a.schema.fields, a.schema.ranges[n])
	if !ok {
		return errMessage
	}
	for {
		i, value, null, ok := k.Next()
		if !ok {
			break
		}
		if !null && a.schema.tooLong(i, value) {
			return errMessage
		}
		if !null {
			a.values.Set(i, value)
			if len(a.nulls) > 0 {
				a.nulls.Clear(i)
			}
		}
	}
	a.next++
	return nil
}

// whole reports whether the state is complete.
func (a *assembly) whole() bool { return a.schema != nil && a.next == len(a.schema.ranges) }

// release releases the schema.
func (a *assembly) release(c *schemas) {
	if a.schema != nil {
		c.release(a.schema)
		a.schema = nil
	}
}
