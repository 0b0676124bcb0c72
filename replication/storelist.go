package replication

import (
	"slices"

	"github.com/dnprelay/dnprelay/dnp/netstate"
)

// Listing is part of a space as its authority sees it.
type Listing struct {
	Epoch, Seq uint64
	States     []Listed
	After      string // key to continue after; empty if this is all
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
	st, err := s.lookup(key)
	if err != nil {
		return Listing{}, err
	}
	return Listing{Epoch: s.cfg.Epoch, Seq: s.seq, States: []Listed{st.listed()}}, nil
}

// List returns at most that many states, at least one, in the order of their keys,
// beginning after the key after.
func (s *Store) List(after string, most int) Listing {
	keys := s.sortedKeys()
	i, found := slices.BinarySearch(keys, after)
	if found {
		i++
	}
	n := min(len(keys)-i, max(most, 1))
	l := Listing{Epoch: s.cfg.Epoch, Seq: s.seq, States: make([]Listed, n)}
	for j, key := range keys[i : i+n] {
		l.States[j] = s.byKey[key].listed()
	}
	if i+n < len(keys) {
		l.After = keys[i+n-1]
	}
	return l
}

func (st *stored) listed() Listed {
	return Listed{Number: st.number, Desc: &st.desc, Values: st.values, Nulls: st.nulls}
}

// sortedKeys returns the keys that anybody may see, sorted.
func (s *Store) sortedKeys() []string {
	if s.keys == nil {
		s.keys = make([]string, 0, len(s.byKey))
		for key := range s.byKey {
			if firstToken(key) != groupsToken {
				s.keys = append(s.keys, key)
			}
		}
		slices.Sort(s.keys)
	}
	return s.keys
}
