package linkmsg

import (
	"reflect"
	"strings"
	"testing"
)

func TestAppend(t *testing.T) {
	for _, c := range []struct {
		d    Description
		want string
	}{
		{Description{Key: "tower", Names: []string{"hp", "pos"}}, `{"v":1,"key":"tower","names":["hp","pos"]}`},
		{Description{Key: "tower", Names: []string{"", "pos"}}, `{"v":1,"key":"tower","names":["","pos"]}`},
		{Description{Key: "tower", Names: []string{"", ""}}, `{"v":1,"key":"tower"}`},
		{Description{Key: "tower", Names: nil}, `{"v":1,"key":"tower"}`},
		{Description{Key: "t", Names: []string{"gun"}, Fields: map[int][]Field{0: {{"aim", "vector3f32"}, {"shots", "uint16"}}}}, `{"v":1,"key":"t","names":["gun"],"fields":{"0":[["aim","vector3f32"],["shots","uint16"]]}}`},
		{Description{Key: "t", Names: []string{"gun"}, Fields: map[int][]Field{0: {{strings.Repeat("x", SizeMax), "uint8"}}}}, `{"v":1,"key":"t","names":["gun"]}`}, // names rather than nothing
		{Description{Key: "tower", Names: []string{strings.Repeat("x", SizeMax-34)}}, `{"v":1,"key":"tower","names":["` + strings.Repeat("x", SizeMax-34) + `"]}`},
		{Description{Key: "tower", Names: []string{strings.Repeat("x", SizeMax-33)}}, "tower"}, // one byte too many
	} {
		got := string(Append([]byte("before "), c.d))
		if got != "before "+c.want {
			t.Errorf("%.60v gives %.80q, want %.80q", c.d, got, c.want)
		}
		if size := len(got) - len("before "); size > SizeMax {
			t.Errorf("%d bytes, at most %d", size, SizeMax)
		}
	}
}

// TestParse: whatever is not a description of this version is a key, because a publisher may give a
// state any message.
func TestParse(t *testing.T) {
	for _, c := range []struct {
		message string
		want    Description
	}{
		{"tower", Description{Key: "tower"}},
		{"", Description{}},
		{`{"v":1,"key":"tower","names":["hp"]}`, Description{Key: "tower", Names: []string{"hp"}}},
		{`{"v":1,"key":"tower"}`, Description{Key: "tower"}},
		{`{"key":"tower","later":{"x":[1]},"v":1}`, Description{Key: "tower"}},
		{`{"v":1,"key":"tower","fields":{"1":[["x","uint8"]]}}`, Description{Key: "tower", Fields: map[int][]Field{1: {{"x", "uint8"}}}}},
		{`{"v":1,"key":"tower","fields":{"1":[["x","uint8","y"]]}}`, Description{Key: "tower"}},
		{`{"v":1,"key":"tower","fields":{"1":[{"name":"x","type":"uint8"}]}}`, Description{Key: "tower"}},
		{`{"v":1,"key":"tower","fields":{"1":[]}}`, Description{Key: "tower"}},
		{`{"v":1,"key":"tower","fields":{"-1":[["x","uint8"]]}}`, Description{Key: "tower"}},
		{`{"v":1,"key":"tower","fields":[["x","uint8"]]}`, Description{Key: "tower"}},
		{`{"v":1,"key":"tower","fields":{"1":[` + strings.Repeat(`["x","uint8"],`, FieldsMax) + `["x","uint8"]]}}`, Description{Key: "tower"}},
		{`{"v":2,"key":"tower"}`, Description{Key: `{"v":2,"key":"tower"}`}},
		{`{"v":1}`, Description{Key: `{"v":1}`}},
		{`{"v":1,"key":"tower","names":[7]}`, Description{Key: `{"v":1,"key":"tower","names":[7]}`}},
		{`{"v":1,"key":"tower"} and more`, Description{Key: `{"v":1,"key":"tower"} and more`}},
		{`{`, Description{Key: `{`}},
	} {
		if got := Parse([]byte(c.message)); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s is %+v, want %+v", c.message, got, c.want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"v":1,"key":"tower","names":["hp"]}`))
	f.Add([]byte("tower"))
	f.Add([]byte(`{"v":1,"key":"tower","names":["gun"],"fields":{"0":[["aim","vector3f32"],["shots","uint16"]]}}`))
	f.Fuzz(func(t *testing.T, message []byte) {
		if len(message) > SizeMax/6 { // JSON may write a byte as six
			return
		}
		d := Parse(message)
		if again := Parse(Append(nil, d)); len(d.Names) > 0 && again.Key != d.Key {
			t.Errorf("%q is %+v, and written again %+v", message, d, again)
		}
	})
}
