package payload

import (
	"slices"

	"github.com/dnprelay/dnprelay/dnp/netstate"
	"github.com/dnprelay/dnprelay/replication"
	"github.com/dnprelay/dnprelay/subject"
)

// opsKept bounds the ops whose memory a Parser keeps: 1 MiB, and as much for their values. The number is arbitrary.
const opsKept = 2048

// setsFew bounds the values of a set that a Parser reads by itself, because it compares their names with each other.
const setsFew = 24

// A Parser parses publishes, one after the other, in memory that it keeps. One goroutine owns it. The zero value is ready.
//
// Nearly all publishes only set values, and most of those are written plainly: names without escapes, and values that are
// numbers, arrays of numbers, booleans, null or text in ASCII. The Parser checks and splits them in one pass over the bytes.
// Everything else, and whatever is wrong, it leaves to [Form.Parse], which reads a body several times. TestParser and
// FuzzParseJSON compare both.
type Parser struct {
	ops      []replication.Op
	sets     []replication.SetValue
	literals []literal // of sets, so that a Literal costs no allocation of its own
}

// Parse is [Form.Parse], but for the result, which is valid until the next call.
func (r *Parser) Parse(f Form, body []byte, subjectKey string) (replication.Publish, *replication.Error) {
	if f == JSON {
		if p, ok := r.plain(string(body), subjectKey); ok {
			return p, nil
		}
	}
	return f.Parse(body, subjectKey)
}

// plain parses a body that only sets values and is written plainly. It reports false for every other.
func (r *Parser) plain(text, subjectKey string) (p replication.Publish, ok bool) {
	r.reset()
	s := scanner{text: text}
	p.Atomic = true
	if !r.list(&s, &p.Atomic, subjectKey) {
		r.reset()
		s.at, p.Atomic = 0, true
		if !r.set(&s, subjectKey) {
			return p, false
		}
	}
	p.Ops = r.ops
	return p, s.end()
}

// reset forgets the last publish, and its body, of which the ops and values are parts. An op that is kept has the fields of a
// set only, so the others need not be cleared.
func (r *Parser) reset() {
	if cap(r.ops) > opsKept {
		*r = Parser{}
	}
	for i := range r.ops {
		r.ops[i].Key, r.ops[i].Sets = "", nil
	}
	clear(r.sets)
	clear(r.literals)
	r.ops, r.sets, r.literals = r.ops[:0], r.sets[:0], r.literals[:0]
}

// list reads a list of ops.
func (r *Parser) list(s *scanner, atomic *bool, subjectKey string) bool {
	if !s.skip('{') {
		return false
	}
	for ops, said := false, false; ; {
		switch name := s.name(); {
		case name == "ops" && !ops:
			ops = s.skip(':') && r.elements(s, subjectKey)
			if !ops {
				return false
			}
		case name == "atomic" && !said:
			said = s.skip(':') && s.boolean(atomic)
			if !said {
				return false
			}
		default:
			return false
		}
		if !s.skip(',') {
			return ops && s.skip('}')
		}
	}
}

func (r *Parser) elements(s *scanner, subjectKey string) bool {
	if !s.skip('[') {
		return false
	}
	for len(r.ops) < OpsMax {
		if !r.set(s, subjectKey) {
			return false
		}
		if !s.skip(',') {
			return s.skip(']')
		}
	}
	return false
}

// set reads one op that sets values.
func (r *Parser) set(s *scanner, subjectKey string) bool {
	if !s.skip('{') {
		return false
	}
	var isSet, hasKey bool
	var sets []replication.SetValue
	key := subjectKey
	for {
		name := s.name()
		if !s.skip(':') {
			return false
		}
		switch {
		case name == "op" && !isSet:
			isSet = s.name() == "set"
			if !isSet {
				return false
			}
		case name == "key" && !hasKey:
			key, hasKey = s.name(), true
			if !subject.ValidKey(key) || subjectKey != "" && key != subjectKey {
				return false
			}
		case name == "values" && sets == nil:
			if sets = r.values(s); sets == nil {
				return false
			}
		default:
			return false
		}
		if !s.skip(',') {
			break
		}
	}
	if !isSet || sets == nil || key == "" || !s.skip('}') {
		return false
	}
	r.add(key, sets)
	return true
}

// add adds an op. It does not clear one that it finds there, of which reset says why.
func (r *Parser) add(key string, sets []replication.SetValue) {
	n := len(r.ops)
	r.ops = slices.Grow(r.ops, 1)[:n+1]
	op := &r.ops[n]
	op.Kind, op.Key, op.Sets = replication.OpSet, key, sets
}

