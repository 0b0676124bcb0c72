package publisher

import (
	"strings"
	"testing"
	"time"
)

// TestLives drives a Space by hand: it says a state with a time to live again three times within
// that, and no other state.
func TestLives(t *testing.T) {
	s := quietSpace()
	now := time.Unix(1000, 0)
	put := func(key string, ttl time.Duration) {
		e, err := Put{Key: key, TTL: ttl, Values: []Value{{Type: Uint8, Value: 1}}}.encode()
		if err != nil {
			t.Fatal(err)
		}
		s.apply(now, e, nil)
	}
	said := func(why string, after time.Duration, want ...string) {
		t.Helper()
		now = now.Add(after)
		s.lives.renew(now, s)
		body := string(s.compose(&request{}))
		for _, op := range want {
			if !strings.Contains(body, op) {
				t.Fatalf("%s: the relay gets %s, want %s", why, body, op)
			}
		}
		if got := strings.Count(body, `{"op":`); got != len(want) {
			t.Fatalf("%s: the relay gets %s, want %d ops", why, body, len(want))
		}
	}
	audience := func(key string) string {
		return `{"op":"audience","key":"` + key + `","audience":{"all":true},"as_of":[0,0]}`
	}
	if at, ok := s.lives.next(); ok {
		t.Fatalf("nothing has a time to live, and a round begins at %v", at)
	}
	put("for-ever", 0)
	put("long", time.Hour)
	put("short", 30*time.Second)
	said("the puts", 0, `"key":"for-ever"`, `"ttl":"1h"`, `"ttl":"30s"`)
	if at, _ := s.lives.next(); !at.Equal(now.Add(10 * time.Second)) {
		t.Fatalf("the next round begins at %v, want a third of 30 s after %v", at, now)
	}
	said("before a third of the time", 9*time.Second)
	said("a third of the time", time.Second, audience("long"), audience("short"))
	said("not again in the same round", time.Second)
	put("short", 0)
	said("a put without a time to live takes it away", 0, `"ttl":"0s"`)
	said("then it is not said again", 9*time.Second, audience("long"))
	s.apply(now, op{source: Remove{Key: "long"}}, nil)
	s.compose(&request{})
	said("a state that was removed is not said again", 20*time.Minute)
	if at, ok := s.lives.next(); ok {
		t.Fatalf("no state is left, and a round begins at %v", at)
	}
}
