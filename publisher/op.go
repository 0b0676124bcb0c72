package publisher

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dnprelay/dnprelay/replication"
	"github.com/dnprelay/dnprelay/replication/payload"
)

// An Op is one change: Put, Set, Remove, Audience, Group, Interest or Eye.
type Op interface {
	name() string        // as errors name it: "set tower"
	encode() (op, error) // as the payload has it
}

// Put makes a state, or brings it to this form. Clients that are offered the state have a
// link to it. A state with the same types of values keeps its links and sends what
// changed; a state with other types is replaced.
type Put struct {
	Key     string // up to 8 names of letters, digits, _ and -, joined by dots; at most 255 bytes
	Message string // tells clients what the state is, text or bytes; default: the key
	// Describe gives the state a message that tells the key and the names of the values; see
	// package linkmsg. Message must be empty.
	Describe bool
	// Farewell is a reliable message to each client whose link ends. Without it,
	// applications of the client libraries do not learn of the end.
	Farewell string
	Access   Access
	Audience Who
	Priority int      // 1 to 16; weight when a client's budget does not suffice; default 1
	Details  []Detail // less precision or fewer updates for some; the first that matches counts
	// Interest says from how far clients see the state: the name of an Interest, a *Distance of its own, or "" to take
	// away the one that it has; nil leaves it.
	Interest any
	Values   []Value

	// TTL lets the state end with the game server: the relay removes it when nothing was published about it for
	// this time, 1 s to 7 days. The Space says it again three times within that. 0 is for ever. Choose more than the
	// outages of NATS that the state has to outlive.
	TTL time.Duration
}

// A Value is one value of a state that is put.
type Value struct {
	Name      string // optional: [A-Za-z_][A-Za-z0-9_]*; default: the index in digits
	Type      Type
	Value     any // a number, string, []byte for data, or an array or slice of numbers; nil is null
	Precision float64
	Nullable  bool
	Null      any // what clients see for null; default: zero or empty

	// Bounds of what clients write. The relay refuses a write outside of them, and reports it
	// (KindRefused).
	Min, Max  any     // numbers, the limits of every component; nil for none
	Rate      float64 // writes a second of one session, 0.01 to 1,000; 0 for no limit
	NonFinite bool    // clients may write NaN and infinities

	// Fields are the components of a data value, which Value may then have as a map or a struct, with
	// all of them.
	Fields []Field
}

// A Field is a component of a data value: a name, and one of the types of fixed size.
type Field struct {
	Name string `json:"name"`
	Type Type   `json:"type"`
}

// Values are the new values of a Set by name, or by index in digits.
type Values map[string]any

// Set changes values of a state. A state that another program put, or a client made, has
// the key that the events name.
type Set struct {
	Key    string
	Values Values
}

// Remove removes a state.
type Remove struct{ Key string }

// Audience changes which clients are offered a state.
type Audience struct {
	Key string
	Who Who
}

// Group lets a client join and leave groups. The relay forgets them when the client leaves.
type Group struct {
	Client      string
	Join, Leave []string
}

// Interest makes or changes an interest with a name, which many states can have. Without bands it removes the interest,
// if no state has it.
type Interest struct {
	Name string
	Distance
}

// A Distance says from how far clients see a state, and how well. It counts from the nearest eye of a client.
type Distance struct {
	At    string // the value that is the place of the state: a point or vector, by name or index in digits
	Axes  string // between which distances are measured, as "xz"; default: all that the value has
	Bands []Band // from near to far, at most 8

	// Unlink ends the link of a client when the state is beyond all bands, with the farewell, so that a modified
	// client cannot know more. Otherwise the link stays and sends nothing, which costs no LinkIds.
	Unlink bool

	// Events has edges say which clients see the state, KindSees and KindUnsees, and which accept its link, KindLinked.
	// Edges send at most four of the first two a second for a client, so ask for them where the game needs them.
	Events bool
}

// A Band is what clients get of a state within a distance.
type Band struct {
	Within    float64 `json:"within"`              // in the unit of the values
	Precision float64 `json:"precision,omitempty"` // factor on the precisions, 1 to 1,000,000; 0 = 1
	Rate      float64 `json:"rate,omitempty"`      // most changes a second; 0 = unlimited
}

