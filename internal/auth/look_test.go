package auth

import (
	"crypto/ed25519"
	"strings"
	"testing"
	"time"
)

// TestLookAt: a token tells its claims and its key without the key, and what is wrong with it for
// every edge.
func TestLookAt(t *testing.T) {
	key := ed25519.NewKeyFromSeed([]byte(strings.Repeat("k", 32)))
	now := time.Unix(1_700_000_000, 0)
	issue := func(expires, notBefore time.Duration, space string) string {
		var from time.Time
		if notBefore != 0 {
			from = now.Add(notBefore)
		}
		text, err := Issue(key, Claims{Client: "c", Space: space, Expires: now.Add(expires), ID: "1"}, from)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	good := issue(time.Hour, 0, "s")
	l := LookAt(now, good)
	if l.Reason != None || l.Client != "c" || l.Space != "s" || !l.Expires.Equal(now.Add(time.Hour)) || l.Key != KeyID(key.Public().(ed25519.PublicKey)) || !l.NotBefore.IsZero() {
		t.Errorf("%+v", l)
	}
	if l = LookAt(now, issue(time.Hour, time.Minute, "s")); l.Reason != NotYet || !l.NotBefore.Equal(now.Add(time.Minute)) {
		t.Errorf("not yet valid: %+v", l)
	}
	head, rest, _ := strings.Cut(good, ".")
	for text, want := range map[string]Reason{
		issue(-time.Second, 0, "s"):          Expired,
		issue(48*time.Hour, 0, "s"):          TooLong,
		issue(time.Hour, 0, "_s"):            BadClaims,
		"":                                   BadToken,
		"garbage":                            BadToken,
		head:                                 BadToken,
		head + ".e30." + "AAAA":              BadToken, // claims without any
		"eyJhbGciOiJIUzI1NiJ9." + rest:       BadKey,   // {"alg":"HS256"}
		"eyJhbGciOiJub25lIn0." + rest:        BadKey,   // {"alg":"none"}
		good + strings.Repeat("A", TokenMax): BadToken,
	} {
		if got := LookAt(now, text).Reason; got != want {
			t.Errorf("%.40s: %v, want %v", text, got, want)
		}
	}
}
