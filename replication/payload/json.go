package payload

import (
	"encoding/json"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/dnprelay/dnprelay/replication"
)

// The functions of this file split text that check accepted as JSON. They cannot fail, and they
// return substrings.

// check reports what is wrong with a body as JSON.
func check(body []byte) *replication.Error {
	if !utf8.Valid(body) {
		return replication.Errorf(replication.CodeBadRequest, "the payload is not UTF-8")
	}
	if json.Valid(body) {
		return nil
	}
	var raw json.RawMessage
	err := json.Unmarshal(body, &raw) // for its error
	return replication.Errorf(replication.CodeBadRequest, "the payload is not JSON: %v", err)
}

const whiteSpace = " \t\r\n"

// kindOf returns the kind of a JSON value.
func kindOf(raw string) kind {
	switch raw[0] {
	case '{':
		return kindObject
	case '[':
		return kindArray
	case '"':
		return kindString
	case 't', 'f':
		return kindBoolean
	case 'n':
		return kindNull
	}
	return kindNumber
}

// cut splits the value at the beginning of s from the rest, both without surrounding white
// space.
func cut(s string) (value, rest string) {
	n := 0
	switch s[0] {
	case '"':
		n = stringEnd(s)
	case '{', '[':
		n = nestedEnd(s)
	default:
		if n = strings.IndexAny(s, ",]}"+whiteSpace); n < 0 {
			n = len(s)
		}
	}
	return s[:n], strings.TrimLeft(s[n:], whiteSpace)
}

func stringEnd(s string) int {
	for i := 1; ; i++ {
		switch s[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
}

func nestedEnd(s string) int {
	depth := 0
	for i := 0; ; i++ {
		switch s[i] {
		case '"':
			i += stringEnd(s[i:]) - 1
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return i + 1
			}
		}
	}
}

// inside returns the content of an object or array, without leading white space.
func inside(raw string) string { return strings.TrimLeft(raw[1:len(raw)-1], whiteSpace) }

// element splits the first element from the result of inside.
func element(list string) (value, rest string) {
	value, rest = cut(list)
	return value, next(rest)
}

// member splits the first member; its key is still quoted.
func member(list string) (key, value, rest string) {
	key, rest = cut(list)
	value, rest = cut(strings.TrimLeft(rest[1:], whiteSpace)) // behind the colon
	return key, value, next(rest)
}

// next skips the comma before the next member or element.
func next(rest string) string {
	if rest == "" {
		return ""
	}
	return strings.TrimLeft(rest[1:], whiteSpace)
}

// unquote returns the text of a JSON string. It is not ok if an escape stands for half of a
// surrogate pair.
func unquote(raw string) (text string, ok bool) {
	text = raw[1 : len(raw)-1]
	if strings.IndexByte(text, '\\') < 0 {
		return text, true
	}
	return unescape(raw)
}

func unescape(raw string) (text string, ok bool) {
	if hasLoneSurrogate(raw[1 : len(raw)-1]) {
		return "", false
	}
	err := json.Unmarshal([]byte(raw), &text)
	return text, err == nil
}

// hasLoneSurrogate finds the escapes that encoding/json replaces silently.
func hasLoneSurrogate(text string) bool {
	high := false // the previous escape was the first half of a pair
	for i := 0; i < len(text); i++ {
		low := false
		if text[i] == '\\' {
			i++
			if text[i] == 'u' {
				u, _ := strconv.ParseUint(text[i+1:i+5], 16, 16)
				i += 4
				switch {
				case u >= 0xdc00 && u < 0xe000:
					if !high {
						return true
					}
					low = true
				case u >= 0xd800 && u < 0xdc00:
					if high {
						return true
					}
					high = true
					continue
				}
			}
		}
		if high && !low {
			return true
		}
		high = false
	}
	return high
}

// clip shortens text from outside for an error message.
func clip(text string) string {
	const most = 48 // arbitrary
	if len(text) <= most {
		return text
	}
	n := most
	for !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n] + "…"
}
