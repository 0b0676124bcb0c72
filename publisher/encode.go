package publisher

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/dnprelay/dnprelay/replication"
	"github.com/dnprelay/dnprelay/replication/payload"
)

// An op is the encoded form of an Op.
type op struct {
	source Op
	parsed replication.Op
	put    *putJSON                   // of Put; apply gives it to the copy
	values map[string]json.RawMessage // of Set
	who    json.RawMessage            // of Audience
}

// A putJSON is the JSON form of Put.
type putJSON struct {
	Op       string          `json:"op"`
	Key      string          `json:"key"`
	Message  *string         `json:"message,omitempty"`
	Farewell *string         `json:"farewell,omitempty"`
	Access   any             `json:"access"`
	Audience json.RawMessage `json:"audience"`
	Priority int             `json:"priority,omitempty"`
	Details  []detailJSON    `json:"lod,omitempty"`
	Values   []valueJSON     `json:"values"`
}

type valueJSON struct {
	Name      string          `json:"name,omitempty"`
	Type      string          `json:"type"`
	Value     json.RawMessage `json:"value,omitempty"`
	Precision float64         `json:"precision,omitempty"`
	Nullable  bool            `json:"nullable,omitempty"`
	Null      json.RawMessage `json:"null,omitempty"`
}

type detailJSON struct {
	Groups    []string `json:"groups,omitempty"`
	Clients   []string `json:"clients,omitempty"`
	Precision float64  `json:"precision,omitempty"`
	Rate      float64  `json:"rate,omitempty"`
}

type setJSON struct {
	Op     string                     `json:"op"`
	Key    string                     `json:"key"`
	Values map[string]json.RawMessage `json:"values"`
}

type removeJSON struct {
	Op  string `json:"op"`
	Key string `json:"key"`
}

type audienceJSON struct {
	Op       string          `json:"op"`
	Key      string          `json:"key"`
	Audience json.RawMessage `json:"audience"`
}

type groupJSON struct {
	Op     string   `json:"op"`
	Client string   `json:"client"`
	Join   []string `json:"join,omitempty"`
	Leave  []string `json:"leave,omitempty"`
}

// opError returns the error about an op that was not sent.
func opError(o Op, code replication.Code, format string, args ...any) *Error {
	return &Error{Op: o.name(), Code: string(code), Message: fmt.Sprintf(format, args...)}
}

// parse checks the JSON form of an op with the relay's parser.
func parse(o Op, form any) (op, error) {
	body, err := json.Marshal(form)
	if err != nil {
		return op{}, opError(o, replication.CodeBadRequest, "%v", err)
	}
	p, problem := payload.JSON.Parse(body, "")
	if problem != nil {
		return op{}, &Error{Op: o.name(), Code: string(problem.Code), Message: problem.Message}
	}
	return op{source: o, parsed: p.Ops[0]}, nil
}

func (o Put) encode() (op, error) {
	form := &putJSON{
		Op: "put", Key: o.Key, Message: text(o.Message), Farewell: text(o.Farewell),
		Access: o.Access.json(), Audience: o.Audience.json(), Priority: o.Priority, Values: make([]valueJSON, len(o.Values)),
	}
	for _, d := range o.Details {
		form.Details = append(form.Details, detailJSON(d))
	}
	for i, v := range o.Values {
		value, err := encodeValue(v.Value)
		null := json.RawMessage(nil)
		if err == nil && v.Null != nil {
			null, err = encodeValue(v.Null)
		}
		if err != nil {
			return op{}, opError(o, replication.CodeTypeMismatch, "value %s: %v", valueName(v.Name, i), err)
		}
		form.Values[i] = valueJSON{v.Name, v.Type, value, v.Precision, v.Nullable, null}
	}
	e, err := parse(o, form)
	if err != nil {
		return e, err
	}
	e.put = form
	for i := range e.parsed.Values {
		v := &e.parsed.Values[i]
		if err := checkValue(o, valueName(v.Name, i), v.ValueDef, v.Value); err != nil {
			return e, err
		}
	}
	return e, nil
}

func (o Set) encode() (op, error) {
	form := setJSON{Op: "set", Key: o.Key, Values: make(map[string]json.RawMessage, len(o.Values))}
	for name, v := range o.Values {
		text, err := encodeValue(v)
		if err != nil {
			return op{}, opError(o, replication.CodeTypeMismatch, "value %q: %v", name, err)
		}
		form.Values[name] = text
	}
	e, err := parse(o, form)
	e.values = form.Values
	return e, err
}

func (o Remove) encode() (op, error) { return parse(o, removeJSON{"remove", o.Key}) }

func (o Audience) encode() (op, error) {
	e, err := parse(o, audienceJSON{"audience", o.Key, o.Who.json()})
	e.who = o.Who.json()
	return e, err
}

func (o Group) encode() (op, error) { return parse(o, groupJSON{"group", o.Client, o.Join, o.Leave}) }

// encodeValue writes a Go value as JSON: base64 for []byte, numbers without loss.
func encodeValue(v any) (json.RawMessage, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("%T is not a value: %w", v, err)
	}
	return b, nil
}

// checkValue checks a value against its type, with the code that the relay uses.
func checkValue(o Op, name string, def replication.ValueDef, value replication.Literal) error {
	if value == nil {
		return nil
	}
	_, null, err := value.AppendValue(nil, def.Type)
	if err != nil {
		return opError(o, err.Code, "value %s: %s", name, err.Message)
	}
	if null && !def.Nullable {
		return opError(o, replication.CodeTypeMismatch, "value %s: null, and it is not nullable", name)
	}
	return nil
}

// valueName returns how errors name a value.
func valueName(name string, index int) string {
	if name == "" {
		return fmt.Sprint(index)
	}
	return fmt.Sprintf("%q", name)
}

// text returns the JSON form of a message; nil if the message is empty.
func text(s string) *string {
	switch {
	case s == "":
		return nil
	case !utf8.ValidString(s):
		s = "base64:" + base64.StdEncoding.EncodeToString([]byte(s))
	case strings.HasPrefix(s, "base64:"), strings.HasPrefix(s, "text:"):
		s = "text:" + s
	}
	return &s
}

func (a Access) json() any {
	switch {
	case a.All:
		return "read-write"
	case len(a.Writers) > 0:
		return map[string][]string{"writers": a.Writers}
	}
	return "read-only"
}

func (w Who) json() json.RawMessage {
	form := map[string]any{"all": !w.Nobody}
	if len(w.Groups)+len(w.Clients) > 0 {
		form = map[string]any{}
		if len(w.Groups) > 0 {
			form["groups"] = w.Groups
		}
		if len(w.Clients) > 0 {
			form["clients"] = w.Clients
		}
	}
	b, err := json.Marshal(form)
	if err != nil {
		panic("publisher: an audience that JSON cannot express: " + err.Error())
	}
	return b
}
