package payload

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/interest"
	"github.com/dnprelay/dnprelay/replication"
)

// The examples of INTERFACES.md.
const tower = `{"op":"put","key":"tower","message":"text","farewell":"gone","access":"read-only","audience":{"all":true},
 "values":[{"name":"hp","type":"float32","value":93.5,"precision":0.1},
           {"name":"pos","type":"vector3f32","value":[1,2,3],"precision":0.01},
           {"name":"owner","type":"string","value":null,"nullable":true,"null":""}]}`

var examples = []string{
	tower,
	`{"op":"set","key":"tower","values":{"hp":92,"1":[1,2,4]}}`,
	`{"op":"remove","key":"tower"}`,
	`{"op":"audience","key":"tower","audience":{"groups":["red"],"clients":["c1"]}}`,
	`{"op":"group","client":"c1","join":["red"],"leave":["blue"]}`,
	`{"op":"kick","client":"c1","reason":"cheats"}`,
	`{"op":"clear"}`,
	`{"op":"interest","name":"walker","at":"pos","axes":"xz","bands":[{"within":100},{"within":300.5,"rate":5,"precision":4}],"beyond":"unlink"}`,
	`{"op":"eye","client":"c1","at":["player.alice","b#pos",[10,0.5,3],[1,2]]}`,
	`{"op":"put","key":"k","interest":"walker","values":[{"name":"pos","type":"vector2f32","value":[0,0]}]}`,
}

func mustParse(t *testing.T, body, key string) replication.Publish {
	t.Helper()
	p, err := JSON.Parse([]byte(body), key)
	if err != nil {
		t.Fatalf("%s\nwas refused: %v", body, err)
	}
	return p
}

func TestParseExamples(t *testing.T) {
	want := []replication.Op{
		{
			Kind: replication.OpPut, Key: "tower", Message: []byte("text"), Farewell: []byte("gone"),
			Audience:   replication.Audience{Kind: replication.AudienceAll},
			HasMessage: true, HasFarewell: true, HasAccess: true, HasAudience: true,
			Values: []replication.PutValue{
				{ValueDef: replication.ValueDef{Name: "hp", Type: 9, Precision: 0.1}, Value: literal("93.5")},
				{ValueDef: replication.ValueDef{Name: "pos", Type: 33, Precision: 0.01}, Value: literal("[1,2,3]")},
				{ValueDef: replication.ValueDef{Name: "owner", Type: 11, Nullable: true, Null: []byte{0, 0}}, Value: literal("null")},
			},
		},
		{Kind: replication.OpSet, Key: "tower", Sets: []replication.SetValue{{Name: "hp", Value: literal("92")}, {Name: "1", Value: literal("[1,2,4]")}}},
		{Kind: replication.OpRemove, Key: "tower"},
		{
			Kind: replication.OpAudience, Key: "tower", HasAudience: true,
			Audience: replication.Audience{Kind: replication.AudienceListed, Groups: []string{"red"}, Clients: []string{"c1"}},
		},
		{Kind: replication.OpGroup, Client: "c1", Join: []string{"red"}, Leave: []string{"blue"}},
		{Kind: replication.OpKick, Client: "c1", Reason: "cheats"},
		{Kind: replication.OpClear},
		{Kind: replication.OpInterest, InterestName: "walker", Interest: &replication.Interest{
			At: "pos", Axes: 5, Unlink: true, Bands: []replication.Band{{Within: 100}, {Within: 300.5, Rate: 5, Precision: 4}},
		}},
		{Kind: replication.OpEye, Client: "c1", Eyes: []replication.Eye{
			{Key: "player.alice"}, {Key: "b", Value: "pos"}, {At: interest.Point{X: 10, Y: 0.5, Z: 3}}, {At: interest.Point{X: 1, Y: 2}},
		}},
		{
			Kind: replication.OpPut, Key: "k", HasInterest: true, InterestName: "walker",
			Values: []replication.PutValue{{ValueDef: replication.ValueDef{Name: "pos", Type: 30}, Value: literal("[0,0]")}},
		},
	}
	for i, body := range examples {
		p := mustParse(t, body, "")
		if !p.Atomic || len(p.Ops) != 1 || !reflect.DeepEqual(p.Ops[0], want[i]) {
			t.Errorf("%s\n got %+v\nwant %+v", body, p, want[i])
		}
	}
	p := mustParse(t, `{"ops":[`+strings.Join(examples, ",")+`],"atomic":true}`, "")
	if !reflect.DeepEqual(p.Ops, want) {
		t.Errorf("all in one list: got %+v", p.Ops)
	}
	p = mustParse(t, ` { "op" : "set" , "values" : { "hp" : 1 } } `, "a.b")
	if p.Ops[0].Key != "a.b" {
		t.Errorf("key %q, want the one of the subject", p.Ops[0].Key)
	}
	mustParse(t, examples[2], "tower") // subject and body may have the same key
}

