package payload

import (
	"strings"
	"unicode/utf8"

	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/replication"
	"github.com/dnprelay/dnprelay/subject"
)

// A GetRequest asks for the states of a space.
type GetRequest struct {
	After string // continue after this key; empty for the beginning
	Max   int    // states at most; 0 for as many as fit
}

// ParseGet parses the body of a get request, which may be empty.
func (f Form) ParseGet(body []byte) (r GetRequest, err *replication.Error) {
	if len(body) == 0 {
		return r, nil
	}
	n, err := f.root(body)
	if err != nil {
		return r, err
	}
	fields, err := parseFields(n, "the request")
	if err != nil {
		return r, err
	}
	if err = fields.only("the request", fieldAfter, fieldMax); err != nil {
		return r, err
	}
	if fields.has(fieldAfter) {
		if r.After, err = text("after", fields.nodes[fieldAfter]); err != nil {
			return r, err
		}
		if r.After != "" && !subject.ValidKey(r.After) {
			return r, badRequest("field \"after\": %q is not a key", clip(r.After))
		}
	}
	if fields.has(fieldMax) {
		r.Max, err = parseMax(fields.nodes[fieldMax])
	}
	return r, err
}

func parseMax(n node) (int, *replication.Error) {
	if n.kind() != kindNumber {
		return 0, wantField("max", kindNumber, n)
	}
	enc, err := n.appendValue(nil, typeUint16)
	if err != nil {
		return 0, within(`field "max"`, err)
	}
	return int(enc[0]) | int(enc[1])<<8, nil
}

// Types that the fields of payloads have.
const (
	typeUint16  wire.ValueType = 3
	typeFloat64 wire.ValueType = 10
)

// AppendListing appends states, each as the put that would make it, at most
// sizeMax bytes unless a single state is larger. If states are left, "after" is
// the key to continue after.
func (f Form) AppendListing(b []byte, l *replication.Listing, sizeMax int) []byte {
	const tail = len(`],"after":""}`) + subject.KeyTokensMax*(subject.TokenMax+1) + 16 // what follows the states, in either form
	e := newEmitter(f, b)
	start := e.len()
	e.object()
	e.position(l.Epoch, l.Seq)
	e.key("states")
	e.array()
	after := l.After
	for i := range l.States {
		before := e
		e.put(&l.States[i])
		if i > 0 && e.len()-start+tail > sizeMax {
			e = before
			after = l.States[i-1].Desc.Key
			break
		}
	}
	e.end()
	e.textField("after", after)
	e.end()
	return e.done()
}

func (e *emitter) put(s *replication.Listed) {
	d := s.Desc
	e.object()
	e.textField("op", "put")
	e.textField("key", d.Key)
	e.key("message")
	e.message(d.Message)
	if len(d.Farewell) > 0 {
		e.key("farewell")
		e.message(d.Farewell)
	}
	e.key("access")
	e.access(d.Access)
	e.key("audience")
	e.audience(d.Audience)
	if d.Priority > 1 {
		e.key("priority")
		e.uint(uint64(d.Priority))
	}
	e.lod(d.Details)
	e.key("values")
	e.array()
	for i := range d.Values {
		e.putValue(s, i)
	}
	e.end()
	e.end()
}

func (e *emitter) putValue(s *replication.Listed, i int) {
	v := &s.Desc.Values[i]
	e.object()
	e.textField("name", v.Name)
	e.textField("type", v.Type.String())
	e.key("value")
	if s.IsNull(i) {
		e.null()
	} else {
		e.value(v.Type, s.Values.Value(i))
	}
	if v.Precision != 0 {
		e.key("precision")
		e.float(v.Precision)
	}
	if v.Nullable {
		e.key("nullable")
		e.boolean(true)
		e.key("null")
		e.value(v.Type, v.Substitute())
	}
	e.bounds(v.Type, v.Bounds)
	e.end()
}

func (e *emitter) access(a replication.Access) {
	switch a.Kind {
	case replication.AccessReadWrite:
		e.text("read-write")
	case replication.AccessWriters:
		e.object()
		e.tokens("writers", a.Writers)
		e.end()
	default:
		e.text("read-only")
	}
}

func (e *emitter) audience(a replication.Audience) {
	e.object()
	switch a.Kind {
	case replication.AudienceListed:
		e.tokens("groups", a.Groups)
		e.tokens("clients", a.Clients)
	case replication.AudienceAllBut:
		e.key("all")
		e.boolean(true)
		e.key("except")
		e.audience(replication.Audience{Kind: replication.AudienceListed, Groups: a.Groups, Clients: a.Clients})
	default:
		e.key("all")
		e.boolean(a.Kind == replication.AudienceAll)
	}
	e.end()
}

func (e *emitter) tokens(name string, all []string) {
	e.key(name)
	e.array()
	for _, s := range all {
		e.text(s)
	}
	e.end()
}

// appendBytesText appends a message as text if it is some.
func appendBytesText(b, message []byte) []byte {
	if !utf8.Valid(message) {
		return appendBase64(b, prefixBase64, message)
	}
	s := string(message)
	if strings.HasPrefix(s, prefixBase64) || strings.HasPrefix(s, prefixText) {
		s = prefixText + s
	}
	return appendString(b, s)
}
