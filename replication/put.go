package replication

import (
	"bytes"
	"hash/crc32"
	"math"
	"slices"
	"strconv"

	"github.com/dnprelay/dnprelay/dnp/netstate"
	"github.com/dnprelay/dnprelay/replication/view"
	"github.com/dnprelay/dnprelay/subject"
)

// put creates a state, or brings an existing one to this form. If the layout stays the same,
// clients keep their links to the state; otherwise a new state replaces it.
func (s *Store) put(op *Op) *Error {
	if err := checkPut(op, s.limits.Message); err != nil {
		return err
	}
	defs, err := s.defs(op.Values)
	if err != nil {
		return err
	}
	c := s.schemas.acquire(defs, uint16(s.limits.ValueBytes))
	defer s.schemas.release(c)
	s.edit.reset(len(defs))
	for i := range op.Values {
		if l := op.Values[i].Value; l != nil {
			if err := s.edit.add(c, i, l); err != nil {
				return err
			}
		}
	}
	old := s.states.byKey[op.Key]
	desc := op.description(old)
	if old != nil && old.schema.sameLayout(c) {
		return s.update(old, desc, c)
	}
	return s.replace(old, desc, c, nil)
}

// update applies the description and the edit to a state of the same layout.
func (s *Store) update(st *stored, desc Description, c *schema) *Error {
	if err := st.fits(&s.edit, desc.Message); err != nil {
		return err
	}
	if err := s.redescribe(st, desc, c); err != nil {
		return err
	}
	s.applyEdit(st, &s.edit)
	return nil
}

// replace makes a state from the description and the edit, and removes old unless it is nil.
func (s *Store) replace(old *stored, desc Description, c *schema, owned *ownership) *Error {
	if len(c.ranges) > view.PerState {
		return Errorf(CodeTooLarge, "the values need %d views, at most %d are allowed", len(c.ranges), view.PerState)
	}
	views := s.states.views + len(c.ranges)
	if old != nil {
		views -= len(old.schema.ranges)
	}
	if views > s.limits.Views {
		return Errorf(CodeTooLarge, "the space would have %d views, at most %d are allowed", views, s.limits.Views)
	}
	desc.own(c)
	sum, err := s.sumDescribe(&desc)
	if err != nil {
		return err
	}
	st := &stored{State: newState(s.next, &desc, c), owned: owned, dirty: netstate.NewMask(len(c.defs))}
	st.sum = sum
	for _, v := range s.edit.values {
		st.set(v.index, s.edit.bytes[v.off:v.off+v.n], v.null)
	}
	if err := st.fits(&edit{varied: true}, desc.Message); err != nil {
		return err
	}
	if old != nil {
		s.detach(old)
	}
	s.next++
	c.refs++
	s.states.insert(st)
	s.journal.note(func() { s.states.detach(st) })
	s.batch.mark(st)
	return nil
}

// detach removes st, and tells the replicas that know it.
func (s *Store) detach(st *stored) {
	s.states.detach(st)
	if st.introduced {
		s.batch.removed = append(s.batch.removed, st)
	}
	s.journal.note(func() {
		s.states.reattach(st)
		s.batch.removed = slices.DeleteFunc(s.batch.removed, func(r *stored) bool { return r == st })
	})
}

// description returns the description after a put. old is nil for a new state.
func (op *Op) description(old *stored) Description {
	d := Description{Key: op.Key, Message: []byte(op.Key), Audience: Audience{Kind: AudienceAll}}
	if old != nil {
		d = *old.Desc
	}
	if op.HasMessage {
		d.Message = op.Message
	}
	if op.HasFarewell {
		d.Farewell = op.Farewell
	}
	if op.HasAccess {
		d.Access = op.Access
	}
	if op.HasAudience {
		d.Audience = op.Audience
	}
	if op.HasPriority {
		d.Priority = op.Priority
	}
	if op.HasDetails {
		d.Details = op.Details
	}
	return d
}

// own copies everything in d that its source could change.
func (d *Description) own(c *schema) {
	d.Message, d.Farewell = bytes.Clone(d.Message), bytes.Clone(d.Farewell)
	d.Access.Writers = slices.Clone(d.Access.Writers)
	d.Audience.Groups, d.Audience.Clients = slices.Clone(d.Audience.Groups), slices.Clone(d.Audience.Clients)
	d.Details = slices.Clone(d.Details)
	for i := range d.Details {
		x := &d.Details[i]
		x.Groups, x.Clients = slices.Clone(x.Groups), slices.Clone(x.Clients)
	}
	d.Values, d.ValueMax = c.defs, c.valueMax
}

