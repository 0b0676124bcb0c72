package replication

import (
	"bytes"
	"cmp"
	"hash/crc32"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/dnprelay/dnprelay/dnp/netstate"
	"github.com/dnprelay/dnprelay/replication/view"
	"github.com/dnprelay/dnprelay/subject"
)

// An OpKind says what one op of a publish does.
type OpKind uint8

const (
	OpPut      OpKind = iota + 1 // create a state, or bring it to this form
	OpSet                        // change some values
	OpRemove                     // remove a state
	OpAudience                   // change the audience or the levels of detail
	OpGroup                      // add a client to groups and remove it from groups
	OpKick                       // end a client's sessions
	OpClear                      // remove all states that publishers made, and named interests
	OpInterest                   // make, change or remove a named interest
	OpEye                        // say from where a client sees
)

// An Op is one change that a publisher asks for.
type Op struct {
	Kind OpKind

	// Err is the error that the parser of the payload found. Such an op fails with it and its
	// other fields mean nothing. It is set only in a publish that is not atomic.
	Err *Error

	Key string // put, set, remove, audience

	Only Condition // of put, but for its values; of remove and audience

	// Of put. For an existing state, a field that is not given keeps its value. A new
	// state gets its key as message, no farewell, read-only access, and all clients as
	// audience.
	Message     []byte
	Describe    bool // the message describes the state: its key and the names of its values
	Farewell    []byte
	Access      Access
	Audience    Audience      // also of audience, which has it or Details
	Priority    uint8         // 1 to PriorityMax
	TTL         time.Duration // TTLMin to TTLMax; 0 for none
	Details     []Detail      // also of audience
	HasMessage  bool
	HasDescribe bool // Describe is given, so Message is not
	HasFarewell bool
	HasAccess   bool
	HasAudience bool
	HasPriority bool
	HasTTL      bool
	HasDetails  bool
	Values      []PutValue

	Sets []SetValue // of set

	// Of put: the interest of the state, by name, or Interest if that is not nil; none if both are empty. Of
	// interest: the name, and what it means, nil to remove it.
	InterestName string
	Interest     *Interest
	HasInterest  bool // of put

	Eyes []Eye // of eye; none if the client sees from nowhere

	Client string   // group, kick, eye
	Reason string   // of kick: text of at most KickReasonMax bytes for the event left; empty for none
	Join   []string // group
	Leave  []string
}

// A PutValue is the definition of a value and its content.
type PutValue struct {
	ValueDef

	// Value is the content. nil keeps the current content if the layout stays the same,
	// and is null or zero otherwise.
	Value Literal

	Only Condition
}

// A SetValue changes one value.
type SetValue struct {
	Name  string // a name, or an index in digits
	Value Literal
	Only  Condition
}

// A Publish is one message of a publisher.
type Publish struct {
	Ops    []Op
	Atomic bool   // all ops or none; otherwise every op by itself, with Results
	Token  uint64 // identifies the publisher in the Answer; 0 for no Answer
}

// An Answer is the reply to a publisher, sent after the batch with its changes.
type Answer struct {
	Token      uint64
	Epoch, Seq uint64   // the position that includes the changes
	Durable    bool     // false while the durable store does not respond
	Err        *Error   // of an atomic publish
	Results    []*Error // one per op if the publish was not atomic; nil if the op was applied
}

// Publish applies a message of a publisher. Advance returns the answer. The result is the error of the
// message, or of the first op that was not applied, for those who trace it. The Store keeps nothing of p.
func (s *Store) Publish(now time.Time, p Publish) *Error {
	s.stats.Publishes++
	a := Answer{Token: p.Token}
	if a.Err = s.admit(&p); a.Err == nil {
		a.Results, a.Err = s.applyOps(now, p.Ops, p.Atomic)
	}
	send := s.batch.send
	if a.Err != nil {
		s.stats.PublishErrors++
		send = s.batch.sendNow
	}
	if p.Token != 0 {
		send(Output{Kind: OutputAnswer, Answer: a})
	}
	return a.refused()
}

