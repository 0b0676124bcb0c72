package main

import "testing"

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
		if got := string(e.text()); c.want != "" && got != c.want {
			t.Errorf("%v: %s, want %s", c.at, got, c.want)
		}
	}
	for text, want := range map[string]string{"walker": `"walker"`, "null": "null", `{"at":"pos"}`: `{"at":"pos"}`, "{": `"{"`} {
		if got := string(parseInterest(text)); got != want {
			t.Errorf("--interest %s is %s, want %s", text, got, want)
		}
	}
}
