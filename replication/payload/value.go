package payload

import (
	"encoding/binary"
	"math"
	"strconv"
	"strings"

	"github.com/dnprelay/dnprelay/dnp/netstate"
	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/replication"
)

func (p *parser) put(op *replication.Op, f *fields) (err *replication.Error) {
	op.Kind = replication.OpPut
	err = f.only("put", fieldOp, fieldKey, fieldMessage, fieldFarewell, fieldAccess, fieldAudience, fieldPriority, fieldLod, fieldValues)
	if err != nil {
		return err
	}
	if err = p.key(op, f); err != nil {
		return err
	}
	if op.HasMessage, err = optional(f, fieldMessage, &op.Message, message); err != nil {
		return err
	}
	if op.HasMessage && len(op.Message) == 0 {
		return badRequest("a link message has at least one byte")
	}
	if op.HasFarewell, err = optional(f, fieldFarewell, &op.Farewell, message); err != nil {
		return err
	}
	if op.HasAccess, err = optional(f, fieldAccess, &op.Access, parseAccess); err != nil {
		return err
	}
	if op.HasAudience, err = optional(f, fieldAudience, &op.Audience, parseAudience); err != nil {
		return err
	}
	if op.HasPriority, err = optional(f, fieldPriority, &op.Priority, parsePriority); err != nil {
		return err
	}
	if err = lod(op, f); err != nil {
		return err
	}
	return putValues(op, f)
}

func putValues(op *replication.Op, f *fields) *replication.Error {
	if !f.has(fieldValues) {
		return badRequest(`put needs "values"`)
	}
	n := f.nodes[fieldValues]
	if n.kind() != kindArray {
		return wantField("values", kindArray, n)
	}
	l := n.list()
	if !l.some() {
		return badRequest("a state has at least one value")
	}
	names := newNameSet(l.guess())
	for l.some() {
		i := len(op.Values)
		if i >= netstate.ValuesMax {
			return tooManyValues()
		}
		op.Values = append(op.Values, replication.PutValue{})
		v := &op.Values[i]
		if err := putValue(v, i, l.element()); err != nil {
			return err
		}
		if v.Name != "" && !names.add(v.Name) {
			return badRequest("value %q is given twice", v.Name)
		}
	}
	return nil
}

func tooManyValues() *replication.Error {
	return replication.Errorf(replication.CodeTooLarge, "more than %d values", netstate.ValuesMax)
}

func putValue(v *replication.PutValue, index int, n node) (err *replication.Error) {
	what := "value " + strconv.Itoa(index)
	f, err := parseFields(n, what)
	if err != nil {
		return err
	}
	named, err := optional(&f, fieldName, &v.Name, text)
	if err != nil {
		return err
	}
	if named {
		if !replication.ValidName(v.Name) {
			return badRequest("%s: name %q: want [A-Za-z_][A-Za-z0-9_]{0,%d}", what, clip(v.Name), replication.NameMax-1)
		}
		v.Name = strings.Clone(v.Name)
		what = "value " + strconv.Quote(v.Name)
	}
	if err = f.only(what, fieldName, fieldType, fieldValue, fieldPrecision, fieldNullable, fieldNull, fieldMin, fieldMax, fieldFinite, fieldRate); err != nil {
		return err
	}
	if v.Type, err = parseType(&f); err != nil {
		return within(what, err)
	}
	if v.Precision, err = parsePrecision(&f); err != nil {
		return within(what, err)
	}
	if err = parseNullable(v, &f); err != nil {
		return within(what, err)
	}
	if v.Bounds, err = parseBounds(v.Type, &f); err != nil {
		return within(what, err)
	}
	if f.has(fieldValue) {
		v.Value = f.nodes[fieldValue].literal()
	}
	return nil
}

// within adds the name of the value to an error message.
func within(what string, err *replication.Error) *replication.Error {
	err.Message = what + ": " + err.Message
	return err
}

func parseType(f *fields) (wire.ValueType, *replication.Error) {
	if !f.has(fieldType) {
		return 0, badRequest(`want "type"`)
	}
	name, err := text("type", f.nodes[fieldType])
	if err != nil {
		return 0, err
	}
	t, ok := wire.ParseValueType(name)
	if !ok {
		return 0, replication.Errorf(replication.CodeTypeMismatch, "unknown type %q", clip(name))
	}
	return t, nil
}

func parsePrecision(f *fields) (float64, *replication.Error) {
	if !f.has(fieldPrecision) {
		return 0, nil
	}
	n := f.nodes[fieldPrecision]
	if n.kind() != kindNumber {
		return 0, wantField("precision", kindNumber, n)
	}
	enc, err := n.appendValue(nil, typeFloat64)
	if err != nil {
		return 0, within("precision", err)
	}
	p := math.Float64frombits(binary.LittleEndian.Uint64(enc))
	if p < 0 {
		return 0, replication.Errorf(replication.CodeOutOfRange, "precision %v: want 0 or more", p)
	}
	return math.Abs(p), nil // without the sign of a negative zero
}

