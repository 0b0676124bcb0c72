package payload

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/dnprelay/dnprelay/replication"
)

// sameParse checks that a Parser finds in a body what Form.Parse does, and returns whether it read the body by itself.
func sameParse(t *testing.T, r *Parser, body, key string) (plain bool) {
	t.Helper()
	want, refused := JSON.Parse([]byte(body), key)
	got, err := r.Parse(JSON, []byte(body), key)
	if !reflect.DeepEqual(err, refused) {
		t.Fatalf("%s\nwith the key %q in the subject: %v, want %v", body, key, err, refused)
	}
	if refused != nil {
		return false
	}
	for i := range got.Ops {
		for j := range got.Ops[i].Sets {
			if l, ok := got.Ops[i].Sets[j].Value.(*literal); ok {
				got.Ops[i].Sets[j].Value, plain = *l, true
			}
		}
	}
	if got.Atomic != want.Atomic || len(got.Ops) != len(want.Ops) {
		t.Fatalf("%s\natomic %v with %d ops, want %v with %d", body, got.Atomic, len(got.Ops), want.Atomic, len(want.Ops))
	}
	for i := range want.Ops {
		if !reflect.DeepEqual(got.Ops[i], want.Ops[i]) {
			t.Fatalf("%s\nop %d is %+v\nwant %+v", body, i, got.Ops[i], want.Ops[i])
		}
	}
	return plain
}

// TestParser compares both parsers, and says what has to be read in one pass, because that is what game servers send.
func TestParser(t *testing.T) {
	var r Parser
	long := `{"op":"set","key":"k","values":{"v0":0`
	for i := 1; i < setsFew; i++ {
		long += fmt.Sprintf(`,"v%d":%d`, i, i)
	}
	for _, c := range []struct {
		body  string
		key   string
		plain bool
		why   string
	}{
		{`{"op":"set","key":"tower","values":{"hp":92,"1":[1,2,4]}}`, "", true, "an op as game servers write it"},
		{`{"op":"set","values":{"hp":92}}`, "a.b", true, "the subject has the key"},
		{`{"op":"set","key":"a.b","values":{"hp":92}}`, "a.b", true, "both have the same key"},
		{" {\"values\" : {\"a\" : [ 1 , -2.5e-7 ,0 ] , \"b\":null\t} ,\n\"key\":\"k\", \"op\" : \"set\" } ", "", true, "white space, and another order"},
		{`{"atomic":false,"ops":[{"op":"set","key":"k","values":{"2":5}},{"op":"set","key":"k","values":{"3":"text ~","4":true,"5":false}}]}`, "", true, "what package publisher sends"},
		{`{"ops":[{"op":"set","key":"k","values":{"2":5}}],"atomic":true}`, "", true, "atomic behind the ops"},
		{long + `}}`, "", true, "as many values as are read in one pass"},
		{long + `,"more":1}}`, "", false, "one more"},
		{`{"op":"set","key":"k","values":{"a":"\u0041","\u0062":1}}`, "", false, "escapes"},
		{`{"op":"set","key":"k","values":{"a":"é","b":[[1],2],"c":{"d":1},"d":["1"],"e":[],"f":""}}`, "", false, "other values"},
		{`{"ops":[{"op":"set","key":"k","values":{"a":1}},{"op":"remove","key":"k"}]}`, "", false, "another op among sets"},
		{tower, "", false, "another op"},
	} {
		if got := sameParse(t, &r, c.body, c.key); got != c.plain {
			t.Errorf("%s: %s\nis read in one pass: %v, want %v", c.why, c.body, got, c.plain)
		}
	}
	for _, wrong := range []string{
		``, ` `, `{`, `{}`, `[]`, `{"op":"set"}`, `{"ops":[]}`, `{"ops":{}}`, `{"atomic":true}`, `{"atomic":true,"atomic":true,"ops":[]}`, `{"ops":[{"op":"set","key":"k","values":{"a":1}}],"ops":[]}`,
		`{"op":"set","key":"k"}`, `{"op":"set","key":"k","values":{}}`, `{"op":"set","values":{"a":1}}`, `{"op":"set","key":"k.","values":{"a":1}}`, `{"op":"set","key":"","values":{"a":1}}`,
		`{"op":"set","key":"k","values":{"a":1},"more":1}`, `{"op":"set","op":"set","key":"k","values":{"a":1}}`, `{"op":"set","key":"k","key":"k","values":{"a":1}}`,
		`{"op":"set","key":"k","values":{"a":1},"values":{"a":1}}`, `{"op":"set","key":"k","values":{"a":1,"a":1}}`, `{"op":"set","key":"k","values":{"01":1}}`, `{"op":"set","key":"k","values":{"-1":1}}`,
		`{"op":"set","key":"k","values":{"a b":1}}`, `{"op":"set","key":"k","values":{"99999":1}}`, `{"op":"set","key":"k","atomic":true,"values":{"a":1}}`,
	} {
		sameParse(t, &r, wrong, "")
	}
	for _, number := range []string{
		"0", "-0", "00", "01", "-01", "-", "+1", "1.", ".5", "1.5", "1e", "1e+", "1E-5", "1e05", "0e0", "0.0e-0", "1..2", "1e1.5", "0x1", "1_0", "NaN", "Infinity", "1 2", "--1", "1-", "tru", "true1", "nul", "nullnull",
		"[1,]", "[,1]", "[1", "[1]]", "[1 2]", "[01]", "[-]", "[1,2.]", "[ 1 ]", "[1 ,2]", "[null]", `"a`, "\"a\x00\"", "\"\x7f\"", "\"\xff\"",
	} {
		for _, form := range []string{`{"op":"set","key":"k","values":{"a":%s}}`, `{"op":"set","key":"k","values":{"a":[1,%s],"b":2}}`, `{"ops":[{"op":"set","key":"k","values":{"a": %s }}]}`} {
			sameParse(t, &r, fmt.Sprintf(form, number), "")
		}
	}
	for _, body := range examples {
		sameParse(t, &r, body, "")
		sameParse(t, &r, body, "tower")
		sameParse(t, &r, body, "another")
	}
}

