package payload

import (
	"encoding/base64"
	"encoding/binary"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/replication"
	"github.com/dnprelay/dnprelay/subject"
)

// AppendAnswer appends the answer to a publish.
func (f Form) AppendAnswer(b []byte, a *replication.Answer) []byte {
	if a.Err != nil {
		return f.AppendError(b, a.Err)
	}
	e := newEmitter(f, b)
	e.object()
	e.position(a.Epoch, a.Seq)
	if !a.Durable {
		e.key("durable")
		e.boolean(false)
	}
	if a.Results != nil {
		e.key("results")
		e.array()
		for _, r := range a.Results {
			e.result(r)
		}
		e.end()
	}
	e.end()
	return e.done()
}

// AppendError appends {"error":…}, the answer to a request that failed.
func (f Form) AppendError(b []byte, err *replication.Error) []byte {
	e := newEmitter(f, b)
	e.problem(err)
	return e.done()
}

func (e *emitter) position(epoch, seq uint64) {
	e.uintField("epoch", epoch)
	e.uintField("seq", seq)
}

func (e *emitter) result(r replication.Result) {
	if r.Err != nil {
		e.problem(r.Err)
		return
	}
	e.object()
	e.key("ok")
	e.boolean(true)
	e.end()
}

func (e *emitter) problem(err *replication.Error) {
	e.object()
	e.key("error")
	e.object()
	e.key("code")
	e.text(string(err.Code))
	e.key("message")
	e.text(err.Message)
	e.uintField("op", uint64(err.Op))
	if err.Code == replication.CodeBusy {
		e.uintField("retry_after_ms", uint64(err.RetryAfter.Milliseconds()))
	}
	e.end()
	e.end()
}

// AppendEvent appends an event without the fields that do not belong to its type.
func (f Form) AppendEvent(b []byte, ev *replication.Event) []byte {
	e := newEmitter(f, b)
	e.object()
	e.uintField("v", 1)
	e.textField("type", string(ev.Type))
	e.textField("space", ev.Space)
	e.textField("ts", timeText(ev.Time))
	e.position(ev.Epoch, ev.Seq)
	e.textField("client", ev.Client)
	e.textField("session", ev.Session)
	e.textField("edge", ev.Edge)
	e.textField("reason", ev.Reason)
	e.textField("key", ev.Key)
	switch ev.Type {
	case replication.EventLinked, replication.EventRejected:
		e.uintField("link", uint64(ev.Link))
	case replication.EventChanged, replication.EventRefused:
		e.eventValues(ev.Values)
	case replication.EventReassert:
		e.uintField("shard", uint64(ev.Shard))
		e.textField("lost_after", timeText(ev.LostAfter))
	case replication.EventUncertain:
		e.numbers(ev.Numbers)
	}
	e.textField("code", string(ev.Code))
	if ev.Missed > 0 {
		e.uintField("missed", ev.Missed)
	}
	e.end()
	return e.done()
}

func (e *emitter) eventValues(values []replication.EventValue) {
	e.key("values")
	e.object()
	for _, v := range values {
		e.key(v.Name)
		e.value(v.Type, v.Value)
	}
	e.end()
}

// numbers writes the numbers of messages. In JSON a number beyond 2^53 is a string.
func (e *emitter) numbers(numbers []uint64) {
	e.key("numbers")
	e.array()
	for _, n := range numbers {
		e.value(typeUint64, binary.LittleEndian.AppendUint64(nil, n))
	}
	e.end()
}

// timeText returns t as in RFC 3339, UTC, with milliseconds.
func timeText(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z07:00") }

// AppendValue appends a valid encoded value of type t as JSON. A component that is infinite or
// not a number, which only clients can write, becomes null; a byte of a string that is not
// UTF-8 becomes the replacement character.
func AppendValue(b []byte, t wire.ValueType, enc []byte) []byte {
	switch t.Kind() {
	case wire.KindString:
		return appendString(b, string(enc[2:]))
	case wire.KindData:
		return appendBase64(b, "", enc[2:])
	}
	n, width := t.Components(), t.Width()
	if n == 1 {
		return appendComponent(b, t, enc)
	}
	b = append(b, '[')
	for i := range n {
		b = comma(b, i)
		b = appendComponent(b, t, enc[i*width:(i+1)*width])
	}
	return append(b, ']')
}

func comma(b []byte, i int) []byte {
	if i > 0 {
		b = append(b, ',')
	}
	return b
}

func appendBase64(b []byte, prefix string, p []byte) []byte {
	b = append(b, '"')
	b = append(b, prefix...)
	b = base64.StdEncoding.AppendEncode(b, p)
	return append(b, '"')
}

// appendString appends s as a JSON string.
func appendString(b []byte, s string) []byte {
	const hex = "0123456789abcdef"
	b = append(b, '"')
	for _, r := range s { // a byte that is not UTF-8 comes as utf8.RuneError
		switch {
		case r == '"' || r == '\\':
			b = append(b, '\\', byte(r))
		case r < ' ':
			b = append(b, '\\', 'u', '0', '0', hex[r>>4], hex[r&15])
		default:
			b = utf8.AppendRune(b, r)
		}
	}
	return append(b, '"')
}

// AppendListing appends states, each as the put that would make it, in at most sizeMax bytes
// unless the first state alone is larger. If states are left, "after" is the key to continue
// after.
func (f Form) AppendListing(b []byte, l *replication.Listing, sizeMax int) []byte {
	const tail = len(`],"after":""}`) + subject.KeyTokensMax*(subject.TokenMax+1) + 16 // bytes behind the states, in each form
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

// appendBytesText appends a message: as text if it is UTF-8, otherwise as base64.
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

func (e *emitter) lod(all []replication.Detail) {
	if len(all) == 0 {
		return
	}
	e.key("lod")
	e.array()
	for i := range all {
		d := &all[i]
		e.object()
		e.tokens("groups", d.Groups)
		e.tokens("clients", d.Clients)
		if d.Precision != 0 {
			e.key("precision")
			e.float(d.Precision)
		}
		if d.Rate != 0 {
			e.key("rate")
			e.float(d.Rate)
		}
		e.end()
	}
	e.end()
}

func (e *emitter) bounds(t wire.ValueType, b *replication.Bounds) {
	if b == nil {
		return
	}
	if b.Min != nil {
		e.key("min")
		e.value(t.Component(), b.Min)
	}
	if b.Max != nil {
		e.key("max")
		e.value(t.Component(), b.Max)
	}
	if b.Infinite {
		e.key("finite")
		e.boolean(false)
	}
	if b.Rate != 0 {
		e.key("rate")
		e.float(b.Rate)
	}
}
