package variant

import (
	"fmt"
	"strconv"
	"unicode/utf8"
)

// An Error says why bytes are not a Variant of a dialect.
type Error struct {
	Dialect Dialect // in which the bytes were read
	Offset  int     // of the wrong value
	Path    string  // of the wrong value, as ["values"][2]; empty for the outermost
	Reason  string

	// Fits is another dialect in which the bytes are a value, or 0: a hint at a wrong
	// configuration.
	Fits Dialect

	steps []int32 // innermost first; see note
}

func (e *Error) Error() string {
	where := "offset " + strconv.Itoa(e.Offset)
	if e.Path != "" {
		where += " at " + e.Path
	}
	text := fmt.Sprintf("%v: %s: %s", e.Dialect, where, e.Reason)
	if e.Fits != 0 {
		text += fmt.Sprintf("; these bytes are a value of %v, not of %v", e.Fits, e.Dialect)
	}
	return text
}

// note adds the step that led to the wrong value: an index, or the offset of a key as ^offset.
// Four bytes a step keep the error of the deepest value small.
func (e *Error) note(step int) { e.steps = append(e.steps, int32(step)) }

// pathMax is the most bytes of a path; a longer path loses its middle.
const pathMax = 160

// resolve writes the path. The steps are offsets into p.
func (e *Error) resolve(d Dialect, p []byte) {
	if len(e.steps) == 0 {
		return
	}
	b := make([]byte, 0, pathMax+48)
	for i := len(e.steps) - 1; i >= 0; i-- {
		if len(b) > pathMax-40 && i > 1 {
			b = append(b, "[…]"...)
			i = 1 // keep the last two steps
		}
		b = appendStep(b, d, p, int(e.steps[i]))
	}
	e.Path, e.steps = string(b), nil
}

func appendStep(b []byte, d Dialect, p []byte, step int) []byte {
	b = append(b, '[')
	if step >= 0 {
		return append(strconv.AppendInt(b, int64(step), 10), ']')
	}
	key := valueAt(d, p[^step:])
	switch key.Type() {
	case String, StringName:
		const most = 20 // bytes of a key; arbitrary
		text := key.Bytes()
		cut := ""
		if len(text) > most {
			n := most
			for !utf8.RuneStart(text[n]) {
				n--
			}
			text, cut = text[:n], "…"
		}
		b = strconv.AppendQuote(b, string(text)+cut)
	case Int:
		b = strconv.AppendInt(b, key.Integer(0), 10)
	default:
		b = append(b, key.Type().String()...)
	}
	return append(b, ']')
}
