package payload

import (
	"reflect"
	"strings"
	"testing"

	"github.com/dnprelay/dnprelay/godot/variant"
	"github.com/dnprelay/dnprelay/interest"
	"github.com/dnprelay/dnprelay/replication"
)

func TestInterestRefuses(t *testing.T) {
	put := func(interest string) string {
		return `{"op":"put","key":"k","interest":` + interest + `,"values":[{"name":"pos","type":"vector3f32"}]}`
	}
	for body, want := range map[string]string{
		put(`5`):                                   `field "interest": want an object, the name of an interest, or null, got number`,
		put(`{"bands":[{"within":1}]}`):            `an interest needs "at"`,
		put(`{"at":"pos"}`):                        `an interest needs "bands"`,
		put(`{"at":"pos","bands":[{}]}`):           `field "bands", entry 0: want "within"`,
		put(`{"at":"pos","bands":[{"within":0}]}`): `within 0: want 1e-06 to 1e+15`,
		put(`{"at":"pos","bands":[{"within":2},{"within":3,"rate":0}]}`):         `entry 1: rate 0: want 0.01 to 1000`,
		put(`{"at":"pos","bands":[{"within":2,"precision":0.5}]}`):               `precision 0.5: want 1 to`,
		put(`{"at":"pos","bands":[{"within":2}],"axes":"zx"}`):                   `axes "zx": want some of "xyz"`,
		put(`{"at":"pos","bands":[{"within":2}],"beyond":"gone"}`):               `beyond "gone": want "sleep" or "unlink"`,
		put(`{"at":"pos","bands":[{"within":2}],"events":"yes"}`):                `field "events": want boolean, got string`,
		put(`{"at":"pos","bands":[{"within":2}],"event":true}`):                  `unknown field "event"`,
		put(`{"at":"pos","bands":[{"within":1}],"name":"x"}`):                    `unknown field "name"`,
		`{"op":"interest","bands":[]}`:                                           `the op needs "name"`,
		`{"op":"interest","name":"x"}`:                                           `an interest needs "at"`,
		`{"op":"eye","client":"c1"}`:                                             `eye needs "at"`,
		`{"op":"eye","at":null}`:                                                 `the op needs "client"`,
		`{"op":"eye","client":"c1","at":5}`:                                      `want a key, or a point of 2 or 3 numbers, got number`,
		`{"op":"eye","client":"c1","at":[1]}`:                                    `want a key, or a point of 2 or 3 numbers, got array`,
		`{"op":"eye","client":"c1","at":[]}`:                                     `want an eye, or null for none`,
		`{"op":"eye","client":"c1","at":["a",[1,"x"]]}`:                          `eye 1: want a key`,
		`{"op":"eye","client":"c1","at":"a#"}`:                                   `"a#" is not a key`,
		`{"op":"eye","client":"c1","at":["` + strings.Repeat(`a","`, 8) + `a"]}`: `more than 8 eyes`,
	} {
		p := newPublisher(t)
		if got := p.publish(body); !strings.Contains(got, strings.ReplaceAll(want, `"`, `\"`)) {
			t.Errorf("%s\n got %s\nwant %s", body, got, want)
		}
	}
}

// TestInterestComesBack publishes interests in JSON. A listing, in JSON and as Variants, must contain puts with the same.
func TestInterestComesBack(t *testing.T) {
	p := newPublisher(t)
	p.want(`{"op":"interest","name":"walker","at":"pos","bands":[{"within":100}]}`, `"epoch":7`)
	for _, value := range []string{
		`"interest":"walker"`,
		`"interest":{"at":"pos","bands":[{"within":0.5},{"within":300,"precision":4,"rate":0.5}]}`,
		`"interest":{"at":"0","axes":"xz","bands":[{"within":1}],"beyond":"unlink"}`,
		`"interest":{"at":"pos","bands":[{"within":2}],"beyond":"unlink","events":true}`,
		`"interest":{"at":"pos","bands":[{"within":2}],"events":true}`,
	} {
		p.want(`{"op":"put","key":"k",`+value+`,"values":[{"name":"pos","type":"vector3f32"}]}`, `"epoch":7`)
		l, err := p.store.Get("k")
		if err != nil {
			t.Fatal(err)
		}
		if text := string(JSON.AppendListing(nil, &l, 1<<16)); !strings.Contains(text, value) {
			t.Errorf("%s is listed as %s", value, text)
		}
		want := mustParse(t, `{"op":"put","key":"k",`+value+`,"values":[{"name":"pos","type":"vector3f32"}]}`, "").Ops[0]
		for _, f := range []Form{JSON, {variant.Godot2}, {variant.Godot3}, {variant.Godot4}} {
			got := putOf(t, f, &l)
			if !got.HasInterest || !reflect.DeepEqual(got.Interest, want.Interest) || got.InterestName != want.InterestName {
				t.Errorf("%s in %v: %q %+v", value, f, got.InterestName, got.Interest)
			}
		}
	}
	p.want(`{"op":"put","key":"k","interest":null,"values":[{"name":"pos","type":"vector3f32"}]}`, `"epoch":7`)
	if l, _ := p.store.Get("k"); l.States[0].Desc.Interest != "" {
		t.Errorf("null leaves the interest %q", l.States[0].Desc.Interest)
	}
	p.want(`{"op":"interest","name":"walker","bands":[]}`, `"epoch":7`)
	if p.store.Interest("walker") != nil {
		t.Error("no bands leave the interest")
	}
	p.want(`{"op":"eye","client":"c1","at":[1,2]}`, `"epoch":7`)
	p.want(`{"op":"eye","client":"c1","at":null}`, `"epoch":7`)
	if got := p.store.Eyes("c1"); len(got) != 0 {
		t.Errorf("null leaves the eyes %+v", got)
	}
}

// TestGodotEyes has points as the vectors of an engine.
func TestGodotEyes(t *testing.T) {
	w := variant.NewWriter(variant.Godot4, nil)
	d := w.Begin(variant.Dictionary)
	for _, text := range []string{"op", "eye", "client", "c1", "at"} {
		w.String(text)
	}
	w.Floats(variant.Vector3, 1, 2, 3)
	w.End(d, 3)
	p, err := Form{variant.Godot4}.Parse(w.Bytes(), "")
	if want := []replication.Eye{{At: interest.Point{X: 1, Y: 2, Z: 3}}}; err != nil || !reflect.DeepEqual(p.Ops[0].Eyes, want) {
		t.Errorf("got %+v, %v, want %+v", p, err, want)
	}
}