// Eye says from where a client sees, for states with an interest: from the places of states and from points, at most 8
// together, and the nearest counts. Without any it sees from nowhere. The relay forgets it when the client leaves.
type Eye struct {
	Client string
	States []string // keys, perhaps with a value, as "player.alice#pos"
	Points [][]float64
}

// Access says which clients may write a state. The zero value is none.
type Access struct {
	All     bool
	Writers []string // clients
}

// Who is an audience. The zero value is every client.
type Who struct {
	Nobody  bool
	Groups  []string // only members of these,
	Clients []string // and these
}

// A Detail reduces what some clients receive.
type Detail struct {
	Groups    []string `json:"groups,omitempty"`
	Clients   []string `json:"clients,omitempty"`
	Precision float64  `json:"precision,omitempty"` // factor on the precisions, 1 to 1,000,000; 0 = 1
	Rate      float64  `json:"rate,omitempty"`      // most changes a second; 0 = unlimited
}

func (o Put) name() string      { return "put " + o.Key }
func (o Set) name() string      { return "set " + o.Key }
func (o Remove) name() string   { return "remove " + o.Key }
func (o Audience) name() string { return "audience " + o.Key }
func (o Group) name() string    { return "group " + o.Client }
func (o Interest) name() string { return "interest " + o.Name }
func (o Eye) name() string      { return "eye " + o.Client }

// An Error is a change that this package or the relay refused.
type Error struct {
	Op      string // "set tower"
	Code    Code
	Message string // names the value and what is expected
}

func (e *Error) Error() string { return fmt.Sprintf("%s: %s: %s", e.Op, e.Code, e.Message) }

// An op is the encoded form of an Op.
type op struct {
	source Op
	parsed replication.Op
	text   json.RawMessage
	put    *payload.Put               // of Put; apply gives it to the copy
	who    json.RawMessage            // of Audience
	values map[string]json.RawMessage // of Set
	trace  trace
	bound  *binding // of Put; nil if no Bound made it
}

// asOf returns the condition of a change of what was said last at p: none, unless the change asserts what is known.
func asOf(p Position, asserts bool) json.RawMessage {
	if !asserts {
		return nil
	}
	return payload.AppendPosition(nil, p)
}

// mustMarshal writes what JSON can express.
func mustMarshal(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic("publisher: JSON cannot express what was checked: " + err.Error())
	}
	return b
}

// verb returns the first word of the name of an op.
func verb(o Op) string {
	verb, _, _ := strings.Cut(o.name(), " ")
	return verb
}

// opError returns the error about an op that was not sent.
func opError(o Op, code replication.Code, format string, args ...any) *Error {
	return &Error{Op: o.name(), Code: Code(code), Message: fmt.Sprintf(format, args...)}
}

// parse checks an op with the relay's parser.
func parse(o Op, text []byte) (op, error) {
	p, problem := new(payload.Parser).Parse(payload.JSON, text, "")
	if problem != nil {
		return op{}, &Error{Op: o.name(), Code: Code(problem.Code), Message: problem.Message}
	}
	return op{source: o, parsed: p.Ops[0], text: text}, nil
}

func encodeOp(o Op, form *payload.Op) (op, error) {
	return parse(o, form.Append(make([]byte, 0, opBytes)))
}

