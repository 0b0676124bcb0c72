package client

import (
	"bytes"
	"errors"
	"fmt"
	"time"

	"github.com/dnprelay/dnprelay/dnp"
	"github.com/dnprelay/dnprelay/dnp/linkmsg"
	"github.com/dnprelay/dnprelay/dnp/netstate"
	"github.com/dnprelay/dnprelay/dnp/wire"
)

// A State is a list of typed values that the edge and this client keep equal. All methods may be called
// from any goroutine. After the end of its link a State keeps its last values.
type State struct {
	// Data is the program's: what it has for the state. Only functions of Config may use it, which run one after the other, or
	// the program has a lock for it.
	Data any

	client   *Client
	id       wire.LinkID // of a state of the edge
	key      string
	names    []string            // by index; shorter than the values, or with empty ones, where the link message has none
	fields   map[int][]component // of data values whose link message tells them
	index    map[string]int
	message  []byte
	readOnly bool
	own      bool

	// Client.mu guards these.
	linked bool
	values *netstate.State
	source *dnp.Source
	writes map[int]*write
}

// A write is a value that this client set, while it may not have arrived: a LinkUpdate has no
// acknowledgement.
type write struct {
	previous []byte // what the write replaced
	sent     time.Time
	step     int
	due      time.Time // when the value is sent again
}

// writeSteps are the times after the first sending at which a value is sent again.
var writeSteps = []time.Duration{60 * time.Millisecond, 180 * time.Millisecond, 500 * time.Millisecond, 1500 * time.Millisecond}

// crossMax bounds the time in which a value of the edge counts as one that crossed a write on its way. The edge
// repeats values for longer, so that a client that is wrong about it learns the truth.
const crossMax = 100 * time.Millisecond

// rememberResumed is how long a write is remembered where a connection may turn out to be lost: longer than it takes
// to find out.
const rememberResumed = 8 * time.Second

// Key returns the name of the state: the link message as text, or the key that is in it.
func (s *State) Key() string { return s.key }

// Message returns the link message. The caller must not change it.
func (s *State) Message() []byte { return s.message }

// ID returns the LinkId of a state of the edge.
func (s *State) ID() uint16 { return uint16(s.id) }

// Own reports whether this client made the state.
func (s *State) Own() bool { return s.own }

// ReadOnly reports whether the edge refuses what this client writes.
func (s *State) ReadOnly() bool { return s.readOnly }

// Len returns the number of values.
func (s *State) Len() int { return s.values.Layout().Len() }

// Type returns the type of a value.
func (s *State) Type(index int) wire.ValueType { return s.values.Layout().Type(index) }

// Name returns the name of a value; empty if the link message does not tell it.
func (s *State) Name(index int) string {
	if index < len(s.names) {
		return s.names[index]
	}
	return ""
}

// Index returns the index of the value with a name.
func (s *State) Index(name string) (index int, ok bool) {
	index, ok = s.index[name]
	return index, ok
}

// Linked reports whether the state has a link, without which its values do not change.
func (s *State) Linked() bool {
	s.client.mu.Lock()
	defer s.client.mu.Unlock()
	return s.linked
}

// Value returns the value with this name. Without such a value the result is not Valid.
func (s *State) Value(name string) Value {
	i, ok := s.index[name]
	if !ok {
		return Value{}
	}
	return s.At(i)
}

// At returns the value with this index. If there is none, the result is not Valid.
func (s *State) At(index int) Value {
	if index < 0 || index >= s.Len() {
		return Value{}
	}
	s.client.mu.Lock()
	defer s.client.mu.Unlock()
	return newValue(s.Type(index), s.values.Value(index))
}

// AppendFloats appends the components of the value with this index, which Value.Floats returns.
func (s *State) AppendFloats(list []float64, index int) []float64 {
	if index < 0 || index >= s.Len() || s.Type(index).Variable() {
		return list
	}
	s.client.mu.Lock()
	defer s.client.mu.Unlock()
	return appendFloats(list, s.Type(index), s.values.Value(index))
}

// Values returns all values as they were at one moment.
func (s *State) Values() []Value {
	s.client.mu.Lock()
	defer s.client.mu.Unlock()
	list := make([]Value, s.Len())
	for i := range list {
		list[i] = newValue(s.Type(i), s.values.Value(i))
	}
	return list
}

// Set sets the value with this name. See SetAt.
func (s *State) Set(name string, v any) error {
	i, ok := s.index[name]
	if !ok {
		return fmt.Errorf("client: state %q has no value %q", s.key, name)
	}
	return s.SetAt(i, v)
}