// refused returns the first error of the answer, or nil.
func (a *Answer) refused() *Error {
	if a.Err != nil {
		return a.Err
	}
	for _, err := range a.Results {
		if err != nil {
			return err
		}
	}
	return nil
}

// admit reports why the Store refuses a publish without looking at its ops.
func (s *Store) admit(p *Publish) *Error {
	switch {
	case len(p.Ops) == 0:
		return Errorf(CodeBadRequest, "no op")
	case len(p.Ops) > s.limits.Ops:
		return Errorf(CodeTooLarge, "%d ops, at most %d are allowed", len(p.Ops), s.limits.Ops)
	case s.full():
		s.stats.Busy++
		err := Errorf(CodeBusy, "%d answers wait for the next batch", len(s.batch.waiting))
		err.RetryAfter = max(s.cfg.Tick, 10*time.Millisecond)
		return err
	}
	return nil
}

// applyOps applies all ops or none if atomic, and otherwise every op by itself. A single op needs
// no journal, because every op checks everything before it changes anything.
func (s *Store) applyOps(now time.Time, ops []Op, atomic bool) (results []*Error, err *Error) {
	switch {
	case !atomic:
		results = make([]*Error, len(ops))
	case len(ops) > 1:
		s.journal.begin()
	}
	for i := range ops {
		err := s.apply(&ops[i])
		if err == nil {
			continue
		}
		err.Op = i
		if atomic {
			s.journal.rollback()
			s.expiries.rollback()
			return nil, err
		}
		s.stats.PublishErrors++
		results[i] = err
	}
	s.journal.commit()
	s.expiries.commit(now)
	for i := range ops {
		if ops[i].Kind == OpKick && (atomic || results[i] == nil) {
			s.kicks.tell(now, s, &ops[i])
		}
	}
	return results, nil
}

func (s *Store) apply(op *Op) *Error {
	if op.Err != nil {
		return op.Err
	}
	switch op.Kind {
	case OpPut:
		return s.put(op)
	case OpSet:
		return s.set(op)
	case OpRemove:
		return s.remove(op)
	case OpAudience:
		return s.audience(op)
	case OpGroup:
		return s.group(op)
	case OpKick:
		return cmp.Or(checkReason(op.Reason), s.knowsClient(op.Client))
	case OpClear:
		s.clear()
		return nil
	case OpInterest:
		return s.records.nameInterest(op)
	case OpEye:
		return s.records.eye(op)
	}
	return Errorf(CodeBadRequest, "unknown op")
}

// A setOrder finds the states that publishers set. They set many in the same order again and again, so it looks first at the state that
// was set behind the last one before. The map of a large space is mostly not in the caches of the processor.
type setOrder struct{ last *stored } // nil for none, or it may be gone

func (o *setOrder) lookup(states *table[*stored], key string) (*stored, *Error) {
	last := o.last
	if last != nil && last.follower != nil && !last.follower.dead && last.follower.Desc.Key == key {
		o.last = last.follower
		return o.last, nil
	}
	st, err := states.lookup(key)
	if err != nil {
		return nil, err
	}
	if last != nil && !last.dead {
		last.follower = st
	}
	o.last = st
	return st, nil
}

// unlist takes st out of the table. Each state that remains keeps the memory of at most one that is gone, because those have no follower.
func (st *stored) unlist(states *table[*stored]) {
	states.detach(st)
	st.follower = nil
}

func (s *Store) set(op *Op) *Error {
	st, err := s.setOrder.lookup(&s.states, op.Key)
	if err != nil {
		return err
	}
	if st.owned != nil && st.owned.readOnly {
		return Errorf(CodeNotAuthorised, "the client that made %q does not let game servers write it", op.Key)
	}
	if len(op.Sets) == 0 {
		return Errorf(CodeBadRequest, "no value")
	}
	s.edit.reset(len(st.schema.defs))
	for _, v := range op.Sets {
		i, err := st.schema.find(v.Name)
		if err != nil {
			return err
		}
		if v.Value == nil {
			return Errorf(CodeBadRequest, "%s has no content", st.schema.label(i))
		}
		if err := s.edit.addIf(st.schema, i, v.Value, v.Only); err != nil {
			return err
		}
	}
	if err := st.fits(&s.edit, st.Desc.Message); err != nil {
		return err
	}
	s.applyEdit(st, &s.edit)
	s.expiries.mention(st)
	return nil
}

