package layout

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"unicode/utf8"

	"github.com/dnprelay/dnprelay/dnp/wire"
)

// In returns the field of a struct, to be passed to Append and Decode.
func (f *Field) In(s reflect.Value) reflect.Value { return s.Field(f.index) }

// Shared reports whether a copy of the field shares memory with it, so that Clone is needed.
func (f *Field) Shared() bool { return f.Nullable || f.Type == wire.TypeData && len(f.Parts) == 0 }

// Clone sets a field to what another one has, without sharing memory.
func (f *Field) Clone(to, from reflect.Value) {
	switch {
	case !f.Shared() || from.IsNil():
		to.Set(from)
	case f.Nullable:
		p := reflect.New(from.Type().Elem())
		inner := *f
		inner.Nullable = false
		inner.Clone(p.Elem(), from.Elem())
		to.Set(p)
	default:
		to.Set(reflect.AppendSlice(reflect.MakeSlice(from.Type(), 0, from.Len()), from))
	}
}

// Append appends a field as JSON. It allocates nothing. After an error the appended bytes are undefined.
func (f *Field) Append(b []byte, v reflect.Value) ([]byte, error) {
	if f.Nullable {
		if v.IsNil() {
			return append(b, "null"...), nil
		}
		v = v.Elem()
	}
	switch v.Kind() {
	case reflect.String:
		return appendText(b, v.String()), nil
	case reflect.Slice:
		b = append(b, '"')
		b = base64.StdEncoding.AppendEncode(b, v.Bytes())
		return append(b, '"'), nil
	case reflect.Struct:
		return f.appendParts(b, v)
	case reflect.Array:
		b = append(b, '[')
		for i := range v.Len() {
			if i > 0 {
				b = append(b, ',')
			}
			var err error
			if b, err = f.appendNumber(b, v.Index(i)); err != nil {
				return b, err
			}
		}
		return append(b, ']'), nil
	}
	return f.appendNumber(b, v)
}

func (f *Field) appendParts(b []byte, v reflect.Value) (_ []byte, err error) {
	for i := range f.Parts {
		p := &f.Parts[i]
		b = append(b, "{,"[min(i, 1)], '"')
		b = append(append(b, p.Name...), '"', ':')
		if b, err = p.Append(b, p.In(v)); err != nil {
			return b, fmt.Errorf("component %q: %w", p.Name, err)
		}
	}
	return append(b, '}'), nil
}

// appendNumber appends a number or a bool, if it fits the type.
func (f *Field) appendNumber(b []byte, v reflect.Value) ([]byte, error) {
	bits := 8 * f.Type.Width()
	switch {
	case v.CanFloat():
		x := v.Float()
		if x-x != 0 {
			return b, fmt.Errorf("%v is not a number that JSON can express", x)
		}
		if bits == 16 && math.Abs(x) >= float16Limit || bits == 32 && math.Abs(x) > math.MaxFloat32 {
			return b, fmt.Errorf("%v does not fit %v", x, f.Type)
		}
		size := 64
		if v.Kind() == reflect.Float32 {
			size = 32
		}
		return strconv.AppendFloat(b, x, 'g', -1, size), nil
	case v.CanInt():
		x := v.Int()
		if f.Type.Kind() == wire.KindUint {
			if x < 0 || bits < 64 && x>>bits != 0 {
				return b, fmt.Errorf("%d does not fit %v", x, f.Type)
			}
		} else if x>>(bits-1) != 0 && x>>(bits-1) != -1 {
			return b, fmt.Errorf("%d does not fit %v", x, f.Type)
		}
		return strconv.AppendInt(b, x, 10), nil
	case v.CanUint():
		x := v.Uint()
		if bits < 64 && x>>bits != 0 {
			return b, fmt.Errorf("%d does not fit %v", x, f.Type)
		}
		return strconv.AppendUint(b, x, 10), nil
	case v.Bool():
		return append(b, '1'), nil
	}
	return append(b, '0'), nil
}

// float16Limit is the smallest number that rounds to an infinite float16.
const float16Limit = 65520

// appendText appends a JSON string.
func appendText(b []byte, s string) []byte {
	start := len(b)
	b = append(b, '"')
	for i := 0; i < len(s); i++ {
		if c := s[i]; c < ' ' || c == '"' || c == '\\' || c >= utf8.RuneSelf && !utf8.ValidString(s) {
			text, err := json.Marshal(s)
			if err != nil {
				panic("layout: JSON cannot express a string: " + err.Error())
			}
			return append(b[:start], text...)
		}
	}
	return append(append(b, s...), '"')
}

// Decode sets a field to a JSON value. A number without a JSON form, which is null in a field
// that cannot be null, leaves the field as it is.
func (f *Field) Decode(v reflect.Value, data []byte) error {
	if f.Nullable {
		if string(data) == "null" {
			v.SetZero()
			return nil
		}
		p := reflect.New(v.Type().Elem())
		inner := *f
		inner.Nullable = false
		if err := inner.Decode(p.Elem(), data); err != nil {
			return err
		}
		v.Set(p)
		return nil
	}
	switch v.Kind() {
	case reflect.Bool:
		var x float64
		if err := json.Unmarshal(data, &x); err != nil {
			return err
		}
		v.SetBool(x != 0)
		return nil
	case reflect.Struct:
		var parts map[string]json.RawMessage
		if err := json.Unmarshal(data, &parts); err != nil {
			return err
		}
		for i := range f.Parts {
			p := &f.Parts[i]
			if part, ok := parts[p.Name]; ok {
				if err := p.Decode(p.In(v), part); err != nil {
					return err
				}
			}
		}
		return nil
	case reflect.Slice:
		v.SetZero() // the memory of the former bytes may be in use
	}
	return json.Unmarshal(data, v.Addr().Interface())
}