// SetAt sets a value, to a number, a string, a []byte for data, a slice or array of numbers for points,
// vectors and quaternions, a Value, or a map[string]any with all components of data that has Fields. The state has the value at once, and the edge soon. If the game
// refuses it, the edge sends the true value, and Config.Change tells of it.
//
// The error names what does not fit. A state that the edge links as read-only cannot be set, nor one
// that has no link any more.
func (s *State) SetAt(index int, v any) error {
	if index < 0 || index >= s.Len() {
		return fmt.Errorf("client: state %q has %d values, no value %d", s.key, s.Len(), index)
	}
	encoded, err := s.encode(index, v)
	if err != nil {
		return fmt.Errorf("client: state %q, value %d: %w", s.key, index, err)
	}
	c := s.client
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case s.readOnly:
		return fmt.Errorf("client: state %q is read-only", s.key)
	case s.source == nil:
		return fmt.Errorf("client: state %q has no link any more", s.key)
	}
	previous := bytes.Clone(s.values.Value(index))
	if !s.values.Set(index, encoded) {
		return nil
	}
	if old := s.writes[index]; old != nil {
		previous = old.previous
	}
	s.note(index, &write{previous: previous})
	return nil
}

// note makes the next flush send a value.
func (s *State) note(index int, w *write) {
	s.source.Changed(index)
	if s.writes == nil {
		s.writes = map[int]*write{}
	}
	s.writes[index] = w
	s.client.writing[s] = struct{}{}
	s.client.wake()
}

// end forgets the link.
func (s *State) end() {
	s.linked, s.source, s.writes = false, nil, nil
	delete(s.client.writing, s)
}

// A Field is a value of a state that this client offers, or a component of a data value (State.Fields).
type Field struct {
	Name  string // for State.Value and State.Set of this client only: the space knows the value by its index
	Type  string // one of the 38 types: sint8 … uint64, float16 … float64, string, data, point2s8 … quaternionf64
	Value any    // nil is zero
}

// Offer makes a state of this client, which is the state client.<client>.<number> of the space while the
// client is connected. The message tells others what it is. An edge takes 64 such states, and Config.Link
// tells when it took this one; Config.Unlink tells if the edge refused it. The client may set its values
// at once.
func (c *Client) Offer(message string, fields ...Field) (*State, error) {
	s := &State{client: c, key: message, message: []byte(message), own: true, index: map[string]int{}}
	layout := make([]netstate.Value, len(fields))
	values := make([][]byte, len(fields))
	for i, f := range fields {
		t, ok := wire.ParseValueType(f.Type)
		if !ok {
			return nil, fmt.Errorf("client: value %d: there is no type %q", i, f.Type)
		}
		layout[i].Type = t
		if values[i] = t.Zero(); f.Value != nil {
			var err error
			if values[i], err = encode(t, f.Value); err != nil {
				return nil, fmt.Errorf("client: value %d: %w", i, err)
			}
		}
		s.names = append(s.names, f.Name)
		if f.Name != "" {
			s.index[f.Name] = i
		}
	}
	if message == "" {
		return nil, errors.New("client: a state needs a message")
	}
	l, err := netstate.NewLayout(layout)
	if err != nil {
		return nil, err
	}
	s.values = netstate.NewState(l)
	for i, v := range values {
		s.values.Set(i, v)
	}
	return s, c.link(s)
}

// link offers the edge an own state.
func (c *Client) link(s *State) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.over(); err != nil {
		return err
	}
	s.source = c.endpoint.NewSource(dnp.SourceConfig{State: s.values, Message: s.message, Data: s})
	if err := c.conn.Link(s.source, false); err != nil {
		s.source.Remove()
		s.source = nil
		return err
	}
	c.own[s.source] = s
	c.wake()
	return nil
}

// Withdraw ends a state of this client. Config.Unlink does not tell of it.
func (c *Client) Withdraw(s *State) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.source == nil || c.own[s.source] != s {
		return
	}
	delete(c.own, s.source)
	s.source.Remove()
	s.end()
	c.wake()
}