func TestParseVariants(t *testing.T) {
	put := func(field string) string {
		return `{"op":"put","key":"k",` + field + `,"values":[{"type":"uint8"}]}`
	}
	op := func(field string) replication.Op { return mustParse(t, put(field), "").Ops[0] }

	for field, want := range map[string]string{
		`"message":"plain"`:                "plain",
		`"message":"base64:AP8="`:          "\x00\xff",
		`"message":"text:base64:AP8="`:     "base64:AP8=",
		`"message":"text:text:"`:           "text:",
		`"message":"\u00e9\ud83d\ude00\n"`: "é😀\n",
	} {
		if got := op(field).Message; string(got) != want {
			t.Errorf("%s: got %q, want %q", field, got, want)
		}
	}
	for field, want := range map[string]replication.Access{
		`"access":"read-only"`:           {},
		`"access":"read-write"`:          {Kind: replication.AccessReadWrite},
		`"access":{"writers":["a","b"]}`: {Kind: replication.AccessWriters, Writers: []string{"a", "b"}},
	} {
		if got := op(field).Access; !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v", field, got)
		}
	}
	for field, want := range map[string]replication.Audience{
		`"audience":{"all":true}`:                              {Kind: replication.AudienceAll},
		`"audience":{"all":false}`:                             {},
		`"audience":{}`:                                        {},
		`"audience":{"groups":[],"clients":[]}`:                {},
		`"audience":{"clients":["a"]}`:                         {Kind: replication.AudienceListed, Clients: []string{"a"}},
		`"audience":{"all":true,"except":{"clients":["a"]}}`:   {Kind: replication.AudienceAllBut, Clients: []string{"a"}},
		`"audience":{"all":true,"except":{}}`:                  {Kind: replication.AudienceAll},
		`"audience":{"all":false,"groups":["a"],"clients":[]}`: {Kind: replication.AudienceListed, Groups: []string{"a"}},
	} {
		if got := op(field).Audience; !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v, want %+v", field, got, want)
		}
	}
	want := []replication.Detail{{Groups: []string{"far"}, Precision: 8, Rate: 5}, {Clients: []string{"c"}, Rate: 0.01}}
	const list = `"lod":[{"groups":["far"],"precision":8,"rate":5},{"clients":["c"],"rate":0.01}]`
	if v := op(list + `,"priority":16`); !reflect.DeepEqual(v.Details, want) || v.Priority != 16 || !v.HasPriority || !v.HasDetails {
		t.Errorf("lod and priority: got %+v", v)
	}
	if v := mustParse(t, `{"op":"audience","key":"k",`+list+`}`, "").Ops[0]; !reflect.DeepEqual(v.Details, want) || v.HasAudience {
		t.Errorf("lod alone: got %+v", v)
	}
	for text, want := range map[string]time.Duration{"30s": 30 * time.Second, "1.5m": 90 * time.Second, "1h30m": 90 * time.Minute, "1000ms": time.Second, "168h": 168 * time.Hour, "0s": 0, "0": 0} {
		if v := op(`"ttl":"` + text + `"`); !v.HasTTL || v.TTL != want {
			t.Errorf("ttl %s: got %v, want %v", text, v.TTL, want)
		}
	}
	if v := op(`"lod":[]`); v.HasTTL || !v.HasDetails || len(v.Details) != 0 {
		t.Error("an empty lod must remove the levels")
	}
	if v := op(`"farewell":""`); !v.HasFarewell || len(v.Farewell) != 0 {
		t.Error("an empty farewell must remove the farewell")
	}
	if v := op(`"farewell":"x"`).Values[0]; v.Value != nil {
		t.Error("a value that is not given must be nil, so that the store keeps its value")
	}
}

