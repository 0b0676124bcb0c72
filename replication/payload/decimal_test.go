package payload

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"testing"
)

// TestDecimal compares decimal with the library, for numbers of every length, and for those around the middle of two of type float32.
func TestDecimal(t *testing.T) {
	rng := newRand(t)
	read := 0
	for range 300_000 {
		text := decimalText(rng)
		want64, err := strconv.ParseFloat(text, 64)
		if err != nil {
			t.Fatal(err)
		}
		f, n := decimal(text + ",")
		if n == 0 {
			continue
		}
		read++
		if n != len(text) || math.Float64bits(f) != math.Float64bits(want64) {
			t.Fatalf("%s is %v with %d bytes, want %v with %d", text, f, n, want64, len(text))
		}
		want32, err := strconv.ParseFloat(text, 32)
		if err != nil {
			t.Fatal(err)
		}
		if !amidFloat32(f) && math.Float32bits(float32(f)) != math.Float32bits(float32(want32)) {
			t.Fatalf("%s is %v as float32, want %v", text, float32(f), float32(want32))
		}
	}
	if read < 100_000 {
		t.Errorf("decimal has read %d of 300,000 numbers, want a third at least", read)
	}
	for _, text := range []string{"", "-", ",", "1e5", "1E5", "1.5e-3", "1234567890123456", "0.1234567890123456", "null"} {
		if f, n := decimal(text); n > 0 {
			t.Errorf("%q is read as %v", text, f)
		}
	}
	if !amidFloat32(1+1.0/(1<<24)) || amidFloat32(1) || amidFloat32(1+1.0/(1<<23)) {
		t.Error("amidFloat32 does not find the middle of two numbers")
	}
}

func decimalText(rng *rand.Rand) string {
	switch f := rng.Float32() * float32(math.Pow(10, float64(rng.IntN(6)))); rng.IntN(4) {
	case 0:
		return strconv.FormatFloat(float64(f), 'f', -1, 32)
	case 1: // the middle of two numbers, or just beside it
		middle := (float64(f) + float64(math.Nextafter32(f, 1e9))) / 2
		return strconv.FormatFloat(middle, 'f', rng.IntN(18), 64)
	case 2:
		return fmt.Sprintf("-%.*f", rng.IntN(12), f)
	}
	return strconv.FormatUint(rng.Uint64()>>rng.IntN(64), 10)
}

// TestDecimals checks that arrays of decimals mean the same as those of numbers that are written in another way.
func TestDecimals(t *testing.T) {
	for _, c := range []struct{ plain, other string }{
		{"[1,-2.5,3]", "[1e0,-25e-1,30e-1]"},
		{"[ 1 , -0 , 0.5 ]", "[1E0,-0e0,5e-1]"},
		{"[2049,2051,0.00006]", "[2049e0,2051e0,6e-5]"},
		{"[1,0.1,16777217]", "[1e0,1e-1,16777217e0]"},                            // which no half float and no float32 is
		{"[0.1,12.789,8.00000524520874]", "[1e-1,12789e-3,800000524520874e-14]"}, // which a float64 rounds to the middle of two float32
	} {
		for _, name := range []string{"vector3f16", "vector3f32", "vector3f64"} {
			typ := typeNamed(t, name)
			plain, _, err := literal(c.plain).AppendValue([]byte{7}, typ)
			other, _, otherErr := literal(c.other).AppendValue([]byte{7}, typ)
			if (err == nil) != (otherErr == nil) || err == nil && string(plain) != string(other) {
				t.Errorf("%s %s: % x, %v; want % x, %v", name, c.plain, plain, err, other, otherErr)
			}
		}
	}
	if enc, ok := literal("[1,-2.5,3]").appendDecimals(nil, typeNamed(t, "vector3f32")); !ok {
		t.Errorf("an array of decimals is left to others: % x", enc)
	}
	typ := typeNamed(t, "vector2f16")
	for _, text := range []string{"[]", "[1]", "[1,2,3]", "[1,null]", "[1,true]", `["1",2]`, "[1,[2]]", "[1,99999]", "[1e0,2]"} {
		if enc, ok := literal(text).appendDecimals(nil, typ); ok {
			t.Errorf("%s is read as % x, want it to be left to others", text, enc)
		}
	}
}
