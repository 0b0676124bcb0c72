package payload

import (
	"encoding/base64"
	"encoding/binary"
	"time"
	"unicode/utf8"

	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/replication"
)

// AppendAnswer appends what a publisher is told.
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

// AppendError appends {"error":…}, the answer to whatever could not be done.
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

// AppendEvent appends an event. Fields that do not belong to its type are left
// out.
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

// numbers writes numbers of messages, which JSON has as strings beyond 2^53.
func (e *emitter) numbers(numbers []uint64) {
	e.key("numbers")
	e.array()
	for _, n := range numbers {
		e.value(typeUint64, binary.LittleEndian.AppendUint64(nil, n))
	}
	e.end()
}

const typeUint64 wire.ValueType = 7

// timeText returns t as in RFC 3339, UTC, with milliseconds.
func timeText(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z07:00") }

// AppendValue appends an encoded value of type t, which must be one, as JSON. An
// infinite or undefined component, which only clients can write, becomes null,
// and a byte of a string that is not UTF-8 the replacement character.
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
