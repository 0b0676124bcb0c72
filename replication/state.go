package replication

import (
	"cmp"
	"hash/crc32"
	"slices"

	"github.com/dnprelay/dnprelay/dnp/netstate"
	"github.com/dnprelay/dnprelay/replication/view"
	"github.com/dnprelay/dnprelay/subject"
)

// A State is one state in a Store or in a Replica. Others may change only Data.
type State struct {
	Number uint64
	Desc   *Description
	Values *netstate.State // a null value holds its substitute
	Nulls  netstate.Mask   // of length 0 if no value is nullable
	Data   any             // belongs to the observer of a Replica

	schema *schema
	sum    uint32 // CRC-32 of the Describe
	round  uint32 // in a Replica: of the last repair that mentioned the state
	hidden bool   // a record
	dead   bool   // removed
}

// newState returns a state whose values are null, or zero if they are not nullable. It takes over
// c, which the caller acquired.
func newState(number uint64, d *Description, c *schema) State {
	s := State{Number: number, Desc: d, schema: c, hidden: reserved(d.Key)}
	s.Values, s.Nulls = c.values()
	return s
}

func (s *State) state() *State { return s }

// IsNull reports whether value i is null.
func (s *State) IsNull(i int) bool { return len(s.Nulls) > 0 && s.Nulls.Has(i) }

// set changes one value and reports whether it was different. It allocates only if a string or
// data value is longer than every earlier one.
func (s *State) set(i int, value []byte, null bool) bool {
	if null {
		value = s.schema.defs[i].Substitute()
	}
	changed := s.Values.Set(i, value)
	if null == s.IsNull(i) {
		return changed
	}
	if null {
		s.Nulls.Set(i)
	} else {
		s.Nulls.Clear(i)
	}
	return true
}

// appendKeyframe appends the keyframe of one view.
func (s *State) appendKeyframe(b []byte, r view.Range) []byte {
	return view.AppendKeyframe(b, s.Values, s.Nulls, s.schema.fields, r)
}

// crc returns the checksum of one view. It encodes the view into scratch.
func (s *State) crc(scratch *[]byte, r view.Range) uint32 {
	*scratch = s.appendKeyframe((*scratch)[:0], r)
	return crc32.ChecksumIEEE(*scratch)
}

// appendRecords appends the records from which an assembly builds the state: the Describe and
// the keyframe of every view, addressed by refs, or by EntityId if refs is nil.
func (s *State) appendRecords(b []byte, refs []view.RefID, describe []byte) []byte {
	for i, r := range s.schema.ranges {
		ref, entity, start := view.NoRef, view.Entity(s.Number, i), 0
		if refs != nil {
			ref = refs[i]
		}
		if i == 0 {
			b = appendDescribeRecords(b, ref, entity, describe)
		}
		b, start = view.Begin(b, ref, entity, view.Keyframe)
		b = view.End(s.appendKeyframe(b, r), start)
	}
	return b
}

// A table holds the states of a space by key, by number, and in the order of their numbers. The
// table of a Replica holds States; that of a Store holds stored states, which embed them.
type table[S interface{ state() *State }] struct {
	byKey    map[string]S
	byNumber map[uint64]S
	all      []S      // by number; dead states stay until sweep
	dead     int      // in all
	keys     []string // of the states that List returns, sorted; nil until sortedKeys makes it
	views    int      // of all states that are not dead
}

func newTable[S interface{ state() *State }]() table[S] {
	return table[S]{byKey: make(map[string]S), byNumber: make(map[uint64]S)}
}

// insert adds a state at its place in the order of numbers.
func (t *table[S]) insert(st S) {
	at, number := len(t.all), st.state().Number
	if at > 0 && t.all[at-1].state().Number >= number {
		at, _ = slices.BinarySearchFunc(t.all, number, func(st S, n uint64) int { return cmp.Compare(st.state().Number, n) })
	}
	t.all = slices.Insert(t.all, at, st)
	t.attach(st)
}

// attach makes st, which is in the list of all states, findable.
func (t *table[S]) attach(st S) {
	s := st.state()
	s.dead = false
	t.byKey[s.Desc.Key] = st
	t.byNumber[s.Number] = st
	t.views += len(s.schema.ranges)
	t.keys = nil
}

// detach undoes attach. The state stays in the list of all states until sweep.
func (t *table[S]) detach(st S) {
	s := st.state()
	s.dead = true
	t.dead++
	delete(t.byKey, s.Desc.Key)
	delete(t.byNumber, s.Number)
	t.views -= len(s.schema.ranges)
	t.keys = nil
}

// reattach undoes detach.
func (t *table[S]) reattach(st S) {
	t.dead--
	t.attach(st)
}

// sweep drops dead states when they are more than half of all, and calls drop for each.
func (t *table[S]) sweep(drop func(S)) {
	if t.dead*2 <= len(t.all) {
		return
	}
	t.dead = 0
	t.all = slices.DeleteFunc(t.all, func(st S) bool {
		dead := st.state().dead
		if dead {
			drop(st)
		}
		return dead
	})
}

// lookup returns the state that an op names by its key.
func (t *table[S]) lookup(key string) (st S, err *Error) {
	st, ok := t.byKey[key]
	switch {
	case ok && !st.state().hidden:
		return st, nil
	case ok, !subject.ValidKey(key), reserved(key):
		var none S
		return none, Errorf(CodeBadRequest, "%q is not a key", key)
	}
	return st, Errorf(CodeUnknownState, "no state has the key %q", key)
}

// sortedKeys returns the sorted keys of all states but records.
func (t *table[S]) sortedKeys() []string {
	if t.keys == nil {
		t.keys = make([]string, 0, len(t.byKey))
		for key, st := range t.byKey {
			if !st.state().hidden {
				t.keys = append(t.keys, key)
			}
		}
		slices.Sort(t.keys)
	}
	return t.keys
}

// groups returns the groups of a client.
func (t *table[S]) groups(client string) []string {
	st, ok := t.byKey[groupsKey(client)]
	if !ok {
		return nil
	}
	return parseGroups(recordOf(st.state()))
}

// A Listing is a part of a space as its authority sees it.
type Listing struct {
	Epoch, Seq uint64
	States     []*State // valid until the next call of any method of the Store
	After      string   // key to continue after; empty if no state is left

	// Interest returns the interest with this name, or nil.
	Interest func(name string) *Interest
}

// Get returns one state.
func (s *Store) Get(key string) (Listing, *Error) {
	st, err := s.states.lookup(key)
	if err != nil {
		return Listing{}, err
	}
	return Listing{Epoch: s.batch.epoch, Seq: s.batch.seq, States: []*State{&st.State}, Interest: s.Interest}, nil
}

// List returns at most the given number of states, and at least one, in the order of their
// keys, beginning behind the key after.
func (s *Store) List(after string, most int) Listing {
	keys := s.states.sortedKeys()
	i, found := slices.BinarySearch(keys, after)
	if found {
		i++
	}
	n := min(len(keys)-i, max(most, 1))
	l := Listing{Epoch: s.batch.epoch, Seq: s.batch.seq, States: make([]*State, n), Interest: s.Interest}
	for j, key := range keys[i : i+n] {
		l.States[j] = &s.states.byKey[key].State
	}
	if i+n < len(keys) {
		l.After = keys[i+n-1]
	}
	return l
}