// values reads the values of a set. It returns nil for values that it does not read, and without any.
func (r *Parser) values(s *scanner) []replication.SetValue {
	if !s.skip('{') {
		return nil
	}
	first := len(r.sets)
	for len(r.sets)-first < min(setsFew, netstate.ValuesMax) {
		name := s.name()
		if !replication.ValidName(name) && !validIndex(name) || r.has(first, name) || !s.skip(':') {
			return nil
		}
		value, ok := s.literal()
		if !ok {
			return nil
		}
		r.literals = append(r.literals, value)
		r.sets = append(r.sets, replication.SetValue{Name: name, Value: &r.literals[len(r.literals)-1]})
		if !s.skip(',') {
			if !s.skip('}') {
				return nil
			}
			return r.sets[first:len(r.sets):len(r.sets)]
		}
	}
	return nil
}

// has reports whether the sets from first on have a value of this name.
func (r *Parser) has(first int, name string) bool {
	for i := range r.sets[first:] {
		if r.sets[first+i].Name == name {
			return true
		}
	}
	return false
}

// A scanner reads plain JSON. Its methods move behind what they find, and report whether it is there; then their results are
// parts of the text. A caller that does not find what it can read gives up, so it does not matter where the scanner is then.
type scanner struct {
	text string
	at   int
}

// peek returns the next byte, or 0 at the end, where no plain JSON goes on.
func (s *scanner) peek() byte {
	if s.at == len(s.text) {
		return 0
	}
	return s.text[s.at]
}

func (s *scanner) space() {
	for c := s.peek(); c == ' ' || c == '\n' || c == '\r' || c == '\t'; c = s.peek() {
		s.at++
	}
}

// end finds the end of the text.
func (s *scanner) end() bool {
	s.space()
	return s.at == len(s.text)
}

// skip finds c, with white space on both sides.
func (s *scanner) skip(c byte) bool {
	if s.at == len(s.text) || s.text[s.at] != c {
		if s.space(); s.peek() != c {
			return false
		}
	}
	s.at++
	if s.at < len(s.text) && s.text[s.at] <= ' ' {
		s.space()
	}
	return true
}

// name returns the content of a string of printable ASCII without escapes; empty for another one.
func (s *scanner) name() string {
	if s.peek() != '"' {
		return ""
	}
	begin := s.at + 1
	for i := begin; i < len(s.text); i++ {
		switch c := s.text[i]; {
		case c == '"':
			s.at = i + 1
			return s.text[begin:i]
		case c == '\\' || c < ' ' || c > '~':
			return ""
		}
	}
	return ""
}

func (s *scanner) boolean(v *bool) bool {
	*v = s.peek() == 't'
	return s.word("true") || s.word("false")
}

func (s *scanner) word(w string) bool {
	if end := s.at + len(w); end <= len(s.text) && s.text[s.at:end] == w {
		s.at = end
		return true
	}
	return false
}

// literal returns the text of a value.
func (s *scanner) literal() (literal, bool) {
	begin, ok := s.at, false
	switch s.peek() {
	case '[':
		ok = s.numbers()
	case '"':
		ok = s.name() != "" // an empty text is not worth a case
	case 't', 'f', 'n':
		ok = s.word("true") || s.word("false") || s.word("null")
	default:
		ok = s.number()
	}
	return literal(s.text[begin:s.at]), ok
}

// numbers finds an array of numbers, without the white space behind it, which is no part of the literal.
func (s *scanner) numbers() bool {
	if !s.skip('[') {
		return false
	}
	for s.number() {
		if s.skip(',') {
			continue
		}
		if s.space(); s.peek() != ']' {
			return false
		}
		s.at++
		return true
	}
	return false
}

// number finds a number.
func (s *scanner) number() bool {
	i := s.at
	if i < len(s.text) && s.text[i] == '-' {
		i++
	}
	begin := i
	if i = digitsEnd(s.text, i); i == begin || i > begin+1 && s.text[begin] == '0' {
		return false
	}
	if i < len(s.text) && s.text[i] == '.' {
		begin = i + 1
		if i = digitsEnd(s.text, begin); i == begin {
			return false
		}
	}
	if i < len(s.text) && s.text[i]|0x20 == 'e' {
		if i++; i < len(s.text) && (s.text[i] == '+' || s.text[i] == '-') {
			i++
		}
		begin = i
		if i = digitsEnd(s.text, begin); i == begin {
			return false
		}
	}
	s.at = i
	return true
}

// digitsEnd returns the end of the digits from i on.
func digitsEnd(text string, i int) int {
	for i < len(text) && text[i]-'0' <= 9 {
		i++
	}
	return i
}
