package payload

import (
	"slices"
	"strconv"
	"strings"

	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/replication"
)

// structFields parses the components of a data value.
func structFields(_ string, n node) (all []replication.StructField, err *replication.Error) {
	all = []replication.StructField{} // no component is another thing than no fields
	for l := n.list(); l.some(); {
		if len(all) == replication.StructFieldsMax {
			return nil, badRequest(`"fields": more than %d`, replication.StructFieldsMax)
		}
		var field replication.StructField
		f := parseOnly(l.element(), "field "+strconv.Itoa(len(all)), "name", "type")
		required(&f, "name", kindString, &field.Name, text, `a field needs "name"`)
		required(&f, "type", kindString, &field.Type, parseType, `a field needs "type"`)
		if f.err != nil {
			return nil, f.err
		}
		field.Name = strings.Clone(field.Name)
		all = append(all, field)
	}
	return all, nil
}

// AppendStruct implements replication.StructLiteral.
func (l literal) AppendStruct(b []byte, fields []replication.StructField) (enc []byte, null bool, err *replication.Error) {
	if kindOf(string(l)) != kindObject {
		return l.AppendValue(b, wire.TypeData)
	}
	enc, err = appendStruct(b, node{json: string(l)}, fields)
	return enc, false, err
}

// AppendStruct implements replication.StructLiteral. A Dictionary is the components, and not data that is a
// Variant.
func (l godotLiteral) AppendStruct(b []byte, fields []replication.StructField) (enc []byte, null bool, err *replication.Error) {
	n := node{variant: l.v}
	if n.kind() != kindObject {
		return l.AppendValue(b, wire.TypeData)
	}
	enc, err = appendStruct(b, n, fields)
	return enc, false, err
}

// appendStruct appends an object that has every component exactly once as data.
func appendStruct(b []byte, n node, fields []replication.StructField) ([]byte, *replication.Error) {
	var given [replication.StructFieldsMax]node
	var has [replication.StructFieldsMax]bool
	for l := n.list(); l.some(); {
		name, content, err := l.member()
		if err != nil {
			return b, err
		}
		i := slices.IndexFunc(fields, func(f replication.StructField) bool { return f.Name == name })
		switch {
		case i < 0:
			return b, badRequest("no field is named %q", clip(name))
		case has[i]:
			return b, badRequest("field %q is given twice", name)
		}
		given[i], has[i] = content, true
	}
	b = appendUint(b, uint64(replication.StructSize(fields)), 2)
	for i, f := range fields {
		if !has[i] {
			return b, badRequest("field %q is missing", f.Name)
		}
		if given[i].isNull() {
			return b, mismatch(f.Type, given[i].got()).In("field " + strconv.Quote(f.Name))
		}
		var err *replication.Error
		if b, err = given[i].appendValue(b, f.Type); err != nil {
			return b, err.In("field " + strconv.Quote(f.Name))
		}
	}
	return b, nil
}

// AppendStructValue appends a value as JSON: an object if it is data with components, and otherwise as
// AppendValue does.
func AppendStructValue(b []byte, t wire.ValueType, fields []replication.StructField, enc []byte) []byte {
	e := newEmitter(JSON, b)
	e.structValue(t, fields, enc)
	return e.done()
}

// structValue writes a value: an object if it is data with components.
func (e *emitter) structValue(t wire.ValueType, fields []replication.StructField, enc []byte) {
	if len(fields) == 0 || t != wire.TypeData || len(enc)-2 != replication.StructSize(fields) {
		e.value(t, enc)
		return
	}
	e.object()
	for p, i := enc[2:], 0; i < len(fields); i++ {
		n := fields[i].Type.Size()
		e.key(fields[i].Name).value(fields[i].Type, p[:n])
		p = p[n:]
	}
	e.end()
}

// structFields writes the components of a value of a put.
func (e *emitter) structFields(fields []replication.StructField) {
	if len(fields) == 0 {
		return
	}
	e.key("fields").array()
	for _, f := range fields {
		e.object()
		e.key("name").text(f.Name)
		e.key("type").text(f.Type.String())
		e.end()
	}
	e.end()
}
