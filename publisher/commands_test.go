package publisher

import (
	"errors"
	"testing"
)

// TestAnswerHeardLate: an edge that says that the client has an answer means this one if the edge did not confirm an earlier attempt in
// time, and another one otherwise.
func TestAnswerHeardLate(t *testing.T) {
	for _, c := range []struct {
		reply   string
		unheard bool
		ends    bool
		want    error
	}{
		{`{"number":7}`, false, true, nil},
		{`{"duplicate":true}`, false, true, ErrLate},
		{`{"duplicate":true}`, true, true, nil},
		{`{"error":{"code":"unknown_client"}}`, true, true, ErrLate},
		{`{"error":{"code":"busy"}}`, true, false, nil},
	} {
		if ends, err := verdict("c", []byte(c.reply), c.unheard); ends != c.ends || !errors.Is(err, c.want) {
			t.Errorf("after %s (an attempt was not confirmed: %t) the repetition ends: %t, %v; want %t, %v", c.reply, c.unheard, ends, err, c.ends, c.want)
		}
	}
}
