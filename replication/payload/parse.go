package payload

import (
	"encoding/binary"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/dnprelay/dnprelay/dnp/netstate"
	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/replication"
	"github.com/dnprelay/dnprelay/subject"
)

// OpsMax bounds the ops of one payload before the store checks its own limit, because an op
// takes more memory than its text.
const OpsMax = 65536

// Parse parses the body of a publish. subjectKey is the key in the subject, or empty. The ops
// may share memory with each other but not with body.
//
// In a publish that is not atomic, a bad op carries its error and the other ops stay valid.
func (f Form) Parse(body []byte, subjectKey string) (p replication.Publish, err *replication.Error) {
	n, err := f.root(body)
	if err == nil {
		err = parsePublish(&p, n, subjectKey)
	}
	if err != nil {
		return replication.Publish{}, err
	}
	return p, nil
}

func parsePublish(p *replication.Publish, n node, subjectKey string) *replication.Error {
	p.Atomic = true
	f := parseFields(n, "the payload")
	list, several := f.get("ops")
	if !several {
		if f.has("atomic") {
			f.fail(badRequest(`"atomic" belongs beside "ops"`))
		}
		p.Ops = make([]replication.Op, 1)
		parseOp(&p.Ops[0], &f, subjectKey)
		return f.err
	}
	f.only("a list of ops", "ops", "atomic")
	optional(&f, "atomic", kindBoolean, &p.Atomic, boolean)
	if f.err != nil {
		return f.err
	}
	return parseOps(p, list, subjectKey)
}

func parseOps(p *replication.Publish, n node, subjectKey string) *replication.Error {
	if n.kind() != kindArray {
		return wantField("ops", kindArray, n)
	}
	l := n.list()
	if !l.some() {
		return badRequest(`"ops" is empty`)
	}
	for i := 0; l.some(); i++ {
		if i >= OpsMax {
			return replication.Errorf(replication.CodeTooLarge, "more than %d ops", OpsMax)
		}
		p.Ops = append(p.Ops, replication.Op{})
		f := parseFields(l.element(), "an op")
		parseOp(&p.Ops[i], &f, subjectKey)
		if f.err == nil {
			continue
		}
		f.err.Op = i
		if p.Atomic {
			return f.err
		}
		p.Ops[i] = replication.Op{Err: f.err}
	}
	return nil
}

// ops are the ops by name, with the fields that each may have.
var ops = map[string]struct {
	kind   replication.OpKind
	fields []string
}{
	"put":      {replication.OpPut, []string{"op", "key", "message", "describe", "farewell", "access", "audience", "priority", "lod", "interest", "ttl", "values", "as_of"}},
	"set":      {replication.OpSet, []string{"op", "key", "values", "as_of"}},
	"remove":   {replication.OpRemove, []string{"op", "key", "as_of"}},
	"audience": {replication.OpAudience, []string{"op", "key", "audience", "lod", "as_of"}},
	"group":    {replication.OpGroup, []string{"op", "client", "join", "leave"}},
	"interest": {replication.OpInterest, append([]string{"op", "name"}, interestFields...)},
	"eye":      {replication.OpEye, []string{"op", "client", "at"}},
	"kick":     {replication.OpKick, []string{"op", "client", "reason"}},
	"clear":    {replication.OpClear, []string{"op"}},
}

