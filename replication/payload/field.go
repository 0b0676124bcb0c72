package payload

import (
	"slices"
	"strings"

	"github.com/dnprelay/dnprelay/replication"
)

// A field is one that some object of a payload can have.
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
	fieldCount
)

var fieldNames = [fieldCount]string{
	"op", "ops", "atomic", "key", "message", "farewell", "access", "audience", "values", "client", "join", "leave",
	"name", "type", "value", "precision", "nullable", "null", "writers", "all", "groups", "clients", "except",
	"after", "max", "priority", "lod", "rate",
}

// fields are the members of one object, each at most once and not yet looked at.
type fields struct {
	raw [fieldCount]string // the text of the value; empty if the field is absent
}

func (f *fields) has(x field) bool { return f.raw[x] != "" }

// parseFields takes an object apart. what names it in messages.
func parseFields(raw, what string) (f fields, err *replication.Error) {
	if kind := kindOf(raw); kind != "object" {
		return f, badRequest("%s: want object, got %s", what, kind)
	}
	for list := inside(raw); list != ""; {
		var quoted, value string
		quoted, value, list = member(list)
		name, ok := unquote(quoted)
		if !ok {
			return f, errSurrogate()
		}
		i := slices.Index(fieldNames[:], name)
		if i < 0 {
			return f, badRequest("%s: unknown field %q", what, clip(name))
		}
		if f.has(field(i)) {
			return f, badRequest("%s: field %q is given twice", what, name)
		}
		f.raw[i] = value
	}
	return f, nil
}

// only reports a field that the object with this name does not have.
func (f *fields) only(what string, allowed ...field) *replication.Error {
	for i := range fieldCount {
		if f.has(i) && !slices.Contains(allowed, i) {
			return badRequest("%s: unknown field %q", what, fieldNames[i])
		}
	}
	return nil
}

func badRequest(format string, args ...any) *replication.Error {
	return replication.Errorf(replication.CodeBadRequest, format, args...)
}

func wantField(name, want, raw string) *replication.Error {
	return badRequest("field %q: want %s, got %s", name, want, kindOf(raw))
}

func boolean(name, raw string) (bool, *replication.Error) {
	if kindOf(raw) != "boolean" {
		return false, wantField(name, "boolean", raw)
	}
	return raw == "true", nil
}

func text(name, raw string) (string, *replication.Error) {
	if kindOf(raw) != "string" {
		return "", wantField(name, "string", raw)
	}
	s, ok := unquote(raw)
	if !ok {
		return "", errSurrogate()
	}
	return s, nil
}

// token is the name of a client or a group. It does not keep the payload alive.
func token(name, raw string) (string, *replication.Error) {
	s, err := text(name, raw)
	if err != nil {
		return "", err
	}
	if !replication.ValidToken(s) {
		return "", badRequest("field %q: %q is not a name of [A-Za-z0-9_-]{1,%d}", name, clip(s), replication.TokenMax)
	}
	return strings.Clone(s), nil
}

func tokens(name, raw string) (all []string, err *replication.Error) {
	if kindOf(raw) != "array" {
		return nil, wantField(name, "array", raw)
	}
	for list := inside(raw); list != ""; {
		var one string
		one, list = element(list)
		s, err := token(name, one)
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}

// bytesText is a message: text, text behind "text:", or base64 behind "base64:".
func bytesText(name, raw string) ([]byte, *replication.Error) {
	s, err := text(name, raw)
	if err != nil {
		return nil, err
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

func parseAccess(raw string) (a replication.Access, err *replication.Error) {
	if kindOf(raw) == "string" {
		switch s, _ := unquote(raw); s {
		case "read-only":
			return a, nil
		case "read-write":
			return replication.Access{Kind: replication.AccessReadWrite}, nil
		default:
			return a, badRequest(`field "access": want "read-only", "read-write" or {"writers":[…]}, got %q`, clip(s))
		}
	}
	f, err := parseFields(raw, `field "access"`)
	if err != nil {
		return a, err
	}
	if err = f.only(`field "access"`, fieldWriters); err != nil {
		return a, err
	}
	if !f.has(fieldWriters) {
		return a, badRequest(`field "access": want "writers"`)
	}
	a.Kind = replication.AccessWriters
	a.Writers, err = tokens("writers", f.raw[fieldWriters])
	return a, err
}

func parseAudience(raw string) (a replication.Audience, err *replication.Error) {
	const what = `field "audience"`
	f, err := parseFields(raw, what)
	if err != nil {
		return a, err
	}
	if err = f.only(what, fieldAll, fieldGroups, fieldClients, fieldExcept); err != nil {
		return a, err
	}
	all := false
	if f.has(fieldAll) {
		if all, err = boolean("all", f.raw[fieldAll]); err != nil {
			return a, err
		}
	}
	listed := f.has(fieldGroups) || f.has(fieldClients)
	switch {
	case all && listed:
		return a, badRequest(what + `: "all" goes with "except", not with "groups" and "clients"`)
	case !all && f.has(fieldExcept):
		return a, badRequest(what + `: "except" needs "all":true`)
	case all && f.has(fieldExcept):
		return parseExcept(f.raw[fieldExcept])
	case all:
		return replication.Audience{Kind: replication.AudienceAll}, nil
	}
	return parseListed(&f, replication.AudienceListed)
}

func parseExcept(raw string) (a replication.Audience, err *replication.Error) {
	const what = `field "except"`
	f, err := parseFields(raw, what)
	if err != nil {
		return a, err
	}
	if err = f.only(what, fieldGroups, fieldClients); err != nil {
		return a, err
	}
	a, err = parseListed(&f, replication.AudienceAllBut)
	if err == nil && a.Kind == replication.AudienceNobody {
		a.Kind = replication.AudienceAll // all but nobody
	}
	return a, err
}

// parseListed makes an audience of groups and clients. Without any it is nobody.
func parseListed(f *fields, kind replication.AudienceKind) (a replication.Audience, err *replication.Error) {
	if f.has(fieldGroups) {
		if a.Groups, err = tokens("groups", f.raw[fieldGroups]); err != nil {
			return a, err
		}
	}
	if f.has(fieldClients) {
		if a.Clients, err = tokens("clients", f.raw[fieldClients]); err != nil {
			return a, err
		}
	}
	if len(a.Groups)+len(a.Clients) > 0 {
		a.Kind = kind
	}
	return a, nil
}