// Each line breaks one rule of DESIGN.md.
func TestParseRefuses(t *testing.T) {
	value := func(fields string) string { return `{"op":"put","key":"k","values":[{` + fields + `}]}` }
	put := func(fields string) string {
		return `{"op":"put","key":"k","values":[{"type":"uint8"}],` + fields + `}`
	}
	long := strings.Repeat("x", 65)
	many := `{"type":"uint8"}` + strings.Repeat(`,{"type":"uint8"}`, 8192)
	for _, c := range []struct{ body, code, message string }{
		{put(`"priority":0`), "bad_request", "priority 0"},
		{put(`"priority":17`), "bad_request", "priority 17"},
		{put(`"priority":257`), "bad_request", "priority 257"},
		{put(`"priority":1.5`), "bad_request", "priority 1.5"},
		{put(`"priority":"1"`), "bad_request", `"priority": want number`},
		{put(`"as_of":7`), "bad_request", `"as_of": want array`},
		{put(`"as_of":[7]`), "bad_request", "an epoch and a sequence number"},
		{put(`"as_of":[7,1,2]`), "bad_request", "an epoch and a sequence number"},
		{put(`"as_of":[-1,2]`), "out_of_range", "as_of"},
		{put(`"as_of":[1.5,2]`), "type_mismatch", "as_of"},
		{put(`"as_of":[[],2]`), "bad_request", "an epoch and a sequence number"},
		{`{"op":"set","key":"k","values":{"hp":1},"as_of":{"hp":7}}`, "bad_request", `value "hp"`},
		{`{"op":"set","key":"k","values":{"hp":1},"as_of":{"mp":[7,1]}}`, "bad_request", `value "mp"`},
		{`{"op":"set","key":"k","values":{"hp":1},"as_of":{"hp":[7,1],"hp":[7,1]}}`, "bad_request", `value "hp"`},
		{`{"op":"set","key":"k","values":{"hp":1},"as_of":7}`, "bad_request", `"as_of"`},
		{`{"op":"kick","client":"c","as_of":[7,1]}`, "bad_request", `"as_of"`},
		{put(`"ttl":30`), "bad_request", `"ttl": want string`},
		{put(`"ttl":"30"`), "bad_request", `ttl "30": want a time of 1s to 168h`},
		{put(`"ttl":"999ms"`), "bad_request", "ttl"},
		{put(`"ttl":"168h1s"`), "bad_request", "ttl"},
		{put(`"ttl":"-30s"`), "bad_request", "ttl"},
		{put(`"ttl":"soon"`), "bad_request", "ttl"},
		{`{"op":"set","key":"k","ttl":"30s","values":{"0":1}}`, "bad_request", "ttl"},
		{put(`"lod":{}`), "bad_request", `"lod": want array`},
		{put(`"lod":[{}]`), "bad_request", "entry 0: want \"groups\""},
		{put(`"lod":[{"clients":["c"]}]`), "bad_request", "want \"precision\""},
		{put(`"lod":[{"groups":["g"],"rate":1},{"groups":["g"],"precision":0.5}]`), "bad_request", "entry 1: precision 0.5: want 1"},
		{put(`"lod":[{"groups":["g"],"rate":1001}]`), "bad_request", "rate 1001"},
		{put(`"lod":[{"groups":["g"],"rate":1e30}]`), "bad_request", "rate 1"},
		{put(`"lod":[{"groups":["g"],"rate":"5"}]`), "bad_request", "want number"},
		{put(`"lod":[{"groups":["g g"],"rate":5}]`), "bad_request", "g g"},
		{put(`"lod":[{"all":true,"rate":5}]`), "bad_request", "all"},
		{put(`"lod":[` + strings.Repeat(`{"groups":["g"],"rate":5},`, 8) + `{"groups":["g"],"rate":5}]`), "bad_request", "more than 8"},
		{`{"op":"audience","key":"k"}`, "bad_request", "lod"},
		// Structure.
		{``, "bad_request", "not JSON"},
		{`{"op":"clear"`, "bad_request", "not JSON"},
		{`{"op":"clear"} x`, "bad_request", "not JSON"},
		{`{"op":"clear",}`, "bad_request", "not JSON"},
		{"{\"op\":\"cl\xffear\"}", "bad_request", "not UTF-8"},
		{`null`, "bad_request", "want object, got null"},
		{`[]`, "bad_request", "want object, got array"},
		{`7`, "bad_request", "want object, got number"},
		{`{}`, "bad_request", `needs "op"`},
		{`{"op":"fly"}`, "bad_request", `unknown op "fly"`},
		{`{"op":1}`, "bad_request", "want string, got number"},
		{`{"op":"clear","op":"clear"}`, "bad_request", `"op" is given twice`},
		{`{"op":"clear","\u006fp":"clear"}`, "bad_request", `"op" is given twice`},
		{`{"op":"clear","colour":1}`, "bad_request", `unknown field "colour"`},
		{`{"op":"clear","Op":1}`, "bad_request", `unknown field "Op"`},
		{`{"op":"clear","key":"k"}`, "bad_request", `clear: unknown field "key"`},
		{`{"op":"\ud800"}`, "bad_request", "half a surrogate pair"},
		{`{"op":"\udc00"}`, "bad_request", "half a surrogate pair"},
		{`{"op":"\ud800\ud800\udc00"}`, "bad_request", "half a surrogate pair"},
		{`{"op":"\ud800\n"}`, "bad_request", "half a surrogate pair"},
		{`{"op":"\ud800x\udc00"}`, "bad_request", "half a surrogate pair"},
		{`{"op":"\\ud800\ud83d\ude00"}`, "bad_request", "unknown op"},
		{`{"\ud800":1}`, "bad_request", "half a surrogate pair"},
		{`{"ops":[]}`, "bad_request", "empty"},
		{`{"ops":{}}`, "bad_request", "want array, got object"},
		{`{"ops":[{}` + strings.Repeat(`,{}`, OpsMax) + `],"atomic":false}`, "too_large", "more than 65536 ops"},
		{`{"ops":[{"op":"clear"}],"op":"clear"}`, "bad_request", `unknown field "op"`},
		{`{"ops":[{"op":"clear"}],"atomic":1}`, "bad_request", "want boolean, got number"},
		{`{"ops":[{"ops":[]}]}`, "bad_request", `needs "op"`},
		{`{"op":"clear","atomic":true}`, "bad_request", `beside "ops"`},
		// Keys and clients.
		{`{"op":"remove"}`, "bad_request", `needs "key"`},
		{`{"op":"remove","key":7}`, "bad_request", "want string, got number"},
		{`{"op":"remove","key":""}`, "bad_request", `key ""`},
		{`{"op":"remove","key":"a b"}`, "bad_request", `key "a b"`},
		{`{"op":"remove","key":"a..b"}`, "bad_request", `key "a..b"`},
		{`{"op":"remove","key":"a.>"}`, "bad_request", `key "a.>"`},
		{`{"op":"remove","key":"1.2.3.4.5.6.7.8.9"}`, "bad_request", "1 to 8 names"},
		{`{"op":"remove","key":"` + long + `"}`, "bad_request", "want 1 to 8"},
		{`{"op":"kick"}`, "bad_request", `needs "client"`},
		{`{"op":"kick","client":"a.b"}`, "bad_request", `"a.b" is not a name`},
		{`{"op":"kick","client":null}`, "bad_request", "want string, got null"},
		{`{"op":"kick","client":"c","reason":7}`, "bad_request", "want string, got number"},
		{`{"op":"clear","reason":"x"}`, "bad_request", `unknown field "reason"`},
		{`{"op":"group","client":"c","join":"red"}`, "bad_request", "want array, got string"},
		{`{"op":"group","client":"c","join":[1]}`, "bad_request", "want string, got number"},
		{`{"op":"group","client":"c","leave":["ä"]}`, "bad_request", "is not a name"},
		{`{"op":"audience","key":"k"}`, "bad_request", `needs "audience"`},
		{`{"op":"audience","key":"k","audience":"all"}`, "bad_request", "want object, got string"},
		{`{"op":"audience","key":"k","audience":{"all":1}}`, "bad_request", "want boolean"},
		{`{"op":"audience","key":"k","audience":{"everyone":true}}`, "bad_request", `unknown field "everyone"`},
		{`{"op":"audience","key":"k","audience":{"all":true,"groups":[]}}`, "bad_request", `"all" goes with "except"`},
		{`{"op":"audience","key":"k","audience":{"except":{}}}`, "bad_request", `needs "all"`},
		{`{"op":"audience","key":"k","audience":{"all":true,"except":{"all":true}}}`, "bad_request", `unknown field "all"`},
		// The rest of put.
		{`{"op":"put","key":"k"}`, "bad_request", `needs "values"`},
		{`{"op":"put","key":"k","describe":1,"values":[{"type":"uint8"}]}`, "bad_request", `describe`},
		{`{"op":"put","key":"k","describe":true,"message":"m","values":[{"type":"uint8"}]}`, "bad_request", `not both`},
		{`{"op":"set","key":"k","describe":true,"values":{"a":1}}`, "bad_request", `describe`},
		{`{"op":"put","key":"k","values":[]}`, "bad_request", "at least one value"},
		{`{"op":"put","key":"k","values":{}}`, "bad_request", "want array, got object"},
		{`{"op":"put","key":"k","values":[7]}`, "bad_request", "value 0: want object, got number"},
		{`{"op":"put","key":"k","values":[` + many + `]}`, "too_large", "more than 8192 values"},
		{put(`"message":""`), "bad_request", "at least one byte"},
		{put(`"message":"base64:"`), "bad_request", "at least one byte"},
		{put(`"message":null`), "bad_request", "want string, got null"},
		{put(`"message":"base64:?"`), "type_mismatch", "want base64"},
		{put(`"farewell":"base64:AAA"`), "type_mismatch", "want base64"},
		{put(`"farewell":[]`), "bad_request", "want string, got array"},
		{put(`"access":"write"`), "bad_request", `got "write"`},
		{put(`"access":{}`), "bad_request", `want "writers"`},
		{put(`"access":{"writers":"me"}`), "bad_request", "want array, got string"},
		{put(`"access":{"groups":["me"]}`), "bad_request", `unknown field "groups"`},
		{put(`"access":true`), "bad_request", "want object, got boolean"},
		{value(`"type":"uint8","min":-1`), "out_of_range", "min: -1 does not fit"},
		{value(`"type":"uint8","min":1.5`), "type_mismatch", "fraction"},
		{value(`"type":"uint8","min":null`), "type_mismatch", "min: want uint8"},
		{value(`"type":"vector3f32","max":[1,2,3]`), "type_mismatch", "max: want float32"},
		{value(`"type":"string","max":1`), "type_mismatch", `"max" is for numbers, not for string`},
		{value(`"type":"uint8","min":3,"max":2`), "out_of_range", "min is above max"},
		{value(`"type":"uint8","finite":false`), "type_mismatch", "finite is for floating point"},
		{value(`"type":"float32","finite":1`), "bad_request", `"finite": want boolean`},
		{value(`"type":"data","rate":0`), "bad_request", "rate 0: want 0.01"},
		{value(`"type":"data","rate":1001`), "bad_request", "rate 1001: want 0.01 to 1000"},
		{`{"op":"set","key":"k","values":{"a":1},"rate":1}`, "bad_request", `unknown field "rate"`},
		// Values of put.
		{value(`"name":"hp"`), "bad_request", `value "hp": want "type"`},
		{value(`"type":"float"`), "type_mismatch", `value 0: unknown type "float"`},
		{value(`"type":"Float32"`), "type_mismatch", `unknown type "Float32": want one such as uint8, float32`},
		{value(`"type":9`), "bad_request", "want string, got number"},
		{value(`"type":"uint8","name":"1"`), "bad_request", `name "1"`},
		{value(`"type":"uint8","name":""`), "bad_request", `name ""`},
		{value(`"type":"uint8","name":"a-b"`), "bad_request", `name "a-b"`},
		{value(`"type":"uint8","name":"` + long + `"`), "bad_request", "{0,63}"},
		{value(`"type":"uint8","unit":"m"`), "bad_request", `unknown field "unit"`},
		{value(`"type":"uint8","key":"m"`), "bad_request", `unknown field "key"`},
		{value(`"type":"uint8","name":"a"},{"type":"uint8","name":"a"`), "bad_request", `"a" is given twice`},
		{value(`"type":"float32","precision":"1"`), "bad_request", "want number, got string"},
		{value(`"type":"float32","precision":-1`), "out_of_range", "precision -1: want 0 or more"},
		{value(`"type":"float32","precision":1e999`), "out_of_range", "precision"},
		{value(`"type":"uint8","nullable":1`), "bad_request", "want boolean"},
		{value(`"type":"uint8","null":1`), "bad_request", `needs "nullable":true`},
		{value(`"type":"uint8","nullable":true,"null":null`), "type_mismatch", `"null": want uint8, got null`},
		{value(`"type":"uint8","nullable":true,"null":256`), "out_of_range", "256 does not fit uint8"},
		// Fields of a value.
		{value(`"type":"data","fields":[]`), "bad_request", "value 0: 0 fields, want 1 to 64"},
		{value(`"type":"data","fields":{}`), "bad_request", "want array, got object"},
		{value(`"type":"data","fields":[7]`), "bad_request", "field 0: want object, got number"},
		{value(`"type":"data","fields":[{"name":"a"}]`), "bad_request", `needs "type"`},
		{value(`"type":"data","fields":[{"type":"uint8"}]`), "bad_request", `needs "name"`},
		{value(`"type":"data","fields":[{"name":"a","type":"uint8","unit":"m"}]`), "bad_request", `unknown field "unit"`},
		{value(`"type":"data","fields":[{"name":"a","type":"wide"}]`), "type_mismatch", `unknown type "wide"`},
		{value(`"type":"data","fields":[{"name":"a","type":"string"}]`), "type_mismatch", "want a type of fixed size, got string"},
		{value(`"type":"data","fields":[{"name":"a","type":"uint8"},{"name":"a","type":"uint8"}]`), "bad_request", "not the only one"},
		{value(`"type":"string","fields":[{"name":"a","type":"uint8"}]`), "type_mismatch", "fields are for data, not for string"},
		{value(`"type":"data","fields":[` + strings.Repeat(`{"name":"a","type":"uint8"},`, 64) + `{"name":"a","type":"uint8"}]`), "bad_request", "more than 64"},
		{value(`"type":"data","nullable":true,"null":{"b":1},"fields":[{"name":"a","type":"uint8"}]`), "bad_request", `no field is named "b"`},
		{value(`"type":"data","nullable":true,"null":"AAA=","fields":[{"name":"a","type":"uint8"}]`), "type_mismatch", "2 bytes of data, its fields have 1"},
		// Set.
		{`{"op":"set","key":"k"}`, "bad_request", `needs "values"`},
		{`{"op":"set","key":"k","values":[1]}`, "bad_request", "want object, got array"},
		{`{"op":"set","key":"k","values":{"a":1,"a":2}}`, "bad_request", `"a" is given twice`},
		{`{"op":"set","key":"k","values":{"":1}}`, "bad_request", `value ""`},
		{`{"op":"set","key":"k","values":{"01":1}}`, "bad_request", `value "01"`},
		{`{"op":"set","key":"k","values":{"-0":1}}`, "bad_request", `value "-0"`},
		{`{"op":"set","key":"k","values":{"10000000":1}}`, "bad_request", "value"},
		{`{"op":"set","key":"k","values":{"a b":1}}`, "bad_request", `value "a b"`},
		{`{"op":"set","key":"k","message":"m","values":{}}`, "bad_request", `unknown field "message"`},
	} {
		p, err := JSON.Parse([]byte(c.body), "")
		if err == nil {
			t.Errorf("%s\nwas accepted: %+v", c.body, p)
			continue
		}
		if string(err.Code) != c.code || !strings.Contains(err.Message, c.message) {
			t.Errorf("%.200s\n got %v\nwant %s: …%s…", c.body, err, c.code, c.message)
		}
		if p.Ops != nil {
			t.Errorf("%.200s\nwas refused, but gave ops", c.body)
		}
		twin(t, c.body, c.code)
	}
}

