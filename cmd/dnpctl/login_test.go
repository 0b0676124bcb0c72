package main

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/client"
	"github.com/dnprelay/dnprelay/token"
)

// TestExplain: an error about a login says what the token tells.
func TestExplain(t *testing.T) {
	key, err := token.GenerateKey()
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	good, err := token.Sign(key, token.Claims{Space: "s", Client: "c", Expires: now.Add(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	refused := &client.EndError{Address: "a:1", Reason: client.Refused}
	ended := &client.EndError{Address: "a:1", Reason: client.Peer, Made: true}
	for _, c := range []struct {
		why   string
		err   error
		token string
		now   time.Time
		want  string
	}{
		{"another key", refused, good, now, "of client c in space s, is of key \"" + token.KeyID(key) + "\""},
		{"too late", refused, good, now.Add(time.Hour + 90*time.Second), "the token expired 1m3"},
		{"no token", refused, "garbage", now, "is not a token of `dnpctl token issue`"},
		{"no login", ended, "", now, "this client did not log in (--token)"},
		{"the end of a session", ended, good, now, "ended: peer"},
		{"another error", errors.New("x"), "", now, "x"},
	} {
		got := explain(c.err, c.token, c.now)
		if !strings.Contains(got.Error(), c.want) || !errors.Is(got, c.err) {
			t.Errorf("%s: %v, want %q", c.why, got, c.want)
		}
		if again := explain(got, c.token, c.now); again.Error() != got.Error() {
			t.Errorf("%s: it is explained twice: %v", c.why, again)
		}
	}
	if got := explain(ended, good, now).Error(); strings.Contains(got, "--token") {
		t.Errorf("a client that logged in is told to: %s", got)
	}
}
