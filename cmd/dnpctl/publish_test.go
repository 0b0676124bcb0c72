package main

import (
	"testing"
	"time"
)

// TestPublishForms: the relay gets what the arguments say.
func TestPublishForms(t *testing.T) {
	text := func(s string) *string { return &s }
	minute := time.Minute
	for _, c := range []struct {
		publish publishCommand
		want    string // empty for a problem
	}{
		{publishCommand{Remove: true}, `{"op":"remove"}`},
		{publishCommand{Audience: []string{"all"}}, `{"op":"audience","audience":{"all":true}}`},
		{publishCommand{Audience: []string{"nobody"}}, `{"op":"audience","audience":{"all":false}}`},
		{publishCommand{Audience: []string{"group=red", "client=ann"}}, `{"op":"audience","audience":{"clients":["ann"],"groups":["red"]}}`},
		{publishCommand{Audience: []string{"group=red", "all"}}, ""},
		{publishCommand{Audience: []string{"red"}}, ""},
		{publishCommand{Values: []string{"hp=2", "pos=1,2", "owner=Ada"}}, `{"op":"set","values":{"hp":2,"owner":"Ada","pos":[1,2]}}`},
		{publishCommand{Values: []string{"hp=2", "hp=3"}}, ""},
		{publishCommand{Values: []string{"hp"}}, ""},
		{publishCommand{Values: []string{"hp=2"}, Describe: true}, ""},
		{publishCommand{Values: []string{"hp:uint8~0.5?=null", ":vector2f32=1,2"}}, `{"op":"put","values":[{"type":"uint8","name":"hp","value":null,"precision":0.5,"nullable":true},{"type":"vector2f32","value":[1,2]}]}`},
		{publishCommand{Values: []string{"hp:uint8=1"}, Message: text("text:\n"), Farewell: text("bye"), Access: "ann,bob", Audience: []string{"nobody"}, Interest: "walker", TTL: &minute},
			`{"op":"put","message":"text:text:\n","farewell":"bye","access":{"writers":["ann","bob"]},"audience":{"all":false},"interest":"walker","ttl":"1m","values":[{"type":"uint8","name":"hp","value":1}]}`},
		{publishCommand{Values: []string{"hp:uint8=1"}, Describe: true, Access: "read-write"}, `{"op":"put","describe":true,"access":"read-write","values":[{"type":"uint8","name":"hp","value":1}]}`},
		{publishCommand{Values: []string{"hp:number=1"}}, ""},
		{publishCommand{}, ""},
	} {
		got, problems := c.publish.text()
		if (problems != nil) != (c.want == "") || problems == nil && string(got) != c.want {
			t.Errorf("%+v: %s, problems %q, want %s", c.publish, got, problems, c.want)
		}
	}
}
