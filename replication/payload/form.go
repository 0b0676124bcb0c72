package payload

import (
	"bytes"
	"mime"
	"strings"

	"github.com/dnprelay/dnprelay/godot/variant"
	"github.com/dnprelay/dnprelay/replication"
)

// A Form is how a payload is written. The zero value is JSON.
type Form struct{ dialect variant.Dialect }

// JSON is the form of payloads that say nothing else.
var JSON Form

// Godot returns the form of Variants of a dialect.
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

// root returns the value that body is, a copy of it, checked as a whole.
func (f Form) root(body []byte) (node, *replication.Error) {
	if f == JSON {
		if err := check(body); err != nil {
			return node{}, err
		}
		return node{json: strings.Trim(string(body), whiteSpace)}, nil
	}
	v, err := variant.DecodeDictionary(f.dialect, bytes.Clone(body))
	if err != nil {
		return node{}, badRequest("the payload is no Variant: %v", err)
	}
	return node{variant: v}, nil
}
