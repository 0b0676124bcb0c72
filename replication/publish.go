package replication

import (
	"time"
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
	OpClear                      // remove all states that publishers made
)

// An Op is one change that a publisher asks for.
type Op struct {
	Kind OpKind

	// Err is the error that the parser of the payload found. Such an op fails with it and its
	// other fields mean nothing. It is set only in a publish that is not atomic.
	Err *Error

	Key string // put, set, remove, audience

	// Of put. For an existing state, a field that is not given keeps its value. A new
	// state gets its key as message, no farewell, read-only access, and all clients as
	// audience.
	Message     []byte
	Farewell    []byte
	Access      Access
	Audience    Audience // also of audience, which has it or Details
	Priority    uint8    // 1 to PriorityMax
	Details     []Detail // also of audience
	HasMessage  bool
	HasFarewell bool
	HasAccess   bool
	HasAudience bool
	HasPriority bool
	HasDetails  bool
	Values      []PutValue

	Sets []SetValue // of set

	Client string   // group, kick
	Join   []string // group
	Leave  []string
}

// A PutValue is the definition of a value and its content.
type PutValue struct {
	ValueDef

	// Value is the content. nil keeps the current content if the layout stays the same,
	// and is null or zero otherwise.
	Value Literal
}

// A SetValue changes one value.
type SetValue struct {
	Name  string // a name, or an index in digits
	Value Literal
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
	Results    []Result // one per op if the publish was not atomic
}

// A Result is the outcome of one op. Err is nil if the op was applied.
type Result struct{ Err *Error }

// Publish applies a message of a publisher. Advance returns the answer. The Store keeps nothing
// of p.
func (s *Store) Publish(now time.Time, p Publish) {
	s.stats.Publishes++
	a := Answer{Token: p.Token}
	if a.Err = s.admit(&p); a.Err == nil {
		a.Results, a.Err = s.applyOps(p.Ops, p.Atomic)
	}
	send := s.batch.send
	if a.Err != nil {
		s.stats.PublishErrors++
		send = s.batch.sendNow
	}
	if p.Token != 0 {
		send(Output{Kind: OutputAnswer, Answer: a})
	}
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
func (s *Store) applyOps(ops []Op, atomic bool) (results []Result, err *Error) {
	switch {
	case !atomic:
		results = make([]Result, len(ops))
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
			return nil, err
		}
		s.stats.PublishErrors++
		results[i].Err = err
	}
	s.journal.commit()
	for i := range ops {
		if ops[i].Kind == OpKick && (atomic || results[i].Err == nil) {
			s.batch.send(Output{Kind: OutputKick, Client: ops[i].Client})
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
		return s.knowsClient(op.Client)
	case OpClear:
		s.clear()
		return nil
	}
	return Errorf(CodeBadRequest, "unknown op")
}

func (s *Store) set(op *Op) *Error {
	st, err := s.states.lookup(op.Key)
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
		if err := s.edit.add(st.schema, i, v.Value); err != nil {
			return err
		}
	}
	if err := st.fits(&s.edit, st.Desc.Message); err != nil {
		return err
	}
	s.applyEdit(st, &s.edit)
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
	s.detach(st)
	return nil
}

// clear removes the states that publishers made, in the order of their numbers.
func (s *Store) clear() {
	for _, st := range s.states.all {
		if !st.dead && !st.hidden && st.owned == nil {
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
	return s.redescribe(st, op.description(st), st.schema)
}

// redescribe gives st another description and a schema of the same layout.
func (s *Store) redescribe(st *stored, desc Description, c *schema) *Error {
	old := st.Desc
	s.scratch = appendDescription(s.scratch[:0], old)
	n := len(s.scratch)
	s.scratch = appendDescription(s.scratch, &desc)
	if c == st.schema && string(s.scratch[:n]) == string(s.scratch[n:]) {
		return nil
	}
	desc.own(c)
	sum, err := s.sumDescribe(&desc)
	if err != nil {
		return err
	}
	oldSum, wasMarked := st.sum, st.redescribe
	described := desc // allocated here, so that an equal description costs nothing
	st.Desc, st.sum, st.redescribe = &described, sum, true
	s.setSchema(st, c)
	s.journal.note(func() {
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
