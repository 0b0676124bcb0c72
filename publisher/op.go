package publisher

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dnprelay/dnprelay/replication"
	"github.com/dnprelay/dnprelay/replication/payload"
	"github.com/dnprelay/dnprelay/subject"
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
	Groups, Clients []string
	Precision       float64 // factor on the precisions, 1 to 1,000,000; 0 = 1
	Rate            float64 // most changes a second; 0 = unlimited
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
	put    *putJSON                   // of Put; apply gives it to the copy
	values map[string]json.RawMessage // of Set
	who    json.RawMessage            // of Audience
	text   json.RawMessage            // of Interest and Eye
	trace  trace
	bound  *binding // of Put; nil if no Bound made it
}

// A putJSON is the JSON form of Put.
type putJSON struct {
	Op       string          `json:"op"`
	Key      string          `json:"key"`
	Message  *string         `json:"message,omitempty"`
	Describe bool            `json:"describe,omitempty"`
	Farewell *string         `json:"farewell,omitempty"`
	Access   json.RawMessage `json:"access"`
	Audience json.RawMessage `json:"audience"`
	Priority int             `json:"priority,omitempty"`
	Details  []detailJSON    `json:"lod,omitempty"`
	TTL      string          `json:"ttl,omitempty"`
	Interest json.RawMessage `json:"interest,omitempty"`
	Values   []valueJSON     `json:"values"`
}

type valueJSON struct {
	Name      string          `json:"name,omitempty"`
	Type      Type            `json:"type"`
	Value     json.RawMessage `json:"value,omitempty"`
	Precision float64         `json:"precision,omitempty"`
	Nullable  bool            `json:"nullable,omitempty"`
	Null      json.RawMessage `json:"null,omitempty"`
	Min       json.RawMessage `json:"min,omitempty"`
	Max       json.RawMessage `json:"max,omitempty"`
	Rate      float64         `json:"rate,omitempty"`
	Finite    *bool           `json:"finite,omitempty"`
	Fields    []Field         `json:"fields,omitempty"`
}

type detailJSON struct {
	Groups    []string `json:"groups,omitempty"`
	Clients   []string `json:"clients,omitempty"`
	Precision float64  `json:"precision,omitempty"`
	Rate      float64  `json:"rate,omitempty"`
}

// A changeJSON is the JSON form of Set, Remove and Audience.
type changeJSON struct {
	Op       string                     `json:"op"`
	Key      string                     `json:"key"`
	Values   map[string]json.RawMessage `json:"values,omitzero"`
	Audience json.RawMessage            `json:"audience,omitzero"`
	AsOf     *[2]uint64                 `json:"as_of,omitempty"`
}

// A clientJSON is the JSON form of Group, and of kick.
type clientJSON struct {
	Op     string   `json:"op"`
	Client string   `json:"client"`
	Join   []string `json:"join,omitempty"`
	Leave  []string `json:"leave,omitempty"`
}

// A distanceJSON is the JSON form of Distance, and with Op and Name that of Interest.
type distanceJSON struct {
	Op     string `json:"op,omitempty"`
	Name   string `json:"name,omitempty"`
	At     string `json:"at,omitempty"`
	Axes   string `json:"axes,omitempty"`
	Bands  []Band `json:"bands"`
	Beyond string `json:"beyond,omitempty"`
	Events bool   `json:"events,omitempty"`
}

// An eyeJSON is the JSON form of Eye.
type eyeJSON struct {
	Op     string `json:"op"`
	Client string `json:"client"`
	At     []any  `json:"at"`
}

// An assertion is what a put of the copy has that one of the game server has not: what the copy knows of each part, unless sets has the value.
type assertion struct {
	state *state
	sets  map[string]bool
}

// asOf returns what the position of value i looks like in the put, or nothing for that of the put.
func (a *assertion) asOf(i int) string {
	switch p := a.state.known[i]; {
	case len(a.sets) > 0 && a.sets[strconv.Itoa(i)]:
		return "null"
	case p != a.state.knownPut:
		return p.json()
	}
	return ""
}

// json returns the position as ops have it.
func (p Position) json() string {
	b := append(make([]byte, 0, 48), '[')
	b = append(strconv.AppendUint(b, p.Epoch, 10), ',')
	return string(append(strconv.AppendUint(b, p.Seq, 10), ']'))
}

