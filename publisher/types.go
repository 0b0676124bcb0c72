package publisher

import (
	"encoding/json"
	"reflect"

	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/replication"
)

// A Type is the type of a value. Package layout has a table of the Go types that struct fields
// have for them.
type Type string

// The types of values. A point has integers, a vector and a quaternion have floats.
const (
	Sint8   Type = "sint8"
	Uint8   Type = "uint8"
	Sint16  Type = "sint16"
	Uint16  Type = "uint16"
	Sint32  Type = "sint32"
	Uint32  Type = "uint32"
	Sint64  Type = "sint64"
	Uint64  Type = "uint64"
	Float16 Type = "float16"
	Float32 Type = "float32"
	Float64 Type = "float64"
	String  Type = "string"
	Data    Type = "data"

	Point2s8  Type = "point2s8"
	Point2u8  Type = "point2u8"
	Point2s16 Type = "point2s16"
	Point2u16 Type = "point2u16"
	Point2s32 Type = "point2s32"
	Point2u32 Type = "point2u32"
	Point2s64 Type = "point2s64"
	Point2u64 Type = "point2u64"
	Point3s8  Type = "point3s8"
	Point3u8  Type = "point3u8"
	Point3s16 Type = "point3s16"
	Point3u16 Type = "point3u16"
	Point3s32 Type = "point3s32"
	Point3u32 Type = "point3u32"
	Point3s64 Type = "point3s64"
	Point3u64 Type = "point3u64"

	Vector2f16    Type = "vector2f16"
	Vector2f32    Type = "vector2f32"
	Vector2f64    Type = "vector2f64"
	Vector3f16    Type = "vector3f16"
	Vector3f32    Type = "vector3f32"
	Vector3f64    Type = "vector3f64"
	Quaternionf16 Type = "quaternionf16"
	Quaternionf32 Type = "quaternionf32"
	Quaternionf64 Type = "quaternionf64"
)

// A Code is the kind of an Error, and says why the relay refused a client's write.
type Code string

// The codes. A relay of a later release may have others.
const (
	CodeBadRequest    = Code(replication.CodeBadRequest)
	CodeTypeMismatch  = Code(replication.CodeTypeMismatch)
	CodeOutOfRange    = Code(replication.CodeOutOfRange)
	CodeUnknownState  = Code(replication.CodeUnknownState)
	CodeUnknownClient = Code(replication.CodeUnknownClient)
	CodeTooLarge      = Code(replication.CodeTooLarge)
	CodeTooOften      = Code(replication.CodeTooOften)
	CodeNotAuthorised = Code(replication.CodeNotAuthorised)
	CodeBusy          = Code(replication.CodeBusy)
)

// goTypes are the Go types of components, by the name of the value type that has one of them.
var goTypes = map[string]reflect.Type{
	"sint8": reflect.TypeFor[int8](), "sint16": reflect.TypeFor[int16](), "sint32": reflect.TypeFor[int32](), "sint64": reflect.TypeFor[int64](),
	"uint8": reflect.TypeFor[uint8](), "uint16": reflect.TypeFor[uint16](), "uint32": reflect.TypeFor[uint32](), "uint64": reflect.TypeFor[uint64](),
	"float16": reflect.TypeFor[float32](), "float32": reflect.TypeFor[float32](), "float64": reflect.TypeFor[float64](),
	"string": reflect.TypeFor[string](), "data": reflect.TypeFor[[]byte](),
}

// goType returns the Go type in which values of a type are told; nil for one that this release does not know.
func (t Type) goType() reflect.Type {
	v, ok := wire.ParseValueType(string(t))
	if !ok {
		return nil
	}
	one := goTypes[v.Component().String()]
	if n := v.Components(); n > 1 {
		return reflect.ArrayOf(n, one)
	}
	return one
}

// decodeValue returns a value in the Go type of its type: float32 for float16 and float32, [3]float32 for
// vector3f32, []byte for data, a map of the components for data with fields, nil for null. Without a type, or
// if the value does not fit it, it returns what encoding/json makes of it, with arrays of numbers as []float64.
func decodeValue(t Type, fields []replication.StructField, raw json.RawMessage) any {
	if string(raw) == "null" {
		return nil
	}
	var parts map[string]json.RawMessage
	if len(fields) > 0 && json.Unmarshal(raw, &parts) == nil {
		all := make(map[string]any, len(parts))
		for name, part := range parts {
			all[name] = decodeValue("", nil, part)
		}
		for _, f := range fields {
			all[f.Name] = decodeValue(Type(f.Type.String()), nil, parts[f.Name])
		}
		return all
	}
	if known := t.goType(); known != nil {
		if v := reflect.New(known); json.Unmarshal(raw, v.Interface()) == nil {
			return v.Elem().Interface()
		}
	}
	var numbers []float64
	if json.Unmarshal(raw, &numbers) == nil {
		return numbers
	}
	var v any
	if json.Unmarshal(raw, &v) != nil {
		return nil
	}
	return v
}
