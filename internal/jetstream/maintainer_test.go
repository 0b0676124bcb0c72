package jetstream

import (
	"testing"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"
)

// TestForgot checks by what a stream is known to lack messages that nobody deleted.
func TestForgot(t *testing.T) {
	began := time.Unix(1_000_000, 0)
	state := func(msgs, first, last uint64, at time.Duration) natsjs.StreamState {
		return natsjs.StreamState{Msgs: msgs, FirstSeq: first, LastSeq: last, FirstTime: began.Add(at)}
	}
	had := state(10, 5, 20, time.Minute)
	for _, c := range []struct {
		why  string
		had  natsjs.StreamState
		has  natsjs.StreamState
		want bool
	}{
		{"nothing changed", had, had, false},
		{"it grew", had, state(12, 5, 22, time.Minute), false},
		{"the first ones were deleted", had, state(3, 18, 22, 2*time.Minute), false},
		{"all were deleted", had, state(0, 21, 20, 0), false},
		{"it got its first messages", state(0, 21, 20, 0), state(2, 21, 22, time.Hour), false},
		{"it was new and got its first messages", state(0, 0, 0, 0), state(2, 1, 2, time.Hour), false},
		{"the newest are gone", had, state(8, 5, 18, time.Minute), true},
		{"everything is gone", had, state(0, 1, 0, 0), true},
		{"everything is gone, and more came since", had, state(30, 1, 30, time.Hour), true},
		{"everything is gone from the first sequence on, and more came since", state(10, 1, 10, 0), state(11, 1, 11, time.Hour), true},
		{"an older disk got more since", had, state(40, 3, 42, time.Second), true},
	} {
		if got := forgot(&c.had, &c.has); got != c.want {
			t.Errorf("%s: forgot is %v", c.why, got)
		}
	}
}
