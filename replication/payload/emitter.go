package payload

import (
	"strconv"
	"unicode/utf8"

	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/godot/variant"
)

// emitDepthMax is the deepest nesting of the output: a listing, its states, an audience, its
// exceptions, their groups; and a value that is an array.
const emitDepthMax = 8

// An emitter writes objects and arrays in either form, so that every answer is defined once. To
// go back to a place, keep a copy of the emitter.
type emitter struct {
	form  Form
	b     []byte // JSON
	w     variant.Writer
	depth int
	open  [emitDepthMax]struct {
		mark  variant.Mark
		n     int  // elements so far
		keyed bool // it is an object
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

func (e *emitter) object() { e.begin(true) }
func (e *emitter) array()  { e.begin(false) }

func (e *emitter) begin(keyed bool) {
	e.element()
	e.depth++
	f := &e.open[e.depth]
	f.n, f.keyed = 0, keyed
	switch {
	case e.form != JSON && keyed:
		f.mark = e.w.Begin(variant.Dictionary)
	case e.form != JSON:
		f.mark = e.w.Begin(variant.Array)
	case keyed:
		e.b = append(e.b, '{')
	default:
		e.b = append(e.b, '[')
	}
}

// end ends the innermost object or array.
func (e *emitter) end() {
	f := &e.open[e.depth]
	e.depth--
	switch {
	case e.form != JSON:
		e.w.End(f.mark, f.n)
	case f.keyed:
		e.b = append(e.b, '}')
	default:
		e.b = append(e.b, ']')
	}
}

// key writes the name of a member; its value follows.
func (e *emitter) key(name string) {
	e.count()
	if e.form != JSON {
		e.w.String(name)
		return
	}
	e.b = append(appendString(e.b, name), ':')
}

// element counts a value, unless it belongs to a key.
func (e *emitter) element() {
	if e.depth > 0 && !e.open[e.depth].keyed {
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
		e.w.String(godotText(s))
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
		writeUint(&e.w, u)
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
		e.b = appendBytesText(e.b, p)
	case utf8.Valid(p) && godotText(string(p)) == string(p):
		e.w.String(string(p))
	default:
		e.w.Data(p)
	}
}

// value writes an encoded value.
func (e *emitter) value(t wire.ValueType, enc []byte) {
	e.element()
	if e.form != JSON {
		writeValue(&e.w, t, enc)
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
		e.key(name)
		e.text(value)
	}
}

func (e *emitter) uintField(name string, value uint64) {
	e.key(name)
	e.uint(value)
}
