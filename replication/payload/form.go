package payload

import (
	"bytes"
	"math"
	"mime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/godot/variant"
	"github.com/dnprelay/dnprelay/replication"
	"github.com/dnprelay/dnprelay/subject"
)

// A Form is the encoding of a payload: Godot's Variants of a dialect, or JSON, the zero value.
type Form struct{ dialect variant.Dialect }

// JSON is the form of payloads without a content type.
var JSON Form

// Content types.
const (
	contentJSON  = "application/json"
	contentGodot = "application/x-godot-variant"
)

// ParseForm returns the form that a content type names.
func ParseForm(contentType string) (f Form, err *replication.Error) {
	name, parameters, problem := mime.ParseMediaType(contentType)
	switch {
	case problem == nil && name == contentJSON:
		return JSON, nil
	case problem == nil && name == contentGodot:
		d, ok := variant.ParseDialect(parameters["version"])
		if ok {
			return Form{d}, nil
		}
		return f, badRequest("content type %q: want version=2, 3 or 4, for godot2, godot3 or godot4", clip(contentType))
	}
	return f, badRequest("content type %q: want %s, or %s with a version", clip(contentType), contentJSON, contentGodot)
}

// HeaderContentType is the header that names the form of a body.
const HeaderContentType = "Content-Type"

// Header returns the header of a message in this form: nil for JSON, which is the form without a header, because a
// header costs far more than the same bytes in the body.
func (f Form) Header() map[string]string {
	if f == JSON {
		return nil
	}
	return map[string]string{HeaderContentType: contentGodot + "; version=" + f.dialect.Version()}
}

// String returns the name of f: "json", "godot2", "godot3" or "godot4".
func (f Form) String() string {
	if f == JSON {
		return "json"
	}
	return f.dialect.String()
}

// root checks body as a whole and returns a copy of it as a value.
func (f Form) root(body []byte) (node, *replication.Error) {
	if f == JSON {
		if err := check(body); err != nil {
			return node{}, err
		}
		return node{json: strings.Trim(string(body), whiteSpace)}, nil
	}
	v, err := variant.DecodeDictionary(f.dialect, bytes.Clone(body))
	if err != nil {
		return node{}, badRequest("the payload is not a Variant: %v", err)
	}
	return node{variant: v}, nil
}

// A node is one value of a checked payload, in either form. The meaning of a field does not
// depend on the form, so the parser is written once, for nodes. (A node is a struct of both
// forms and not an interface, because making one is free.)
type node struct {
	json    string // the text of the value; empty for a Variant
	variant variant.Value
}

// Types that the fields of payloads have.
const (
	typeUint8   wire.ValueType = 1
	typeUint16  wire.ValueType = 3
	typeUint64  wire.ValueType = 7
	typeFloat64 wire.ValueType = 10
)

// A kind is the kind of a node, as far as fields distinguish it.
type kind uint8

const (
	kindAny   kind = iota // no restriction
	kindOther             // a Variant that no field accepts
	kindObject
	kindArray
	kindString
	kindNumber
	kindBoolean
	kindNull
)

// words are the names of the kinds in each form.
var words = [...]struct{ json, godot string }{
	kindObject: {"object", "Dictionary"}, kindArray: {"array", "Array"}, kindString: {"string", "String"},
	kindNumber: {"number", "number"}, kindBoolean: {"boolean", "bool"}, kindNull: {"null", "Nil"},
}

func (n node) isJSON() bool { return n.json != "" }

func (n node) kind() kind {
	if n.isJSON() {
		return kindOf(n.json)
	}
	return godotKind(n.variant.Type())
}

// word returns the name of a kind in the form of n.
func (n node) word(k kind) string {
	if n.isJSON() {
		return words[k].json
	}
	return words[k].godot
}

// got returns the name of the kind of n, for error messages.
func (n node) got() string {
	if n.isJSON() {
		return words[n.kind()].json
	}
	return n.variant.Type().String()
}

func (n node) isNull() bool { return n.kind() == kindNull }

// boolean returns the content of a boolean.
func (n node) boolean() bool {
	if n.isJSON() {
		return n.json == "true"
	}
	return n.variant.Bool()
}

// text returns the content of a string.
func (n node) text() (string, *replication.Error) {
	if !n.isJSON() {
		return n.variant.Text(), nil
	}
	s, ok := unquote(n.json)
	if !ok {
		return "", errSurrogate()
	}
	return s, nil
}

