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
	if len(clients) > 0 {
		e.tokens("clients", clients)
	}
	if len(groups) > 0 {
		e.tokens("groups", groups)
	}
	e.end()
	return e.done()
}

// The publisher writes the whole copy of a space when another relay takes the space over. So these ops are appended without an emitter, each
// member with the comma before it.

// Append appends the op. asOf returns the condition of value i, and whether it is another than that of the put, which it returns for -1. A nil
// asOf gives no conditions.
func (p *Put) Append(b []byte, asOf func(i int) (c replication.Condition, own bool)) []byte {
	b = append(b, `{"op":"put"`...)
	b = textMember(b, `,"key":`, p.Key)
	b = rawMember(b, `,"message":`, p.Message)
	b = flagMember(b, `,"describe":true`, p.Describe)
	b = rawMember(b, `,"farewell":`, p.Farewell)
	b = rawMember(b, `,"access":`, p.Access)
	b = rawMember(b, `,"audience":`, p.Audience)
	b = floatMember(b, `,"priority":`, float64(p.Priority))
	b = rawMember(b, `,"lod":`, p.Details)
	b = rawMember(b, `,"interest":`, p.Interest)
	b = textMember(b, `,"ttl":`, p.TTL)
	if asOf != nil {
		c, _ := asOf(-1)
		b = conditionMember(b, c)
	}
	b = append(b, `,"values":[`...)
	for i := range p.Values {
		b = p.Values[i].append(comma(b, i))
		if asOf != nil {
			if c, own := asOf(i); own {
				b = conditionMember(b, c)
			}
		}
		b = append(b, '}')
	}
	return append(b, `]}`...)
}

// append appends the value without the end of its object.
func (v *Value) append(b []byte) []byte {
	b = appendString(append(b, `{"type":`...), v.Type)
	b = textMember(b, `,"name":`, v.Name)
	b = rawMember(b, `,"value":`, v.Value)
	b = floatMember(b, `,"precision":`, v.Precision)
	b = flagMember(b, `,"nullable":true`, v.Nullable)
	b = rawMember(b, `,"null":`, v.Null)
	b = rawMember(b, `,"min":`, v.Min)
	b = rawMember(b, `,"max":`, v.Max)
	b = floatMember(b, `,"rate":`, v.Rate)
	b = flagMember(b, `,"finite":false`, v.NonFinite)
	return rawMember(b, `,"fields":`, v.Fields)
}

// Append appends the op.
func (o *Op) Append(b []byte) []byte {
	start := len(b)
	b = textMember(b, `,"op":`, o.Op)
	b = textMember(b, `,"key":`, o.Key)
	b = textMember(b, `,"client":`, o.Client)
	b = textMember(b, `,"name":`, o.Name)
	b = rawMember(b, `,"audience":`, o.Audience)
	if o.Op == "set" {
		b = append(b, `,"values":{`...)
		for i := range o.Sets {
			b = append(appendString(comma(b, i), o.Sets[i].Name), ':') // a game server may say any name
			b = append(b, o.Sets[i].Value...)
		}
		b = append(b, '}')
	}
	b = rawMember(b, `,"as_of":`, o.AsOf)
	b = rawMember(b, `,"at":`, o.At)
	b = textMember(b, `,"axes":`, o.Axes)
	b = rawMember(b, `,"bands":`, o.Bands)
	b = textMember(b, `,"beyond":`, o.Beyond)
	b = flagMember(b, `,"events":true`, o.Events)
	b = listMember(b, `,"join":`, o.Join)
	b = listMember(b, `,"leave":`, o.Leave)
	b = append(textMember(b, `,"reason":`, o.Reason), '}')
	b[start] = '{' // instead of the first comma
	return b
}

// conditionMember appends the member as_of. Without a condition it is null, which allows every change.
func conditionMember(b []byte, c replication.Condition) []byte {
	if !c.Given {
		return append(b, `,"as_of":null`...)
	}
	return AppendPosition(append(b, `,"as_of":`...), c.AsOf)
}

// AppendPosition appends a position as the member as_of has it.
func AppendPosition(b []byte, p replication.Position) []byte {
	b = strconv.AppendUint(append(b, '['), p.Epoch, 10)
	b = strconv.AppendUint(append(b, ','), p.Seq, 10)
	return append(b, ']')
}

// rawMember, textMember, floatMember, flagMember and listMember append a member, whose head has the comma before it, unless the member is empty.
func rawMember(b []byte, head string, text []byte) []byte {
	if len(text) == 0 {
		return b
	}
	return append(append(b, head...), text...)
}

func textMember(b []byte, head, text string) []byte {
	if text == "" {
		return b
	}
	return appendString(append(b, head...), text)
}

func floatMember(b []byte, head string, f float64) []byte {
	if f == 0 {
		return b
	}
	return appendJSONFloat(append(b, head...), f, 64)
}

func flagMember(b []byte, member string, set bool) []byte {
	if !set {
		return b
	}
	return append(b, member...)
}

func listMember(b []byte, head string, all []string) []byte {
	if len(all) == 0 {
		return b
	}
	b = append(append(b, head...), '[')
	for i, s := range all {
		b = appendString(comma(b, i), s)
	}
	return append(b, ']')
}
