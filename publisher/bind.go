package publisher

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"sync"

	"github.com/dnprelay/dnprelay/publisher/layout"
	"github.com/dnprelay/dnprelay/replication"
)

// A Bound is a state whose values are the exported fields of a struct. Its methods may be called from any
// goroutine. They do not wait for the relay, and Set does not even wait for its Space.
//
// A Bound ends when its state is removed or put by other means, or the Space is closed.
type Bound[T any] struct {
	binding
	current, next T // of mu
}

// Bind puts a state with the values of a struct, and keeps them together: Set and Update send what differs, and
// what clients write arrives in Get. The tags of the fields, as `dnp:"hp,precision=0.1,min=0,max=100,rate=5"`,
// choose names, types and bounds: see package [layout]. Everything else about the state is in the Put, which must
// not have values. Bind does not wait for the relay; Flush does.
func Bind[T any](s *Space, put Put, value T) (*Bound[T], error) {
	if len(put.Values) > 0 {
		return nil, opError(put, replication.CodeBadRequest, "the values are those of the struct")
	}
	fields, err := layout.Of(reflect.TypeFor[T]())
	if err != nil {
		return nil, opError(put, replication.CodeTypeMismatch, "%v", err)
	}
	b := &Bound[T]{binding: binding{space: s, key: put.Key, fields: fields, values: make([][]byte, len(fields)), dirty: make([]bool, len(fields)), ends: make([]int, len(fields))}}
	for i := range fields {
		b.nowFields = append(b.nowFields, fields[i].In(reflect.ValueOf(&b.current).Elem()))
		b.nextFields = append(b.nextFields, fields[i].In(reflect.ValueOf(&b.next).Elem()))
		b.shared = b.shared || fields[i].Shared()
	}
	b.next, b.queued = value, true // the put has the first values, so that the Space need not look
	if err := b.commit(); err != nil {
		return nil, err
	}
	clear(b.dirty)
	b.queued = false
	for i := range fields {
		put.Values = append(put.Values, valueOf(&fields[i], b.values[i]))
	}
	e, err := put.encode()
	if err != nil {
		return nil, err
	}
	e.bound = &b.binding
	if err := s.submitEncoded([]op{e}, nil); err != nil {
		return nil, err
	}
	return b, nil
}

// valueOf returns a value of a put.
func valueOf(f *layout.Field, value []byte) Value {
	v := Value{
		Name: f.Name, Type: Type(f.Type.String()), Value: json.RawMessage(bytes.Clone(value)), Precision: f.Precision,
		Nullable: f.Nullable, Rate: f.Rate, NonFinite: f.NonFinite,
	}
	for _, x := range []struct {
		text string
		to   *any
	}{{f.Null, &v.Null}, {f.Min, &v.Min}, {f.Max, &v.Max}} {
		if x.text != "" {
			*x.to = json.RawMessage(x.text)
		}
	}
	for i := range f.Parts {
		v.Fields = append(v.Fields, Field{f.Parts[i].Name, Type(f.Parts[i].Type.String())})
	}
	return v
}

// Key returns the key of the state.
func (b *Bound[T]) Key() string { return b.key }

// Get returns the values: those of the last Set, or those that a client wrote since. The caller owns what they
// point to.
func (b *Bound[T]) Get() T {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.copyCurrent()
}

// copyCurrent returns the current values without shared memory.
func (b *Bound[T]) copyCurrent() T {
	if !b.shared {
		return b.current
	}
	var v T
	for i := range b.fields {
		b.fields[i].Clone(b.fields[i].In(reflect.ValueOf(&v).Elem()), b.nowFields[i])
	}
	return v
}

// Set changes the values to v and sends those that differ. Use Update for a state that clients write, too: v says
// how every value should be. The error is about a value that does not fit its type, or says that the Bound has
// ended; then nothing changes.
func (b *Bound[T]) Set(v T) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.next = v
	return b.commit()
}

// Update lets f change the values and sends those that differ. f must not call methods of the Bound.
func (b *Bound[T]) Update(f func(*T)) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.next = b.copyCurrent()
	f(&b.next)
	return b.commit()
}