func parseOp(op *replication.Op, f *fields, subjectKey string) {
	var name string
	required(f, "op", kindString, &name, text, `an op needs "op"`)
	form, ok := ops[name]
	if !ok {
		f.fail(badRequest("unknown op %q: want put, set, remove, audience, group, interest, eye, kick or clear", clip(name)))
		return
	}
	op.Kind = form.kind
	f.only(name, form.fields...)
	if slices.Contains(form.fields, "key") {
		parseKey(op, f, subjectKey)
	}
	switch op.Kind {
	case replication.OpPut:
		parsePut(op, f)
	case replication.OpSet:
		required(f, "values", kindObject, &op.Sets, setValues, `set needs "values"`)
		setConditions(op, f)
	case replication.OpRemove:
		optional(f, "as_of", kindArray, &op.Only, asOf)
	case replication.OpAudience:
		op.HasAudience = optional(f, "audience", kindAny, &op.Audience, parseAudience)
		op.HasDetails = optional(f, "lod", kindArray, &op.Details, lod)
		if !op.HasAudience && !op.HasDetails {
			f.fail(badRequest(`audience needs "audience" or "lod"`))
		}
		optional(f, "as_of", kindArray, &op.Only, asOf)
	case replication.OpGroup, replication.OpKick:
		required(f, "client", kindString, &op.Client, token, `the op needs "client"`)
		optional(f, "join", kindArray, &op.Join, tokens)
		optional(f, "leave", kindArray, &op.Leave, tokens)
		optional(f, "reason", kindString, &op.Reason, text)
	case replication.OpInterest:
		opInterest(op, f)
	case replication.OpEye:
		required(f, "client", kindString, &op.Client, token, `the op needs "client"`)
		required(f, "at", kindAny, &op.Eyes, eyes, `eye needs "at"`)
	}
}

// parseKey takes the key from the op or the subject. If both have one, they must be equal.
func parseKey(op *replication.Op, f *fields, subjectKey string) {
	op.Key = subjectKey
	var key string
	if !optional(f, "key", kindString, &key, text) {
		if op.Key == "" {
			f.fail(badRequest(`an op needs "key", unless the subject has it`))
		}
		return
	}
	switch {
	case !subject.ValidKey(key):
		f.fail(badRequest("key %q: want 1 to %d names of [A-Za-z0-9_-]{1,%d} joined by dots, at most %d bytes", clip(key), subject.KeyTokensMax, subject.TokenMax, subject.KeyMax))
	case op.Key != "" && op.Key != key:
		f.fail(badRequest("key %q is not the key %q of the subject", clip(key), op.Key))
	}
	op.Key = strings.Clone(key)
}

func parsePut(op *replication.Op, f *fields) {
	op.HasMessage = optional(f, "message", kindAny, &op.Message, message)
	if op.HasMessage && len(op.Message) == 0 {
		f.fail(badRequest("a link message has at least one byte"))
	}
	op.HasDescribe = optional(f, "describe", kindBoolean, &op.Describe, boolean)
	if op.HasMessage && op.HasDescribe {
		f.fail(badRequest("a state has a message or describe, not both"))
	}
	op.HasFarewell = optional(f, "farewell", kindAny, &op.Farewell, message)
	op.HasAccess = optional(f, "access", kindAny, &op.Access, parseAccess)
	op.HasAudience = optional(f, "audience", kindAny, &op.Audience, parseAudience)
	op.HasPriority = optional(f, "priority", kindNumber, &op.Priority, parsePriority)
	op.HasDetails = optional(f, "lod", kindArray, &op.Details, lod)
	op.HasTTL = optional(f, "ttl", kindString, &op.TTL, parseTTL)
	putInterest(op, f)
	optional(f, "as_of", kindArray, &op.Only, asOf)
	required(f, "values", kindArray, &op.Values, putValues(op.Only), `put needs "values"`)
}

// asOf parses a condition: the position up to which the publisher knows what was said, an array of an epoch and a sequence number.
func asOf(name string, n node) (c replication.Condition, err *replication.Error) {
	var p [2]uint64
	i, ok := 0, true
	for l := n.list(); ok && l.some(); i++ {
		number := l.element()
		if i == len(p) || number.kind() != kindNumber && number.kind() != kindString {
			ok = false
			break
		}
		b, err := number.appendValue(nil, typeUint64)
		if err != nil {
			return c, err.In(strconv.Quote(name))
		}
		p[i] = binary.LittleEndian.Uint64(b)
	}
	if !ok || i != len(p) {
		return c, badRequest("field %q: want an epoch and a sequence number", name)
	}
	return replication.Condition{AsOf: replication.Position{Epoch: p[0], Seq: p[1]}, Given: true}, nil
}