// literal returns n as the value of a state.
func (n node) literal() replication.Literal {
	if n.isJSON() {
		return literal(n.json)
	}
	return godotLiteral{n.variant}
}

// appendValue appends n, which is not null, encoded as t.
func (n node) appendValue(b []byte, t wire.ValueType) ([]byte, *replication.Error) {
	if n.isJSON() {
		return literal(n.json).appendValue(b, t)
	}
	return godotLiteral{n.variant}.appendValue(b, t)
}

// A list iterates over the elements of an array or the members of an object.
type list struct {
	json   string // what is left
	cursor variant.Cursor
}

// list returns an iterator over an object or an array.
func (n node) list() list {
	if n.isJSON() {
		return list{json: inside(n.json)}
	}
	return list{cursor: n.variant.Elements()}
}

// some reports whether anything is left.
func (l *list) some() bool { return l.json != "" || l.cursor.Len() > 0 }

// guess estimates how many elements are left.
func (l *list) guess() int {
	if l.json != "" {
		const colonsMax = 4096 // bytes in which to count
		head := l.json[:min(len(l.json), colonsMax)]
		return max(strings.Count(head, ":"), strings.Count(head, "{"))
	}
	return l.cursor.Len()
}

// element removes and returns the next element of an array.
func (l *list) element() (n node) {
	if l.json != "" {
		n.json, l.json = element(l.json)
		return n
	}
	l.cursor.Next()
	return node{variant: l.cursor.Value()}
}

// member removes and returns the next member of an object. The key of a Dictionary may be an
// int, the index of a value.
func (l *list) member() (name string, n node, err *replication.Error) {
	if l.json != "" {
		var quoted string
		quoted, n.json, l.json = member(l.json)
		name, err = node{json: quoted}.text()
		return name, n, err
	}
	l.cursor.Next()
	name, err = godotKey(l.cursor.Key())
	return name, node{variant: l.cursor.Value()}, err
}

// fieldNames are the names that an object of a payload can contain.
var fieldNames = [...]string{
	"op", "ops", "atomic", "key", "message", "describe", "farewell", "access", "audience", "values", "client", "join", "leave", "reason",
	"name", "type", "value", "precision", "nullable", "null", "writers", "all", "groups", "clients", "except",
	"after", "max", "priority", "lod", "rate", "min", "finite", "fields", "raw",
	"interest", "at", "axes", "bands", "within", "beyond", "events", "ttl", "as_of",
}

// fields are the members of one object, each at most once and not parsed. The first error
// sticks: a function that parses a field does nothing once err is set.
type fields struct {
	err   *replication.Error
	n     int
	names [len(fieldNames)]string
	nodes [len(fieldNames)]node
}

// parseFields splits an object into its fields. what names the object in error messages.
func parseFields(n node, what string) (f fields) {
	if n.kind() != kindObject {
		f.err = badRequest("%s: want %s, got %s", what, n.word(kindObject), n.got())
		return f
	}
	for l := n.list(); l.some(); f.n++ {
		name, value, err := l.member()
		switch {
		case err != nil:
			f.err = err
		case !slices.Contains(fieldNames[:], name):
			f.err = badRequest("%s: unknown field %q", what, clip(name))
		case f.has(name):
			f.err = badRequest("%s: field %q is given twice", what, name)
		}
		if f.err != nil {
			return f
		}
		f.names[f.n], f.nodes[f.n] = name, value
	}
	return f
}

// parseOnly is parseFields for an object that has only the allowed fields.
func parseOnly(n node, what string, allowed ...string) fields {
	f := parseFields(n, what)
	f.only(what, allowed...)
	return f
}

// only refuses a field that this object cannot have, the first in the order of fieldNames.
func (f *fields) only(what string, allowed ...string) {
	unknown := func(name string) bool { return !slices.Contains(allowed, name) }
	if !slices.ContainsFunc(f.names[:f.n], unknown) {
		return
	}
	i := slices.IndexFunc(fieldNames[:], func(name string) bool { return f.has(name) && unknown(name) })
	f.fail(badRequest("%s: unknown field %q", what, fieldNames[i]))
}

