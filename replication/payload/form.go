package payload

import (
	"bytes"
	"mime"
	"strings"

	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/godot/variant"
	"github.com/dnprelay/dnprelay/replication"
)

// A Form is the encoding of a payload. The zero value is JSON.
type Form struct{ dialect variant.Dialect }

// JSON is the form of payloads without a content type.
var JSON Form

// Godot returns the form of Godot's Variants of a dialect.
func Godot(d variant.Dialect) Form { return Form{d} }

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
	kindOther kind = iota // a Variant that no field accepts
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