// accept takes a state of the edge; nil if the client declines it.
func (c *Client) accept(e *dnp.Event) *State {
	var values []netstate.Value
	for rest := e.Values; rest.Len() > 0; {
		var t wire.ValueType
		t, _, rest = rest.Next()
		values = append(values, netstate.Value{Type: t})
	}
	layout, err := netstate.NewLayout(values)
	if err != nil { // no values: the edge only asks whether the client is there
		c.conn.Reject(e.Link)
		return nil
	}
	s := &State{client: c, id: e.Link, message: bytes.Clone(e.Data), readOnly: e.ReadOnly, values: netstate.NewState(layout)}
	d := linkmsg.Parse(s.message)
	s.key, s.names = d.Key, d.Names[:min(len(d.Names), layout.Len())]
	s.fields = componentsOf(d, layout)
	s.index = make(map[string]int, len(s.names))
	for i, name := range s.names {
		if _, twice := s.index[name]; name != "" && !twice {
			s.index[name] = i
		}
	}
	s.values.SetAll(e.Values)
	s.source = c.endpoint.NewSource(dnp.SourceConfig{State: s.values, Message: s.message, Data: s})
	if err := c.conn.Accept(e.Link, s.source); err != nil {
		s.source.Remove() // the edge has withdrawn the link
		return nil
	}
	s.linked = true
	c.states[e.Link] = s
	return s
}

// find returns the state that an event is about, nil if it has ended.
func (c *Client) find(e *dnp.Event) *State {
	if e.Source == nil {
		return nil
	}
	if s, ok := e.Source.Data().(*State); ok && s.source == e.Source {
		return s
	}
	return nil
}

// update applies values of the edge and returns the indices of those that are new.
func (c *Client) update(e *dnp.Event, now time.Time) (s *State, changed []int) {
	if s = c.find(e); s == nil {
		return nil, nil
	}
	first := len(c.indices)
	for index, value, ok := e.Update.Next(); ok; index, value, ok = e.Update.Next() {
		if !s.crosses(index, value, now) && s.values.Set(index, value) {
			c.indices = append(c.indices, index)
		}
	}
	return s, c.indices[first:]
}

// crosses reports whether a value crosses a write of this client on the way, so that the write is the
// later one: it comes sooner than an answer can, or it is the value that the write replaced and comes as
// late as an answer may. Any other value ends the repeats of the write: the edge has it, or others have
// written since, whom a repeat would overwrite.
func (s *State) crosses(index int, value []byte, now time.Time) bool {
	if len(s.writes) == 0 {
		return false
	}
	w := s.writes[index]
	if w == nil {
		return false
	}
	since := now.Sub(w.sent)
	if w.sent.IsZero() || since < s.client.trip || since < 2*s.client.trip && bytes.Equal(value, w.previous) {
		return true
	}
	s.forget(index)
	return false
}

func (s *State) forget(index int) {
	delete(s.writes, index)
	if len(s.writes) == 0 {
		delete(s.client.writing, s)
	}
}

// unlink ends the state that an event is about.
func (c *Client) unlink(e *dnp.Event) *State {
	s := c.find(e)
	if s == nil {
		return nil
	}
	if s.own {
		delete(c.own, e.Source)
	} else {
		delete(c.states, e.Link)
	}
	s.source.Remove()
	s.end()
	return s
}

// repeatWrites marks the values that are due again.
func (c *Client) repeatWrites(now time.Time) {
	for s := range c.writing {
		for index, w := range s.writes {
			switch {
			case w.sent.IsZero() || w.due.After(now):
			case w.step > len(writeSteps):
				s.forget(index)
			default:
				s.source.Changed(index)
				w.advance(c.remember)
			}
		}
	}
}

// noteSent notes that the values that were set have been sent.
func (c *Client) noteSent(now time.Time) {
	for s := range c.writing {
		for _, w := range s.writes {
			if w.sent.IsZero() {
				w.sent = now
				w.advance(c.remember)
			}
		}
	}
}

// resume sends values again that the edge may not have, because the connection that they went over was
// lost. What was sent a round trip before the last sign of the edge arrived.
func (c *Client) resume(heard time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for s := range c.writing {
		for index, w := range s.writes {
			if w.sent.After(heard.Add(-crossMax)) {
				s.source.Changed(index)
				*w = write{previous: w.previous}
			}
		}
	}
	c.flushAt = time.Time{}
	if !c.scrubAt.IsZero() {
		c.scrubAt = time.Now()
	}
}

// advance moves on to the next repeat. After the last one the write is remembered for a while, in
// which a value may cross it, or the connection turn out to be lost.
func (w *write) advance(remember time.Duration) {
	at := writeSteps[min(w.step, len(writeSteps)-1)]
	if w.step == len(writeSteps) {
		at += remember
	}
	w.due = w.sent.Add(at)
	w.step++
}

// scrub sends all values of own states again, now and then.
func (c *Client) scrub(now time.Time) {
	if c.scrubAt.IsZero() || now.Before(c.scrubAt) {
		return
	}
	c.scrubAt = time.Time{}
	for source, s := range c.own {
		if s.linked {
			c.scrubAt = now.Add(scrubInterval)
			for i := range s.Len() {
				source.Changed(i)
			}
		}
	}
}
