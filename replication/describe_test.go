package replication

import (
	"strings"
	"testing"
)

// TestDescribe follows the link message of a state through puts. A state that is described stays so,
// with the names that it has; a publisher that repeats a put without saying so must not leave clients
// with names of values that are gone.
func TestDescribe(t *testing.T) {
	s := newStoreTest(t, Limits{})
	put := func(change func(*Op)) Op {
		op := tower("a")
		change(&op)
		return op
	}
	describe := func(on bool) func(*Op) { return func(op *Op) { op.HasDescribe, op.Describe = true, on } }
	rename := func(op *Op) { op.Values[1].Name = "landlord" }
	const described = `{"v":1,"key":"a","names":["hp","owner","text"]}`
	for _, c := range []struct {
		why    string
		change func(*Op)
		want   string
	}{
		{"a new state has its key", func(*Op) {}, "a"},
		{"described", describe(true), described},
		{"a put that says nothing of it changes nothing", func(*Op) {}, described},
		{"another name", rename, `{"v":1,"key":"a","names":["hp","landlord","text"]}`},
		{"another layout", func(op *Op) { op.Values = op.Values[:1] }, `{"v":1,"key":"a","names":["hp"]}`},
		{"the key again", describe(false), "a"},
		{"a message of the publisher", func(op *Op) { op.HasMessage, op.Message = true, []byte(`{"v":1,"key":"b"}`) }, `{"v":1,"key":"b"}`},
		{"which stays, whatever names there are", rename, `{"v":1,"key":"b"}`},
		{"until it is described", describe(true), described},
		{"names that take too much", func(op *Op) {
			for i := range op.Values {
				op.Values[i].Name = strings.Repeat("x", 60) + string('a'+rune(i))
			}
			for i := range 20 {
				v := op.Values[0]
				v.Name = strings.Repeat("y", 60) + string('a'+rune(i))
				op.Values = append(op.Values, v)
			}
		}, "a"},
	} {
		s.ok(put(c.change))
		if got := string(s.List("", 10).States[0].Desc.Message); got != c.want {
			t.Fatalf("%s: the link message is %s, want %s", c.why, got, c.want)
		}
	}
	s.ok(put(describe(true)))
	s.ok(Op{Kind: OpAudience, Key: "a", HasAudience: true, Audience: Audience{Kind: AudienceAll}})
	if got := string(s.List("", 10).States[0].Desc.Message); got != described {
		t.Fatalf("another audience changes the link message to %s", got)
	}
	s.ok(put(func(op *Op) { op.HasMessage, op.Message = true, []byte("m") }))
	if got := string(s.List("", 10).States[0].Desc.Message); got != "m" {
		t.Fatalf("a message in place of a description: the link message is %s", got)
	}
	s.refuse("both", CodeBadRequest, "not both", put(func(op *Op) { op.HasDescribe, op.HasMessage, op.Message = true, true, []byte("m") }))
}
