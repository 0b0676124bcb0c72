package replication

import (
	"cmp"
	"slices"

	"github.com/dnprelay/dnprelay/dnp/netstate"
	"github.com/dnprelay/dnprelay/subject"
)

// A stateTable holds the states of a space by key, by number, and in the order of their
// numbers.
type stateTable struct {
	byKey    map[string]*stored
	byNumber map[uint64]*stored
	all      []*stored // by number; dead states stay until sweep
	dead     int       // in all
	keys     []string  // of the states that List returns, sorted; nil until sortedKeys makes it
	views    int       // of all states that are not dead, introduced or not
}

func newStateTable() stateTable {
	return stateTable{byKey: make(map[string]*stored), byNumber: make(map[uint64]*stored)}
}

// insert adds a restored state at its place in the order of numbers.
func (t *stateTable) insert(st *stored) {
	at, _ := slices.BinarySearchFunc(t.all, st.number, func(st *stored, n uint64) int { return cmp.Compare(st.number, n) })
	t.all = slices.Insert(t.all, at, st)
	t.attach(st)
}

// attach makes st, which is in the list of all states, findable.
func (t *stateTable) attach(st *stored) {
	st.dead = false
	t.byKey[st.desc.Key] = st
	t.byNumber[st.number] = st
	t.views += len(st.schema.ranges)
	t.keys = nil
}

// detach undoes attach. The state stays in the list of all states until sweep.
func (t *stateTable) detach(st *stored) {
	st.dead = true
	t.dead++
	delete(t.byKey, st.desc.Key)
	delete(t.byNumber, st.number)
	t.views -= len(st.schema.ranges)
	t.keys = nil
}

// reattach undoes detach.
func (t *stateTable) reattach(st *stored) {
	t.dead--
	t.attach(st)
}

// sweep drops dead states and their schemas when they are more than half of all.
func (t *stateTable) sweep(c *schemas) {
	if t.dead*2 <= len(t.all) {
		return
	}
	t.dead = 0
	t.all = slices.DeleteFunc(t.all, func(st *stored) bool {
		if st.dead {
			c.release(st.schema)
		}
		return st.dead
	})
}

// lookup returns the state that an op names by its key.
func (t *stateTable) lookup(key string) (*stored, *Error) {
	if !subject.ValidKey(key) || firstToken(key) == groupsToken {
		return nil, Errorf(CodeBadRequest, "%q is not a key", key)
	}
	st := t.byKey[key]
	if st == nil {
		return nil, Errorf(CodeUnknownState, "no state has the key %q", key)
	}
	return st, nil
}

// sortedKeys returns the sorted keys of all states but those that hold groups.
func (t *stateTable) sortedKeys() []string {
	if t.keys == nil {
		t.keys = make([]string, 0, len(t.byKey))
		for key := range t.byKey {
			if firstToken(key) != groupsToken {
				t.keys = append(t.keys, key)
			}
		}
		slices.Sort(t.keys)
	}
	return t.keys
}

// A Listing is a part of a space as its authority sees it.
type Listing struct {
	Epoch, Seq uint64
	States     []Listed
	After      string // key to continue after; empty if no state is left
}

// A Listed state is valid until the next call of any method of the Store.
type Listed struct {
	Number uint64
	Desc   *Description
	Values *netstate.State // a null value holds its substitute
	Nulls  netstate.Mask   // of length 0 if no value is nullable
}

// IsNull reports whether value i is null.
func (l *Listed) IsNull(i int) bool { return len(l.Nulls) > 0 && l.Nulls.Has(i) }

// Get returns one state.
func (s *Store) Get(key string) (Listing, *Error) {
	st, err := s.states.lookup(key)
	if err != nil {
		return Listing{}, err
	}
	return Listing{Epoch: s.batch.epoch, Seq: s.batch.seq, States: []Listed{st.listed()}}, nil
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
	l := Listing{Epoch: s.batch.epoch, Seq: s.batch.seq, States: make([]Listed, n)}
	for j, key := range keys[i : i+n] {
		l.States[j] = s.states.byKey[key].listed()
	}
	if i+n < len(keys) {
		l.After = keys[i+n-1]
	}
	return l
}

func (st *stored) listed() Listed {
	return Listed{Number: st.number, Desc: &st.desc, Values: st.values, Nulls: st.nulls}
}