func parseNullable(v *replication.PutValue, f *fields) (err *replication.Error) {
	if _, err = optional(f, fieldNullable, &v.Nullable, boolean); err != nil {
		return err
	}
	if !f.has(fieldNull) {
		return nil
	}
	if !v.Nullable {
		return badRequest(`"null" needs "nullable":true`)
	}
	substitute := f.nodes[fieldNull]
	if substitute.isNull() {
		return within(`"null"`, mismatch(v.Type, substitute.got()))
	}
	if v.Null, err = substitute.appendValue(nil, v.Type); err != nil {
		return within(`"null"`, err)
	}
	return nil
}

func (p *parser) set(op *replication.Op, f *fields) *replication.Error {
	op.Kind = replication.OpSet
	if err := f.only("set", fieldOp, fieldKey, fieldValues); err != nil {
		return err
	}
	if err := p.key(op, f); err != nil {
		return err
	}
	if !f.has(fieldValues) {
		return badRequest(`set needs "values"`)
	}
	n := f.nodes[fieldValues]
	if n.kind() != kindObject {
		return wantField("values", kindObject, n)
	}
	return setValues(op, n.list())
}

func setValues(op *replication.Op, l list) *replication.Error {
	guess := min(l.guess(), netstate.ValuesMax)
	names := newNameSet(guess)
	op.Sets = make([]replication.SetValue, 0, guess)
	for l.some() {
		if len(op.Sets) >= netstate.ValuesMax {
			return tooManyValues()
		}
		name, value, err := l.member()
		if err != nil {
			return err
		}
		if !replication.ValidName(name) && !validIndex(name) {
			return badRequest("value %q: want a name or an index", clip(name))
		}
		if !names.add(name) {
			return badRequest("value %q is given twice", name)
		}
		op.Sets = append(op.Sets, replication.SetValue{Name: name, Value: value.literal()})
	}
	return nil
}

// validIndex reports whether name is an index in the form of strconv.Itoa.
func validIndex(name string) bool {
	return len(name) <= len(strconv.Itoa(netstate.ValuesMax)) && name[:min(1, len(name))] != "-" && isDecimal(name)
}

// A nameSet detects duplicate names. It compares a few names with each other, which costs no
// memory.
type nameSet struct {
	few  []string
	many map[string]struct{}
}

// nameSetFew is about the number from which on a map is faster.
const nameSetFew = 12 // where a map becomes faster, roughly

func newNameSet(guess int) nameSet {
	return nameSet{few: make([]string, 0, min(guess+1, nameSetFew))}
}

// add reports whether name was not in the set.
func (s *nameSet) add(name string) bool {
	if s.many == nil {
		for _, other := range s.few {
			if other == name {
				return false
			}
		}
		if s.few = append(s.few, name); len(s.few) > nameSetFew {
			s.many = make(map[string]struct{}, 4*nameSetFew)
			for _, other := range s.few {
				s.many[other] = struct{}{}
			}
		}
		return true
	}
	before := len(s.many)
	s.many[name] = struct{}{}
	return len(s.many) > before
}

// parseBounds parses what clients may write into a value of type t. It returns nil if no bound
// is given.
func parseBounds(t wire.ValueType, f *fields) (*replication.Bounds, *replication.Error) {
	if !f.has(fieldMin) && !f.has(fieldMax) && !f.has(fieldFinite) && !f.has(fieldRate) {
		return nil, nil
	}
	b := new(replication.Bounds)
	var err *replication.Error
	if b.Min, err = component(t, "min", fieldMin, f); err != nil {
		return nil, err
	}
	if b.Max, err = component(t, "max", fieldMax, f); err != nil {
		return nil, err
	}
	finite := true
	if _, err = optional(f, fieldFinite, &finite, boolean); err != nil {
		return nil, err
	}
	b.Infinite = !finite
	if f.has(fieldRate) {
		if b.Rate, err = between("rate", f.nodes[fieldRate], replication.WriteRateMin, replication.WriteRateMax); err != nil {
			return nil, err
		}
	}
	return b, b.Check(t)
}

// component parses a number as one component of t, with the rounding of a value. It returns nil
// if the field is not given.
func component(t wire.ValueType, name string, at field, f *fields) ([]byte, *replication.Error) {
	if !f.has(at) {
		return nil, nil
	}
	if t.Variable() {
		return nil, replication.Errorf(replication.CodeTypeMismatch, "%q is for numbers, not for %v", name, t)
	}
	enc, err := f.nodes[at].appendValue(nil, t.Component())
	if err != nil {
		return nil, within(name, err)
	}
	return enc, nil
}
