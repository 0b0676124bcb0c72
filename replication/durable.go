package replication

import (
	"hash/crc32"
	"slices"
	"time"

	"github.com/dnprelay/dnprelay/dnp/netstate"
	"github.com/dnprelay/dnprelay/replication/view"
)

// numberMax is the highest number that Restore believes; an EntityId has room
// for 2^56.
const numberMax = 1 << 55

// A Durable is one state as it is to be stored.
type Durable struct {
	Number uint64
	Data   []byte // Describe and all keyframes; nil if the state was removed
}

// A durableQueue is the states that changed since they were stored, oldest
// change first. States that clients made are not stored.
type durableQueue struct{ entries []unstoredState }

type unstoredState struct {
	st    *stored
	since time.Time
}

// store queues st to be stored.
func (s *Store) store(now time.Time, st *stored) {
	if s.cfg.Volatile || st.unstored || st.owned != nil {
		return
	}
	st.unstored = true
	s.unstored.entries = append(s.unstored.entries, unstoredState{st, now})
}

// DirtySince returns since when the oldest change waits to be stored.
func (s *Store) DirtySince() (time.Time, bool) {
	if len(s.unstored.entries) == 0 {
		return time.Time{}, false
	}
	return s.unstored.entries[0].since, true
}

// Dirty returns how many states wait to be stored.
func (s *Store) Dirty() int { return len(s.unstored.entries) }

// TakeDirty appends up to n states that changed since they were last taken,
// oldest change first, to b. The caller owns their bytes, and calls MarkDirty
// for those that it could not store.
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

// MarkDirty says that a state taken by TakeDirty was not stored, although its
// change is as old as since.
func (s *Store) MarkDirty(since time.Time, number uint64) {
	st := s.byNumber[number]
	if st == nil {
		st = &stored{number: number, dead: true}
	}
	if st.unstored {
		return
	}
	st.unstored = true
	s.unstored.entries = slices.Insert(s.unstored.entries, 0, unstoredState{st, since})
}

// appendDurable appends the records that Restore takes, addressed by EntityId.
func (st *stored) appendDurable(b []byte) []byte {
	b = appendDescribeRecords(b, view.NoRef, view.Entity(st.number, 0), appendStoredDescribe(nil, &st.desc))
	for i, r := range st.schema.ranges {
		var start int
		b, start = view.Begin(b, view.NoRef, view.Entity(st.number, i), view.Keyframe)
		b = view.End(view.AppendKeyframe(b, st.values, st.nulls, st.schema.fields, r), start)
	}
	return b
}

// Restore brings a state back as it was stored. It must be called before the
// first Publish, Write or Advance. nil data stands for a removed state.
//
// Restored states are not emitted: replicas see the higher epoch and ask for
// what differs. An error leaves the store as it was, but for the numbers.
func (s *Store) Restore(number uint64, data []byte) error {
	if number > numberMax {
		return errMessage
	}
	s.next = max(s.next, number+1)
	if data == nil {
		return nil
	}
	a := assembly{number: number}
	if err := a.durable(&s.schemas, data); err != nil || s.byNumber[number] != nil || s.byKey[a.desc.Key] != nil ||
		s.refs.live+len(a.schema.ranges) > viewsMaxMax {
		a.release(&s.schemas)
		return errMessage
	}
	s.scratch = appendDescribe(s.scratch[:0], a.desc)
	st := &stored{
		number: number, desc: *a.desc, schema: a.schema, sum: crc32.ChecksumIEEE(s.scratch), introduced: true,
		values: a.values, nulls: a.nulls, dirty: netstate.NewMask(len(a.schema.defs)),
	}
	for range st.schema.ranges {
		st.refs = append(st.refs, s.refs.take())
	}
	at, _ := slices.BinarySearchFunc(s.all, number, func(st *stored, n uint64) int { return compare(st.number, n) })
	s.all = slices.Insert(s.all, at, st)
	s.attach(st)
	return nil
}

func compare(a, b uint64) int {
	if a < b {
		return -1
	}
	return 1
}

// durable takes the records of a stored state.
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

// record takes one record of view n.
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

// An assembly puts one state together from its records: DescribeParts and
// Describe, then the keyframe of every view in order. Until it is whole nobody
// sees it.
type assembly struct {
	number uint64
	parts  []byte // of the Describe
	desc   *Description
	sum    uint32 // CRC-32 of the Describe
	schema *schema
	values *netstate.State
	nulls  netstate.Mask
	next   int // view
}

// part takes a DescribePart.
func (a *assembly) part(data []byte) error {
	if len(a.parts)+len(data) > describeMax {
		return errMessage
	}
	a.parts = append(a.parts, data...)
	return nil
}

// describe takes the Describe. The schema is held until release.
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

// keyframe takes the keyframe of a view.
func (a *assembly) keyframe(n int, data []byte) error {
	if a.schema == nil || n != a.next || a.whole() {
		return errMessage
	}
	r := a.schema.ranges[n]
	if !view.CheckKeyframe(data, a.schema.fields, r) {
		return errMessage
	}
	k := view.ReadKeyframe(data, a.schema.fields, r)
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

// release gives the schema back.
func (a *assembly) release(c *schemas) {
	if a.schema != nil {
		c.release(a.schema)
		a.schema = nil
	}
}
