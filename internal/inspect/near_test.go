package inspect

import (
	"encoding/json"
	"reflect"
	"testing"
)

// TestPlaces reads places as people write them, and as JSON, which must come back.
func TestPlaces(t *testing.T) {
	for text, want := range map[string]struct {
		place Place
		json  string
	}{
		"player.alice": {Place{Key: "player.alice"}, `"player.alice"`},
		"tower#top":    {Place{Key: "tower", Value: "top"}, `"tower#top"`},
		"5":            {Place{Key: "5"}, `"5"`},
		"5#0":          {Place{Key: "5", Value: "0"}, `"5#0"`},
		"1, 2.5":       {Place{At: []float64{1, 2.5}}, `[1,2.5]`},
		"-1,0,1e3":     {Place{At: []float64{-1, 0, 1000}}, `[-1,0,1000]`},
	} {
		got, err := ParsePlace(text)
		if err != nil || !reflect.DeepEqual(got, want.place) {
			t.Errorf("%s: %+v, %v, want %+v", text, got, err, want.place)
		}
		if form, err := json.Marshal(got); err != nil || string(form) != want.json {
			t.Errorf("%s as JSON: %s, %v, want %s", text, form, err, want.json)
		}
		again := Place{Key: "old", At: []float64{1}}
		if err := json.Unmarshal([]byte(want.json), &again); err != nil || !reflect.DeepEqual(again, want.place) {
			t.Errorf("%s read: %+v, %v, want %+v", want.json, again, err, want.place)
		}
	}
	for _, text := range []string{"", "a..b", "a b", "a#", "#pos", "a#b c", "1,", "1,2,3,4", "1,x", "1,NaN", "Inf,2"} {
		if p, err := ParsePlace(text); err == nil {
			t.Errorf("%q is the place %+v", text, p)
		}
	}
}

func TestParseClients(t *testing.T) {
	for _, body := range []string{``, `{"near":"a"}`, `{"near":"a#b","within":0,"axes":"xz"}`, `{"near":[1,2],"sees":"c"}`, `{"sees":"c","max":3}`} {
		q, err := ParseClients([]byte(body))
		if err != nil || q.Selects() != (body != "") {
			t.Errorf("%s: selects %v, %v", body, q.Selects(), err)
		}
		form, err := json.Marshal(q)
		if again, bad := ParseClients(form); err != nil || bad != nil || !reflect.DeepEqual(again, q) {
			t.Errorf("%s comes back as %s: %+v, %v", body, form, again, bad)
		}
	}
	for _, body := range []string{
		`{"near":5}`, `{"near":[1]}`, `{"near":[1,2,3,4]}`, `{"near":[1,"x"]}`, `{"near":"a..b"}`, `{"near":{}}`, `{"sees":"a b"}`, `{"sees":5}`,
		`{"within":5}`, `{"axes":"x"}`, `{"near":"a","within":-1}`, `{"near":"a","axes":"zx"}`, `{"near":"a","max":-1}`,
	} {
		if q, err := ParseClients([]byte(body)); err != ErrBadRequest {
			t.Errorf("%s: %+v, %v, want bad_request", body, q, err)
		}
	}
}

// TestSelected drops clients without a nearness.
func TestSelected(t *testing.T) {
	var a ClientsAnswer
	if err := json.Unmarshal([]byte(`{"entries":[{"client":"a"},{"client":"b","near":{"eyes":1}}],"next":"b m"}`), &a); err != nil {
		t.Fatal(err)
	}
	if l := a.Selected(); len(l.Entries) != 1 || l.Entries[0].Client != "b" || l.Next != "b m" {
		t.Errorf("selected are %+v", l)
	}
}
