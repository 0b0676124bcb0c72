package layout

import (
	"encoding/json"
	"math"
	"reflect"
	"strings"
	"testing"
)

type gun struct {
	Aim   [2]float32 `dnp:"aim,type=vector2f16"`
	Shots uint16     `dnp:"shots"`
	Armed bool
}

type tank struct {
	HP     float32    `dnp:"hp,precision=0.1,min=0,max=100,rate=5"`
	Pos    [3]float32 `dnp:"pos,type=vector3f16"`
	Turn   [4]float64
	Tile   [2]int32 `dnp:"tile"`
	Level  int      `dnp:"level,type=uint8"`
	Alive  bool     `dnp:"alive"`
	Name   string   `dnp:"name"`
	Paint  []byte   `dnp:"paint,finite=true"`
	Owner  *string  `dnp:"owner,null=none"`
	Target *[2]int8 `dnp:",null=-1"`
	Gun    gun      `dnp:"gun"`
	Skip   int      `dnp:"-"`
	hidden int
}

func fill() tank {
	owner := "red \"one\"\n"
	return tank{
		HP: 93.5, Pos: [3]float32{1, -2.25, 1e-9}, Turn: [4]float64{0, 0, 0, 1}, Tile: [2]int32{-5, math.MaxInt32}, Level: 255, Alive: true,
		Name: "größer", Paint: []byte{0, 255}, Owner: &owner, Target: &[2]int8{-128, 127}, Gun: gun{Aim: [2]float32{0.5, 65504}, Shots: 7, Armed: true},
		Skip: 1, hidden: 2,
	}
}

// TestLayout writes a struct as JSON and reads it back, with every kind of field.
func TestLayout(t *testing.T) {
	fields, err := Of(reflect.TypeFor[tank]())
	if err != nil {
		t.Fatal(err)
	}
	in, out := fill(), tank{Skip: 1, hidden: 2}
	want := []string{
		"hp float32 93.5", "pos vector3f16 [1,-2.25,1e-09]", "Turn quaternionf64 [0,0,0,1]", "tile point2s32 [-5,2147483647]", "level uint8 255", "alive uint8 1",
		`name string "größer"`, `paint data "AP8="`, `owner string "red \"one\"\n"`, "Target point2s8 [-128,127]", `gun data {"aim":[0.5,65504],"shots":7,"Armed":1}`,
	}
	for i := range fields {
		f := &fields[i]
		b, err := f.Append([]byte("x"), f.In(reflect.ValueOf(&in).Elem()))
		if got := f.Name + " " + f.Type.String() + " " + string(b[1:]); err != nil || got != want[i] || !json.Valid(b[1:]) {
			t.Errorf("field %d is %s, %v, want %s", i, got, err, want[i])
		}
		if err := f.Decode(f.In(reflect.ValueOf(&out).Elem()), b[1:]); err != nil {
			t.Errorf("%s: %v", f.Name, err)
		}
	}
	if !reflect.DeepEqual(in, out) {
		t.Errorf("read %+v, want %+v", out, in)
	}
	if f := fields[0]; f.Precision != 0.1 || f.Min != "0" || f.Max != "100" || f.Rate != 5 || f.Nullable {
		t.Errorf("the options of hp are %+v", f)
	}
	if a, b := fields[8], fields[9]; !a.Nullable || a.Null != `"none"` || b.Null != "[-1,-1]" {
		t.Errorf("null is %s and %s", a.Null, b.Null)
	}
}

// TestClone requires that a clone shares no memory.
func TestClone(t *testing.T) {
	fields, err := Of(reflect.TypeFor[tank]())
	if err != nil {
		t.Fatal(err)
	}
	in, out := fill(), tank{}
	for i := range fields {
		fields[i].Clone(fields[i].In(reflect.ValueOf(&out).Elem()), fields[i].In(reflect.ValueOf(&in).Elem()))
	}
	in.Paint[0], *in.Owner, in.Target[0] = 9, "x", 0
	if out.Paint[0] != 0 || *out.Owner == "x" || out.Target[0] != -128 {
		t.Errorf("the clone changed with its original: %v %q %v", out.Paint, *out.Owner, out.Target)
	}
}

