package token_test

import (
	"crypto/ed25519"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/internal/auth"
	"github.com/dnprelay/dnprelay/token"
)

// A login service signs tokens with the key that `dnpctl token keygen` made.
func Example() {
	made, err := token.GenerateKey()
	if err != nil {
		panic(err)
	}
	file, err := token.EncodeKey(made)
	if err != nil {
		panic(err)
	}

	key, err := token.ParseKey(file)
	if err != nil {
		panic(err)
	}
	text, err := token.Sign(key, token.Claims{Space: "arena", Client: "alice", Write: true, Expires: time.Now().Add(time.Hour)})
	fmt.Println(strings.Count(text, "."), err)
	_, err = token.Sign(key, token.Claims{Space: "_arena", Client: "alice", Expires: time.Now().Add(time.Hour)})
	fmt.Println(err)
	// Output:
	// 2 <nil>
	// token: space "_arena": want 1 to 64 letters, digits, _ or -, without _ in front
}

// TestSign requires that an edge takes a token with all its claims.
func TestSign(t *testing.T) {
	key, keys := newKey(t)
	now := time.Now()
	want := auth.Claims{Client: "alice", Space: "arena", Groups: []string{"red"}, Write: true, Expires: now.Add(time.Hour).Truncate(time.Second), ID: "one"}
	text, err := token.Sign(key, token.Claims{Client: "alice", Space: "arena", Groups: want.Groups, Write: true, Expires: want.Expires, ID: "one", NotBefore: now})
	if err != nil {
		t.Fatal(err)
	}
	got, reason := keys.Verify(now, []byte(text))
	if reason != auth.None || got.Client != want.Client || got.Space != want.Space || !slices.Equal(got.Groups, want.Groups) || !got.Write || !got.Expires.Equal(want.Expires) || got.ID != want.ID {
		t.Errorf("the edge reads %+v, %v, want %+v", got, reason, want)
	}
	late := now.Add(time.Minute)
	if text, err = token.Sign(key, token.Claims{Client: "alice", Space: "arena", Expires: want.Expires, NotBefore: late}); err != nil {
		t.Fatal(err)
	}
	if _, reason := keys.Verify(now, []byte(text)); reason != auth.NotYet {
		t.Errorf("before the token is valid: %v", reason)
	}
	if got, reason := keys.Verify(late, []byte(text)); reason != auth.None || got.Write || got.ID == "" {
		t.Errorf("a token without rights and id: %+v, %v", got, reason)
	}
}

// TestRefused has claims that an edge refuses. Sign says so, and what is wrong.
func TestRefused(t *testing.T) {
	key, _ := newKey(t)
	good := token.Claims{Client: "alice", Space: "arena", Expires: time.Now().Add(time.Hour)}
	for want, change := range map[string]func(*token.Claims){
		`client ""`:           func(c *token.Claims) { c.Client = "" },
		`client "a b"`:        func(c *token.Claims) { c.Client = "a b" },
		`space "a b"`:         func(c *token.Claims) { c.Space = "a b" },
		`group "red."`:        func(c *token.Claims) { c.Groups = []string{"red."} },
		"33 groups":           func(c *token.Claims) { c.Groups = slices.Repeat([]string{"a"}, 33) },
		"which has passed":    func(c *token.Claims) { c.Expires = time.Now().Add(-time.Second) },
		"expires at 0001":     func(c *token.Claims) { c.Expires = time.Time{} },
		"\nid of 130 bytes":   func(c *token.Claims) { c.Client, c.ID = "", strings.Repeat("x", 130) }, // every problem is told
		"at most 24h0m0s":     func(c *token.Claims) { c.Expires = time.Now().Add(25 * time.Hour) },
		"id of 129 bytes":     func(c *token.Claims) { c.ID = strings.Repeat("x", 129) },
		"bytes, at most 1350": func(c *token.Claims) { c.Groups = slices.Repeat([]string{strings.Repeat("x", 64)}, 32) },
	} {
		c := good
		change(&c)
		if _, err := token.Sign(key, c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want an error that says %q", c, err, want)
		}
	}
	if _, err := token.Sign(nil, good); err == nil {
		t.Error("a token without a key")
	}
}

// TestSignAtTheBounds has the most that an edge takes, and what Sign chooses by itself.
func TestSignAtTheBounds(t *testing.T) {
	key, keys := newKey(t)
	now := time.Now()
	ids := map[string]bool{}
	for _, id := range []string{strings.Repeat("x", 128), "", ""} {
		text, err := token.Sign(key, token.Claims{Client: "alice", Space: "arena", Groups: slices.Repeat([]string{"a"}, 32), Expires: now.Add(24 * time.Hour), ID: id})
		if err != nil {
			t.Fatal(err)
		}
		got, reason := keys.Verify(now, []byte(text))
		if reason != auth.None || len(got.Groups) != 32 || id != "" && got.ID != id {
			t.Errorf("the edge reads %+v, %v", got, reason)
		}
		if ids[got.ID] = true; auth.LookAt(now, text).Key != token.KeyID(key) {
			t.Errorf("the token names the key %q, KeyID says %q", auth.LookAt(now, text).Key, token.KeyID(key))
		}
	}
	if len(ids) != 3 {
		t.Errorf("three tokens have the ids %v, so one is refused as used already", ids)
	}
}

func newKey(t *testing.T) (ed25519.PrivateKey, *auth.Keys) {
	key, err := token.GenerateKey()
	if err != nil {
		t.Fatal(err)
	}
	file, err := token.EncodePublic(key)
	if err != nil {
		t.Fatal(err)
	}
	keys, err := auth.ParseKeys(file)
	if err != nil {
		t.Fatal(err)
	}
	return key, keys
}
