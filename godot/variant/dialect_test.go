package variant

import (
	"strings"
	"testing"
)

// TestWrongDialect puts a value of every type of every dialect into a Dictionary, as in a
// payload, and reads it as each other dialect. The error must name both dialects.
func TestWrongDialect(t *testing.T) {
	rnd := newRand(t)
	for d := Godot2; d <= Godot4; d++ {
		for typ := range Type(Types) {
			if !typ.In(d) {
				continue
			}
			for range 20 {
				w := NewWriter(d, nil)
				m := w.Begin(Dictionary)
				w.String("value")
				if !randomOf(rnd, &w, typ, 0) {
					break // a Writer cannot write the type
				}
				w.End(m, 1)
				if _, err := DecodeDictionary(d, w.Bytes()); err != nil {
					t.Fatal(err)
				}
				for other := Godot2; other <= Godot4; other++ {
					if other == d {
						continue
					}
					_, err := DecodeDictionary(other, w.Bytes())
					if err == nil {
						t.Fatalf("%v of %v is accepted as %v", typ, d, other)
					}
					want := "; these bytes are a value of " + d.String() + ", not of " + other.String()
					if !strings.HasPrefix(err.Error(), other.String()+": ") || !strings.HasSuffix(err.Error(), want) {
						t.Fatalf("%v of %v as %v: %v", typ, d, other, err)
					}
				}
			}
		}
	}
}

// TestAmbiguous shows why only dictionaries prove a dialect: a colour of Godot 3 has the bytes
// of a plane of Godot 4.
func TestAmbiguous(t *testing.T) {
	p := unhex(t, "0e000000 0000003f 0000803e 0000803f 0000403f")
	for d, want := range map[Dialect]Type{Godot2: Color, Godot3: Color, Godot4: Plane} {
		if v, err := Decode(d, p); err != nil || v.Type() != want {
			t.Errorf("%v: got %v, %v, want %v", d, v.Type(), err, want)
		}
		_, err := DecodeDictionary(d, p)
		if err == nil || !strings.Contains(err.Error(), "want Dictionary, got "+want.String()) {
			t.Errorf("%v: got %v", d, err)
		}
	}
}

func TestParseDialect(t *testing.T) {
	for text, want := range map[string]Dialect{"2": Godot2, "3": Godot3, "4": Godot4} {
		if d, ok := ParseDialect(text); !ok || d != want || d.Version() != text {
			t.Errorf("%q: got %v, %v", text, d, ok)
		}
	}
	for _, text := range []string{"", "1", "5", "03", "+3", "3.2", "259", "godot3"} {
		if d, ok := ParseDialect(text); ok {
			t.Errorf("%q is %v", text, d)
		}
	}
}

// TestTable checks that the headers of a dialect are distinct and consecutive.
func TestTable(t *testing.T) {
	for d, n := range map[Dialect]int{Godot2: 29, Godot3: 27, Godot4: 39} {
		for id := range uint32(idsMax) {
			typ, ok := typeOf(d, id)
			if ok != (id < uint32(n)) || ok && (typ.id(d) != int(id) || !typ.In(d)) {
				t.Errorf("%v, header %d: got %v, %v", d, id, typ, ok)
			}
		}
	}
	names := map[string]bool{}
	for typ := range Type(Types) {
		if names[typ.String()] || typ.String() == "" {
			t.Errorf("type %d is called %q", typ, typ)
		}
		names[typ.String()] = true
	}
}
