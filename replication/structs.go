package replication

import (
	"encoding/binary"
	"slices"

	"github.com/dnprelay/dnprelay/dnp/linkmsg"
	"github.com/dnprelay/dnprelay/dnp/wire"
)

// A StructField is one component of a data value that has a form: a name, and a type of fixed size. The
// components follow one another in the data, without gaps. DNP does not know of it: on the wire, in batches and
// in the store the value is data.
type StructField struct {
	Name string
	Type wire.ValueType
}

// StructFieldsMax is the most components of a value.
const StructFieldsMax = linkmsg.FieldsMax

// StructSize returns the bytes of a value with these components, whose types must be valid.
func StructSize(fields []StructField) (n int) {
	for i := range fields {
		n += fields[i].Type.Size()
	}
	return n
}

// A StructLiteral is a literal that may have the form of an object with components.
type StructLiteral interface {
	Literal

	// AppendStruct is AppendValue for a data value with components.
	AppendStruct(b []byte, fields []StructField) (enc []byte, null bool, err *Error)
}

// Append appends a literal as a value of d. After an error the appended bytes are undefined.
func (d *ValueDef) Append(b []byte, l Literal) (enc []byte, null bool, err *Error) {
	if len(d.Struct) == 0 {
		return l.AppendValue(b, d.Type)
	}
	if s, ok := l.(StructLiteral); ok {
		enc, null, err = s.AppendStruct(b, d.Struct)
	} else {
		enc, null, err = l.AppendValue(b, d.Type)
	}
	if err == nil && !null {
		err = d.checkStruct(enc[len(b):])
	}
	return enc, null, err
}

// checkStruct refuses an encoded value whose size is not that of its components.
func (d *ValueDef) checkStruct(enc []byte) *Error {
	if len(d.Struct) == 0 || len(enc)-2 == StructSize(d.Struct) {
		return nil
	}
	return Errorf(CodeTypeMismatch, "%d bytes of data, its fields have %d", len(enc)-2, StructSize(d.Struct))
}

// zeroStruct returns the value whose components are all zero.
func zeroStruct(fields []StructField) []byte {
	n := StructSize(fields)
	return append(binary.LittleEndian.AppendUint16(nil, uint16(n)), make([]byte, n)...)
}

// CheckFields reports what is wrong with the components of d, which may have valueMax bytes.
func (d *ValueDef) CheckFields(valueMax uint16) *Error {
	switch {
	case d.Struct == nil:
		return nil
	case d.Type != wire.TypeData:
		return Errorf(CodeTypeMismatch, "fields are for data, not for %v", d.Type)
	case len(d.Struct) == 0 || len(d.Struct) > StructFieldsMax:
		return Errorf(CodeBadRequest, "%d fields, want 1 to %d", len(d.Struct), StructFieldsMax)
	}
	for i, f := range d.Struct {
		switch {
		case !ValidName(f.Name) || slices.ContainsFunc(d.Struct[:i], func(g StructField) bool { return g.Name == f.Name }):
			return Errorf(CodeBadRequest, "field %d: %q is not a name, or not the only one", i, f.Name)
		case !f.Type.Valid() || f.Type.Variable():
			return Errorf(CodeTypeMismatch, "field %q: want a type of fixed size, got %v", f.Name, f.Type)
		}
	}
	if n := StructSize(d.Struct); n > int(valueMax) {
		return Errorf(CodeTooLarge, "the fields have %d bytes, at most %d are allowed", n, valueMax)
	}
	return nil
}

// structured reports whether any value has components.
func structured(defs []ValueDef) bool {
	return slices.ContainsFunc(defs, func(d ValueDef) bool { return len(d.Struct) > 0 })
}

// appendStructs appends the components of the values that have some:
//
//	count   uint16
//	entries count × {index uint16, ascending; n uint8, n × {type uint8, name {length uint8, bytes}}}
func appendStructs(b []byte, defs []ValueDef) []byte {
	start, n := len(b), 0
	b = append(b, 0, 0)
	for i := range defs {
		fields := defs[i].Struct
		if len(fields) == 0 {
			continue
		}
		n++
		b = append(binary.LittleEndian.AppendUint16(b, uint16(i)), byte(len(fields)))
		for _, f := range fields {
			b = appendShort(append(b, byte(f.Type)), f.Name)
		}
	}
	binary.LittleEndian.PutUint16(b[start:], uint16(n))
	return b
}

// readStructs reads components into defs. It refuses entries that appendStructs would not write.
func readStructs(r *wire.Reader, defs []ValueDef, valueMax uint16) error {
	next := 0
	for range readCount(r, 6) {
		i, n := int(r.Uint16()), int(r.Uint8())
		if r.Err() != nil || i < next || i >= len(defs) {
			return errMessage
		}
		d := &defs[i]
		next, d.Struct = i+1, make([]StructField, n)
		for k := range d.Struct {
			d.Struct[k] = StructField{Type: wire.ValueType(r.Uint8()), Name: readShort(r)}
		}
		if r.Err() != nil || d.CheckFields(valueMax) != nil || d.checkStruct(d.Substitute()) != nil {
			return errMessage
		}
	}
	return nil
}

// described returns the components as link messages have them.
func described(fields []StructField) (list []linkmsg.Field) {
	for _, f := range fields {
		list = append(list, linkmsg.Field{Name: f.Name, Type: f.Type.String()})
	}
	return list
}

// DescribedFields returns the components of value i that a describing link message tells; nil if it tells none,
// or none that the data of a value can have.
func DescribedFields(d linkmsg.Description, i int) (fields []StructField) {
	for _, f := range d.Fields[i] {
		t, ok := wire.ParseValueType(f.Type)
		if !ok {
			return nil
		}
		fields = append(fields, StructField{f.Name, t})
	}
	def := ValueDef{Type: wire.TypeData, Struct: fields}
	if def.CheckFields(valueMaxMax) != nil {
		return nil
	}
	return fields
}

// structOf returns the components of value i, which need not exist.
func (s *schema) structOf(i int) []StructField {
	if i < 0 || i >= len(s.defs) {
		return nil
	}
	return s.defs[i].Struct
}
