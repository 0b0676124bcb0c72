package payload

import (
	"bytes"
	"encoding/binary"
	"math"
	"strconv"
	"strings"

	"github.com/dnprelay/dnprelay/godot/variant"
	"github.com/dnprelay/dnprelay/replication"
	"github.com/dnprelay/dnprelay/subject"
)

// A field is a name that an object of a payload can contain.
type field uint8

const (
	fieldOp field = iota
	fieldOps
	fieldAtomic
	fieldKey
	fieldMessage
	fieldFarewell
	fieldAccess
	fieldAudience
	fieldValues
	fieldClient
	fieldJoin
	fieldLeave
	fieldName
	fieldType
	fieldValue
	fieldPrecision
	fieldNullable
	fieldNull
	fieldWriters
	fieldAll
	fieldGroups
	fieldClients
	fieldExcept
	fieldAfter
	fieldMax
	fieldPriority
	fieldLod
	fieldRate
	fieldMin
	fieldFinite
	fieldCount
)

var fieldNames = [fieldCount]string{
	"op", "ops", "atomic", "key", "message", "farewell", "access", "audience", "values", "client", "join", "leave",
	"name", "type", "value", "precision", "nullable", "null", "writers", "all", "groups", "clients", "except",
	"after", "max", "priority", "lod", "rate", "min", "finite",
}

func badRequest(format string, args ...any) *replication.Error {
	return replication.Errorf(replication.CodeBadRequest, format, args...)
}

func wantField(name string, want kind, n node) *replication.Error {
	return badRequest("field %q: want %s, got %s", name, n.word(want), n.got())
}

// optional parses field x into v if the object has it, and reports whether it has.
func optional[T any](f *fields, x field, v *T, parse func(name string, n node) (T, *replication.Error)) (given bool, err *replication.Error) {
	if given = f.has(x); given {
		*v, err = parse(fieldNames[x], f.nodes[x])
	}
	return given, err
}

func boolean(name string, n node) (bool, *replication.Error) {
	if n.kind() != kindBoolean {
		return false, wantField(name, kindBoolean, n)
	}
	return n.boolean(), nil
}

func text(name string, n node) (string, *replication.Error) {
	if n.kind() != kindString {
		return "", wantField(name, kindString, n)
	}
	return n.text()
}

// token parses the name of a client or a group. The result shares no memory with the payload.
func token(name string, n node) (string, *replication.Error) {
	s, err := text(name, n)
	if err != nil {
		return "", err
	}
	if !subject.ValidToken(s) {
		return "", badRequest("field %q: %q is not a name of [A-Za-z0-9_-]{1,%d}", name, clip(s), subject.TokenMax)
	}
	return strings.Clone(s), nil
}

