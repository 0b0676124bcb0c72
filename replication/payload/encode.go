package payload

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"io"
	"math"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/godot/variant"
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
		e.key("durable").boolean(false)
	}
	if a.Results != nil {
		writeList(&e, "results", a.Results, e.result)
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
	e.key("epoch").uint(epoch)
	e.key("seq").uint(seq)
}

func (e *emitter) result(err **replication.Error) {
	if *err != nil {
		e.problem(*err)
		return
	}
	e.object()
	e.key("ok").boolean(true)
	e.end()
}

func (e *emitter) problem(err *replication.Error) {
	e.object()
	e.key("error").object()
	e.key("code").text(string(err.Code))
	e.key("message").text(err.Message)
	e.key("op").uint(uint64(err.Op))
	if err.Code == replication.CodeBusy {
		e.key("retry_after_ms").uint(uint64(err.RetryAfter.Milliseconds()))
	}
	e.end()
	e.end()
}

// AppendEvent appends an event without the fields that do not belong to its type.
func (f Form) AppendEvent(b []byte, ev *replication.Event) []byte {
	e := newEmitter(f, b)
	e.object()
	e.key("v").uint(1)
	e.textField("type", string(ev.Type))
	e.textField("space", ev.Space)
	e.textField("ts", timeText(ev.Time))
	e.position(ev.Epoch, ev.Seq)
	e.textField("client", ev.Client)
	e.textField("session", ev.Session)
	e.textField("edge", ev.Edge)
	e.textField("reason", ev.Reason)
	e.textField("detail", ev.Detail)
	e.textField("key", ev.Key)
	switch ev.Type {
	case replication.EventLinked, replication.EventPresumed, replication.EventRejected:
		e.key("link").uint(uint64(ev.Link))
	case replication.EventChanged, replication.EventRefused:
		e.eventValues(ev.Values)
	case replication.EventReassert:
		e.key("shard").uint(uint64(ev.Shard))
		if !ev.LostAfter.IsZero() {
			e.textField("lost_after", timeText(ev.LostAfter))
		}
	case replication.EventCommand:
		e.textField("command", ev.Command)
	case replication.EventUncertain:
		e.numbers(ev.Numbers)
	case replication.EventSees, replication.EventUnsees:
		e.tokens("keys", ev.Keys)
		e.flag("anew", ev.Anew)
	}
	e.textField("code", string(ev.Code))
	if ev.Missed > 0 {
		e.key("missed").uint(ev.Missed)
	}
	e.end()
	return e.done()
}

func (e *emitter) eventValues(values []replication.EventValue) {
	e.key("values").object()
	for _, v := range values {
		e.key(v.Name).structValue(v.Type, v.Struct, v.Value)
	}
	e.end()
}

// numbers writes the numbers of messages. In JSON a number beyond 2^53 is a string.
func (e *emitter) numbers(numbers []uint64) {
	writeList(e, "numbers", numbers, func(n *uint64) { e.value(typeUint64, binary.LittleEndian.AppendUint64(nil, *n)) })
}

