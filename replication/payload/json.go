package payload

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/replication"
	"github.com/x448/float16"
)

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

// The functions from kindOf to next split text that check accepted as JSON. They cannot fail, and
// they return substrings.

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
		n = scalarEnd(s)
	}
	return s[:n], skipSpace(s[n:])
}

// scalarEnd returns the end of a number, true, false or null. strings.IndexAny would make a set of the bytes each time.
func scalarEnd(s string) int {
	for i := range len(s) {
		switch s[i] {
		case ',', ']', '}', ' ', '\t', '\r', '\n':
			return i
		}
	}
	return len(s)
}

// skipSpace returns s from the first byte on that is not white space. strings.TrimLeft makes a set
// of the white space each time.
func skipSpace(s string) string {
	for i := range len(s) {
		if c := s[i]; c > ' ' || c != ' ' && c != '\n' && c != '\r' && c != '\t' {
			return s[i:]
		}
	}
	return ""
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
func inside(raw string) string { return skipSpace(raw[1 : len(raw)-1]) }

// element splits the first element from the result of inside.
func element(list string) (value, rest string) {
	value, rest = cut(list)
	return value, next(rest)
}

// member splits the first member; its key is still quoted.
func member(list string) (key, value, rest string) {
	key, rest = cut(list)
	value, rest = cut(skipSpace(rest[1:])) // behind the colon
	return key, value, next(rest)
}

// next skips the comma before the next member or element.
func next(rest string) string {
	if rest == "" {
		return ""
	}
	return skipSpace(rest[1:])
}

// unquote returns the text of a JSON string. It is not ok if an escape stands for half of a
// surrogate pair.
func unquote(raw string) (text string, ok bool) {
	text = raw[1 : len(raw)-1]
	if strings.IndexByte(text, '\\') < 0 {
		return text, true
	}
	if hasLoneSurrogate(text) {
		return "", false
	}
	var unescaped string // not text, which would then cost an allocation above
	err := json.Unmarshal([]byte(raw), &unescaped)
	return unescaped, err == nil
}

// hasLoneSurrogate finds the escapes that encoding/json replaces silently.
func hasLoneSurrogate(text string) bool {
	high := false // the previous escape was the first half of a pair
	for i := 0; i < len(text); i++ {
		u := uint64(0)
		if text[i] == '\\' {
			i++
			if text[i] == 'u' {
				u, _ = strconv.ParseUint(text[i+1:i+5], 16, 16)
				i += 4
			}
		}
		if low := u >= 0xdc00 && u < 0xe000; low != high {
			return true
		}
		high = u >= 0xd800 && u < 0xdc00
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

// A literal is the text of one JSON value, which has been checked. Its errors say what was
// expected and what was found; the store adds the name of the value.
type literal string

// AppendValue implements replication.Literal.
func (l literal) AppendValue(b []byte, t wire.ValueType) (enc []byte, null bool, err *replication.Error) {
	if l == "null" {
		return b, true, nil
	}
	enc, err = l.appendValue(b, t)
	return enc, false, err
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

// takesDigits reports whether a component of t may be a string of decimal digits, because most
// languages lose precision in numbers of that size.
func takesDigits(t wire.ValueType) bool { return t.Kind() != wire.KindFloat && t.Width() == 8 }

func appendDigits(b []byte, t wire.ValueType, text string) ([]byte, *replication.Error) {
	if !isDecimal(text) {
		return b, replication.Errorf(replication.CodeTypeMismatch, "want %v, got the string %q, which is not a decimal integer", t, clip(text))
	}
	return appendNumber(b, t, text)
}

// isDecimal reports whether text is an integer in the syntax of JSON.
func isDecimal(text string) bool {
	text = strings.TrimPrefix(text, "-")
	if text == "" || text[0] == '0' && len(text) > 1 {
		return false
	}
	for i := range len(text) {
		if text[i] < '0' || text[i] > '9' {
			return false
		}
	}
	return true
}

func (l literal) appendArray(b []byte, t wire.ValueType) ([]byte, *replication.Error) {
	if kindOf(string(l)) != kindArray {
		return b, l.mismatch(t)
	}
	if t.Kind() == wire.KindFloat {
		if enc, ok := l.appendDecimals(b, t); ok {
			return enc, nil
		}
	}
	n := 0
	for list := inside(string(l)); list != ""; n++ {
		var raw string
		raw, list = element(list)
		if n >= t.Components() {
			continue // counted for the error message
		}
		var err *replication.Error
		if b, err = appendScalar(b, t, raw); err != nil {
			return b, inComponent(n, err)
		}
	}
	return b, components(t, n)
}

// components refuses a number of components that t does not have.
func components(t wire.ValueType, n int) *replication.Error {
	if n == t.Components() {
		return nil
	}
	return replication.Errorf(replication.CodeTypeMismatch, "want %v with %d components, got %d", t, t.Components(), n)
}

func inComponent(i int, err *replication.Error) *replication.Error {
	return err.In("component " + string('0'+rune(i)))
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

// appendLong appends a value of type string or data.
func appendLong[T string | []byte](b []byte, t wire.ValueType, content T) ([]byte, *replication.Error) {
	if len(content) > math.MaxUint16 {
		return b, replication.Errorf(replication.CodeTooLarge, "%d bytes of %v, at most %d are possible", len(content), t, math.MaxUint16)
	}
	b = appendUint(b, uint64(len(content)), 2)
	return append(b, content...), nil
}

func errSurrogate() *replication.Error {
	return replication.Errorf(replication.CodeBadRequest, "a \\u escape is half a surrogate pair")
}

// decodeBase64 accepts the standard alphabet with padding and nothing else. The library would
// skip line ends.
func decodeBase64(text string) (p []byte, ok bool) {
	if strings.ContainsAny(text, "\r\n") {
		return nil, false
	}
	p, err := base64.StdEncoding.Strict().DecodeString(text)
	return p, err == nil
}

// exactMax bounds the integers that a float64 holds exactly. Larger ones are written as
// strings, because most JSON libraries read numbers as float64.
const exactMax = 1 << 53

// appendNumber appends one component of t from the text of a JSON number.
func appendNumber(b []byte, t wire.ValueType, text string) ([]byte, *replication.Error) {
	if t.Kind() == wire.KindFloat {
		return appendFloat(b, t, text)
	}
	return appendInteger(b, t, text)
}

func appendInteger(b []byte, t wire.ValueType, text string) ([]byte, *replication.Error) {
	digits, fraction := integerText(text)
	if fraction {
		return b, replication.Errorf(replication.CodeTypeMismatch, "want %v, got %s, which has a fraction", t, clip(text))
	}
	var u uint64
	var err error
	bits := t.Width() * 8
	if t.Kind() == wire.KindSint {
		var i int64
		i, err = strconv.ParseInt(digits, 10, bits)
		u = uint64(i)
	} else {
		u, err = strconv.ParseUint(digits, 10, bits)
	}
	if err != nil {
		return b, outOfRange(t, text)
	}
	return appendUint(b, u, t.Width()), nil
}

func outOfRange(t wire.ValueType, text string) *replication.Error {
	return replication.Errorf(replication.CodeOutOfRange, "%s does not fit %v", clip(text), t)
}

// integerText converts a JSON number to plain digits, so that 5.0 and 2e3 are accepted as
// integers. A number beyond every integer type stays beyond it.
func integerText(text string) (digits string, fraction bool) {
	mantissa, exponent, scaled := strings.Cut(strings.ToLower(text), "e")
	whole, part, pointed := strings.Cut(mantissa, ".")
	if !scaled && !pointed && text != "-0" {
		return text, false
	}
	sign := ""
	if rest, negative := strings.CutPrefix(whole, "-"); negative {
		sign, whole = "-", rest
	}
	digits = strings.TrimLeft(whole+part, "0")
	if digits == "" {
		return "0", false
	}
	shift, err := 0, error(nil)
	if scaled {
		const most = 1 << 20 // more digits than a payload has bytes
		if shift, err = strconv.Atoi(exponent); err != nil || shift > most || shift < -most {
			return text, strings.HasPrefix(exponent, "-") // beyond every integer type, or a fraction
		}
	}
	significant := strings.TrimRight(digits, "0")
	shift += len(digits) - len(significant) - len(part)
	if shift < 0 {
		return "", true
	}
	const longest = 20 // digits of the largest uint64
	return sign + significant + strings.Repeat("0", min(shift, longest)), false
}

// appendFloat appends one component of t from the text of a JSON number.
func appendFloat(b []byte, t wire.ValueType, text string) ([]byte, *replication.Error) {
	if f, n := decimal(text); n == len(text) && !(t.Width() == 4 && amidFloat32(f)) {
		if enc, ok := appendRounded(b, t, f); ok {
			return enc, nil
		}
	}
	bits := 64
	if t.Width() == 4 {
		bits = 32
	}
	f, err := strconv.ParseFloat(text, bits)
	b, ok := appendRounded(b, t, f)
	if err != nil || !ok {
		return b, outOfRange(t, text)
	}
	return b, nil
}

// appendRounded appends one component of t, rounded half to even. It is not ok if the result is
// not finite.
func appendRounded(b []byte, t wire.ValueType, f float64) (enc []byte, ok bool) {
	switch width := t.Width(); width {
	case 2:
		h := float16.Fromfloat32(roundToOdd(f))
		return appendUint(b, uint64(h.Bits()), width), h.IsFinite()
	case 4:
		f = float64(float32(f))
		b = appendUint(b, uint64(math.Float32bits(float32(f))), width)
	default:
		b = appendUint(b, math.Float64bits(f), width)
	}
	return b, !math.IsInf(f, 0) && !math.IsNaN(f)
}

// roundToOdd cuts f to 24 bits and sets the last bit if anything was lost. It prevents double
// rounding on the way to the 11 bits of a half float: a number just above the middle of two
// half floats would become the middle, and then the even one.
func roundToOdd(f float64) float32 {
	g := float32(f)
	if float64(g) == f || math.IsInf(float64(g), 0) {
		return g
	}
	bits := math.Float32bits(g)
	if math.Abs(float64(g)) > math.Abs(f) {
		bits--
	}
	return math.Float32frombits(bits | 1)
}

func appendUint(b []byte, u uint64, width int) []byte {
	switch width {
	case 1:
		return append(b, byte(u))
	case 2:
		return binary.LittleEndian.AppendUint16(b, uint16(u))
	case 4:
		return binary.LittleEndian.AppendUint32(b, uint32(u))
	}
	return binary.LittleEndian.AppendUint64(b, u)
}

// AppendValue appends a valid encoded value of type t as JSON. A component that is infinite or
// not a number, which only clients can write, becomes null; a byte of a string that is not
// UTF-8 becomes the replacement character.
func AppendValue(b []byte, t wire.ValueType, enc []byte) []byte {
	switch t.Kind() {
	case wire.KindString:
		return appendString(b, string(enc[2:]))
	case wire.KindData:
		b = base64.StdEncoding.AppendEncode(append(b, '"'), enc[2:])
		return append(b, '"')
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

// escaped tells which bytes of a string may need an escape in JSON.
var escaped = func() (t [256]bool) {
	for c := range t {
		t[c] = c < ' ' || c >= utf8.RuneSelf || c == '"' || c == '\\'
	}
	return t
}()

// appendString appends s as a JSON string. Most strings need no escape.
func appendString(b []byte, s string) []byte {
	b = append(b, '"')
	for i := 0; i < len(s); i++ {
		if escaped[s[i]] {
			return appendEscaped(b, s)
		}
	}
	return append(append(b, s...), '"')
}

// appendEscaped appends s with its escapes, and the end of the string.
func appendEscaped(b []byte, s string) []byte {
	const hex = "0123456789abcdef"
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

// MessageText returns a message in the JSON form: text as it is, or behind a prefix if it begins
// with one, and other bytes as base64 behind "base64:".
func MessageText(message []byte) string {
	prefix := messagePrefix(string(message))
	if prefix == prefixBase64 {
		return prefix + base64.StdEncoding.EncodeToString(message)
	}
	return prefix + string(message)
}

// messagePrefix returns what precedes a message in the JSON form.
func messagePrefix(message string) string {
	switch {
	case !utf8.ValidString(message):
		return prefixBase64
	case strings.HasPrefix(message, prefixBase64), strings.HasPrefix(message, prefixText):
		return prefixText
	}
	return ""
}

// appendComponent appends one encoded component of t as JSON.
func appendComponent(b []byte, t wire.ValueType, enc []byte) []byte {
	switch t.Kind() {
	case wire.KindSint:
		i := replication.Int(enc)
		return appendQuotedBeyond(b, i > exactMax || i < -exactMax, strconv.AppendInt, i)
	case wire.KindUint:
		u := replication.Uint(enc)
		return appendQuotedBeyond(b, u > exactMax, strconv.AppendUint, u)
	}
	switch len(enc) {
	case 2:
		return appendHalf(b, float16.Frombits(binary.LittleEndian.Uint16(enc)))
	case 4:
		return appendJSONFloat(b, replication.Float(enc), 32)
	}
	return appendJSONFloat(b, replication.Float(enc), 64)
}

func appendQuotedBeyond[T int64 | uint64](b []byte, quoted bool, add func([]byte, T, int) []byte, v T) []byte {
	if !quoted {
		return add(b, v, 10)
	}
	b = append(b, '"')
	b = add(b, v, 10)
	return append(b, '"')
}

// appendHalf appends h exactly if it is an integer, otherwise as the shortest decimal that is
// read as h again.
func appendHalf(b []byte, h float16.Float16) []byte {
	f := float64(h.Float32())
	if !h.IsFinite() || f == math.Trunc(f) {
		return appendJSONFloat(b, f, 64)
	}
	const digitsMax = 5 // enough for every half float
	var text [32]byte
	for digits := 1; ; digits++ {
		short := strconv.AppendFloat(text[:0], f, 'e', digits-1, 64)
		g, err := strconv.ParseFloat(string(short), 64)
		if digits == digitsMax || err == nil && float16.Fromfloat32(roundToOdd(g)) == h {
			return appendJSONFloat(b, g, 64)
		}
	}
}

// appendJSONFloat appends the shortest decimal that is read as f again. It appends null for a
// number that JSON cannot express; publishers cannot set one, but clients can.
func appendJSONFloat(b []byte, f float64, bits int) []byte {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return append(b, "null"...)
	}
	format := byte('f')
	if a := math.Abs(f); a != 0 && (a < 1e-6 || a >= 1e21) { // as in JavaScript
		format = 'e'
	}
	return strconv.AppendFloat(b, f, format, -1, bits)
}
