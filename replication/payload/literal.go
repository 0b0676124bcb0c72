package payload

import (
	"encoding/base64"
	"math"
	"strings"

	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/replication"
)

// A literal is the text of one JSON value, already known to be JSON. Its
// messages say what was wanted and what was there; the store puts the name of
// the value in front.
type literal string

// AppendValue implements replication.Literal.
func (l literal) AppendValue(b []byte, t wire.ValueType) (enc []byte, null bool, err error) {
	if l == "null" {
		return b, true, nil
	}
	enc, e := l.appendValue(b, t)
	if e != nil {
		return b, false, e // not in the line above: a nil *Error is not a nil error
	}
	return enc, false, nil
}

func (l literal) appendValue(b []byte, t wire.ValueType) ([]byte, *replication.Error) {
	switch {
	case t.Kind() == wire.KindString:
		return l.appendString(b, t)
	case t.Kind() == wire.KindData:
		return l.appendData(b, t)
	case t.Components() > 1:
		return l.appendArray(b, t)
	}
	return appendScalar(b, t, string(l))
}

func (l literal) mismatch(t wire.ValueType) *replication.Error {
	return mismatch(t, words[kindOf(string(l))].json)
}

func mismatch(t wire.ValueType, got string) *replication.Error {
	return replication.Errorf(replication.CodeTypeMismatch, "want %v, got %s", t, got)
}

// appendScalar appends one component: a number, or a decimal string for 64 bits.
func appendScalar(b []byte, t wire.ValueType, raw string) ([]byte, *replication.Error) {
	switch kindOf(raw) {
	case kindNumber:
		return appendNumber(b, t, raw)
	case kindString:
		if takesDigits(t) {
			return appendDigits(b, t, raw[1:len(raw)-1])
		}
	}
	return b, literal(raw).mismatch(t)
}

// takesDigits reports whether a component of t may be a string of decimal digits,
// because numbers of that size are lost in most languages.
func takesDigits(t wire.ValueType) bool { return t.Kind() != wire.KindFloat && t.Width() == 8 }

func appendDigits(b []byte, t wire.ValueType, text string) ([]byte, *replication.Error) {
	if !isDecimal(text) {
		return b, replication.Errorf(replication.CodeTypeMismatch, "want %v, got the string %q, which is not a decimal integer", t, clip(text))
	}
	return appendNumber(b, t, text)
}

// isDecimal reports whether text is an integer as JSON would write it.
func isDecimal(text string) bool {
	text = strings.TrimPrefix(text, "-")
	if text == "" || text[0] == '0' && len(text) > 1 {
		return false
	}
	return strings.Trim(text, "0123456789") == ""
}

func (l literal) appendArray(b []byte, t wire.ValueType) ([]byte, *replication.Error) {
	if kindOf(string(l)) != kindArray {
		return b, l.mismatch(t)
	}
	n := 0
	for list := inside(string(l)); list != ""; n++ {
		var raw string
		raw, list = element(list)
		if n >= t.Components() {
			continue // only count, for the message
		}
		var err *replication.Error
		if b, err = appendScalar(b, t, raw); err != nil {
			return b, inComponent(n, err)
		}
	}
	return b, components(t, n)
}

// components reports a number of components that t does not have.
func components(t wire.ValueType, n int) *replication.Error {
	if n == t.Components() {
		return nil
	}
	return replication.Errorf(replication.CodeTypeMismatch, "want %v with %d components, got %d", t, t.Components(), n)
}

func inComponent(i int, err *replication.Error) *replication.Error {
	return within("component "+string('0'+rune(i)), err)
}

func (l literal) appendString(b []byte, t wire.ValueType) ([]byte, *replication.Error) {
	if kindOf(string(l)) != kindString {
		return b, l.mismatch(t)
	}
	text, ok := unquote(string(l))
	if !ok {
		return b, errSurrogate()
	}
	return appendLong(b, t, text)
}

func (l literal) appendData(b []byte, t wire.ValueType) ([]byte, *replication.Error) {
	if kindOf(string(l)) != kindString {
		return b, l.mismatch(t)
	}
	text, _ := unquote(string(l)) // a half character is no base64 either
	p, ok := decodeBase64(text)
	if !ok {
		return b, replication.Errorf(replication.CodeTypeMismatch, "want %v as base64, got %q", t, clip(text))
	}
	return appendLong(b, t, p)
}

// appendLong appends a value of string or data.
func appendLong[T string | []byte](b []byte, t wire.ValueType, content T) ([]byte, *replication.Error) {
	if len(content) > math.MaxUint16 {
		return b, replication.Errorf(replication.CodeTooLarge, "%d bytes of %v, at most %d are possible", len(content), t, math.MaxUint16)
	}
	b = appendUint(b, uint64(len(content)), 2)
	return append(b, content...), nil
}

func errSurrogate() *replication.Error {
	return replication.Errorf(replication.CodeBadRequest, "a \\u escape stands for half a character")
}

// decodeBase64 wants the standard alphabet with padding and nothing else. The
// library would skip line ends.
func decodeBase64(text string) (p []byte, ok bool) {
	if strings.ContainsAny(text, "\r\n") {
		return nil, false
	}
	p, err := base64.StdEncoding.Strict().DecodeString(text)
	return p, err == nil
}