// onlyIf returns the position as changes have it, if they are to have one.
func (p Position) onlyIf(wanted bool) *[2]uint64 {
	if !wanted {
		return nil
	}
	return &[2]uint64{p.Epoch, p.Seq}
}

// append appends the put with its values, as an assertion unless a is nil. It is json.Marshal for the
// form that a relay gets again for each state when it takes a space over; what is rare is left to that. The relay's
// parser has accepted keys, names and types, which therefore need no escapes.
func (p *putJSON) append(b []byte, a *assertion) []byte {
	b = append(append(append(b, `{"op":"put","key":"`...), p.Key...), '"')
	if p.Message != nil {
		b = append(append(b, `,"message":`...), mustMarshal(p.Message)...)
	}
	if p.Describe {
		b = append(b, `,"describe":true`...)
	}
	if p.Farewell != nil {
		b = append(append(b, `,"farewell":`...), mustMarshal(p.Farewell)...)
	}
	b = append(append(b, `,"access":`...), p.Access...)
	b = append(append(b, `,"audience":`...), p.Audience...)
	if p.Priority != 0 {
		b = strconv.AppendInt(append(b, `,"priority":`...), int64(p.Priority), 10)
	}
	if len(p.Details) > 0 {
		b = append(append(b, `,"lod":`...), mustMarshal(p.Details)...)
	}
	if len(p.Interest) > 0 {
		b = append(append(b, `,"interest":`...), p.Interest...)
	}
	if p.TTL != "" {
		b = append(append(append(b, `,"ttl":"`...), p.TTL...), '"')
	}
	if a != nil {
		b = append(append(b, `,"as_of":`...), a.state.knownPut.json()...)
	}
	b = append(b, `,"values":[`...)
	for i := range p.Values {
		if i > 0 {
			b = append(b, ',')
		}
		asOf := ""
		if a != nil {
			asOf = a.asOf(i)
		}
		b = p.Values[i].append(b, asOf)
	}
	return append(b, "]}"...)
}