func (f *fields) get(name string) (n node, ok bool) {
	i := slices.Index(f.names[:f.n], name)
	if i < 0 {
		return node{}, false
	}
	return f.nodes[i], true
}

func (f *fields) has(name string) bool { return slices.Contains(f.names[:f.n], name) }

func (f *fields) fail(err *replication.Error) {
	if f.err == nil {
		f.err = err
	}
}

// optional parses a field into v if the object has it, and reports whether it has. want is the
// kind of the field, or kindAny.
func optional[T any](f *fields, name string, want kind, v *T, parse func(name string, n node) (T, *replication.Error)) (given bool) {
	n, given := f.get(name)
	switch {
	case !given || f.err != nil:
	case want != kindAny && n.kind() != want:
		f.err = wantField(name, want, n)
	default:
		*v, f.err = parse(name, n)
	}
	return given
}

// required is optional for a field without which the object is refused.
func required[T any](f *fields, name string, want kind, v *T, parse func(name string, n node) (T, *replication.Error), missing string) {
	if !optional(f, name, want, v, parse) {
		f.fail(badRequest("%s", missing))
	}
}

func badRequest(format string, args ...any) *replication.Error {
	return replication.Errorf(replication.CodeBadRequest, format, args...)
}

func wantField(name string, want kind, n node) *replication.Error {
	return badRequest("field %q: want %s, got %s", name, n.word(want), n.got())
}

func boolean(_ string, n node) (bool, *replication.Error) { return n.boolean(), nil }

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
	const what = `field "access"`
	if n.kind() == kindString {
		switch s, _ := n.text(); s {
		case "read-only":
			return a, nil
		case "read-write":
			return replication.Access{Kind: replication.AccessReadWrite}, nil
		default:
			return a, badRequest(what+`: want "read-only", "read-write" or {"writers":[…]}, got %q`, clip(s))
		}
	}
	f := parseOnly(n, what, "writers")
	a.Kind = replication.AccessWriters
	required(&f, "writers", kindArray, &a.Writers, tokens, what+`: want "writers"`)
	return a, f.err
}

func parseAudience(_ string, n node) (a replication.Audience, err *replication.Error) {
	const what = `field "audience"`
	f := parseOnly(n, what, "all", "groups", "clients", "except")
	all := false
	optional(&f, "all", kindBoolean, &all, boolean)
	switch {
	case all && (f.has("groups") || f.has("clients")):
		f.fail(badRequest(what + `: "all" goes with "except", not with "groups" and "clients"`))
	case !all && f.has("except"):
		f.fail(badRequest(what + `: "except" needs "all":true`))
	case all:
		a.Kind = replication.AudienceAll
		optional(&f, "except", kindAny, &a, parseExcept)
	default:
		a = parseListed(&f, replication.AudienceListed)
	}
	return a, f.err
}

func parseExcept(_ string, n node) (replication.Audience, *replication.Error) {
	f := parseOnly(n, `field "except"`, "groups", "clients")
	a := parseListed(&f, replication.AudienceAllBut)
	if a.Kind == replication.AudienceNone {
		a.Kind = replication.AudienceAll // nothing is excepted
	}
	return a, f.err
}

// parseListed makes an audience of groups and clients. Without any it is AudienceNone.
func parseListed(f *fields, kind replication.AudienceKind) (a replication.Audience) {
	optional(f, "groups", kindArray, &a.Groups, tokens)
	optional(f, "clients", kindArray, &a.Clients, tokens)
	if len(a.Groups)+len(a.Clients) > 0 {
		a.Kind = kind
	}
	return a
}

// lod parses the levels of detail of an op.
func lod(name string, n node) (all []replication.Detail, err *replication.Error) {
	return entries(name, n, replication.DetailsMax, parseDetail)
}

// entries parses the elements of an array, of which a field may have so many.
func entries[T any](name string, n node, most int, parse func(n node) (T, *replication.Error)) (all []T, err *replication.Error) {
	for l := n.list(); l.some(); {
		if len(all) == most {
			return nil, badRequest("field %q: more than %d entries", name, most)
		}
		x, err := parse(l.element())
		if err != nil {
			return nil, err.In("field " + strconv.Quote(name) + ", entry " + strconv.Itoa(len(all)))
		}
		all = append(all, x)
	}
	return all, nil
}

