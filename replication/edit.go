package replication

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/dnprelay/dnprelay/dnp/netstate"
	"github.com/dnprelay/dnprelay/dnp/wire"
)

// An edit is the set of values that one op or write changes, encoded and checked before any
// value changes. It makes every op all or nothing.
type edit struct {
	values []edited
	bytes  []byte
	given  netstate.Mask
	varied bool // it contains a string or data value
}

type edited struct {
	index  int
	off, n int // in bytes
	null   bool
	only   Condition
}

func (e *edit) reset(values int) {
	e.values, e.bytes, e.varied = e.values[:0], e.bytes[:0], false
	emptyMask(&e.given, values)
}

// emptyMask returns a mask for n values in the memory of m, which it makes larger if necessary.
func emptyMask(m *netstate.Mask, n int) netstate.Mask {
	words := (n + 63) / 64
	if words > len(*m) {
		*m = netstate.NewMask(n)
	}
	empty := (*m)[:words]
	empty.Reset()
	return empty
}

// add adds a literal for value i.
func (e *edit) add(c *schema, i int, l Literal) *Error { return e.addIf(c, i, l, Condition{}) }

// addIf adds a literal under a condition.
func (e *edit) addIf(c *schema, i int, l Literal, only Condition) *Error {
	if e.given.Has(i) {
		return Errorf(CodeBadRequest, "%s is given twice", c.label(i))
	}
	e.given.Set(i)
	off := len(e.bytes)
	b, null, err := c.defs[i].Append(e.bytes, l)
	if err != nil {
		return err.In(c.label(i))
	}
	if err := c.check(i, b[off:], null); err != nil {
		return err
	}
	if !null {
		b = append(b[:off], c.fields[i].Type.Sendable(b[off:])...)
	}
	e.bytes = b
	e.varied = e.varied || c.fields[i].Type.Variable()
	e.values = append(e.values, edited{i, off, len(b) - off, null, only})
	return nil
}

// check reports what is wrong with an encoded value for value i.
func (s *schema) check(i int, enc []byte, null bool) *Error {
	f := s.fields[i]
	switch {
	case null && !f.Nullable:
		return Errorf(CodeTypeMismatch, "%s: want %v, got null for a value that is not nullable", s.label(i), f.Type)
	case null:
		return nil
	case !wire.CheckValue(f.Type, enc):
		return Errorf(CodeTypeMismatch, "%s: want %v", s.label(i), f.Type)
	case s.tooLong(i, enc):
		return Errorf(CodeTooLarge, "%s: %d bytes, at most %d are allowed", s.label(i), len(enc)-2, s.valueMax)
	}
	return s.defs[i].checkStruct(enc)
}

// tooLong reports whether a string or data value exceeds its limit.
func (s *schema) tooLong(i int, enc []byte) bool {
	return s.fields[i].Type.Variable() && len(enc)-2 > int(s.valueMax)
}

// name returns the name of value i, or its index in digits. The value need not exist.
func (s *schema) name(i int) string {
	if i >= 0 && i < len(s.defs) && s.defs[i].Name != "" {
		return s.defs[i].Name
	}
	return strconv.Itoa(i)
}

// label describes value i in an error.
func (s *schema) label(i int) string { return "value " + strconv.Quote(s.name(i)) }

// namesListed is how many names an error lists.
const namesListed = 8

// namesText lists the first names of the values for an error.
func (s *schema) namesText() string {
	var names []string
	for i := range min(len(s.defs), namesListed) {
		names = append(names, strconv.Quote(s.name(i)))
	}
	if more := len(s.defs) - namesListed; more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}

// find returns the index of the value that a publisher addresses as name.
func (s *schema) find(name string) (int, *Error) {
	if name != "" && name[0] > '9' { // no name begins with a digit
		if i, ok := s.index[name]; ok {
			return i, nil
		}
	}
	i, err := strconv.ParseUint(name, 10, 16)
	switch {
	case err != nil:
		return 0, Errorf(CodeBadRequest, "no value is named %q; the state has %s", name, s.namesText())
	case int(i) >= len(s.defs):
		return 0, Errorf(CodeBadRequest, "no value has index %s, there are %d", name, len(s.defs))
	}
	return int(i), nil
}