// setConditions parses the conditions of a set: one of all its values, or those of some by name.
func setConditions(op *replication.Op, f *fields) {
	n, given := f.get("as_of")
	if !given || f.err != nil {
		return
	}
	if n.kind() == kindArray {
		all, err := asOf("as_of", n)
		f.err = err
		for i := range op.Sets {
			op.Sets[i].Only = all
		}
		return
	}
	if n.kind() != kindObject {
		f.err = wantField("as_of", kindObject, n)
		return
	}
	index := make(map[string]int, len(op.Sets))
	for i := range op.Sets {
		index[op.Sets[i].Name] = i
	}
	for l := n.list(); l.some() && f.err == nil; {
		name, value, err := l.member()
		i, ok := index[name]
		switch {
		case err != nil:
			f.err = err
		case !ok || value.kind() != kindArray || op.Sets[i].Only.Given:
			f.err = badRequest(`field "as_of": value %q: want one of the values, once, with an epoch and a sequence number`, clip(name))
		default:
			op.Sets[i].Only, f.err = asOf("as_of", value)
		}
	}
}

// putValues parses the values of a put. Those without a condition of their own have that of the put.
func putValues(only replication.Condition) func(string, node) ([]replication.PutValue, *replication.Error) {
	return func(_ string, n node) ([]replication.PutValue, *replication.Error) { return valuesOf(n, only) }
}

func valuesOf(n node, only replication.Condition) (values []replication.PutValue, err *replication.Error) {
	l := n.list()
	if !l.some() {
		return nil, badRequest("a state has at least one value")
	}
	names := newNameSet(l.guess())
	for l.some() {
		i := len(values)
		if i >= netstate.ValuesMax {
			return nil, tooManyValues()
		}
		values = append(values, replication.PutValue{Only: only})
		v := &values[i]
		if err := putValue(v, i, l.element()); err != nil {
			return nil, err
		}
		if v.Name != "" && !names.add(v.Name) {
			return nil, badRequest("value %q is given twice", v.Name)
		}
	}
	return values, nil
}

func tooManyValues() *replication.Error {
	return replication.Errorf(replication.CodeTooLarge, "more than %d values", netstate.ValuesMax)
}

func putValue(v *replication.PutValue, index int, n node) *replication.Error {
	what := "value " + strconv.Itoa(index)
	f := parseFields(n, what)
	if optional(&f, "name", kindString, &v.Name, text) {
		if !replication.ValidName(v.Name) {
			f.fail(badRequest("%s: name %q: want [A-Za-z_][A-Za-z0-9_]{0,%d}", what, clip(v.Name), replication.NameMax-1))
		}
		v.Name = strings.Clone(v.Name)
		what = "value " + strconv.Quote(v.Name)
	}
	f.only(what, "name", "type", "value", "precision", "nullable", "null", "min", "max", "finite", "rate", "fields", "as_of", "raw")
	if f.err != nil {
		return f.err
	}
	required(&f, "type", kindString, &v.Type, parseType, `want "type"`)
	optional(&f, "precision", kindNumber, &v.Precision, parsePrecision)
	optional(&f, "nullable", kindBoolean, &v.Nullable, boolean)
	if f.has("null") && !v.Nullable {
		f.fail(badRequest(`"null" needs "nullable":true`))
	}
	optional(&f, "fields", kindArray, &v.Struct, structFields)
	if f.err == nil {
		f.err = v.CheckFields(math.MaxUint16) // the limit of the store is lower
	}
	optional(&f, "null", kindAny, &v.Null, substitute(&v.ValueDef))
	v.Bounds = parseBounds(v.Type, &f)
	raw := replication.Encoded{Type: v.Type}
	hasRaw := optional(&f, "raw", kindString, &raw.Value, rawValue)
	if only, ok := f.get("as_of"); ok && only.isNull() {
		v.Only = replication.Condition{} // even if the put has one
	} else {
		optional(&f, "as_of", kindArray, &v.Only, asOf)
	}
	if f.err != nil {
		return f.err.In(what)
	}
	if content, ok := f.get("value"); hasRaw {
		v.Value = raw
	} else if ok {
		v.Value = content.literal()
	}
	return nil
}

