// Package login finds out who the clients of an edge are: it does not ask, or it judges
// the token or asks the game's own service about the first reliable message of a client.
//
// An [Authority] is shared by the workers of an edge. Each worker has a [Judge], whose
// Func is the LoginFunc of the worker's endpoint. A token is judged at once. While the
// game's service is asked, nothing of the client exists but an entry of the Judge.
package login

import (
	"context"
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
	Bus      bus.Bus
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
	used usedTokens
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

// UsedTokens are the tokens with which clients came to this edge. The mutex is there
// because a token may come to any worker; it is locked once per good token.
type usedTokens struct {
	mu     sync.Mutex
	replay auth.Replay
}

func (u *usedTokens) use(now time.Time, c *auth.Claims, from netip.Addr) auth.Reason {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.replay.Use(now, c, from)
}

// Stats are the counters of a Judge.
type Stats struct {
	Logins   [auth.NumReasons]uint64 // by result
	Callouts uint64                  // requests to the game's service
}

// A Host is what a Judge needs of the worker that owns it.
type Host interface {
	// Post has do called on a turn of the worker. It may be called from any goroutine. A
	// call is lost when the worker's inbox, in which it holds size bytes, is full.
	Post(size int, do func(now time.Time))

	// LoggedIn tells what became of a login for which Func returned LoginWait. claims is
	// nil if the login is refused.
	LoggedIn(now time.Time, from netip.AddrPort, claims *auth.Claims)
}

// A Judge judges the logins of the clients of one worker, which owns it.
type Judge struct {
	*Authority
	Stats
	host     Host
	callouts callouts
}

// Judge returns the Judge of a worker.
func (a *Authority) Judge(host Host) *Judge {
	return &Judge{Authority: a, host: host, callouts: newCallouts()}
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

// loginToken judges a login by the token in it.
func (j *Judge) loginToken(now time.Time, from netip.AddrPort, message []byte) (dnp.LoginVerdict, any) {
	claims, reason := auth.Claims{}, auth.NoToken
	if token, ok := auth.Token(message); ok {
		claims, reason = j.keys.keys.Load().Verify(now, token)
	}
	if reason == auth.None {
		reason = j.used.use(now, &claims, from.Addr())
	}
	j.Logins[reason]++
	if reason != auth.None {
		return dnp.LoginRefuse, nil
	}
	return dnp.LoginAccept, &claims
}