func TestParseKeyOfSubject(t *testing.T) {
	_, err := JSON.Parse([]byte(`{"op":"remove","key":"b"}`), "a")
	if err == nil || err.Code != replication.CodeBadRequest || !strings.Contains(err.Message, `"b" is not the key "a"`) {
		t.Errorf("another key in the body: got %v", err)
	}
}

func TestParseNamesTheOp(t *testing.T) {
	const body = `{"ops":[{"op":"clear"},{"op":"remove"},{"op":"kick","client":"c"}]`
	_, err := JSON.Parse([]byte(body+`}`), "")
	if err == nil || err.Op != 1 {
		t.Errorf("atomic: got %v, want an error of op 1", err)
	}
	p := mustParse(t, body+`,"atomic":false}`, "")
	if p.Atomic || len(p.Ops) != 3 || p.Ops[0].Err != nil || p.Ops[2].Err != nil {
		t.Fatalf("not atomic: got %+v, want the good ops untouched", p)
	}
	if e := p.Ops[1].Err; e == nil || e.Op != 1 || e.Code != replication.CodeBadRequest {
		t.Errorf("not atomic: op 1 carries %v", e)
	}
}

func TestParseManyNames(t *testing.T) {
	var b strings.Builder
	for i := range 40 { // beyond the number of names that are compared one by one
		b.WriteString(`"v` + strings.Repeat("x", i) + `":1,`)
	}
	mustParse(t, `{"op":"set","key":"k","values":{`+b.String()+`"w":1}}`, "")
	for _, twice := range []string{"v", "vxxxxxxxxxxxxx", "v" + strings.Repeat("x", 39)} {
		_, err := JSON.Parse([]byte(`{"op":"set","key":"k","values":{`+b.String()+`"`+twice+`":1}}`), "")
		if err == nil {
			t.Errorf("%q was accepted twice", twice)
		}
	}
}

