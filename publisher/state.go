package publisher

import (
	"encoding/json"
	"strconv"
	"time"

	"github.com/dnprelay/dnprelay/replication"
)

// How long, and how many, removals are remembered: a relay that dies may have accepted
// one and not stored it, and its successor would bring the state back.
const (
	removedAge = time.Minute
	removedMax = 4096
)

// A state is what the Space has said about one key. Owned by the Space's goroutine.
type state struct {
	put    *putJSON // with the newest values; nil if somebody else put the state
	defs   []replication.ValueDef
	names  map[string]int
	theirs []bool // a client wrote the value after this Space did

	values map[string]json.RawMessage // of somebody else's state, until they are accepted
	who    json.RawMessage            // likewise

	accepted  bool      // a relay has had it
	removedAt time.Time // zero: it is there
}

func newState(e op) *state {
	st := &state{put: e.put, names: make(map[string]int, len(e.parsed.Values)), theirs: make([]bool, len(e.parsed.Values))}
	for i, v := range e.parsed.Values {
		st.defs = append(st.defs, v.ValueDef)
		if v.Name != "" {
			st.names[v.Name] = i
		}
	}
	return st
}

// index returns which value a name or an index in digits means.
func (st *state) index(name string) (i int, ok bool) {
	if i, ok = st.names[name]; ok {
		return i, true
	}
	i, err := strconv.Atoi(name)
	return i, err == nil && i >= 0 && i < len(st.defs)
}

// writable reports whether clients may write the state.
func (st *state) writable() bool { return st.put.Access != any("read-only") }

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

// set takes the values of a Set, and returns which they are.
func (st *state) set(values map[string]json.RawMessage) map[string]bool {
	said := make(map[string]bool, len(values))
	for name, v := range values {
		if st.put == nil {
			st.values[name], said[name] = v, true
			continue
		}
		i, _ := st.index(name)
		st.put.Values[i].Value, st.theirs[i] = v, false
		said[indexName(i)] = true
	}
	return said
}

// encodePut writes the put that makes the state. Unless it is fresh, values that
// clients wrote are left out, which keeps what the relay has.
func (st *state) encodePut(fresh bool) any {
	if fresh || !st.writable() {
		return st.put
	}
	put := *st.put
	put.Values = append([]valueJSON(nil), put.Values...)
	for i := range put.Values {
		if st.theirs[i] {
			put.Values[i].Value = nil
		}
	}
	return &put
}

// encodeSet writes a set of these values as they are in the copy; nil if none is left.
func (st *state) encodeSet(key string, said map[string]bool) any {
	form := setJSON{Op: "set", Key: key, Values: make(map[string]json.RawMessage, len(said))}
	for name := range said {
		if st.put == nil {
			form.Values[name] = st.values[name]
			continue
		}
		if i, err := strconv.Atoi(name); err == nil && i < len(st.put.Values) && !st.theirs[i] {
			form.Values[name] = st.put.Values[i].Value
		}
	}
	if len(form.Values) == 0 {
		return nil
	}
	return form
}

// ours returns the values that no client wrote last.
func (st *state) ours() map[string]bool {
	said := map[string]bool{}
	for i, theirs := range st.theirs {
		if !theirs {
			said[indexName(i)] = true
		}
	}
	return said
}

func indexName(i int) string { return strconv.Itoa(i) }
