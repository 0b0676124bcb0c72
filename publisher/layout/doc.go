// Package layout maps Go structs to the values of a network state: which values a struct has,
// how a field is written as JSON, and how JSON of a client gets into the field.
//
//	type Tower struct {
//		HP    float32    `dnp:"hp,precision=0.1,min=0,max=100,rate=5"`
//		Pos   [3]float32 `dnp:"pos,type=vector3f16"`
//		Owner *string    `dnp:"owner,null="`
//		cache int        // not exported: no value
//	}
//
// A tag has the name of the value, by default that of the field, and options: type (see the
// table), precision, min, max and rate (bounds of what clients write), finite=false (clients may
// write infinities), null (what clients see for null). The tag "-" leaves a field out.
//
//	Go type                        value type
//	int8 … int64, int              sint8 … sint64, sint64
//	uint8 … uint64, uint           uint8 … uint64, uint64
//	bool                           uint8, 0 or 1
//	float32, float64               float32, float64
//	string, []byte                 string, data
//	[2]T, [3]T of integers         point2s8 … point3u64
//	[2]T, [3]T of floats           vector2f32 … vector3f64
//	[4]T of floats                 quaternionf32, quaternionf64
//	a struct                       data with components: its fields, each of a fixed size
//	*T                             that of T, and nil is null
//
// The option type chooses another type of the same kind and as many components, such as float16
// or vector3f16 for floats, uint8 for an int. A number that does not fit it is an error.
//
// The package is pure. It is used by package publisher; game servers need only the tags.
package layout
