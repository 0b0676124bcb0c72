package payload

import (
	"encoding/json"
	"strconv"

	"github.com/dnprelay/dnprelay/replication"
)

// Put is the op put in JSON, as those who publish write it; [Form.Parse] reads it. An empty member is left out. A json.RawMessage is
// valid JSON, which is written as it is.
type Put struct {
	Key               string
	Message, Farewell json.RawMessage // of MessageText
	Describe          bool
	Access, Audience  json.RawMessage // see AccessText and AudienceText
	Priority          int
	Details, Interest json.RawMessage
	TTL               string // see DurationText
	Values            []Value
}

// A Value is a value of a Put.
type Value struct {
	Type, Name          string
	Value, Null         json.RawMessage
	Min, Max, Fields    json.RawMessage
	Precision, Rate     float64
	Nullable, NonFinite bool
}

// An Op is an op other than put, of which each kind has some members. It is the interest of a Put, too.
type Op struct {
	Op, Key, Client, Name string

	Audience json.RawMessage // of audience
	Sets     []Member        // of set
	AsOf     json.RawMessage // of audience, set and remove

	At           json.RawMessage // of eye and interest
	Axes, Beyond string          // of interest
	Bands        json.RawMessage
	Events       bool

	Join, Leave []string // of group
	Reason      string   // of kick
}

// A Member is a value of a set.
type Member struct {
	Name  string
	Value json.RawMessage
}

// AccessText returns who may write.
func AccessText(a replication.Access) json.RawMessage {
	e := newEmitter(JSON, nil)
	e.access(a)
	return e.done()
}

// AudienceText returns an audience of clients and groups. Without any it is every client, or nobody.
func AudienceText(nobody bool, groups, clients []string) json.RawMessage {
	e := newEmitter(JSON, nil)
	e.object()
	if len(groups)+len(clients) == 0 {
		e.key("all").boolean(!nobody)
	}
	e.tokensField("clients", clients)
	e.tokensField("groups", groups)
	e.end()
	return e.done()
}

// Append appends the op. asOf returns the condition of value i, and whether it is another than that of the put, which it returns for -1. A nil
// asOf gives no conditions.
func (p *Put) Append(b []byte, asOf func(i int) (c replication.Condition, own bool)) []byte {
	e := newEmitter(JSON, b)
	e.object()
	e.textField("op", "put")
	e.textField("key", p.Key)
	e.rawField("message", p.Message)
	e.flag("describe", p.Describe)
	e.rawField("farewell", p.Farewell)
	e.rawField("access", p.Access)
	e.rawField("audience", p.Audience)
	e.floatField("priority", float64(p.Priority))
	e.rawField("lod", p.Details)
	e.rawField("interest", p.Interest)
	e.textField("ttl", p.TTL)
	if asOf != nil {
		c, _ := asOf(-1)
		e.condition(c)
	}
	e.key("values").array()
	for i := range p.Values {
		e.object()
		e.valueFields(&p.Values[i])
		if asOf != nil {
			if c, own := asOf(i); own {
				e.condition(c)
			}
		}
		e.end()
	}
	e.end()
	e.end()
	return e.done()
}

func (e *emitter) valueFields(v *Value) {
	e.key("type").text(v.Type)
	e.textField("name", v.Name)
	e.rawField("value", v.Value)
	e.floatField("precision", v.Precision)
	e.flag("nullable", v.Nullable)
	e.rawField("null", v.Null)
	e.rawField("min", v.Min)
	e.rawField("max", v.Max)
	e.floatField("rate", v.Rate)
	if v.NonFinite {
		e.key("finite").boolean(false)
	}
	e.rawField("fields", v.Fields)
}

// Append appends the op.
func (o *Op) Append(b []byte) []byte {
	e := newEmitter(JSON, b)
	e.object()
	e.textField("op", o.Op)
	e.textField("key", o.Key)
	e.textField("client", o.Client)
	e.textField("name", o.Name)
	e.rawField("audience", o.Audience)
	if o.Op == "set" {
		e.key("values").object()
		for i := range o.Sets {
			e.count()
			e.b = append(appendString(e.b, o.Sets[i].Name), ':') // a game server may say any name
			e.raw(o.Sets[i].Value)
		}
		e.end()
	}
	e.rawField("as_of", o.AsOf)
	e.rawField("at", o.At)
	e.textField("axes", o.Axes)
	e.rawField("bands", o.Bands)
	e.textField("beyond", o.Beyond)
	e.flag("events", o.Events)
	e.tokensField("join", o.Join)
	e.tokensField("leave", o.Leave)
	e.textField("reason", o.Reason)
	e.end()
	return e.done()
}

// condition writes the member as_of. Without a condition it is null, which allows every change.
func (e *emitter) condition(c replication.Condition) {
	e.key("as_of")
	if c.Given {
		e.b = AppendPosition(e.b, c.AsOf)
	} else {
		e.raw(null)
	}
}

var null = []byte("null")

// AppendPosition appends a position as the member as_of has it.
func AppendPosition(b []byte, p replication.Position) []byte {
	b = strconv.AppendUint(append(b, '['), p.Epoch, 10)
	b = strconv.AppendUint(append(b, ','), p.Seq, 10)
	return append(b, ']')
}

// raw writes JSON.
func (e *emitter) raw(text []byte) {
	e.element()
	e.b = append(e.b, text...)
}

// rawField, flag and tokensField write a member, unless it is empty.
func (e *emitter) rawField(name string, text []byte) {
	if len(text) > 0 {
		e.key(name).raw(text)
	}
}

func (e *emitter) flag(name string, value bool) {
	if value {
		e.key(name).boolean(true)
	}
}

func (e *emitter) tokensField(name string, all []string) {
	if len(all) > 0 {
		e.tokens(name, all)
	}
}
