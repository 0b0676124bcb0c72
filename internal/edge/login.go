package edge

import (
	"net/netip"
	"sync"
	"time"

	"github.com/dnprelay/dnprelay/dnp"
	"github.com/dnprelay/dnprelay/dnp/admit"
	"github.com/dnprelay/dnprelay/internal/auth"
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

// calloutRate is how many logins per second a worker passes on.
const calloutRate = 200

// admission returns what the workers let through.
func (e *Edge) admission() admit.Config {
	cfg := e.cfg.Admission
	if e.cfg.Auth == AuthCallout && cfg.LoginRate == 0 {
		cfg.LoginRate = calloutRate
	}
	return cfg
}

// loginFunc returns what judges the logins of this worker's clients, nil if none has
// to log in.
func (w *Worker) loginFunc() dnp.LoginFunc {
	switch w.edge.cfg.Auth {
	case AuthToken:
		return w.loginToken
	case AuthCallout:
		return w.loginCallout
	}
	return nil
}

// loginToken judges a login by the token in it.
func (w *Worker) loginToken(now time.Time, from netip.AddrPort, message []byte) (dnp.LoginVerdict, any) {
	claims, reason := auth.Claims{}, auth.NoToken
	if token, ok := auth.Token(message); ok {
		claims, reason = w.edge.keys.keys.Load().Verify(now, token)
	}
	if reason == auth.None {
		reason = w.edge.used.use(now, &claims, from.Addr())
	}
	w.counts.Logins[reason]++
	if reason != auth.None {
		return dnp.LoginRefuse, nil
	}
	return dnp.LoginAccept, &claims
}

// usedTokens are the tokens that clients of this edge came with. The mutex is there
// because a token may come to any worker; it is taken once per good token.
type usedTokens struct {
	mu     sync.Mutex
	replay auth.Replay
}

func (u *usedTokens) use(now time.Time, c *auth.Claims, from netip.Addr) auth.Reason {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.replay.Use(now, c, from)
}

// identity returns who the peer of a connection that begins is.
func (w *Worker) identity(conn *dnp.Conn) *auth.Claims {
	if claims, ok := conn.Data().(*auth.Claims); ok {
		return claims
	}
	return &auth.Claims{Client: "c-" + w.edge.cfg.NewID(), Space: w.edge.cfg.OpenSpace, Write: true}
}
