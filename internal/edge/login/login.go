// Package login finds out who the clients of an edge are: it does not ask, or it judges
// the token or asks the game's own service about the first reliable message of a client.
//
// An [Authority] is shared by the workers of an edge. Each worker has a [Judge], whose
// Func is the LoginFunc of the worker's endpoint. A token is judged at once. While the
// game's service is asked, nothing of the client exists but an entry of the Judge.
package login

import (
	"context"
	"hash/maphash"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"github.com/dnprelay/dnprelay/bus"
	"github.com/dnprelay/dnprelay/dnp"
	"github.com/dnprelay/dnprelay/dnp/admit"
	"github.com/dnprelay/dnprelay/internal/auth"
	"github.com/dnprelay/dnprelay/subject"
)

// Auth says how clients tell who they are.
type Auth uint8

const (
	// AuthOpen does not ask: every client gets a name and joins OpenSpace. Its proofs
	// can be guessed, so it is for trusted networks.
	AuthOpen Auth = iota
	// AuthToken wants a signed token as the first reliable message.
	AuthToken
	// AuthCallout passes the first reliable message to the game's own service.
	AuthCallout
)

// calloutRate is how many logins per second a worker passes to the game's service unless
// the operator says otherwise.
const calloutRate = 200

// Admission returns what a worker lets through, which is cfg with the defaults of a.
func (a Auth) Admission(cfg admit.Config) admit.Config {
	if a == AuthCallout && cfg.LoginRate == 0 {
		cfg.LoginRate = calloutRate
	}
	return cfg
}

// Config is what an Authority is made of.
type Config struct {
	Auth      Auth
	TokenKeys string // file with the public keys of AuthToken
	OpenSpace string // space of AuthOpen

	// For AuthCallout: where to ask, and the name of the edge in questions.
	Subjects subject.Names
	Node     string

	NewID func() string // makes names that are unique for ever
	Log   *slog.Logger
}

// An Authority has what all workers of an edge need to judge logins. Any goroutine may use
// it.
type Authority struct {
	cfg  Config
	keys keyring

	// The mutex is there because a token may come to any worker. It is locked once per good
	// token.
	mu   sync.Mutex
	used auth.Replay
}

// New returns an Authority. It reads the token keys if it needs them.
func New(cfg Config) (*Authority, error) {
	a := &Authority{cfg: cfg, keys: keyring{file: cfg.TokenKeys, log: cfg.Log}}
	if cfg.Auth == AuthToken {
		if err := a.keys.load(); err != nil {
			return nil, err
		}
	}
	return a, nil
}

// Watch reads the token keys again when their file changes, until ctx ends.
func (a *Authority) Watch(ctx context.Context) {
	if a.cfg.Auth == AuthToken {
		a.keys.watch(ctx)
	}
}

// Stats are the counters of a Judge.
type Stats struct {
	Logins   [auth.NumReasons]uint64 // by result
	Callouts uint64                  // requests to the game's service
}

// A Host is what a Judge needs of the worker that owns it.
type Host interface {
	// Request sends a message and calls done on a turn of the worker, with the answer, or with
	// an error if none comes within wait. done is not called if the worker's inbox is full.
	Request(m bus.Msg, wait time.Duration, done func(now time.Time, answer []byte, err error))

	// LoggedIn tells what became of a login for which Func returned LoginWait. claims is
	// nil if the login is refused.
	LoggedIn(now time.Time, from netip.AddrPort, claims *auth.Claims)
}

// A Judge judges the logins of the clients of one worker, which owns it.
type Judge struct {
	*Authority
	Stats
	host Host

	pending  map[netip.AddrPort]callout // logins that the game's service is asked about
	refusals []refusal                  // of late, by hash; a newer one takes the place of an older one
	seed     maphash.Seed
}

// Judge returns the Judge of a worker.
func (a *Authority) Judge(host Host) *Judge {
	return &Judge{Authority: a, host: host, pending: make(map[netip.AddrPort]callout), seed: maphash.MakeSeed()}
}

// Func returns what judges the logins, nil if no client has to log in.
func (j *Judge) Func() dnp.LoginFunc {
	switch j.cfg.Auth {
	case AuthToken:
		return j.loginToken
	case AuthCallout:
		return j.loginCallout
	}
	return nil
}

// Identity returns who the peer of a connection that begins is.
func (j *Judge) Identity(conn *dnp.Conn) *auth.Claims {
	if claims, ok := conn.Data().(*auth.Claims); ok {
		return claims
	}
	return &auth.Claims{Client: "c-" + j.cfg.NewID(), Space: j.cfg.OpenSpace, Write: true}
}

// use notes that a client logs in with a token.
func (a *Authority) use(now time.Time, c *auth.Claims, from netip.Addr) auth.Reason {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.used.Use(now, c, from)
}

// loginToken judges a login by the token in it.
func (j *Judge) loginToken(now time.Time, from netip.AddrPort, message []byte) (dnp.LoginVerdict, any) {
	claims, reason := auth.Claims{}, auth.NoToken
	if token, ok := auth.Token(message); ok {
		claims, reason = j.keys.keys.Load().Verify(now, token)
	}
	if reason == auth.None {
		reason = j.use(now, &claims, from.Addr())
	}
	j.Logins[reason]++
	if reason != auth.None {
		return dnp.LoginRefuse, nil
	}
	return dnp.LoginAccept, &claims
}
