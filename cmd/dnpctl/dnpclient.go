package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/dnprelay/dnprelay/client"
	"github.com/dnprelay/dnprelay/dnp"
	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/internal/auth"
	"github.com/dnprelay/dnprelay/internal/config"
)

// DNPLogin are the flags that say how to connect to an edge, and as whom.
type DNPLogin struct {
	Profile string `default:"denetwork" env:"-" want:"denetwork,spec" help:"Profile of the edge: denetwork or spec."`
	Token   string `env:"DNP_TOKEN" placeholder:"TOKEN|@FILE" help:"Token to log in with at the edge, or a file with it, as @FILE."`

	CertificateHash []string `env:"-" placeholder:"HEX" help:"SHA-256 of a certificate to trust with wss:// and wt://, in place of the authorities of the system, as /dnp/info of an edge tells it; may be repeated."`
}

// DNPFlags are the flags of commands that act as a game client.
type DNPFlags struct {
	DNPLogin
	Timeout time.Duration `default:"5s" env:"-" want:">0" help:"How long to wait for the connection, and for the result."`
}

// dial connects to the edge at HOST:PORT or a URL, with the events of cfg.
func (f *DNPFlags) dial(ctx context.Context, address string, cfg client.Config) (*client.Client, error) {
	return f.DNPLogin.dial(ctx, address, f.Timeout, cfg)
}

// Problems lists what is wrong with f.
func (f *DNPLogin) Problems() (list config.Problems) {
	_, err := f.token()
	list.AddErr("--token", err)
	for _, hash := range f.CertificateHash {
		b, err := hex.DecodeString(hash)
		list.AddIf(err != nil || len(b) != sha256.Size, "--certificate-hash", "want %d bytes in hex, got %q", sha256.Size, hash)
	}
	return list
}

// dial connects within a time.
func (f *DNPLogin) dial(ctx context.Context, address string, timeout time.Duration, cfg client.Config) (*client.Client, error) {
	token, err := f.token()
	if err != nil {
		return nil, fmt.Errorf("token: %w", err)
	}
	cfg.Profile, _ = wire.ParseProfile(f.Profile) // its tag has checked it
	cfg.Token, cfg.Timeout, cfg.StatesMax = token, timeout, dnp.LinksPossible
	cfg.CertificateHashes = f.CertificateHash
	if !strings.Contains(address, "://") {
		address = "udp://" + address
	}
	c, err := client.Dial(ctx, address, cfg)
	if end, ok := errors.AsType[*client.EndError](err); ok && end.Reason == client.Timeout && !end.Made {
		return nil, fmt.Errorf("%w%s", err, noEdgeHint)
	}
	return c, explain(err, token, time.Now())
}

// noEdgeHint ends an error about an address where no edge answers.
const noEdgeHint = "; is `relay dev` or `edge serve` running there?"

// explain adds to the reason for which a connection ended what is known about the login.
func (f *DNPLogin) explain(err error) error {
	token, unreadable := f.token()
	if unreadable != nil {
		return err
	}
	return explain(err, token, time.Now())
}

// token returns the token to log in with; empty if there is none.
func (f *DNPLogin) token() (string, error) {
	token := f.Token
	if file, ok := strings.CutPrefix(f.Token, "@"); ok {
		text, err := os.ReadFile(file)
		if err != nil {
			return "", err
		}
		token = strings.TrimSpace(string(text))
	}
	if len(token) > client.TokenMax {
		return "", fmt.Errorf("has %d bytes, at most %d", len(token), client.TokenMax)
	}
	return token, nil
}

// stay waits for a while, or until the connection ends, which is an error, or ctx does, which is none.
func stay(ctx context.Context, c *client.Client, d time.Duration) error {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	case <-c.Done():
		return c.Err()
	}
	return nil
}

// named returns how lines show a value of a state: by name, if the link message tells it.
func named(s state, index int) string { return cmp.Or(s.Name(index), fmt.Sprint(index)) }

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