// TestAllocs requires that a number costs no allocation.
func TestAllocs(t *testing.T) {
	fields, err := Of(reflect.TypeFor[tank]())
	if err != nil {
		t.Fatal(err)
	}
	in, b := fill(), make([]byte, 0, 1000)
	v := reflect.ValueOf(&in).Elem()
	if n := testing.AllocsPerRun(100, func() {
		for i := range fields {
			if fields[i].Name != "owner" { // the quotation marks in it cost one
				_, _ = fields[i].Append(b, fields[i].In(v))
			}
		}
	}); n != 0 {
		t.Errorf("%v allocations for a struct", n)
	}
}

// TestRefused has types and tags that cannot be values.
func TestRefused(t *testing.T) {
	for _, c := range []struct {
		v    any
		want string
	}{
		{1, "int is not a struct"},
		{struct{ a int }{}, "no exported field"},
		{struct{ M map[string]int }{}, "field M: map[string]int cannot be a value"},
		{struct{ A [5]int }{}, "field A: [5]int cannot be a value"},
		{struct{ A [4]int32 }{}, "field A: [4]int32 cannot be a value"},
		{struct{ A [2]bool }{}, "field A: [2]bool cannot be a value"},
		{struct{ A []int }{}, "field A: []int cannot be a value"},
		{struct{ A **int }{}, "field A: *int cannot be a value"},
		{struct{ A struct{ S string } }{}, `component "S" has no fixed size`},
		{struct{ A struct{ P *int } }{}, `component "P" has no fixed size`},
		{struct{ A struct{} }{}, "no exported field"},
		{struct {
			A struct {
				P float32 `dnp:",precision=1"`
			}
		}{}, "precision and bounds are for values"},
		{struct {
			A int `dnp:"x"`
			B int `dnp:"x"`
		}{}, `a second value has the name "x"`},
		{struct {
			A int `dnp:",type=float32"`
		}{}, `option "type=float32": the field has the type sint64`},
		{struct {
			A int `dnp:",type=uint9"`
		}{}, "there is no such type"},
		{struct {
			A int `dnp:",min=x"`
		}{}, "want a number"},
		{struct {
			A int `dnp:",min=NaN"`
		}{}, "want a number"},
		{struct {
			A string `dnp:",max=1"`
		}{}, "only numbers have it"},
		{struct {
			A int `dnp:",null=1"`
		}{}, "only a pointer can be null"},
		{struct {
			A int `dnp:",omitempty"`
		}{}, "want type, precision"},
	} {
		if _, err := Of(reflect.TypeOf(c.v)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%T: %v, want an error that says %q", c.v, err, c.want)
		}
	}
}

// TestUnfit has numbers that do not fit their types.
func TestUnfit(t *testing.T) {
	type all struct {
		Small int     `dnp:",type=uint8"`
		Byte  int     `dnp:",type=sint8"`
		Word  uint64  `dnp:",type=uint16"`
		Half  float32 `dnp:",type=float16"`
		Float float64 `dnp:",type=float32"`
		Big   float64
	}
	fields, err := Of(reflect.TypeFor[all]())
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range []all{
		{Small: -1}, {Small: 256}, {Byte: 128}, {Byte: -129}, {Word: 65536}, {Half: 65520}, {Half: -1e6}, {Float: 1e300}, {Big: math.Inf(1)}, {Big: math.NaN()},
	} {
		var errs int
		for i := range fields {
			if _, err := fields[i].Append(nil, fields[i].In(reflect.ValueOf(&v).Elem())); err != nil {
				errs++
			}
		}
		if errs != 1 {
			t.Errorf("%+v has %d errors, want one", v, errs)
		}
	}
}
