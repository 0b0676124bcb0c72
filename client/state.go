package client

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/dnprelay/dnprelay/dnp"
	"github.com/dnprelay/dnprelay/dnp/linkmsg"
	"github.com/dnprelay/dnprelay/dnp/netstate"
	"github.com/dnprelay/dnprelay/dnp/outbox"
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
	linked  bool
	linking uint64 // counts the states of the edge in the order in which they were linked
	values  *netstate.State
	source  *dnp.Source
	orders  []wire.Order // of the datagrams with the newest values; nil for none
}

// A valueKey names a value of a state, among those that the edge has not acknowledged.
type valueKey struct {
	state *State
	index int
}

// A WriteError says why the edge or the game refused a value that this client set.
type WriteError struct {
	Key  string // of the state
	Name string // of the value, or its index
	Code string // refused, not_authorised, bounds, rate, no_state or busy
}

// Error says what happened.
func (e *WriteError) Error() string {
	return fmt.Sprintf("client: setting %s of state %q is refused: %s", e.Name, e.Key, e.Code)
}

// ErrUnconfirmed reports that it is not known what became of a value: its link or the connection ended first, or the server
// confirms no writes.
var ErrUnconfirmed = errors.New("client: the write is not confirmed")

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
// vectors and quaternions, a Value, or a map[string]any with all components of data that has Fields. The state has the value at once, and
// keeps it until the edge says that the game has it, or something newer: then the state has what the edge sends. If the value is
// refused, Config.Refused tells why, and Config.Change of the true value. The client repeats the write until it hears from the
// edge, and the game gets it once. See SetConfirmed.
//
// The error names what does not fit. A state that the edge links as read-only cannot be set, nor one
// that has no link any more.
func (s *State) SetAt(index int, v any) error { return s.set(index, v, nil) }

// SetConfirmed sets the value with this name and waits until the game has it, or something newer. The error is that of Set, a
// [*WriteError] if the value is refused, [ErrUnconfirmed], or that of ctx; after the latter two the game may have the value. A
// function of Config must not call it.
func (s *State) SetConfirmed(ctx context.Context, name string, v any) error {
	i, ok := s.index[name]
	if !ok {
		return fmt.Errorf("client: state %q has no value %q", s.key, name)
	}
	ended := make(chan outbox.Result, 1)
	if err := s.set(i, v, func(r outbox.Result) { ended <- r }); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case r := <-ended:
		switch {
		case r.Refused:
			return s.writeError(i, r.Code)
		case r.Lost:
			return ErrUnconfirmed
		}
		return nil
	}
}

func (s *State) writeError(index int, code wire.RefusalCode) *WriteError {
	return &WriteError{Key: s.key, Name: cmp.Or(s.Name(index), strconv.Itoa(index)), Code: code.String()}
}

// set sets a value. done, unless it is nil, is called with the result while Client.mu is held.
func (s *State) set(index int, v any, done func(outbox.Result)) error {
	if index < 0 || index >= s.Len() {
		return fmt.Errorf("client: state %q has %d values, no value %d", s.key, s.Len(), index)
	}
	encoded, err := s.encode(index, v)
	if err != nil {
		return fmt.Errorf("client: state %q, value %d: %w", s.key, index, err)
	}
	c, key := s.client, valueKey{s, index}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case s.readOnly:
		return fmt.Errorf("client: state %q is read-only", s.key)
	case s.source == nil:
		return fmt.Errorf("client: state %q has no link any more", s.key)
	}
	switch changed := s.values.Set(index, encoded); {
	case changed:
		c.outbox.Set(key, done)
		c.wake()
	case done == nil:
	case c.outbox.Pending(key):
		c.outbox.Wait(key, done)
	default:
		done(outbox.Result{}) // the edge has it
	}
	return nil
}

// end forgets the link.
func (s *State) end() {
	s.linked, s.source = false, nil
	s.client.outbox.Drop(func(k valueKey) bool { return k.state == s })
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
	c.keep(s)
	return s
}

