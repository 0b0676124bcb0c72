// Package variant reads and writes Godot's binary Variants, the bytes of var2bytes, put_var and
// store_var.
//
//	v, err := variant.DecodeDictionary(variant.Godot3, body)
//	for c := v.Elements(); c.Next(); {
//		fmt.Println(c.Key().Text(), c.Value().Type())
//	}
//
//	w := variant.NewWriter(variant.Godot3, nil)
//	m := w.Begin(variant.Array)
//	w.Floats(variant.Vector2, 1, 2)
//	w.End(m, 1)
//
// A [Value] is a view of bytes that have been checked as a whole. Its parts are decoded on
// demand, so that the memory for a value does not depend on its content: a decoded tree of 64
// KiB of nulls would take a megabyte. Counts are compared with the bytes that are left before
// they are used, and containers are at most 64 deep.
//
// # Dialects
//
// Each generation of Godot numbers its types differently and does not identify itself in the
// bytes, so the caller always gives a dialect: [Godot2] is the published document, [Godot3] and
// [Godot4] (up to 4.4, with typed arrays and dictionaries) are what those engines write. One
// table in types.go defines the encoding; a type with a shape of its own has a function.
//
// The reader is a little stricter than the engines, and the writer writes what they write:
//
//   - Padding is written as zeros and ignored when read, because engines leave memory in it. It
//     must be present, so that a length is a multiple of four.
//   - Nothing may follow a value.
//   - Whole objects are always refused: to decode one is to run it. Ids of objects, RIDs and
//     signals pass, as numbers without a meaning.
//   - A repeated key in a dictionary is refused. Engines keep the last one.
//   - A flag for 64 bits on a type without that form is refused, because another dialect wrote
//     it. Other unused bits of a header are ignored.
//   - Texts are UTF-8 without a byte order mark, and end at a NUL.
//   - The elements of a typed container have its type.
//   - Input events and images of Godot 2 are opaque.
//   - A node path that is one text, which only Godot 2 reads, is written in parts.
//
// # Values of network states
//
// These tables define how publishers of states use Variants. Package replication/payload
// implements them, and its tests read them. A Variant on the left is accepted for the value
// types on the right:
//
//	Nil                                      | any that is nullable
//	bool                                     | uint8
//	int                                      | sint* uint* float*
//	float                                    | float* sint* uint*
//	String                                   | string uint32 sint64 uint64
//	StringName NodePath                      | string
//	Vector2                                  | vector2* point2*
//	Vector2i                                 | point2*
//	Vector3                                  | vector3* point3*
//	Vector3i                                 | point3*
//	Quaternion Vector4 Color Plane Rect2     | quaternion*
//	Array                                    | vector* point* quaternion* data
//	PackedByteArray Rect2i Vector4i          | data
//	AABB Basis Transform2D Transform3D       | data
//	Projection Image InputEvent Dictionary   | data
//	PackedInt32Array PackedInt64Array        | data
//	PackedFloat32Array PackedFloat64Array    | data
//	PackedStringArray PackedVector2Array     | data
//	PackedVector3Array PackedColorArray      | data
//	PackedVector4Array                       | data
//	Object RID Callable Signal               | none
//
// A number that does not fit is refused; so are a fraction for an integer, NaN and infinity.
// Floats are rounded to the type, half to even. A String for an integer is decimal digits.
// Color, Plane and Rect2 become r g b a, normal and distance, position and size. As data, a
// PackedByteArray is its bytes, Rect2i and Vector4i are four int32, little endian, and any
// other Variant is its own encoding in the dialect of its publisher, in canonical form and
// without objects inside.
//
// A value of a type on the left is delivered as the first Variant on the right that can hold
// it:
//
//	sint* uint*   | int String
//	float*        | float String
//	string        | String
//	data          | PackedByteArray
//	point2*       | Vector2i Array
//	point3*       | Vector3i Array
//	vector2*      | Vector2 Array
//	vector3*      | Vector3 Array
//	quaternion*   | Quaternion Array
//
// Godot 2 has ints of 32 bits, the others of 64; a larger one is a String of digits. Godot 2
// and 3 have no vectors of integers: points are Vector2 and Vector3 if those hold the integers
// exactly, otherwise Arrays. Godot 4 gets vectors of 64 bit floats where 32 bits would lose
// something; Godot 2 and 3 get rounded ones, and an Array if a component does not fit at all. A
// String has U+FFFD in place of NUL and of bytes that are not UTF-8, and no leading byte order
// mark.
package variant
