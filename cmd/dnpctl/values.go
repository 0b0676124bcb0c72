package main

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/internal/config"
	"github.com/dnprelay/dnprelay/internal/top"
	"github.com/dnprelay/dnprelay/replication"
	"github.com/dnprelay/dnprelay/replication/payload"
)

// isTyped reports whether an argument is NAME:TYPE=VALUE.
func isTyped(arg string) bool {
	left, _, _ := strings.Cut(arg, "=")
	return strings.Contains(left, ":")
}

func parseTyped(args []string, problems config.Problems) ([]payload.Value, config.Problems) {
	var list []payload.Value
	for _, arg := range args {
		v, err := parseTypedValue(arg)
		problems.AddErr(arg, err)
		list = append(list, v)
	}
	return list, problems
}

// parseTypedValue parses NAME:TYPE[~PRECISION][?]=VALUE.
func parseTypedValue(arg string) (v payload.Value, err error) {
	left, text, given := strings.Cut(arg, "=")
	name, rest, typed := strings.Cut(left, ":")
	if !given || !typed {
		return v, errors.New("want NAME:TYPE=VALUE, as hp:float32=93.5")
	}
	if name != "" && !replication.ValidName(name) {
		return v, fmt.Errorf("name %q must start with a letter or _ and have letters, digits and _", name)
	}
	rest, v.Nullable = strings.CutSuffix(rest, "?")
	v.Name, v.Type = name, rest
	if kind, precision, ok := strings.Cut(rest, "~"); ok {
		v.Type = kind
		if v.Precision, err = strconv.ParseFloat(precision, 64); err != nil || v.Precision <= 0 {
			return v, fmt.Errorf("precision %q must be a number above 0", precision)
		}
	}
	t, ok := wire.ParseValueType(v.Type)
	if !ok {
		return v, fmt.Errorf("unknown type %q; types are sint8 to uint64, float16 to float64, string, data, point2s8 to point3u64, vector2f16 to vector3f64, quaternionf16 to quaternionf64", v.Type)
	}
	if text == "null" && v.Nullable {
		v.Value = json.RawMessage("null")
		return v, nil
	}
	v.Value, err = valueForType(t, text)
	return v, err
}

// valueForType returns the JSON for text as a value of type t.
func valueForType(t wire.ValueType, text string) (json.RawMessage, error) {
	switch t.Kind() {
	case wire.KindString:
		return json.Marshal(text)
	case wire.KindData:
		if file, ok := strings.CutPrefix(text, "@"); ok {
			content, err := os.ReadFile(file)
			if err != nil {
				return nil, err
			}
			return json.Marshal(content)
		}
		if _, err := base64.StdEncoding.DecodeString(text); err != nil {
			return nil, fmt.Errorf("want base64 or @FILE, got %q", text)
		}
		return json.Marshal(text)
	}
	parts := strings.Split(strings.TrimSuffix(strings.TrimPrefix(text, "["), "]"), ",")
	if len(parts) != t.Components() {
		return nil, fmt.Errorf("a %v has %d numbers, got %d", t, t.Components(), len(parts))
	}
	for i, p := range parts {
		n, ok := number(strings.TrimSpace(p), t.Width() == 8 && t.Kind() != wire.KindFloat)
		if !ok {
			return nil, fmt.Errorf("want a number, got %q", p)
		}
		parts[i] = n
	}
	if len(parts) == 1 {
		return json.RawMessage(parts[0]), nil
	}
	return json.RawMessage("[" + strings.Join(parts, ",") + "]"), nil
}

// number returns text as a JSON number, quoted if wide, because JSON numbers
// beyond 2^53 are not exact everywhere.
func number(text string, wide bool) (string, bool) {
	if wide {
		digits := strings.TrimPrefix(text, "-")
		return `"` + text + `"`, digits != "" && strings.Trim(digits, "0123456789") == ""
	}
	f, err := strconv.ParseFloat(text, 64)
	switch {
	case err != nil:
		return "", false
	case json.Valid([]byte(text)):
		return text, true
	}
	b, err := json.Marshal(f) // JSON lacks the form, as .5
	return string(b), err == nil
}

// parseUntyped parses NAME=VALUE arguments; the relay knows the types.
func parseUntyped(args []string, problems config.Problems) ([]payload.Member, config.Problems) {
	var list []payload.Member
	for _, arg := range args {
		name, text, given := strings.Cut(arg, "=")
		switch {
		case !given || name == "":
			problems.Add(arg, "want NAME=VALUE, or NAME:TYPE=VALUE to make a state")
		case slices.ContainsFunc(list, func(m payload.Member) bool { return m.Name == name }):
			problems.Add(arg, "%s is given twice", name)
		default:
			list = append(list, payload.Member{Name: name, Value: guess(text)})
		}
	}
	slices.SortFunc(list, func(a, b payload.Member) int { return strings.Compare(a.Name, b.Name) })
	return list, problems
}

// guess returns text as JSON: JSON as it is, numbers with commas as an array, and
// everything else as text.
func guess(text string) json.RawMessage {
	if json.Valid([]byte(text)) {
		return json.RawMessage(text)
	}
	if array := "[" + text + "]"; strings.Contains(text, ",") && json.Valid([]byte(array)) {
		return json.RawMessage(array)
	}
	return quote(text)
}

func quote(text string) json.RawMessage { return json.RawMessage(jsonText(text)) }

// A lineValue is a value of a state in JSON.
type lineValue struct {
	Index int             `json:"index"`
	Name  string          `json:"name,omitempty"`
	Type  string          `json:"type"`
	Value json.RawMessage `json:"value"`
}

func lineValues(s state, indices []int) (list []lineValue) {
	for _, i := range indices {
		list = append(list, lineValue{i, s.Name(i), s.Type(i).String(), valueJSON(s, i)})
	}
	return list
}

// valueJSON returns value i as a JSON payload has it.
func valueJSON(s state, i int) []byte {
	return payload.AppendStructValue(nil, s.Type(i), structFields(s, i), s.At(i).Append(nil))
}

// structFields returns the components of value i; nil if it has none.
func structFields(s state, i int) (list []replication.StructField) {
	for _, f := range s.Fields(i) {
		t, _ := wire.ParseValueType(f.Type) // package client knows the type
		list = append(list, replication.StructField{Name: f.Name, Type: t})
	}
	return list
}

// valueText returns value i in readable form.
func valueText(s state, i int) string { return top.Printable(string(valueJSON(s, i))) }
