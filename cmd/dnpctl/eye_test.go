package main

import (
	"encoding/json"
	"testing"
)

func TestEye(t *testing.T) {
	for _, c := range []struct {
		at   []string
		want string
	}{
		{nil, `{"op":"eye","client":"c","at":null}`},
		{[]string{"player.a"}, `{"op":"eye","client":"c","at":["player.a"]}`},
		{[]string{"a#pos", "10,0,-3.5", "1,2"}, `{"op":"eye","client":"c","at":["a#pos",[10,0,-3.5],[1,2]]}`},
		{[]string{"1,NaN"}, ""},
		{[]string{"a b"}, ""},
		{[]string{"1,2,3,4"}, ""},
	} {
		e := eyeCommand{Client: "c", At: c.at}
		if problems := e.Problems(); (len(problems) > 0) != (c.want == "") {
			t.Errorf("%v: problems %v", c.at, problems)
		}
		if got, err := json.Marshal(e.op()); c.want != "" && (err != nil || string(got) != c.want) {
			t.Errorf("%v: %s, %v, want %s", c.at, got, err, c.want)
		}
	}
	for text, want := range map[string]string{"walker": `"walker"`, "null": "null", `{"at":"pos"}`: `{"at":"pos"}`, "{": `"{"`} {
		if got, err := json.Marshal(parseInterest(text)); err != nil || string(got) != want {
			t.Errorf("--interest %s is %s, %v, want %s", text, got, err, want)
		}
	}
}