// A binding is what a Bound of any type is.
type binding struct {
	space  *Space
	key    string
	fields []layout.Field
	shared bool // Get has to clone values

	// mu is of what follows. Set must not wait for the Space, which may be busy with its whole copy. It may be
	// locked after the Space's mu, not before.
	mu         sync.Mutex
	nowFields  []reflect.Value // of Bound.current
	nextFields []reflect.Value
	values     [][]byte // the current values as JSON
	dirty      []bool   // values that the copy of the Space does not have
	queued     bool     // the Space will look
	ended      bool
	scratch    []byte
	ends       []int // of the values in scratch
}

// commit makes the next values the current ones. It allocates nothing, unless a string, data or a pointer changes.
func (b *binding) commit() error {
	if b.ended || b.space.ctx.Err() != nil {
		return &Error{Op: "set " + b.key, Code: CodeUnknownState, Message: "the state was removed, put by other means, or its space closed"}
	}
	text := b.scratch[:0]
	for i := range b.fields {
		var err error
		if text, err = b.fields[i].Append(text, b.nextFields[i]); err != nil {
			return &Error{Op: "set " + b.key, Code: CodeOutOfRange, Message: fmt.Sprintf("value %q: %v", b.fields[i].Name, err)}
		}
		b.ends[i] = len(text)
	}
	b.scratch = text
	changed, start := false, 0
	for i, end := range b.ends {
		if value := text[start:end]; !bytes.Equal(value, b.values[i]) {
			b.values[i] = append(b.values[i][:0], value...)
			b.fields[i].Clone(b.nowFields[i], b.nextFields[i])
			b.dirty[i], changed = true, true
		}
		start = end
	}
	if changed && !b.queued {
		b.queued = true
		b.space.dirty.add(b)
		b.space.nudge()
	}
	return nil
}

// adopt takes a value that the copy got by other means, and reports whether the copy may have it: a client does
// not change a value that the game server has set meanwhile.
func (b *binding) adopt(i int, value []byte, ours bool) bool {
	if b == nil {
		return true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.dirty[i] && !ours {
		return false
	}
	if b.fields[i].Decode(b.nowFields[i], value) == nil {
		if text, err := b.fields[i].Append(b.values[i][:0], b.nowFields[i]); err == nil {
			b.values[i] = text
		}
	}
	b.dirty[i] = false
	return true
}

// end ends the Bound of a state that is removed or replaced.
func (b *binding) end() {
	if b != nil {
		b.mu.Lock()
		b.ended = true
		b.mu.Unlock()
	}
}

// take applies what is dirty to the copy, and returns which values changed.
func (b *binding) take(st *state) map[string]bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.queued = false
	if b.ended {
		return nil
	}
	sets := map[string]bool{}
	for i, dirty := range b.dirty {
		if dirty {
			st.put.Values[i].Value, st.theirs[i], b.dirty[i] = bytes.Clone(b.values[i]), false, false
			sets[strconv.Itoa(i)] = true
		}
	}
	return sets
}

// A dirtyList has the bindings with values that the copy does not have, each once.
type dirtyList struct {
	mu          sync.Mutex // commit must not wait for the Space
	list, spare []*binding
}

func (d *dirtyList) add(b *binding) {
	d.mu.Lock()
	d.list = append(d.list, b)
	d.mu.Unlock()
}

// swap returns the list and begins another one in the memory of the one before.
func (d *dirtyList) swap() []*binding {
	d.mu.Lock()
	defer d.mu.Unlock()
	list := d.list
	d.list, d.spare = d.spare[:0], list
	return list
}

// drain brings the values of bound states into the copy, and makes them pending.
func (s *Space) drain() {
	list := s.dirty.swap()
	for i, b := range list {
		list[i] = nil
		st := s.states[b.key]
		if st == nil || st.bound != b {
			continue
		}
		if sets := b.take(st); len(sets) > 0 {
			s.out.push(&pendingOp{topic: topic{topicState, b.key}, verb: "set", sets: sets, changed: true})
		}
	}
}