// append appends a value, with a position unless that is empty.
func (v *valueJSON) append(b []byte, asOf string) []byte {
	b = append(append(append(b, `{"type":"`...), v.Type...), '"')
	if v.Name != "" {
		b = append(append(append(b, `,"name":"`...), v.Name...), '"')
	}
	raw := func(name string, text json.RawMessage) {
		if len(text) > 0 {
			b = append(append(b, name...), text...)
		}
	}
	raw(`,"value":`, v.Value)
	if v.Precision != 0 {
		b = strconv.AppendFloat(append(b, `,"precision":`...), v.Precision, 'g', -1, 64)
	}
	if v.Nullable {
		b = append(b, `,"nullable":true`...)
	}
	raw(`,"null":`, v.Null)
	raw(`,"min":`, v.Min)
	raw(`,"max":`, v.Max)
	if v.Rate != 0 {
		b = strconv.AppendFloat(append(b, `,"rate":`...), v.Rate, 'g', -1, 64)
	}
	if v.Finite != nil {
		b = append(b, `,"finite":false`...)
	}
	if len(v.Fields) > 0 {
		raw(`,"fields":`, mustMarshal(v.Fields))
	}
	if asOf != "" {
		b = append(append(b, `,"as_of":`...), asOf...)
	}
	return append(b, '}')
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

// parse checks the JSON form of an op with the relay's parser.
func parse(o Op, form any) (op, error) {
	body, err := json.Marshal(form)
	if err != nil {
		return op{}, opError(o, replication.CodeBadRequest, "%v", err)
	}
	return parseText(o, body)
}

func parseText(o Op, body []byte) (op, error) {
	p, problem := new(payload.Parser).Parse(payload.JSON, body, "")
	if problem != nil {
		return op{}, &Error{Op: o.name(), Code: Code(problem.Code), Message: problem.Message}
	}
	return op{source: o, parsed: p.Ops[0]}, nil
}

func (o Put) encode() (op, error) {
	form := &putJSON{
		Op: "put", Key: o.Key, Message: text(o.Message), Describe: o.Describe, Farewell: text(o.Farewell),
		Access: o.Access.json(), Audience: o.Audience.json(), Priority: o.Priority, Values: make([]valueJSON, len(o.Values)),
	}
	if o.TTL != 0 {
		form.TTL = payload.DurationText(o.TTL)
	}
	for _, d := range o.Details {
		form.Details = append(form.Details, detailJSON(d))
	}
	var err error
	if form.Interest, err = o.interest(); err != nil {
		return op{}, err
	}
	for i, v := range o.Values {
		if form.Values[i], err = v.json(); err != nil {
			return op{}, opError(o, replication.CodeTypeMismatch, "value %s: %v", valueName(v.Name, i), err)
		}
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

func (v Value) json() (valueJSON, error) {
	form := valueJSON{Name: v.Name, Type: v.Type, Precision: v.Precision, Nullable: v.Nullable, Rate: v.Rate, Fields: v.Fields}
	if v.NonFinite {
		form.Finite = new(bool)
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

// encode writes the body by itself: json.Marshal would read each value again. Names are sorted, so that an error is about the same one each time.
func (o Set) encode() (op, error) {
	values := make(map[string]json.RawMessage, len(o.Values))
	body := appendText([]byte(`{"op":"set","key":`), o.Key)
	body = append(body, `,"values":{`...)
	var few [8]string // so that few names are no memory of their own
	names := few[:0]
	for name := range o.Values {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		value, err := encodeValue(o.Values[name])
		if err != nil {
			return op{}, opError(o, replication.CodeTypeMismatch, "value %q: %v", name, err)
		}
		if len(values) > 0 {
			body = append(body, ',')
		}
		body = append(append(appendText(body, name), ':'), value...)
		values[name] = value
	}
	e, err := parseText(o, append(body, `}}`...))
	e.values = values
	return e, err
}

// appendText appends a key, or a name, as JSON. Names of values are what they are; others get to the parser, which refuses them.
func appendText(b []byte, name string) []byte {
	if subject.ValidKey(name) {
		return append(append(append(b, '"'), name...), '"')
	}
	return append(b, mustMarshal(name)...)
}

func (o Remove) encode() (op, error) { return parse(o, changeJSON{Op: "remove", Key: o.Key}) }

func (o Audience) encode() (op, error) {
	who := o.Who.json()
	e, err := parse(o, changeJSON{Op: "audience", Key: o.Key, Audience: who})
	e.who = who
	return e, err
}

func (o Group) encode() (op, error) { return parse(o, clientJSON{"group", o.Client, o.Join, o.Leave}) }

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
		text, err := json.Marshal(x.json())
		if err != nil {
			return nil, opError(o, replication.CodeBadRequest, "interest: %v", err)
		}
		return text, nil
	}
	return nil, opError(o, replication.CodeBadRequest, "interest: %T is neither a name nor a *Distance", o.Interest)
}

func (d *Distance) json() distanceJSON {
	form := distanceJSON{At: d.At, Axes: d.Axes, Bands: append([]Band{}, d.Bands...), Events: d.Events}
	if d.Unlink {
		form.Beyond = "unlink"
	}
	return form
}

func (o Interest) encode() (op, error) {
	form := o.Distance.json()
	form.Op, form.Name = "interest", o.Name
	return encodeText(o, form)
}

func (o Eye) encode() (op, error) {
	form := eyeJSON{Op: "eye", Client: o.Client}
	for _, key := range o.States {
		form.At = append(form.At, key)
	}
	for _, p := range o.Points {
		form.At = append(form.At, p)
	}
	return encodeText(o, form)
}

// encodeText encodes an op that the copy keeps in its JSON form.
func encodeText(o Op, form any) (op, error) {
	e, err := parse(o, form)
	if err == nil {
		e.text = mustMarshal(form)
	}
	return e, err
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
func text(s string) *string {
	if s == "" {
		return nil
	}
	s = payload.MessageText([]byte(s))
	return &s
}

func (a Access) json() json.RawMessage {
	switch {
	case a.All:
		return json.RawMessage(`"read-write"`)
	case len(a.Writers) > 0:
		return mustMarshal(map[string][]string{"writers": a.Writers})
	}
	return readOnly
}

var readOnly = json.RawMessage(`"read-only"`)

func (w Who) json() json.RawMessage {
	if len(w.Groups)+len(w.Clients) == 0 {
		return mustMarshal(map[string]bool{"all": !w.Nobody})
	}
	return mustMarshal(struct {
		Clients []string `json:"clients,omitempty"`
		Groups  []string `json:"groups,omitempty"`
	}{w.Clients, w.Groups})
}
