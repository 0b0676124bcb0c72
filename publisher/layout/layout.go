package layout

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"github.com/dnprelay/dnprelay/dnp/wire"
)

// A Field is one value of a state.
type Field struct {
	Name      string
	Type      wire.ValueType
	Precision float64
	Min, Max  string  // bounds of what clients write, as JSON numbers; empty for none
	Rate      float64 // writes a second of one session; 0 for no bound
	NonFinite bool    // clients may write NaN and infinities
	Nullable  bool
	Null      string  // what clients see for null, as JSON; empty for zero
	Parts     []Field // components of a data value

	index int // of the field in its struct
}

// Of returns the values of a struct type. The error names the fields that cannot be values, and
// says why.
func Of(t reflect.Type) ([]Field, error) {
	if t.Kind() != reflect.Struct {
		return nil, fmt.Errorf("layout: %v is not a struct", t)
	}
	fields, err := fieldsOf(t)
	switch {
	case err != nil:
		return nil, fmt.Errorf("layout of %v: %w", t, err)
	case len(fields) == 0:
		return nil, fmt.Errorf("layout of %v: no exported field", t)
	}
	return fields, nil
}

func fieldsOf(t reflect.Type) (all []Field, err error) {
	var problems []error
	names := map[string]bool{}
	for i := range t.NumField() {
		f := t.Field(i)
		tag := f.Tag.Get("dnp")
		if !f.IsExported() || tag == "-" {
			continue
		}
		field := Field{index: i}
		err := field.parse(f, tag)
		if err == nil && names[field.Name] {
			err = fmt.Errorf("a second value has the name %q", field.Name)
		}
		if err != nil {
			problems = append(problems, fmt.Errorf("field %s: %w", f.Name, err))
		}
		names[field.Name] = true
		all = append(all, field)
	}
	return all, errors.Join(problems...)
}

// parse reads the type and the tag of a field.
func (f *Field) parse(s reflect.StructField, tag string) error {
	name, options, _ := strings.Cut(tag, ",")
	f.Name = cmp.Or(name, s.Name)
	t := s.Type
	if t.Kind() == reflect.Pointer {
		f.Nullable, t = true, t.Elem()
	}
	if err := f.setType(t); err != nil {
		return err
	}
	for option := range strings.SplitSeq(options, ",") {
		if option == "" {
			continue
		}
		if err := f.option(t, option); err != nil {
			return fmt.Errorf("option %q: %w", option, err)
		}
	}
	return nil
}

// setType finds the value type of a Go type.
func (f *Field) setType(t reflect.Type) (err error) {
	switch {
	case t.Kind() == reflect.String:
		f.Type = wire.TypeString
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Uint8:
		f.Type = wire.TypeData
	case t.Kind() == reflect.Struct:
		return f.setParts(t)
	case t.Kind() == reflect.Array:
		f.Type, err = numberType(t.Elem(), t.Len())
	default:
		f.Type, err = numberType(t, 1)
	}
	return err
}

// setParts makes a struct a data value with components.
func (f *Field) setParts(t reflect.Type) (err error) {
	f.Type = wire.TypeData
	if f.Parts, err = fieldsOf(t); err != nil {
		return err
	}
	if len(f.Parts) == 0 {
		return fmt.Errorf("%v has no exported field", t)
	}
	for _, p := range f.Parts {
		if p.Type.Variable() || p.Nullable {
			return fmt.Errorf("%v: component %q has no fixed size: want numbers, bools and arrays of them", t, p.Name)
		}
		if p.Precision != 0 || p.Min != "" || p.Max != "" || p.Rate != 0 || p.NonFinite {
			return fmt.Errorf("%v: component %q: precision and bounds are for values", t, p.Name)
		}
	}
	return nil
}

// numberType returns the value type with n components of a Go type.
func numberType(t reflect.Type, n int) (wire.ValueType, error) {
	kind := kindOf(t)
	size := int(t.Size())
	if kind != 0 && (n == 1 || t.Kind() != reflect.Bool) {
		for v := range wire.ValueType(wire.ValueTypes) {
			if v.Kind() == kind && v.Components() == n && v.Width() == size {
				return v, nil
			}
		}
	}
	if n == 1 {
		return 0, fmt.Errorf("%v cannot be a value: want a number, bool, string, []byte, an array of 2 to 4 numbers, a struct of those, or a pointer", t)
	}
	return 0, fmt.Errorf("[%d]%v cannot be a value: want arrays of 2 or 3 numbers, or of 4 floats", n, t)
}

func kindOf(t reflect.Type) wire.Kind {
	switch t.Kind() {
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return wire.KindSint
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Bool:
		return wire.KindUint
	case reflect.Float32, reflect.Float64:
		return wire.KindFloat
	}
	return 0
}

func (f *Field) option(t reflect.Type, option string) (err error) {
	name, text, given := strings.Cut(option, "=")
	number := 0.0
	switch name {
	case "precision", "min", "max", "rate":
		if f.Type.Variable() {
			return errors.New("only numbers have it")
		}
		if number, err = strconv.ParseFloat(text, 64); err != nil || number-number != 0 {
			return errors.New("want a number")
		}
	}
	switch name {
	case "type":
		return f.chooseType(text)
	case "precision":
		f.Precision = number
	case "min":
		f.Min = text
	case "max":
		f.Max = text
	case "rate":
		f.Rate = number
	case "finite":
		f.NonFinite = text == "false"
	case "null":
		if !f.Nullable {
			return errors.New("only a pointer can be null")
		}
		return f.setNull(t, text, given)
	default:
		return errors.New("want type, precision, min, max, rate, finite or null")
	}
	return nil
}

// setNull takes what clients see for null: text, or a number, which stands for all components.
func (f *Field) setNull(t reflect.Type, text string, given bool) error {
	switch {
	case !given || f.Type == wire.TypeString && text == "":
		return nil
	case f.Type == wire.TypeString:
		f.Null = string(appendText(nil, text))
	case f.Type == wire.TypeData:
		return errors.New("what clients see for null data is always empty")
	default:
		if _, err := strconv.ParseFloat(text, 64); err != nil {
			return errors.New("want a number")
		}
		f.Null = text
		if n := f.Type.Components(); t.Kind() == reflect.Array {
			f.Null = "[" + strings.Repeat(text+",", n-1) + text + "]"
		}
	}
	return nil
}

// chooseType takes another type of the same kind and as many components.
func (f *Field) chooseType(name string) error {
	t, ok := wire.ParseValueType(name)
	switch {
	case !ok:
		return errors.New("there is no such type")
	case t.Kind() != f.Type.Kind() && !(t.Kind() == wire.KindUint && f.Type.Kind() == wire.KindSint) || t.Components() != f.Type.Components() || len(f.Parts) > 0:
		return fmt.Errorf("the field has the type %v", f.Type)
	}
	f.Type = t
	return nil
}