func (o Put) encode() (op, error) {
	form := &payload.Put{
		Key: o.Key, Message: text(o.Message), Describe: o.Describe, Farewell: text(o.Farewell),
		Access: o.Access.json(), Audience: o.Audience.json(), Priority: o.Priority, Values: make([]payload.Value, len(o.Values)),
	}
	if o.TTL != 0 {
		form.TTL = payload.DurationText(o.TTL)
	}
	var err error
	if len(o.Details) > 0 {
		if form.Details, err = json.Marshal(o.Details); err != nil {
			return op{}, opError(o, replication.CodeBadRequest, "%v", err)
		}
	}
	if form.Interest, err = o.interest(); err != nil {
		return op{}, err
	}
	for i, v := range o.Values {
		if form.Values[i], err = v.json(); err != nil {
			return op{}, opError(o, replication.CodeTypeMismatch, "value %s: %v", valueName(v.Name, i), err)
		}
	}
	e, err := parse(o, form.Append(nil, nil))
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

func (v Value) json() (payload.Value, error) {
	form := payload.Value{Name: v.Name, Type: string(v.Type), Precision: v.Precision, Nullable: v.Nullable, Rate: v.Rate, NonFinite: v.NonFinite}
	if len(v.Fields) > 0 {
		form.Fields = mustMarshal(v.Fields)
	}
	var err error
	form.Value, err = encodeValue(v.Value)
	for _, x := range []struct {
		value any
		to    *json.RawMessage
	}{{v.Null, &form.Null}, {v.Min, &form.Min}, {v.Max, &form.Max}} {
		if x.value != nil && err == nil {
			*x.to, err = encodeValue(x.value)
		}
	}
	return form, err
}

// encode sorts the names, so that an error is about the same one each time.
func (o Set) encode() (op, error) {
	values := make(map[string]json.RawMessage, len(o.Values))
	var few [8]payload.Member // so that few values are no memory of their own
	form := payload.Op{Op: "set", Key: o.Key, Sets: few[:0]}
	for name := range o.Values {
		form.Sets = append(form.Sets, payload.Member{Name: name})
	}
	slices.SortFunc(form.Sets, func(a, b payload.Member) int { return strings.Compare(a.Name, b.Name) })
	for i := range form.Sets {
		m := &form.Sets[i]
		var err error
		if m.Value, err = encodeValue(o.Values[m.Name]); err != nil {
			return op{}, opError(o, replication.CodeTypeMismatch, "value %q: %v", m.Name, err)
		}
		values[m.Name] = m.Value
	}
	e, err := encodeOp(o, &form)
	e.values = values
	return e, err
}

func (o Remove) encode() (op, error) { return encodeOp(o, &payload.Op{Op: "remove", Key: o.Key}) }

func (o Audience) encode() (op, error) {
	who := o.Who.json()
	e, err := encodeOp(o, &payload.Op{Op: "audience", Key: o.Key, Audience: who})
	e.who = who
	return e, err
}

func (o Group) encode() (op, error) {
	return encodeOp(o, &payload.Op{Op: "group", Client: o.Client, Join: o.Join, Leave: o.Leave})
}

// interest returns the JSON form of the interest of a put.
func (o Put) interest() (json.RawMessage, error) {
	switch x := o.Interest.(type) {
	case nil:
		return nil, nil
	case string:
		if x == "" {
			return json.RawMessage("null"), nil
		}
		return mustMarshal(x), nil
	case *Distance:
		form, err := x.form()
		if err != nil {
			return nil, opError(o, replication.CodeBadRequest, "interest: %v", err)
		}
		return form.Append(nil), nil
	}
	return nil, opError(o, replication.CodeBadRequest, "interest: %T is neither a name nor a *Distance", o.Interest)
}

func (d *Distance) form() (*payload.Op, error) {
	form := &payload.Op{Axes: d.Axes, Events: d.Events}
	if d.At != "" {
		form.At = mustMarshal(d.At)
	}
	if d.Unlink {
		form.Beyond = "unlink"
	}
	var err error
	form.Bands, err = json.Marshal(append([]Band{}, d.Bands...))
	return form, err
}

func (o Interest) encode() (op, error) {
	form, err := o.form()
	if err != nil {
		return op{}, opError(o, replication.CodeBadRequest, "%v", err)
	}
	form.Op, form.Name = "interest", o.Name
	return encodeOp(o, form)
}

func (o Eye) encode() (op, error) {
	var at []any
	for _, key := range o.States {
		at = append(at, key)
	}
	for _, p := range o.Points {
		at = append(at, p)
	}
	text, err := json.Marshal(at)
	if err != nil {
		return op{}, opError(o, replication.CodeBadRequest, "%v", err)
	}
	return encodeOp(o, &payload.Op{Op: "eye", Client: o.Client, At: text})
}

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
	_, null, err := def.Append(nil, value)
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
func text(s string) json.RawMessage {
	if s == "" {
		return nil
	}
	return mustMarshal(payload.MessageText([]byte(s)))
}

func (a Access) json() json.RawMessage {
	switch {
	case a.All:
		return payload.AccessText(replication.Access{Kind: replication.AccessReadWrite})
	case len(a.Writers) > 0:
		return payload.AccessText(replication.Access{Kind: replication.AccessWriters, Writers: a.Writers})
	}
	return readOnly
}

var readOnly = payload.AccessText(replication.Access{})

func (w Who) json() json.RawMessage { return payload.AudienceText(w.Nobody, w.Groups, w.Clients) }