// rawValue parses the bytes of a value. Whether they are one, the store says.
func rawValue(name string, n node) ([]byte, *replication.Error) {
	s, err := n.text()
	p, ok := decodeBase64(s)
	if err == nil && !ok {
		err = badRequest("field %q: want base64, got %q", name, clip(s))
	}
	return p, err
}

// parseBounds parses what clients may write into a value of type t. It returns nil if no bound
// is given.
func parseBounds(t wire.ValueType, f *fields) *replication.Bounds {
	if !f.has("min") && !f.has("max") && !f.has("finite") && !f.has("rate") {
		return nil
	}
	b, finite := new(replication.Bounds), true
	optional(f, "min", kindAny, &b.Min, component(t))
	optional(f, "max", kindAny, &b.Max, component(t))
	optional(f, "finite", kindBoolean, &finite, boolean)
	optional(f, "rate", kindNumber, &b.Rate, between(replication.WriteRateMin, replication.WriteRateMax))
	b.Infinite = !finite
	if f.err == nil {
		f.err = b.Check(t)
	}
	return b
}

func setValues(_ string, n node) ([]replication.SetValue, *replication.Error) {
	l := n.list()
	guess := min(l.guess(), netstate.ValuesMax)
	names := newNameSet(guess)
	sets := make([]replication.SetValue, 0, guess)
	for l.some() {
		if len(sets) >= netstate.ValuesMax {
			return nil, tooManyValues()
		}
		name, value, err := l.member()
		if err != nil {
			return nil, err
		}
		if !replication.ValidName(name) && !validIndex(name) {
			return nil, badRequest("value %q: want a name or an index", clip(name))
		}
		if !names.add(name) {
			return nil, badRequest("value %q is given twice", name)
		}
		sets = append(sets, replication.SetValue{Name: name, Value: value.literal()})
	}
	return sets, nil
}

// indexMax are the digits of the largest index, or one more.
var indexMax = len(strconv.Itoa(netstate.ValuesMax))

// validIndex reports whether name is an index in the form of strconv.Itoa.
func validIndex(name string) bool {
	return name != "" && name[0] != '-' && len(name) <= indexMax && isDecimal(name)
}

// A nameSet detects duplicate names. It compares a few names with each other, which costs no
// memory.
type nameSet struct {
	few  []string
	many map[string]bool
}

const nameSetFew = 12 // where a map becomes faster, roughly

func newNameSet(guess int) nameSet {
	return nameSet{few: make([]string, 0, min(guess+1, nameSetFew))}
}

// add reports whether name was not in the set.
func (s *nameSet) add(name string) bool {
	if s.many[name] || slices.Contains(s.few, name) {
		return false
	}
	if len(s.few) < nameSetFew {
		s.few = append(s.few, name)
		return true
	}
	if s.many == nil {
		s.many = make(map[string]bool, 4*nameSetFew)
	}
	s.many[name] = true
	return true
}

// A GetRequest asks for the states of a space.
type GetRequest struct {
	After string // continue behind this key; empty for the beginning
	Max   int    // most states; 0 for as many as fit
}

// ParseGet parses the body of a get request, which may be empty.
func (f Form) ParseGet(body []byte) (r GetRequest, err *replication.Error) {
	if len(body) == 0 {
		return r, nil
	}
	n, err := f.root(body)
	if err != nil {
		return r, err
	}
	in := parseOnly(n, "the request", "after", "max")
	optional(&in, "after", kindString, &r.After, text)
	if r.After != "" && !subject.ValidKey(r.After) {
		in.fail(badRequest("field \"after\": %q is not a key", clip(r.After)))
	}
	optional(&in, "max", kindNumber, &r.Max, parseMax)
	return r, in.err
}
