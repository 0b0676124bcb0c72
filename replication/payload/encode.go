package payload

import (
	"encoding/base64"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/replication"
)

// AppendAnswer appends what a publisher is told.
func AppendAnswer(b []byte, a *replication.Answer) []byte {
	if a.Err != nil {
		return AppendError(b, a.Err)
	}
	b = appendPosition(b, a.Epoch, a.Seq)
	if !a.Durable {
		b = append(b, `,"durable":false`...)
	}
	if a.Results != nil {
		b = append(b, `,"results":[`...)
		for i, r := range a.Results {
			b = comma(b, i)
			b = appendResult(b, r)
		}
		b = append(b, ']')
	}
	return append(b, '}')
}

func appendResult(b []byte, r replication.Result) []byte {
	if r.Err == nil {
		return append(b, `{"ok":true}`...)
	}
	return AppendError(b, r.Err)
}

// AppendError appends {"error":…}, the answer to whatever could not be done.
func AppendError(b []byte, e *replication.Error) []byte {
	b = append(b, `{"error":{"code":`...)
	b = appendString(b, string(e.Code))
	b = append(b, `,"message":`...)
	b = appendString(b, e.Message)
	b = append(b, `,"op":`...)
	b = strconv.AppendInt(b, int64(e.Op), 10)
	if e.Code == replication.CodeBusy {
		b = append(b, `,"retry_after_ms":`...)
		b = strconv.AppendInt(b, e.RetryAfter.Milliseconds(), 10)
	}
	return append(b, "}}"...)
}

// appendPosition begins an object with a position.
func appendPosition(b []byte, epoch, seq uint64) []byte {
	b = append(b, `{"epoch":`...)
	b = strconv.AppendUint(b, epoch, 10)
	b = append(b, `,"seq":`...)
	return strconv.AppendUint(b, seq, 10)
}

// AppendEvent appends an event. Fields that do not belong to its type are left
// out.
func AppendEvent(b []byte, e *replication.Event) []byte {
	b = append(b, `{"v":1`...)
	b = appendTextField(b, "type", string(e.Type))
	b = appendTextField(b, "space", e.Space)
	b = append(b, `,"ts":`...)
	b = appendTime(b, e.Time)
	b = append(b, `,"epoch":`...)
	b = strconv.AppendUint(b, e.Epoch, 10)
	b = append(b, `,"seq":`...)
	b = strconv.AppendUint(b, e.Seq, 10)
	b = appendTextField(b, "client", e.Client)
	b = appendTextField(b, "session", e.Session)
	b = appendTextField(b, "edge", e.Edge)
	b = appendTextField(b, "reason", e.Reason)
	b = appendTextField(b, "key", e.Key)
	switch e.Type {
	case replication.EventLinked, replication.EventRejected:
		b = append(b, `,"link":`...)
		b = strconv.AppendUint(b, uint64(e.Link), 10)
	case replication.EventChanged, replication.EventRefused:
		b = appendEventValues(b, e.Values)
	case replication.EventReassert:
		b = append(b, `,"shard":`...)
		b = strconv.AppendInt(b, int64(e.Shard), 10)
		b = append(b, `,"lost_after":`...)
		b = appendTime(b, e.LostAfter)
	case replication.EventUncertain:
		b = appendNumbers(b, e.Numbers)
	}
	b = appendTextField(b, "code", string(e.Code))
	return append(b, '}')
}

func appendEventValues(b []byte, values []replication.EventValue) []byte {
	b = append(b, `,"values":{`...)
	for i, v := range values {
		b = comma(b, i)
		b = appendString(b, v.Name)
		b = append(b, ':')
		b = AppendValue(b, v.Type, v.Value)
	}
	return append(b, '}')
}

func appendNumbers(b []byte, numbers []uint64) []byte {
	b = append(b, `,"numbers":[`...)
	for i, n := range numbers {
		b = comma(b, i)
		b = appendQuotedBeyond(b, n > exactMax, strconv.AppendUint, n)
	}
	return append(b, ']')
}

func appendTextField(b []byte, name, value string) []byte {
	if value == "" {
		return b
	}
	b = append(b, `,"`...)
	b = append(b, name...)
	b = append(b, `":`...)
	return appendString(b, value)
}

// appendTime appends t as in RFC 3339, UTC, with milliseconds.
func appendTime(b []byte, t time.Time) []byte {
	b = append(b, '"')
	b = t.UTC().AppendFormat(b, "2006-01-02T15:04:05.000Z07:00")
	return append(b, '"')
}

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
