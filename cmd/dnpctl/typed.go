package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/dnprelay/dnprelay/dnp/message"
	"github.com/dnprelay/dnprelay/internal/top"
	"github.com/dnprelay/dnprelay/replication"
	"github.com/dnprelay/dnprelay/replication/payload"
)

// messageTypes names the types of messages in errors and help.
const messageTypes = "char, byte, short, ushort, int, uint, long, ulong, float, double, string8, string16, vector, vector2, quaternion, point, point3, dvector, color, color3"

// typedMessage returns the message of arguments TYPE:VALUE.
func typedMessage(args []string) ([]byte, error) {
	var b []byte
	for _, arg := range args {
		name, text, given := strings.Cut(arg, ":")
		if !given {
			return nil, fmt.Errorf("%q: want TYPE:VALUE, as byte:3 or vector:1,2,3", arg)
		}
		v, err := engineValue(name, text)
		if err == nil {
			b, err = message.Append(b, v)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return b, nil
}

// engineValue returns text as a value of the type with this name.
func engineValue(name, text string) (message.Value, error) {
	t, ok := message.ParseType(name)
	if !ok {
		return message.Value{}, errors.New("unknown type; types are " + messageTypes)
	}
	data, err := encode(replication.ValueDef{Type: t.ValueType()}, text)
	if err != nil {
		return message.Value{}, errors.New(strings.ReplaceAll(err.Error(), t.ValueType().String(), t.String()))
	}
	return message.Value{Type: t, Data: data}, nil
}

// formMax is the most values of a form. The number is arbitrary.
const formMax = 256

// A form is a sequence of types, by which a message can be decoded, and of values that a message must have to
// be of this form.
type form struct {
	types []message.Type
	want  [][]byte // by index, in the encoding of message.Value; nil for any value
}

// parseForm parses TYPE[=VALUE],…
func parseForm(text string) (f form, err error) {
	parts := strings.Split(text, ",")
	if len(parts) > formMax {
		return f, fmt.Errorf("%d types, at most %d are allowed", len(parts), formMax)
	}
	for _, part := range parts {
		name, value, fixed := strings.Cut(part, "=")
		t, ok := message.ParseType(name)
		if !ok {
			return f, fmt.Errorf("unknown type %q; types are %s", name, messageTypes)
		}
		var want []byte
		if fixed {
			v, err := engineValue(name, value)
			if err != nil {
				return f, fmt.Errorf("%s: %w", part, err)
			}
			want = v.Data
		}
		f.types, f.want = append(f.types, t), append(f.want, want)
	}
	return f, nil
}

// decode returns the values of a message. It is not ok if the message does not have exactly this form.
func (f *form) decode(p []byte) (values []message.Value, ok bool) {
	values, err := message.Parse(p, f.types...)
	if err != nil {
		return nil, false
	}
	for i, want := range f.want {
		if want != nil && !bytes.Equal(values[i].Data, want) {
			return nil, false
		}
	}
	return values, true
}

// decodeMessage returns the values of a message in the first form that it has; nil if it has none.
func decodeMessage(forms []form, p []byte) []message.Value {
	for i := range forms {
		if values, ok := forms[i].decode(p); ok {
			return values
		}
	}
	return nil
}

// A decodedValue is a value of a message in JSON lines.
type decodedValue struct {
	Type  string          `json:"type"`
	Value json.RawMessage `json:"value"`
}

func decodedValues(values []message.Value) (list []decodedValue) {
	for _, v := range values {
		list = append(list, decodedValue{v.Type.String(), payload.AppendValue(nil, v.Type.ValueType(), v.Data)})
	}
	return list
}

// decodedText returns the values of a message in readable form.
func decodedText(values []message.Value) string {
	parts := make([]string, len(values))
	for i, v := range decodedValues(values) {
		parts[i] = v.Type + ":" + top.Printable(string(v.Value))
	}
	return strings.Join(parts, " ")
}