// timeText returns t as in RFC 3339, UTC, with milliseconds.
func timeText(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z07:00") }

// AppendListing appends states, each as the put that would make it, in at most sizeMax bytes
// unless the first state alone is larger. If states are left, "after" is the key to continue
// after.
func (f Form) AppendListing(b []byte, l *replication.Listing, sizeMax int) []byte {
	const tail = len(`],"after":""}`) + subject.KeyMax + 16 // bytes behind the states, in each form
	e := newEmitter(f, b)
	start := e.len()
	e.object()
	e.position(l.Epoch, l.Seq)
	e.key("states").array()
	after := l.After
	for i := range l.States {
		before := e
		e.put(l.States[i], l.Interest)
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

func (e *emitter) put(s *replication.State, interests func(name string) *replication.Interest) {
	d := s.Desc
	e.object()
	e.textField("op", "put")
	e.textField("key", d.Key)
	e.key("message").message(d.Message)
	if len(d.Farewell) > 0 {
		e.key("farewell").message(d.Farewell)
	}
	e.key("access").access(d.Access)
	e.key("audience").audience(d.Audience)
	if d.Priority > 1 {
		e.key("priority").uint(uint64(d.Priority))
	}
	e.lod(d.Details)
	if d.Interest != "" {
		e.interest(d.Interest, interests(d.Interest))
	}
	if d.TTL > 0 {
		e.textField("ttl", DurationText(d.TTL))
	}
	e.key("values").array()
	for i := range d.Values {
		e.putValue(s, i)
	}
	e.end()
	e.end()
}

func (e *emitter) putValue(s *replication.State, i int) {
	v := &s.Desc.Values[i]
	e.object()
	e.textField("name", v.Name)
	e.textField("type", v.Type.String())
	e.key("value")
	if s.IsNull(i) {
		e.null()
	} else {
		enc, start := s.Values.Value(i), len(e.b)
		e.structValue(v.Type, v.Struct, enc)
		if e.form == JSON && lossy(e.b[start:], v.Type, enc) {
			e.textField("raw", base64.StdEncoding.EncodeToString(enc))
		}
	}
	e.structFields(v.Struct)
	e.floatField("precision", v.Precision)
	if v.Nullable {
		e.key("nullable").boolean(true)
		e.key("null").structValue(v.Type, v.Struct, v.Substitute())
	}
	e.bounds(v.Type, v.Bounds)
	e.end()
}

// WriteStored writes the ops that make what a copy has, each on a line of JSON: named interests, states in the order of
// their keys, and the groups and eyes of clients. It returns how many ops and how many states there are. The caller looks for errors of w.
func WriteStored(w io.Writer, c *replication.Stored) (ops, states int) {
	e := newEmitter(JSON, nil)
	write := func() {
		_, _ = w.Write(append(e.b, '\n'))
		e = newEmitter(JSON, e.b[:0])
		ops++
	}
	interests, groups, eyes := c.Beside()
	for _, name := range interests {
		if x := c.Store.Interest(name); x != nil { // else it is of a later release
			e.object()
			e.textField("op", "interest")
			e.textField("name", name)
			e.interestFields(x)
			e.end()
			write()
		}
	}
	all := c.Store.List("", math.MaxInt).States
	for _, st := range all {
		e.put(st, c.Store.Interest)
		write()
	}
	for _, client := range groups {
		op := Op{Op: "group", Client: client, Join: slices.Sorted(slices.Values(c.Store.Groups(client)))}
		e.b = op.Append(e.b)
		write()
	}
	for _, client := range eyes {
		op := Op{Op: "eye", Client: client, At: eyesText(c.Store.Eyes(client))}
		e.b = op.Append(e.b)
		write()
	}
	return ops, len(all)
}

// lossy reports whether the JSON of a value says less than its bytes.
func lossy(text []byte, t wire.ValueType, enc []byte) bool {
	if text[0] == '"' {
		return t.Kind() == wire.KindString && !utf8.Valid(enc[2:])
	}
	return bytes.Contains(text, []byte("null")) // a number that is not finite, or a field with this name, which costs a few bytes
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
		e.key("all").boolean(true)
		e.key("except").audience(replication.Audience{Kind: replication.AudienceListed, Groups: a.Groups, Clients: a.Clients})
	default:
		e.key("all").boolean(a.Kind == replication.AudienceAll)
	}
	e.end()
}

func (e *emitter) tokens(name string, all []string) {
	writeList(e, name, all, func(s *string) { e.text(*s) })
}

func (e *emitter) lod(all []replication.Detail) {
	if len(all) == 0 {
		return
	}
	writeList(e, "lod", all, func(d *replication.Detail) {
		e.object()
		e.tokens("groups", d.Groups)
		e.tokens("clients", d.Clients)
		e.floatField("precision", d.Precision)
		e.floatField("rate", d.Rate)
		e.end()
	})
}

func (e *emitter) bounds(t wire.ValueType, b *replication.Bounds) {
	if b == nil {
		return
	}
	if b.Min != nil {
		e.key("min").value(t.Component(), b.Min)
	}
	if b.Max != nil {
		e.key("max").value(t.Component(), b.Max)
	}
	if b.Infinite {
		e.key("finite").boolean(false)
	}
	e.floatField("rate", b.Rate)
}

// emitDepthMax is the deepest nesting of the output: nothing, a listing, its states, a state, its values,
// a value, its fields, a field.
const emitDepthMax = 8

// An emitter writes objects and arrays in either form, so that every answer is defined once. To
// go back to a place, keep a copy of the emitter.
type emitter struct {
	form  Form
	b     []byte // JSON
	w     variant.Writer
	depth int
	open  [emitDepthMax]struct {
		mark    variant.Mark
		n       int  // elements so far
		bracket byte // { of an object, [ of an array
	}
}

func newEmitter(f Form, b []byte) emitter {
	e := emitter{form: f, b: b}
	if f != JSON {
		e.w = variant.NewWriter(f.dialect, b)
	}
	return e
}

// done returns the output. An emitter writes only what its dialect can hold.
func (e *emitter) done() []byte {
	if e.form == JSON {
		return e.b
	}
	if err := e.w.Err(); err != nil {
		panic("payload: wrote what does not fit: " + err.Error())
	}
	return e.w.Bytes()
}

func (e *emitter) len() int {
	if e.form == JSON {
		return len(e.b)
	}
	return len(e.w.Bytes())
}

func (e *emitter) object() { e.begin('{', variant.Dictionary) }
func (e *emitter) array()  { e.begin('[', variant.Array) }

func (e *emitter) begin(bracket byte, t variant.Type) {
	e.element()
	e.depth++
	f := &e.open[e.depth]
	f.n, f.bracket = 0, bracket
	if e.form == JSON {
		e.b = append(e.b, bracket)
	} else {
		f.mark = e.w.Begin(t)
	}
}

// end ends the innermost object or array.
func (e *emitter) end() {
	f := &e.open[e.depth]
	e.depth--
	if e.form == JSON {
		e.b = append(e.b, f.bracket+2) // in ASCII } is two behind {, and ] behind [
	} else {
		e.w.End(f.mark, f.n)
	}
}

// key writes the name of a member, which needs no escapes, and returns e for its value.
func (e *emitter) key(name string) *emitter {
	e.count()
	if e.form == JSON {
		e.b = append(append(append(e.b, '"'), name...), '"', ':')
	} else {
		e.w.String(name)
	}
	return e
}

// writeList writes a member that is an array, of which each writes an element.
func writeList[T any](e *emitter, name string, all []T, each func(x *T)) {
	e.key(name).array()
	for i := range all {
		each(&all[i])
	}
	e.end()
}

// element counts a value, unless it belongs to a key.
func (e *emitter) element() {
	if e.depth > 0 && e.open[e.depth].bracket == '[' {
		e.count()
	}
}

func (e *emitter) count() {
	f := &e.open[e.depth]
	if e.form == JSON {
		e.b = comma(e.b, f.n)
	}
	f.n++
}

func (e *emitter) text(s string) {
	e.element()
	if e.form != JSON {
		e.w.String(VariantText(s))
		return
	}
	e.b = appendString(e.b, s)
}

func (e *emitter) boolean(v bool) {
	e.element()
	if e.form != JSON {
		e.w.Bool(v)
		return
	}
	e.b = strconv.AppendBool(e.b, v)
}

// uint writes a position, a count or a time.
func (e *emitter) uint(u uint64) {
	e.element()
	if e.form != JSON {
		integer{int64(u), true}.write(&e.w)
		return
	}
	e.b = strconv.AppendUint(e.b, u, 10)
}

func (e *emitter) float(f float64) {
	e.element()
	if e.form != JSON {
		writeFloat(&e.w, f)
		return
	}
	e.b = appendJSONFloat(e.b, f, 64)
}

// message writes a message, as text if possible.
func (e *emitter) message(p []byte) {
	e.element()
	switch {
	case e.form == JSON:
		text := string(p)
		if messagePrefix(text) != "" {
			text = MessageText(p)
		}
		e.b = appendString(e.b, text)
	case utf8.Valid(p) && VariantText(string(p)) == string(p):
		e.w.String(string(p))
	default:
		e.w.Data(p)
	}
}

// value writes an encoded value.
func (e *emitter) value(t wire.ValueType, enc []byte) {
	e.element()
	if e.form != JSON {
		WriteVariant(&e.w, t, enc)
		return
	}
	e.b = AppendValue(e.b, t, enc)
}

func (e *emitter) null() {
	e.element()
	if e.form != JSON {
		e.w.Nil()
		return
	}
	e.b = append(e.b, "null"...)
}

// textField writes a member, unless it is empty.
func (e *emitter) textField(name, value string) {
	if value != "" {
		e.key(name).text(value)
	}
}

// floatField writes a member, unless it is 0.
func (e *emitter) floatField(name string, value float64) {
	if value != 0 {
		e.key(name).float(value)
	}
}

// flag writes a member that is true, unless it is false.
func (e *emitter) flag(name string, value bool) {
	if value {
		e.key(name).boolean(true)
	}
}
