package publisher

import (
	"slices"
	"testing"
	"time"
)

// TestAbsent lets edges not name a session for a while. Follow reports that it left when they have not
// named it for ten seconds in which they could have.
func TestAbsent(t *testing.T) {
	var got []string
	w := &follower{sessions: map[string]*presence{}, f: func(ev Event) { got = append(got, ev.Type+" "+ev.Session+" "+ev.Reason) }}
	start := time.Unix(1_000_000, 0)
	both, one := []Client{{Client: "a", Session: "s1", Edge: "e"}, {Client: "b", Session: "s2", Edge: "e"}}, []Client{{Client: "a", Session: "s1", Edge: "e"}}
	for _, x := range []struct {
		at          float64 // seconds
		reconnected bool
		list        []Client
		stale       bool // Follow asks again
		want        []string
		why         string
	}{
		{0, false, both, false, []string{"joined s1 ", "joined s2 "}, "the edges name two sessions"},
		{60, true, nil, true, nil, "after a minute without NATS the edges have not found another server yet"},
		{62, false, both, false, nil, "they play on"},
		{70, false, one, true, nil, "one is absent from now on"},
		{79, false, one, true, nil, "for nine seconds"},
		{79.5, true, one, true, nil, "NATS was away, so that the ten seconds begin again"},
		{89, false, one, true, nil, "for another nine and a half"},
		{89.5, false, one, false, []string{"left s2 missed"}, "for ten seconds in which the edge could have named it"},
		{90, false, both, false, []string{"joined s2 "}, "it came back after all"},
	} {
		got = nil
		if x.reconnected {
			w.reconnected()
		}
		w.answered(start.Add(time.Duration(x.at*float64(time.Second))), x.list)
		if !slices.Equal(got, x.want) || w.stale != x.stale {
			t.Errorf("second %v: events %q, want %q; asks again: %v, want %v: %s", x.at, got, x.want, w.stale, x.stale, x.why)
		}
	}
}