// fits returns an error if e would make the LinkState of st with this message larger than
// linkStateMax.
func (st *stored) fits(e *edit, message []byte) *Error {
	if !e.varied && len(message) <= len(st.Desc.Message) {
		return nil
	}
	size := linkStateBytes + len(message) + st.Values.TypedSize()
	for _, v := range e.values {
		n := v.n
		if v.null {
			n = len(st.schema.defs[v.index].Substitute())
		}
		size += n - len(st.Values.Value(v.index))
	}
	if size > linkStateMax {
		return Errorf(CodeTooLarge, "message and values of %q are more than %d bytes", st.Desc.Key, linkStateMax)
	}
	return nil
}

// applyEdit changes the values of st, but those that their conditions forbid, and marks them for emission. It returns how many changed.
func (s *Store) applyEdit(st *stored, e *edit) (changed int) {
	now := s.batch.next()
	for _, v := range e.values {
		if !st.allows(v.only, v.index) {
			continue
		}
		if s.applyValue(st, v.index, e.bytes[v.off:v.off+v.n], v.null) {
			changed++
		}
		st.say(&s.journal, v.index, v.only.position(now))
	}
	return changed
}

// applyValue changes one value. It ignores a change within the precision of the emitted value.
// While a value waits for emission every change is applied, because the Store does not keep the
// emitted value.
func (s *Store) applyValue(st *stored, i int, enc []byte, null bool) bool {
	if null == st.IsNull(i) {
		if null || string(st.Values.Value(i)) == string(enc) {
			return false
		}
		if st.filtered(i, enc) {
			s.stats.ValuesFiltered++
			return false
		}
	}
	s.journal.value(st, i)
	st.set(i, enc, null)
	st.dirty.Set(i)
	s.stats.ValuesChanged++
	s.batch.mark(st)
	return true
}

// filtered reports whether enc is within the precision of the emitted value i, which is not null,
// so that the change is not emitted.
func (st *stored) filtered(i int, enc []byte) bool {
	return !st.dirty.Has(i) &&
		within(st.schema.fields[i].Type, st.schema.defs[i].Precision, st.Values.Value(i), enc)
}

// A Literal is a value in the form of a payload. It becomes wire bytes when the type of its
// target is known.
type Literal interface {
	// AppendValue appends the literal to b, encoded as t. For null it returns b unchanged and
	// true. After an error the appended bytes are undefined.
	AppendValue(b []byte, t wire.ValueType) (enc []byte, null bool, err *Error)
}

// Null is the literal for an absent value.
type Null struct{}

// AppendValue reports null.
func (Null) AppendValue(b []byte, _ wire.ValueType) ([]byte, bool, *Error) { return b, true, nil }

// Encoded is a literal that consists of wire bytes.
type Encoded struct {
	Type  wire.ValueType
	Value []byte
}

// AppendValue appends the bytes if their type is t.
func (e Encoded) AppendValue(b []byte, t wire.ValueType) ([]byte, bool, *Error) {
	if e.Type != t {
		return b, false, Errorf(CodeTypeMismatch, "want %v, got %v", t, e.Type)
	}
	return append(b, e.Value...), false, nil
}

// A journal records how to undo a publish, so that a publish of several ops is applied as a
// whole or not at all. A value, the common case, needs no closure.
type journal struct {
	active bool
	steps  []undo
	bytes  []byte // previous values
}

// An undo reverts one step.
type undo struct {
	other     func() // reverts a step that is not a value
	st        *stored
	index     int
	off, n    int // of the previous value in journal.bytes
	wasNull   bool
	wasMarked bool
}

func (j *journal) begin() { j.active = true }

// note records how to revert a step that is not a value.
func (j *journal) note(f func()) {
	if j.active {
		j.steps = append(j.steps, undo{other: f})
	}
}

// value records value i of st before it changes.
func (j *journal) value(st *stored, i int) {
	if !j.active {
		return
	}
	v := st.Values.Value(i)
	j.steps = append(j.steps, undo{
		st: st, index: i, off: len(j.bytes), n: len(v),
		wasNull:   st.IsNull(i),
		wasMarked: st.dirty.Has(i),
	})
	j.bytes = append(j.bytes, v...)
}

// commit discards the steps.
func (j *journal) commit() {
	clear(j.steps)
	j.active, j.steps, j.bytes = false, j.steps[:0], j.bytes[:0]
}

// rollback reverts all steps, the last one first.
func (j *journal) rollback() {
	for i := len(j.steps) - 1; i >= 0; i-- {
		j.undo(&j.steps[i])
	}
	j.commit()
}

func (j *journal) undo(u *undo) {
	if u.other != nil {
		u.other()
		return
	}
	u.st.set(u.index, j.bytes[u.off:u.off+u.n], u.wasNull)
	if !u.wasMarked {
		u.st.dirty.Clear(u.index)
	}
}