func (s *Store) remove(op *Op) *Error {
	if firstToken(op.Key) == clientToken {
		return Errorf(CodeBadRequest, "%q belongs to a client and ends with its link", op.Key)
	}
	st, err := s.states.lookup(op.Key)
	if err != nil {
		return err
	}
	if st.allows(op.Only, st.detailsPart()) {
		s.detach(st)
	}
	return nil
}

// clear removes the states that publishers made, in the order of their numbers, and then the named interests, which they
// made for those.
func (s *Store) clear() {
	for _, st := range s.states.all {
		if !st.dead && !st.hidden && st.owned == nil {
			s.detach(st)
		}
	}
	for _, st := range s.states.all {
		if !st.dead && firstToken(st.Desc.Key) == interestToken {
			s.detach(st)
		}
	}
}

func (s *Store) audience(op *Op) *Error {
	st, err := s.states.lookup(op.Key)
	if err != nil {
		return err
	}
	if err := op.Audience.check(); err != nil {
		return err
	}
	if err := checkDetails(op.Details); err != nil {
		return err
	}
	s.expiries.mention(st)
	if !st.allows(op.Only, st.audiencePart()) {
		return nil
	}
	if err := s.redescribe(st, op.description(st), st.schema); err != nil {
		return err
	}
	st.say(&s.journal, st.audiencePart(), op.Only.position(s.batch.next()))
	return nil
}

// redescribe gives st another description and a schema of the same layout.
func (s *Store) redescribe(st *stored, desc Description, c *schema) *Error {
	old := st.Desc
	s.scratch = appendDescription(s.scratch[:0], old)
	n := len(s.scratch)
	s.scratch = appendDescription(s.scratch, &desc)
	if c == st.schema && desc.TTL == old.TTL && string(s.scratch[:n]) == string(s.scratch[n:]) {
		return nil
	}
	sum, err := s.own(&desc, c)
	if err != nil {
		return err
	}
	oldSum, wasMarked := st.sum, st.redescribe
	described := desc // allocated here, so that an equal description costs nothing
	st.Desc, st.sum, st.redescribe = &described, sum, true
	s.records.use(desc.Interest, 1)
	s.records.use(old.Interest, -1)
	s.setSchema(st, c)
	s.journal.note(func() {
		s.records.use(old.Interest, 1)
		s.records.use(st.Desc.Interest, -1)
		st.Desc, st.sum, st.redescribe = old, oldSum, wasMarked
		c := s.schemas.acquire(old.Values, old.ValueMax)
		s.setSchema(st, c)
		s.schemas.release(c)
	})
	s.batch.mark(st)
	return nil
}

// setSchema makes st hold c, which the caller holds too.
func (s *Store) setSchema(st *stored, c *schema) {
	c.refs++
	s.schemas.release(st.schema)
	st.schema = c
}

// put creates a state, or brings an existing one to this form. If the layout stays the same,
// clients keep their links to the state; otherwise a new state replaces it.
func (s *Store) put(op *Op) *Error {
	if err := checkPut(op, s.limits.Message); err != nil {
		return err
	}
	defs, err := s.limits.defs(op.Values)
	if err != nil {
		return err
	}
	c := s.schemas.acquire(defs, uint16(s.limits.ValueBytes))
	defer s.schemas.release(c)
	s.edit.reset(len(defs))
	for i := range op.Values {
		if l := op.Values[i].Value; l != nil {
			if err := s.edit.addIf(c, i, l, op.Values[i].Only); err != nil {
				return err
			}
		}
	}
	old := s.states.byKey[op.Key]
	if old != nil && op.Only.Given {
		s.expiries.mention(old)
		if op, c, err = old.narrow(op, c); op == nil {
			return err
		}
	}
	desc := op.description(old)
	desc.Message = op.linkMessage(old, desc.Message, c.defs)
	if op.HasInterest {
		edited := s.edit // the record of an interest needs another
		s.edit = edit{}
		desc.Interest, err = s.records.interestOf(op, c.defs)
		s.edit = edited
		if err != nil {
			return err
		}
	}
	if old == nil || !old.schema.sameLayout(c) {
		return s.replace(old, desc, c, nil, op.Only)
	}
	if err := s.update(old, desc, c); err != nil {
		return err
	}
	said := op.Only.position(s.batch.next())
	if op.HasAudience || op.HasDetails {
		old.say(&s.journal, old.audiencePart(), said)
	}
	if old.allows(op.Only, old.detailsPart()) {
		old.say(&s.journal, old.detailsPart(), said)
	}
	return nil
}