// parseDetail parses one level of detail: the clients and groups, and the reduction.
func parseDetail(n node) (d replication.Detail, err *replication.Error) {
	f := parseOnly(n, "the level of detail", "groups", "clients", "precision", "rate")
	listed := parseListed(&f, replication.AudienceListed)
	switch {
	case listed.Kind == replication.AudienceNone:
		f.fail(badRequest(`want "groups" or "clients"`))
	case !f.has("precision") && !f.has("rate"):
		f.fail(badRequest(`want "precision" or "rate"`))
	}
	d.Groups, d.Clients = listed.Groups, listed.Clients
	optional(&f, "precision", kindNumber, &d.Precision, between(1, replication.DetailPrecisionMax))
	optional(&f, "rate", kindNumber, &d.Rate, between(replication.DetailRateMin, replication.DetailRateMax))
	return d, f.err
}

// between returns a parser of numbers from low to high.
func between(low, high float64) func(string, node) (float64, *replication.Error) {
	return func(name string, n node) (float64, *replication.Error) {
		enc, err := n.appendValue(nil, typeFloat64)
		if err != nil {
			return 0, badRequest("%s: %s, want %v to %v", name, err.Message, low, high)
		}
		x := replication.Float(enc)
		if !(x >= low && x <= high) {
			return 0, badRequest("%s %v: want %v to %v", name, x, low, high)
		}
		return x, nil
	}
}

func parsePriority(name string, n node) (uint8, *replication.Error) {
	x, err := between(1, replication.PriorityMax)(name, n)
	if err == nil && x != math.Trunc(x) {
		err = badRequest("priority %v: want an integer of 1 to %d", x, replication.PriorityMax)
	}
	return uint8(x), err
}

// parseTTL parses a time to live; 0s is none.
func parseTTL(name string, n node) (time.Duration, *replication.Error) {
	s, err := text(name, n)
	if err != nil {
		return 0, err
	}
	d, bad := time.ParseDuration(s)
	if bad != nil || d != 0 && (d < replication.TTLMin || d > replication.TTLMax) {
		return 0, badRequest("ttl %q: want a time of %s to %s as 30s, 1.5m or 2h, or 0s for none",
			clip(s), DurationText(replication.TTLMin), DurationText(replication.TTLMax))
	}
	return d, nil
}

// DurationText returns d as payloads have it: without units that are zero.
func DurationText(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

func parseMax(_ string, n node) (int, *replication.Error) {
	enc, err := n.appendValue(nil, typeUint16)
	if err != nil {
		return 0, err.In(`field "max"`)
	}
	return int(replication.Uint(enc)), nil
}

func parseType(name string, n node) (wire.ValueType, *replication.Error) {
	s, err := text(name, n)
	if err != nil {
		return 0, err
	}
	t, ok := wire.ParseValueType(s)
	if !ok {
		return 0, replication.Errorf(replication.CodeTypeMismatch, "unknown type %q: want one such as uint8, float32, string or vector3f32", clip(s))
	}
	return t, nil
}

func parsePrecision(name string, n node) (float64, *replication.Error) {
	enc, err := n.appendValue(nil, typeFloat64)
	if err != nil {
		return 0, err.In(name)
	}
	p := replication.Float(enc)
	if p < 0 {
		return 0, replication.Errorf(replication.CodeOutOfRange, "precision %v: want 0 or more", p)
	}
	return math.Abs(p), nil // without the sign of a negative zero
}

// substitute returns a parser of the value of a definition that stands for null.
func substitute(d *replication.ValueDef) func(string, node) ([]byte, *replication.Error) {
	return func(name string, n node) ([]byte, *replication.Error) {
		if n.isNull() {
			return nil, mismatch(d.Type, n.got()).In(strconv.Quote(name))
		}
		enc, _, err := d.Append(nil, n.literal())
		if err != nil {
			return nil, err.In(strconv.Quote(name))
		}
		return enc, nil
	}
}

// component returns a parser of a number as one component of t, with the rounding of a value.
func component(t wire.ValueType) func(string, node) ([]byte, *replication.Error) {
	return func(name string, n node) ([]byte, *replication.Error) {
		if t.Variable() {
			return nil, replication.Errorf(replication.CodeTypeMismatch, "%q is for numbers, not for %v", name, t)
		}
		enc, err := n.appendValue(nil, t.Component())
		if err != nil {
			return nil, err.In(name)
		}
		return enc, nil
	}
}