// keep adds a state of the edge that is linked.
func (c *Client) keep(s *State) {
	c.linkings++
	s.linking = c.linkings
	c.states[s.id] = s
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

// update applies values of the edge and returns the indices of those that are new. A value in a datagram that a later one
// overtook is older than what the state has.
func (c *Client) update(e *dnp.Event) (s *State, changed []int) {
	if s = c.find(e); s == nil {
		return nil, nil
	}
	first := len(c.indices)
	for index, value, ok := e.Update.Next(); ok; index, value, ok = e.Update.Next() {
		if s.orders != nil && e.Order < s.orders[index] {
			continue
		}
		s.order(index, e.Order)
		if c.outbox.Receive(valueKey{s, index}, e.Order, value) && s.values.Set(index, value) {
			c.indices = append(c.indices, index)
		}
	}
	return s, c.indices[first:]
}

// order notes that values of datagrams below an order are older than what the state has.
func (s *State) order(index int, order wire.Order) {
	if order == 0 {
		return
	}
	if s.orders == nil {
		s.orders = make([]wire.Order, s.Len())
	}
	s.orders[index] = max(s.orders[index], order)
}

// writeEnded ends a write of which the edge tells the result, and returns what the program hears of it.
func (c *Client) writeEnded(e *dnp.Event, now time.Time, calls []call) []call {
	refusal := func(k valueKey) (wire.RefusalCode, bool) {
		id := k.state.id
		if k.state.own {
			link, _ := c.conn.LinkOf(k.state.source)
			id = link.ID
		}
		i := slices.IndexFunc(e.Refused, func(v wire.RefusedValue) bool { return v.Link == id && int(v.Index) == k.index })
		if i < 0 {
			return 0, false
		}
		return e.Refused[i].Code, true
	}
	for _, ended := range c.outbox.Acknowledge(now, uint32(e.Number), e.Order, refusal, nil) {
		k := ended.Key
		k.state.order(k.index, e.Order)
		if ended.Value != nil && k.state.values.Set(k.index, ended.Value) {
			c.indices = append(c.indices, k.index)
			calls = append(calls, call{kind: dnp.EventUpdate, state: k.state, changed: c.indices[len(c.indices)-1:]})
		}
		if ended.Result.Refused {
			calls = append(calls, call{kind: dnp.EventWriteEnded, state: k.state, refused: k.state.writeError(k.index, ended.Result.Code)})
		}
		ended.Tell()
	}
	return calls
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

// sendWrites sends the values that this client set and the edge has not acknowledged, as far as they are due.
func (c *Client) sendWrites(now time.Time) {
	for {
		var number uint32
		if number, c.keys = c.outbox.Due(now, c.keys[:0]); number == 0 {
			break
		}
		c.conn.SendValues(number, c.refs(c.keys), c.carrier) // if the budget is used up, with the next repeat
	}
	c.hello.look(c, now)
	if at, ok := c.hello.settledAt(c, c.flushAt); !ok || now.Before(at) {
		return
	}
	c.keys = c.outbox.Unsent(c.keys[:0], valueKey.linked)
	for left := c.keys; len(left) > 0; {
		number := c.outbox.Next()
		if !c.hello.writes() {
			number = 0
		}
		n := c.conn.SendValues(number, c.refs(left), c.carrier)
		if n == 0 {
			break
		}
		if c.outbox.Sent(now, left[:n]); number == 0 {
			c.outbox.Forget(left[:n])
		}
		left = left[n:]
		c.flushAt = now.Add(c.cfg.UpdateInterval)
	}
}

// linked reports whether the edge can be sent the value.
func (k valueKey) linked() bool { return k.state.linked }

// refs returns what the endpoint calls these values, until the next call.
func (c *Client) refs(keys []valueKey) []dnp.ValueRef {
	c.valueRefs = c.valueRefs[:0]
	for _, k := range keys {
		c.valueRefs = append(c.valueRefs, dnp.ValueRef{Source: k.state.source, Index: k.index})
	}
	return c.valueRefs
}

// writesAt returns when there are writes to send; the zero time for never.
func (c *Client) writesAt() time.Time {
	at := c.outbox.NextTimeout()
	if c.keys = c.outbox.Unsent(c.keys[:0], valueKey.linked); len(c.keys) > 0 {
		if first, ok := c.hello.settledAt(c, c.flushAt); ok {
			at = earlier(at, first)
		}
	}
	return at
}

// resume sends writes again that the edge has not acknowledged, because the connection that they went over was lost.
func (c *Client) resume() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.outbox.Resume(time.Now())
	c.flushAt = time.Time{}
}