// sumDescribe returns the checksum of the Describe for replicas. It refuses a description that
// is too large for a whole state to fit into a batch.
func (s *Store) sumDescribe(d *Description) (uint32, *Error) {
	s.scratch = appendStoredDescribe(s.scratch[:0], d)
	if len(s.scratch) > describeMax {
		return 0, Errorf(CodeTooLarge, "the description of %q is %d bytes, at most %d are allowed", d.Key, len(s.scratch), describeMax)
	}
	s.scratch = appendDescribe(s.scratch[:0], d)
	return crc32.ChecksumIEEE(s.scratch), nil
}

func checkPut(op *Op, messageMax int) *Error {
	switch first := firstToken(op.Key); {
	case !subject.ValidKey(op.Key):
		return Errorf(CodeBadRequest, "%q is not a key", op.Key)
	case first == groupsToken || first == clientToken:
		return Errorf(CodeBadRequest, "keys that start with %q are not for publishers", first)
	case op.HasMessage && len(op.Message) == 0:
		return Errorf(CodeBadRequest, "the message is empty")
	case len(op.Message) > messageMax:
		return Errorf(CodeTooLarge, "the message has %d bytes, at most %d are allowed", len(op.Message), messageMax)
	case len(op.Farewell) > messageMax:
		return Errorf(CodeTooLarge, "the farewell has %d bytes, at most %d are allowed", len(op.Farewell), messageMax)
	case op.HasPriority && (op.Priority < 1 || op.Priority > PriorityMax):
		return Errorf(CodeBadRequest, "priority %d: want 1 to %d", op.Priority, PriorityMax)
	}
	if err := checkAccess(op.Access); err != nil {
		return err
	}
	if err := checkDetails(op.Details); err != nil {
		return err
	}
	return op.Audience.check()
}

func checkAccess(a Access) *Error {
	if a.Kind > AccessWriters {
		return Errorf(CodeBadRequest, "unknown access")
	}
	return checkTokens("writer", a.Writers)
}

func checkTokens(what string, names []string) *Error {
	if len(names) > namesMax {
		return Errorf(CodeTooLarge, "%d names of a %s, at most %d are allowed", len(names), what, namesMax)
	}
	for _, n := range names {
		if !subject.ValidToken(n) {
			return Errorf(CodeBadRequest, "%q is not the name of a %s", n, what)
		}
	}
	return nil
}

// defs returns the definitions of values if they are valid.
func (s *Store) defs(values []PutValue) ([]ValueDef, *Error) {
	switch {
	case len(values) == 0:
		return nil, Errorf(CodeBadRequest, "a state needs at least one value")
	case len(values) > s.limits.Values:
		return nil, Errorf(CodeTooLarge, "%d values, at most %d are allowed", len(values), s.limits.Values)
	}
	defs := make([]ValueDef, len(values))
	names := make(map[string]bool, len(values))
	for i := range values {
		d := values[i].ValueDef
		if d.Name != "" && (!ValidName(d.Name) || names[d.Name]) {
			return nil, Errorf(CodeBadRequest, "value %d: %q is not a name, or not the only one", i, d.Name)
		}
		names[d.Name] = true
		if err := d.check(uint16(s.limits.ValueBytes)); err != nil {
			return nil, err.In("value " + strconv.Itoa(i))
		}
		defs[i] = d
	}
	return defs, nil
}

func (d *ValueDef) check(valueMax uint16) *Error {
	switch {
	case !d.Type.Valid():
		return Errorf(CodeTypeMismatch, "unknown type %d", d.Type)
	case !(d.Precision >= 0) || math.IsInf(d.Precision, 1):
		return Errorf(CodeOutOfRange, "precision %v", d.Precision)
	}
	if err := d.Bounds.Check(d.Type); err != nil {
		return err
	}
	if !d.Nullable {
		d.Null = nil
		return nil
	}
	c := schema{defs: []ValueDef{*d}, fields: []view.Field{{Type: d.Type}}, valueMax: valueMax}
	if err := c.check(0, d.Substitute(), false); err != nil {
		return err.In("substitute for null")
	}
	return nil
}