// TestParserSpoilt compares both parsers on bodies with a byte that is gone, doubled or another, and on all that end early. One
// Parser reads all, so nothing of one body may be left in another.
func TestParserSpoilt(t *testing.T) {
	body := ` {"atomic": false,"ops":[{"op":"set","key":"a.b","values":{"pos":[1.5,-2e3,0],"1":null}}, {"values":{"t":"x","u":true},"op":"set","key":"c"}]} `
	var r Parser
	if !sameParse(t, &r, body, "") {
		t.Fatal("the body is not read in one pass, so this test compares nothing")
	}
	random := rand.New(rand.NewPCG(1, 2))
	const bytes = `{}[]",:0123.-+eEtnf\ ` + "\x00\x1f\x7f\xc3"
	for i := range body {
		sameParse(t, &r, body[:i], "")
		sameParse(t, &r, body[i:], "")
		sameParse(t, &r, body[:i]+body[i+1:], "")
		sameParse(t, &r, body[:i]+body[i:i+1]+body[i:], "")
		for range 8 {
			sameParse(t, &r, body[:i]+string(bytes[random.IntN(len(bytes))])+body[i+1:], "")
		}
	}
	sameParse(t, &r, body, "")
}

// TestParserAllocates checks that a list of ops costs the copy of its body, and an op nothing.
func TestParserAllocates(t *testing.T) {
	var r Parser
	body := []byte(`{"ops":[` + strings.Repeat(`{"op":"set","key":"npc.17","values":{"pos":[123.5,0,-7],"1":[0,0.5,0,1]}},`, 99) + `{"op":"set","key":"a","values":{"0":1}}]}`)
	parse := func() {
		if p, err := r.Parse(JSON, body, ""); err != nil || len(p.Ops) != 100 {
			t.Fatalf("%d ops, %v", len(p.Ops), err)
		}
	}
	parse()
	if n := testing.AllocsPerRun(100, parse); n > 1 {
		t.Errorf("parsing 100 ops allocates %v times, want once, for the copy of the body", n)
	}
}

// TestParserForgets checks that a Parser keeps nothing of a body that it has read, and no memory of one with very many ops.
func TestParserForgets(t *testing.T) {
	var r Parser
	ops := func(n int) []byte {
		return []byte(`{"ops":[` + strings.Repeat(`{"op":"set","key":"k","values":{"a":1}},`, n-1) + `{"op":"set","key":"k","values":{"a":1}}]}`)
	}
	for _, n := range []int{500, 1} {
		if _, err := r.Parse(JSON, ops(n), ""); err != nil {
			t.Fatal(err)
		}
	}
	for i, op := range r.ops[1:500] {
		if !reflect.DeepEqual(op, replication.Op{Kind: replication.OpSet}) || r.sets[1:500][i] != (replication.SetValue{}) || r.literals[1:500][i] != "" {
			t.Fatalf("op %d of an earlier body is still there: %+v", i+1, op)
		}
	}
	for _, n := range []int{2 * opsKept, 1} {
		if _, err := r.Parse(JSON, ops(n), ""); err != nil {
			t.Fatal(err)
		}
	}
	if cap(r.ops) > opsKept {
		t.Errorf("the memory of %d ops is kept, want at most %d", cap(r.ops), opsKept)
	}
}
