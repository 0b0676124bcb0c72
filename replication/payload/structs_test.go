package payload

import (
	"strings"
	"testing"

	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/replication"
)

// structPut makes a state with a value of 14 bytes.
const structPut = `{"op":"put","key":"tank","describe":true,"values":[{"name":"hp","type":"uint8","value":1},` +
	`{"name":"gun","type":"data","value":{"aim":[1,2.5,-3],"shots":7},"fields":[{"name":"aim","type":"vector3f32"},{"name":"shots","type":"uint16"}],"nullable":true,"null":{"shots":0,"aim":[0,0,0]}}]}`

// The data of structPut, in base64.
const structData = "AACAPwAAIEAAAEDABwA="

func TestStructs(t *testing.T) {
	p := newPublisher(t)
	p.want(`{"op":"clear"}`, `"seq":`)
	p.want(structPut, `"seq":`)
	const want = `[{"op":"put","key":"tank","message":"{\"v\":1,\"key\":\"tank\",\"names\":[\"hp\",\"gun\"],\"fields\":{\"1\":[[\"aim\",\"vector3f32\"],[\"shots\",\"uint16\"]]}}",` +
		`"access":"read-only","audience":{"all":true},"values":[{"name":"hp","type":"uint8","value":1},` +
		`{"name":"gun","type":"data","value":{"aim":[1,2.5,-3],"shots":7},"fields":[{"name":"aim","type":"vector3f32"},{"name":"shots","type":"uint16"}],"nullable":true,"null":{"aim":[0,0,0],"shots":0}}]}]}`
	if got := p.get(); got != want {
		t.Fatalf("got\n%s\nwant\n%s", got, want)
	}
	states, _ := strings.CutSuffix(want, "}")
	p.want(`{"op":"clear"}`, `"seq":`)
	p.want(`{"ops":`+states+`}`, `"seq":`)
	if got := p.get(); got != want {
		t.Errorf("the answer to the get, published again, became\n%s", got)
	}
	p.want(`{"op":"set","key":"tank","values":{"gun":null}}`, `"seq":`)
	p.want(`{"op":"set","key":"tank","values":{"gun":"`+structData+`"}}`, `"seq":`)
	if got := p.get(); got != want {
		t.Errorf("set as base64 it became\n%s", got)
	}
	for value, want := range map[string]string{
		`{"aim":[1,2,3]}`:                       `value \"gun\": field \"shots\" is missing`,
		`{"aim":[1,2,3],"shots":1,"b":1}`:       `no field is named \"b\"`,
		`{"aim":[1,2,3],"shots":1,"shots":1}`:   `field \"shots\" is given twice`,
		`{"aim":[1,2,3],"shots":-1}`:            `field \"shots\": -1 does not fit uint16`,
		`{"aim":[1,2],"shots":1}`:               `field \"aim\": want vector3f32 with 3 components, got 2`,
		`{"aim":[1,2,null],"shots":1}`:          `want vector3f32, got null`,
		`{"aim":null,"shots":1}`:                `field \"aim\": want vector3f32, got null`,
		`{}`:                                    `field \"aim\" is missing`,
		`"AAAA"`:                                `3 bytes of data, its fields have 14`,
		`[1,2,3]`:                               `want data, got array`,
		`7`:                                     `want data, got number`,
		`{"\u0061im":[1,2,3],"shots":"1"}`:      `want uint16, got string`,
		`{"aim":[1,2,3],"shots":{"shots":{}}}`:  `want uint16, got object`,
		`{"hp":1,"aim":[1,2,3],"shots":1.0000}`: `no field is named \"hp\"`,
	} {
		p.want(`{"op":"set","key":"tank","values":{"gun":`+value+`}}`, want)
	}
	p.want(`{"op":"set","key":"tank","values":{"hp":{"aim":[1,2,3],"shots":1}}}`, `value \"hp\": want uint8, got object`)
}

// TestStructsInGodot: a Dictionary is the components, in each dialect.
func TestStructsInGodot(t *testing.T) {
	for _, f := range godotForms {
		want := mustParse(t, structPut, "").Ops[0].Values[1]
		p, err := f.Parse(fromJSON(t, f, structPut), "")
		if err != nil {
			t.Fatalf("%v: %v", f, err)
		}
		got := p.Ops[0].Values[1]
		a, _, errA := want.Append(nil, want.Value)
		b, _, errB := got.Append(nil, got.Value)
		if errA != nil || errB != nil || string(a) != string(b) || string(got.Null) != string(want.Null) {
			t.Errorf("%v: %x (%v), null %x, want %x (%v), null %x", f, b, errB, got.Null, a, errA, want.Null)
		}
		p.Ops[0].Message = []byte("tank")
		again, err := f.Parse(putIn(t, f, &p.Ops[0]), "")
		if err != nil {
			t.Fatalf("%v: what was written is refused: %v", f, err)
		}
		got = again.Ops[0].Values[1]
		if b, _, err := got.Append(nil, got.Value); err != nil || string(a) != string(b) || len(got.Struct) != 2 {
			t.Errorf("%v: written and read again: %x (%v), want %x", f, b, err, a)
		}
	}
}

// TestStructOfAnotherSize: data that are not of the fields are written as data.
func TestStructOfAnotherSize(t *testing.T) {
	fields := []replication.StructField{{Name: "a", Type: typeUint16}}
	for enc, want := range map[string]string{"\x02\x00\x07\x01": `{"a":263}`, "\x01\x00\x07": `"Bw=="`, "\x00\x00": `""`} {
		if got := string(AppendStructValue(nil, wire.TypeData, fields, []byte(enc))); got != want {
			t.Errorf("%x is written as %s, want %s", enc, got, want)
		}
	}
	if got := string(AppendStructValue(nil, typeUint8, nil, []byte{7})); got != "7" {
		t.Errorf("a number is written as %s", got)
	}
}