// narrow returns the part of a put with a condition that was not said later, nil for none, and the schema that st gets.
func (st *stored) narrow(op *Op, c *schema) (*Op, *schema, *Error) {
	details := st.allows(op.Only, st.detailsPart())
	if !st.schema.sameLayout(c) {
		switch {
		case details:
			return op, c, nil
		case slices.ContainsFunc(op.Values, func(v PutValue) bool { return v.Value != nil && !v.Only.Given }):
			return nil, nil, Errorf(CodeTypeMismatch, "the state %q got another form later", op.Key)
		}
		return nil, nil, nil
	}
	part := *op
	if !st.allows(op.Only, st.audiencePart()) {
		part.HasAudience, part.HasDetails = false, false
	}
	if !details {
		part.HasMessage, part.HasDescribe, part.HasFarewell, part.HasAccess, part.HasPriority, part.HasTTL, part.HasInterest = false, false, false, false, false, false, false
		c = st.schema
	}
	return &part, c, nil
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
	s.expiries.mention(st)
	return nil
}

// replace makes a state from the description and the edit, and removes old unless it is nil.
func (s *Store) replace(old *stored, desc Description, c *schema, owned *ownership, only Condition) *Error {
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
	sum, err := s.own(&desc, c)
	if err != nil {
		return err
	}
	st := &stored{State: newState(s.next, &desc, c), owned: owned, dirty: netstate.NewMask(len(c.defs))}
	st.sum = sum
	now := s.batch.next()
	if only.Given || owned != nil {
		st.said = &said{all: only.position(now)}
	}
	for _, v := range s.edit.values {
		st.set(v.index, s.edit.bytes[v.off:v.off+v.n], v.null)
		st.say(&s.journal, v.index, v.only.position(now))
	}
	if owned != nil {
		st.say(&s.journal, st.audiencePart(), Position{}) // what a game server has said about it counts
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
	s.expiries.mention(st)
	s.records.use(st.Desc.Interest, 1)
	s.journal.note(func() {
		st.unlist(&s.states)
		s.records.use(st.Desc.Interest, -1)
	})
	s.batch.mark(st)
	return nil
}

// detach removes st, and tells the replicas that know it.
func (s *Store) detach(st *stored) {
	st.unlist(&s.states)
	expires := st.expires()
	if expires {
		s.expiries.heap.Remove(st)
	}
	s.records.use(st.Desc.Interest, -1)
	if st.introduced {
		s.batch.removed = append(s.batch.removed, st)
	}
	s.journal.note(func() {
		s.states.reattach(st)
		if expires {
			s.expiries.heap.Set(st)
		}
		s.records.use(st.Desc.Interest, 1)
		s.batch.removed = slices.DeleteFunc(s.batch.removed, func(r *stored) bool { return r == st })
	})
}

// description returns the description after a put. old is nil for a new state.
func (op *Op) description(old *stored) Description {
	d := Description{Key: op.Key, Message: []byte(op.Key), Audience: Audience{Kind: AudienceAll}}
	if old != nil {
		d = *old.Desc
	}
	replaceIf(op.HasMessage, &d.Message, op.Message)
	replaceIf(op.HasFarewell, &d.Farewell, op.Farewell)
	replaceIf(op.HasAccess, &d.Access, op.Access)
	replaceIf(op.HasAudience, &d.Audience, op.Audience)
	replaceIf(op.HasPriority, &d.Priority, op.Priority)
	replaceIf(op.HasDetails, &d.Details, op.Details)
	replaceIf(op.HasTTL, &d.TTL, op.TTL)
	return d
}

// linkMessage returns the link message after a put. given is what it is without Describe. A state that
// is described stays so with other names, unless the put gives it a message.
func (op *Op) linkMessage(old *stored, given []byte, defs []ValueDef) []byte {
	switch {
	case op.HasMessage:
		return given
	case op.HasDescribe && op.Describe, !op.HasDescribe && old != nil && old.Desc.isDescribed():
		return describing(op.Key, defs)
	case op.HasDescribe:
		return []byte(op.Key)
	}
	return given
}

func replaceIf[T any](given bool, old *T, v T) {
	if given {
		*old = v
	}
}

// own copies everything in d that its source could change, and returns the checksum of the
// Describe for replicas. It refuses a description that is too large for a whole state to fit into
// a batch.
func (s *Store) own(d *Description, c *schema) (sum uint32, err *Error) {
	d.Message, d.Farewell = bytes.Clone(d.Message), bytes.Clone(d.Farewell)
	d.Access.Writers = slices.Clone(d.Access.Writers)
	d.Audience.Groups, d.Audience.Clients = slices.Clone(d.Audience.Groups), slices.Clone(d.Audience.Clients)
	d.Details = slices.Clone(d.Details)
	for i := range d.Details {
		x := &d.Details[i]
		x.Groups, x.Clients = slices.Clone(x.Groups), slices.Clone(x.Clients)
	}
	d.Values, d.ValueMax = c.defs, c.valueMax
	if err := s.records.checkInterest(d); err != nil {
		return 0, err
	}
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
	case reserved(op.Key) || first == clientToken:
		return Errorf(CodeBadRequest, "keys that start with %q are not for publishers", first)
	case op.HasMessage && op.HasDescribe:
		return Errorf(CodeBadRequest, "a state has a message or describe, not both")
	case op.HasMessage && len(op.Message) == 0:
		return Errorf(CodeBadRequest, "the message is empty")
	case len(op.Message) > messageMax:
		return Errorf(CodeTooLarge, "the message has %d bytes, at most %d are allowed", len(op.Message), messageMax)
	case len(op.Farewell) > messageMax:
		return Errorf(CodeTooLarge, "the farewell has %d bytes, at most %d are allowed", len(op.Farewell), messageMax)
	case op.HasPriority && (op.Priority < 1 || op.Priority > PriorityMax):
		return Errorf(CodeBadRequest, "priority %d: want 1 to %d", op.Priority, PriorityMax)
	case op.Access.Kind > AccessWriters:
		return Errorf(CodeBadRequest, "unknown access")
	}
	if err := checkTokens("writer", op.Access.Writers); err != nil {
		return err
	}
	if err := checkDetails(op.Details); err != nil {
		return err
	}
	if err := checkTTL(op.TTL); err != nil {
		return err
	}
	return op.Audience.check()
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
func (l *Limits) defs(values []PutValue) ([]ValueDef, *Error) {
	switch {
	case len(values) == 0:
		return nil, Errorf(CodeBadRequest, "a state needs at least one value")
	case len(values) > l.Values:
		return nil, Errorf(CodeTooLarge, "%d values, at most %d are allowed", len(values), l.Values)
	}
	defs := make([]ValueDef, len(values))
	names := make(map[string]bool, len(values))
	for i := range values {
		d := values[i].ValueDef
		if d.Name != "" && (!ValidName(d.Name) || names[d.Name]) {
			return nil, Errorf(CodeBadRequest, "value %d: %q is not a name, or not the only one", i, d.Name)
		}
		names[d.Name] = true
		if err := d.check(uint16(l.ValueBytes)); err != nil {
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
	if err := d.CheckFields(valueMax); err != nil {
		return err
	}
	if !d.Nullable {
		d.Null = nil
		return nil
	}
	d.Null = d.Type.Sendable(d.Null)
	c := schema{defs: []ValueDef{*d}, fields: []view.Field{{Type: d.Type}}, valueMax: valueMax}
	if err := c.check(0, d.Substitute(), false); err != nil {
		return err.In("substitute for null")
	}
	return nil
}