func tokens(name string, n node) (all []string, err *replication.Error) {
	if n.kind() != kindArray {
		return nil, wantField(name, kindArray, n)
	}
	for l := n.list(); l.some(); {
		s, err := token(name, l.element())
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}

// message parses a message: text or bytes. JSON has no bytes, so a JSON string is text, text
// behind "text:", or base64 behind "base64:".
func message(name string, n node) ([]byte, *replication.Error) {
	if n.variant.Type() == variant.PackedByteArray {
		return bytes.Clone(n.variant.Bytes()), nil
	}
	s, err := text(name, n)
	if err != nil {
		return nil, err
	}
	if !n.isJSON() {
		return []byte(s), nil
	}
	encoded, ok := strings.CutPrefix(s, prefixBase64)
	if !ok {
		return []byte(strings.TrimPrefix(s, prefixText)), nil
	}
	p, ok := decodeBase64(encoded)
	if !ok {
		return nil, replication.Errorf(replication.CodeTypeMismatch, "field %q: want base64 behind %q, got %q", name, prefixBase64, clip(encoded))
	}
	return p, nil
}

// Prefixes of messages.
const (
	prefixBase64 = "base64:"
	prefixText   = "text:"
)

func parseAccess(_ string, n node) (a replication.Access, err *replication.Error) {
	if n.kind() == kindString {
		switch s, _ := n.text(); s {
		case "read-only":
			return a, nil
		case "read-write":
			return replication.Access{Kind: replication.AccessReadWrite}, nil
		default:
			return a, badRequest(`field "access": want "read-only", "read-write" or {"writers":[…]}, got %q`, clip(s))
		}
	}
	f, err := parseOnly(n, `field "access"`, fieldWriters)
	if err != nil {
		return a, err
	}
	if !f.has(fieldWriters) {
		return a, badRequest(`field "access": want "writers"`)
	}
	a.Kind = replication.AccessWriters
	a.Writers, err = tokens("writers", f.nodes[fieldWriters])
	return a, err
}

func parseAudience(_ string, n node) (a replication.Audience, err *replication.Error) {
	const what = `field "audience"`
	f, err := parseOnly(n, what, fieldAll, fieldGroups, fieldClients, fieldExcept)
	if err != nil {
		return a, err
	}
	all := false
	if _, err = optional(&f, fieldAll, &all, boolean); err != nil {
		return a, err
	}
	listed := f.has(fieldGroups) || f.has(fieldClients)
	switch {
	case all && listed:
		return a, badRequest(what + `: "all" goes with "except", not with "groups" and "clients"`)
	case !all && f.has(fieldExcept):
		return a, badRequest(what + `: "except" needs "all":true`)
	case all && f.has(fieldExcept):
		return parseExcept(f.nodes[fieldExcept])
	case all:
		return replication.Audience{Kind: replication.AudienceAll}, nil
	}
	return parseListed(&f, replication.AudienceListed)
}

func parseExcept(n node) (a replication.Audience, err *replication.Error) {
	const what = `field "except"`
	f, err := parseOnly(n, what, fieldGroups, fieldClients)
	if err != nil {
		return a, err
	}
	a, err = parseListed(&f, replication.AudienceAllBut)
	if err == nil && a.Kind == replication.AudienceNone {
		a.Kind = replication.AudienceAll // nothing is excepted
	}
	return a, err
}

// parseListed makes an audience of groups and clients. Without any it is AudienceNone.
func parseListed(f *fields, kind replication.AudienceKind) (a replication.Audience, err *replication.Error) {
	if _, err = optional(f, fieldGroups, &a.Groups, tokens); err != nil {
		return a, err
	}
	if _, err = optional(f, fieldClients, &a.Clients, tokens); err != nil {
		return a, err
	}
	if len(a.Groups)+len(a.Clients) > 0 {
		a.Kind = kind
	}
	return a, nil
}

// lod parses the levels of detail of an op, if it has the field.
func lod(op *replication.Op, f *fields) *replication.Error {
	if op.HasDetails = f.has(fieldLod); !op.HasDetails {
		return nil
	}
	n := f.nodes[fieldLod]
	if n.kind() != kindArray {
		return wantField("lod", kindArray, n)
	}
	for l := n.list(); l.some(); {
		if len(op.Details) == replication.DetailsMax {
			return badRequest(`field "lod": more than %d entries`, replication.DetailsMax)
		}
		d, err := parseDetail(l.element())
		if err != nil {
			return within(`field "lod", entry `+strconv.Itoa(len(op.Details)), err)
		}
		op.Details = append(op.Details, d)
	}
	return nil
}

// parseDetail parses one level of detail: the clients and groups, and the reduction.
func parseDetail(n node) (d replication.Detail, err *replication.Error) {
	f, err := parseOnly(n, "the level of detail", fieldGroups, fieldClients, fieldPrecision, fieldRate)
	if err != nil {
		return d, err
	}
	listed, err := parseListed(&f, replication.AudienceListed)
	if err != nil {
		return d, err
	}
	d.Groups, d.Clients = listed.Groups, listed.Clients
	switch {
	case len(d.Groups)+len(d.Clients) == 0:
		return d, badRequest(`want "groups" or "clients"`)
	case !f.has(fieldPrecision) && !f.has(fieldRate):
		return d, badRequest(`want "precision" or "rate"`)
	}
	if f.has(fieldPrecision) {
		if d.Precision, err = between("precision", f.nodes[fieldPrecision], 1, replication.DetailPrecisionMax); err != nil {
			return d, err
		}
	}
	if f.has(fieldRate) {
		d.Rate, err = between("rate", f.nodes[fieldRate], replication.DetailRateMin, replication.DetailRateMax)
	}
	return d, err
}

// between parses a number from low to high.
func between(name string, n node, low, high float64) (float64, *replication.Error) {
	if n.kind() != kindNumber {
		return 0, wantField(name, kindNumber, n)
	}
	enc, err := n.appendValue(nil, typeFloat64)
	if err != nil {
		return 0, badRequest("%s: %s, want %v to %v", name, err.Message, low, high)
	}
	x := math.Float64frombits(binary.LittleEndian.Uint64(enc))
	if !(x >= low && x <= high) {
		return 0, badRequest("%s %v: want %v to %v", name, x, low, high)
	}
	return x, nil
}

func parsePriority(name string, n node) (uint8, *replication.Error) {
	x, err := between(name, n, 1, replication.PriorityMax)
	if err == nil && x != math.Trunc(x) {
		err = badRequest("priority %v: want an integer of 1 to %d", x, replication.PriorityMax)
	}
	return uint8(x), err
}