func TestParseKeepsNothing(t *testing.T) {
	body := []byte(tower)
	p, err := JSON.Parse(body, "")
	if err != nil {
		t.Fatal(err)
	}
	clear(body)
	if op := p.Ops[0]; op.Key != "tower" || op.Values[0].Name != "hp" || op.Values[0].Value != literal("93.5") {
		t.Errorf("the ops changed with the body: %+v", op)
	}
}

// TestConditions: the position up to which a publisher knows what was said, for a whole put and for values alone.
func TestConditions(t *testing.T) {
	p := mustParse(t, `{"ops":[
		{"op":"put","key":"k","as_of":[7,"12"],"values":[{"type":"uint8","value":1},{"type":"uint8","value":1,"as_of":[7,13]},{"type":"uint8","value":1,"as_of":null}]},
		{"op":"set","key":"k","values":{"a":1,"b":2},"as_of":{"b":[7,14]}},
		{"op":"set","key":"k","values":{"a":1,"b":2},"as_of":[7,15]},
		{"op":"audience","key":"k","audience":{"all":true},"as_of":[7,16]},
		{"op":"remove","key":"k","as_of":[7,17]}]}`, "")
	var got []uint64 // sequence numbers, 0 without a condition
	note := func(c replication.Condition) {
		if c.Given && c.AsOf.Epoch != 7 {
			t.Errorf("the epoch of %+v", c)
		}
		got = append(got, c.AsOf.Seq)
	}
	for i := range p.Ops {
		note(p.Ops[i].Only)
		for _, v := range p.Ops[i].Values {
			note(v.Only)
		}
		for _, v := range p.Ops[i].Sets {
			note(v.Only)
		}
	}
	if want := []uint64{12, 12, 13, 0, 0, 0, 14, 0, 15, 15, 16, 17}; !slices.Equal(got, want) {
		t.Errorf("conditions %v, want %v", got, want)
	}
}
