package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/dnprelay/dnprelay/client"
	"github.com/dnprelay/dnprelay/internal/auth"
)

// An explained is an error that explain has explained, so that it is not explained twice.
type explained struct{ error }

func (e explained) Unwrap() error { return e.error }

// explain adds to the reason for which a connection ended what a token says about itself, or that
// there is none: an edge does not tell its clients why it refuses them.
func explain(err error, token string, now time.Time) error {
	end, ok := errors.AsType[*client.EndError](err)
	if _, done := errors.AsType[explained](err); !ok || done {
		return err
	}
	if why := reason(end, token, now); why != "" {
		return explained{fmt.Errorf("%w%s", err, why)}
	}
	return err
}

// reason returns what is known about a connection that ended; empty if that is nothing.
func reason(end *client.EndError, token string, now time.Time) string {
	switch {
	case end.Reason == client.Refused && token == "": // of the client's library: it sent no login
		return "; it may want a login (--token)"
	case end.Reason == client.Refused:
		return ": " + tokenText(auth.LookAt(now, token), now)
	case end.Made && token == "" && (end.Reason == client.Peer || end.Reason == client.Unknown):
		return "; this client did not log in (--token), and an edge with --auth token or callout ends such a connection after its --login-timeout"
	}
	return ""
}

// tokenText says what is wrong with a token, or what may be.
func tokenText(l auth.Look, now time.Time) string {
	switch l.Reason {
	case auth.BadToken:
		return "what it was given is not a token of `dnpctl token issue`"
	case auth.Expired:
		return fmt.Sprintf("the token expired %s ago, at %s", passed(now.Sub(l.Expires)), l.Expires.UTC().Format(time.RFC3339))
	case auth.NotYet:
		return fmt.Sprintf("the token is not valid before %s, in %s", l.NotBefore.UTC().Format(time.RFC3339), passed(l.NotBefore.Sub(now)))
	case auth.TooLong:
		return fmt.Sprintf("the token expires at %s, and edges take none that is valid for more than %v", l.Expires.UTC().Format(time.RFC3339), auth.LifeMax)
	case auth.BadClaims:
		return fmt.Sprintf("the token has a bad name: client %q, space %q, groups %q", l.Client, l.Space, l.Groups)
	case auth.BadKey:
		return "the token is not signed with Ed25519"
	}
	key := "a key that it does not name"
	if l.Key != "" {
		key = fmt.Sprintf("key %q", l.Key)
	}
	return fmt.Sprintf("the token, of client %s in space %s, is of %s, which the edge's --token-keys may lack, or was used before from another address; the edge's log has the reason", l.Client, l.Space, key)
}

// passed returns a duration for people.
func passed(d time.Duration) time.Duration {
	if d < time.Minute {
		return d.Round(100 * time.Millisecond)
	}
	return d.Round(time.Second)
}
