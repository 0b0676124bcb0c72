package wire

import "testing"

// TestValueTypes lists the sizes that the table computes. The document says 3 for codes
// 25 to 28, which no implementation follows.
func TestValueTypes(t *testing.T) {
	sizes := [...]int{1, 1, 2, 2, 4, 4, 8, 8, 2, 4, 8, -1, -1,
		2, 2, 4, 4, 8, 8, 16, 16, 3, 3, 6, 6, 12, 12, 24, 24,
		4, 8, 16, 6, 12, 24, 8, 16, 32}
	if len(sizes) != ValueTypes || ValueTypes != 38 {
		t.Fatalf("%d value types, want 38", ValueTypes)
	}
	for code, want := range sizes {
		typ := ValueType(code)
		if got := typ.Size(); got != want {
			t.Errorf("%v has %d bytes, want %d", typ, got, want)
		}
		if typ.Variable() != (want < 0) || typ.Variable() != (typ.Width() < 0) {
			t.Errorf("%v: Variable = %v, Width = %d", typ, typ.Variable(), typ.Width())
		}
		if want > 0 && typ.Components()*typ.Width() != want {
			t.Errorf("%v: %d components of %d bytes, want %d in all", typ, typ.Components(), typ.Width(), want)
		}
		if back, ok := ParseValueType(typ.String()); !ok || back != typ {
			t.Errorf("ParseValueType(%q) = %v, %v", typ.String(), back, ok)
		}
		if !CheckValue(typ, typ.Zero()) {
			t.Errorf("%v: the zero value % x is not one", typ, typ.Zero())
		}
		if z := typ.Zero(); cap(z) != len(z) {
			t.Errorf("%v: appending to the zero value writes into shared memory", typ)
		}
		if CheckValue(typ, append(typ.Zero(), 0)) || CheckValue(typ, typ.Zero()[:len(typ.Zero())-1]) {
			t.Errorf("%v: a value with a byte too many or too few is accepted", typ)
		}
	}
	for _, typ := range []ValueType{38, 255} {
		if typ.Valid() || typ.Size() != 0 || CheckValue(typ, nil) || typ.String() != "valuetype?" {
			t.Errorf("type %d is taken for a valid one", uint8(typ))
		}
	}
	if _, ok := ParseValueType("float"); ok {
		t.Error(`ParseValueType accepts "float"`)
	}
}

// TestZeroData: an empty data value stops a client of the engine module, so the
// substitute for "no value" is one zero byte.
func TestZeroData(t *testing.T) {
	if z := TypeData.Zero(); len(z) != 3 || z[0] != 1 {
		t.Errorf("zero data is % x, want 01 00 00", z)
	}
}

func TestComponent(t *testing.T) {
	for whole, want := range map[string]string{
		"uint8": "uint8", "point2s16": "sint16", "point3u64": "uint64", "vector3f16": "float16", "quaternionf64": "float64", "string": "string", "data": "data",
	} {
		v, _ := ParseValueType(whole)
		if got := v.Component().String(); got != want {
			t.Errorf("a component of %s is %s, want %s", whole, got, want)
		}
	}
}
