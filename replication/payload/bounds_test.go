package payload

import (
	"reflect"
	"strings"
	"testing"

	"github.com/dnprelay/dnprelay/godot/variant"
	"github.com/dnprelay/dnprelay/replication"
)

// TestBoundsComeBack publishes bounds in JSON. A listing, in JSON and as Variants, must contain
// puts with the same bounds.
func TestBoundsComeBack(t *testing.T) {
	for _, value := range []string{
		`{"type":"uint8","value":5,"min":5,"max":10}`,
		`{"type":"float16","value":0.5,"min":-1,"rate":0.5}`,
		`{"type":"float32","value":0,"finite":false}`,
		`{"type":"sint64","value":0,"min":-5,"max":"9007199254740993","rate":20}`,
		`{"type":"vector3f32","value":[0,0,0],"max":1.5}`,
		`{"type":"point2s16","value":[0,0],"min":-3}`,
		`{"type":"string","value":"","rate":1}`,
	} {
		p := newPublisher(t)
		p.want(`{"op":"put","key":"k","values":[`+value+`]}`, `"epoch":7`)
		l, err := p.store.Get("k")
		if err != nil {
			t.Fatal(err)
		}
		if text := string(JSON.AppendListing(nil, &l, 1<<16)); !strings.Contains(text, value) {
			t.Errorf("%s is listed as %s", value, text)
		}
		want := l.States[0].Desc.Values[0].Bounds
		for _, f := range []Form{JSON, {variant.Godot2}, {variant.Godot3}, {variant.Godot4}} {
			got := putOf(t, f, &l).Values[0].Bounds
			if !reflect.DeepEqual(got, want) {
				t.Errorf("%s in %v: %+v, want %+v", value, f, got, want)
			}
		}
	}
}

// putOf returns the first op of a listing in a form.
func putOf(t *testing.T, f Form, l *replication.Listing) *replication.Op {
	t.Helper()
	n, err := f.root(f.AppendListing(nil, l, 1<<16))
	if err != nil {
		t.Fatal(err)
	}
	for members := n.list(); members.some(); {
		name, value, _ := members.member()
		if name != "states" {
			continue
		}
		states := value.list()
		states.some()
		fields := parseFields(states.element(), "a state")
		op := new(replication.Op)
		parseOp(op, &fields, "")
		if fields.err != nil {
			t.Fatalf("%v: %v", f, fields.err)
		}
		return op
	}
	t.Fatal("no states")
	return nil
}
