// Package token signs the tokens by which clients log in to edges with --auth token. A login service of a game
// imports it:
//
//	key, err := token.ParseKey(pem) // of `dnpctl token keygen`, or GenerateKey
//	text, err := token.Sign(key, token.Claims{Space: "arena", Client: "alice", Write: true, Expires: time.Now().Add(time.Hour)})
//
// The client sends the token as its first reliable message (package client: Config.Token). Edges know the public key
// (--token-keys). A token is a JWT signed with Ed25519; INTERFACES.md, "Logging in", has its claims for services in
// other languages.
package token

import (
	"cmp"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/dnprelay/dnprelay/internal/auth"
	"github.com/dnprelay/dnprelay/subject"
)

// Bounds of a token.
const (
	LifeMax   = auth.LifeMax   // from now to Claims.Expires
	GroupsMax = auth.GroupsMax // of Claims
	SizeMax   = auth.TokenMax  // bytes; more do not fit a login message
)

// Claims are what a token says about a client.
type Claims struct {
	Space  string // that the client joins
	Client string // its name
	Groups []string
	Write  bool // it may write states that allow it, and make states

	// Expires is when the token is no longer valid, and the session that began with it ends.
	Expires time.Time

	// NotBefore is when the token begins to be valid; the zero time is at once.
	NotBefore time.Time

	// ID makes the token unique, because it is good for one client; default: a random one.
	ID string
}

// Sign returns a token. The error says which claim an edge would refuse.
func Sign(key ed25519.PrivateKey, c Claims) (string, error) {
	if len(key) != ed25519.PrivateKeySize {
		return "", errors.New("token: not an Ed25519 private key")
	}
	if err := c.check(time.Now()); err != nil {
		return "", fmt.Errorf("token: %w", err)
	}
	claims := auth.Claims{Client: c.Client, Space: c.Space, Groups: c.Groups, Write: c.Write, Expires: c.Expires, ID: cmp.Or(c.ID, rand.Text())}
	text, err := auth.Issue(key, claims, c.NotBefore)
	switch {
	case err != nil:
		return "", fmt.Errorf("token: %w", err)
	case len(text) > SizeMax:
		return "", fmt.Errorf("token: %d bytes, at most %d; use fewer groups", len(text), SizeMax)
	}
	return text, nil
}

// check reports every claim that an edge would refuse.
func (c *Claims) check(now time.Time) error {
	var problems []error
	refuse := func(bad bool, format string, args ...any) {
		if bad {
			problems = append(problems, fmt.Errorf(format, args...))
		}
	}
	const name = "want 1 to 64 letters, digits, _ or -"
	refuse(!subject.ValidToken(c.Space) || c.Space[0] == '_', "space %q: %s, without _ in front", c.Space, name)
	refuse(!subject.ValidToken(c.Client), "client %q: %s", c.Client, name)
	for _, g := range c.Groups {
		refuse(!subject.ValidToken(g), "group %q: %s", g, name)
	}
	refuse(len(c.Groups) > GroupsMax, "%d groups, at most %d", len(c.Groups), GroupsMax)
	refuse(!c.Expires.After(now), "expires at %v, which has passed", c.Expires)
	refuse(c.Expires.After(now.Add(LifeMax)), "expires at %v, at most %v from now", c.Expires, LifeMax)
	refuse(len(c.ID) > auth.IDMax, "id of %d bytes, at most %d", len(c.ID), auth.IDMax)
	return errors.Join(problems...)
}

// GenerateKey returns a new private key.
func GenerateKey() (ed25519.PrivateKey, error) {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	return key, err
}

// EncodeKey returns a private key in the form of a file, which must be kept secret.
func EncodeKey(key ed25519.PrivateKey) ([]byte, error) { return auth.EncodePrivate(key) }

// ParseKey parses what EncodeKey made.
func ParseKey(text []byte) (ed25519.PrivateKey, error) { return auth.ParsePrivate(text) }

// EncodePublic returns the public key of a private key in the form of a file for --token-keys.
func EncodePublic(key ed25519.PrivateKey) ([]byte, error) { return auth.EncodePublic(public(key)) }

// KeyID returns the name of a key in tokens and in logs of edges.
func KeyID(key ed25519.PrivateKey) string { return auth.KeyID(public(key)) }

func public(key ed25519.PrivateKey) ed25519.PublicKey { return key.Public().(ed25519.PublicKey) }
