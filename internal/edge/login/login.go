// Package login finds out who the clients of an edge are: it does not ask, or it judges
// the token or asks the game's own service about the first reliable message of a client.
//
// An [Authority] is shared by the workers of an edge. Each worker has a [Judge], whose
// Func is the LoginFunc of the worker's endpoint. A token is judged at once. While the
// game's service is asked, nothing of the client exists but an entry of the Judge.
package login

import (
	"context"
	"encoding/json"
	"hash/maphash"
	"log/slog"
	"maps"
	"net/netip"
	"sync"
	"time"

	"github.com/dnprelay/dnprelay/bus"
	"github.com/dnprelay/dnprelay/dnp"
	"github.com/dnprelay/dnprelay/dnp/admit"
	"github.com/dnprelay/dnprelay/internal/auth"
	"github.com/dnprelay/dnprelay/internal/turn"
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

	NewID   func() string                            // makes names that are unique for ever
	Home    func(from netip.AddrPort) netip.AddrPort // where a client really comes from
	Address func(home netip.AddrPort) string         // how log lines show an address
	Log     *slog.Logger
}

// An Authority has what all workers of an edge need to judge logins. Any goroutine may use
// it.
type Authority struct {
	cfg  Config
	keys keyring

	// The mutex is there because a token may come to any worker. It is locked once per login.
	mu   sync.Mutex
	used auth.Replay

	lines  [auth.NumReasons]line // about logins that are not let in
	silent line                  // about clients that sent none
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
	if a.cfg.Auth != AuthToken {
		return
	}
	for range turn.After(ctx, keysInterval) {
		a.keys.check()
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
	Request(m bus.Msg, wait time.Duration, done func(now time.Time, answer bus.Msg, err error))

	// LoggedIn tells what became of a login for which Func returned LoginWait. claims is
	// nil if the login is refused.
	LoggedIn(now time.Time, from netip.AddrPort, claims *auth.Claims)
}

// A Judge judges the logins of the clients of one worker, which owns it.
type Judge struct {
	*Authority
	Stats
	host Host

	silents  uint64                     // clients that sent no login in time
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

func (a *Authority) use(now time.Time, c *auth.Claims, from netip.Addr) auth.Reason {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.used.Use(now, c, from)
}

func (j *Judge) loginToken(now time.Time, from netip.AddrPort, message []byte) (dnp.LoginVerdict, any) {
	claims, reason := auth.Claims{}, auth.NoToken
	if token, ok := auth.Token(message); ok {
		claims, reason = j.keys.keys.Load().Verify(now, token)
	}
	if reason == auth.None {
		reason = j.use(now, &claims, j.cfg.Home(from).Addr())
	}
	j.judged(now, from, reason, claimedKey(now, reason, message)...)
	if reason != auth.None {
		return dnp.LoginRefuse, nil
	}
	return dnp.LoginAccept, &claims
}

// linePause is the least time between two log lines of an edge about logins with the same result.
const linePause = 10 * time.Second

// A line is what the log says about logins with one result.
type line struct {
	next    time.Time // when there may be another one
	leftOut int       // logins without a line since the last one
}

// judged counts a login, and logs one that is not let in, now and then. What a client sent is a
// secret, or anything, so it is not logged; more has what may be.
func (j *Judge) judged(now time.Time, from netip.AddrPort, reason auth.Reason, more ...any) {
	j.Logins[reason]++
	if reason == auth.None {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	l := &j.lines[reason]
	if now.Before(l.next) {
		l.leftOut++
		return
	}
	j.cfg.Log.Info("not accepting a login", append([]any{"reason", reason.String(), "address", j.cfg.Address(j.cfg.Home(from)), "left_out", l.leftOut}, more...)...)
	*l = line{next: now.Add(linePause)}
}

// claimedKey returns the attribute of a log line with the key that a token of an unknown key names, if
// it is the id of a key. It is no secret, and says which one --token-keys lacks.
func claimedKey(now time.Time, reason auth.Reason, message []byte) []any {
	if reason != auth.BadKey {
		return nil
	}
	token, _ := auth.Token(message)
	if key := auth.LookAt(now, string(token)).Key; auth.IsKeyID(key) {
		return []any{"key", key}
	}
	return nil
}

// Silent logs, now and then, that the edge closed connections of clients that sent no login in time. total
// is how many those of the worker were since it began.
func (j *Judge) Silent(now time.Time, total uint64) {
	n := int(total - j.silents)
	if n == 0 {
		return
	}
	j.silents = total
	j.mu.Lock()
	defer j.mu.Unlock()
	l := &j.silent
	if l.leftOut += n; now.Before(l.next) {
		return
	}
	j.cfg.Log.Info("closing connections that sent no login in time", "connections", l.leftOut)
	*l = line{next: now.Add(linePause)}
}

// Bounds of asking the game's service who a client is. Until it answers, the client's
// message is not acknowledged, so the client keeps it and what follows; the edge has one
// of calloutsMax entries, and nothing of a session.
const (
	calloutsMax    = 256         // that wait for an answer, per worker; more logins have to wait
	calloutTimeout = time.Second // for the service to answer
	refusalTime    = 5 * time.Second
	refusalsMax    = 4096 // that are remembered, per worker
)

// A callout is one question.
type callout struct {
	login uint64    // hash of the message and where it comes from
	until time.Time // when it is forgotten, because its answer got lost
}

type refusal struct {
	login uint64
	until time.Time
}

// A calloutRequest is the question, a calloutAnswer the answer.
type calloutRequest struct {
	Address string `json:"address"`
	Message []byte `json:"message"` // base64
	Edge    string `json:"edge"`
}

type calloutAnswer struct {
	Client string   `json:"client"`
	Space  string   `json:"space"`
	Groups []string `json:"groups"`
	Write  *bool    `json:"write"` // true if absent
	Exp    int64    `json:"exp"`   // Unix seconds; auth.LifeMax from now if absent
	Error  string   `json:"error"`
}

func (j *Judge) loginCallout(now time.Time, from netip.AddrPort, message []byte) (dnp.LoginVerdict, any) {
	if j.refusals == nil {
		j.refusals = make([]refusal, refusalsMax)
	}
	login := j.hash(j.cfg.Home(from).Addr(), message)
	if r := j.refusals[login%refusalsMax]; r.login == login && now.Before(r.until) {
		j.judged(now, from, auth.Refused)
		return dnp.LoginRefuse, nil
	}
	if p, ok := j.pending[from]; ok && now.Before(p.until) {
		return dnp.LoginWait, nil
	}
	if len(j.pending) >= calloutsMax && !j.purge(now) {
		j.judged(now, from, auth.Busy)
		return dnp.LoginWait, nil // the client repeats it
	}
	j.pending[from] = callout{login: login, until: now.Add(2 * calloutTimeout)}
	j.callOut(from, login, message)
	return dnp.LoginWait, nil
}

func (j *Judge) callOut(from netip.AddrPort, login uint64, message []byte) {
	j.Callouts++
	m := bus.JSON(j.cfg.Subjects.Auth(), calloutRequest{Address: j.cfg.Home(from).String(), Message: message, Edge: j.cfg.Node})
	j.host.Request(m, calloutTimeout, func(now time.Time, answer bus.Msg, err error) { j.calledOut(now, from, login, answer.Data, err) })
}

func (j *Judge) calledOut(now time.Time, from netip.AddrPort, login uint64, data []byte, err error) {
	if p, ok := j.pending[from]; !ok || p.login != login {
		return // forgotten
	}
	delete(j.pending, from)
	if err != nil {
		j.judged(now, from, auth.NoService)
		return // the client repeats its login, and the service is asked again
	}
	claims, reason := parseAnswer(now, data)
	j.judged(now, from, reason)
	if reason != auth.None {
		j.refusals[login%refusalsMax] = refusal{login, now.Add(refusalTime)}
		j.host.LoggedIn(now, from, nil)
		return
	}
	j.host.LoggedIn(now, from, &claims)
}

func parseAnswer(now time.Time, data []byte) (auth.Claims, auth.Reason) {
	var a calloutAnswer
	if err := json.Unmarshal(data, &a); err != nil || a.Error != "" {
		return auth.Claims{}, auth.Refused
	}
	claims := auth.Claims{Client: a.Client, Space: a.Space, Groups: a.Groups, Write: a.Write == nil || *a.Write, Expires: now.Add(auth.LifeMax)}
	if a.Exp != 0 {
		claims.Expires = time.Unix(a.Exp, 0)
	}
	return claims, claims.Check(now)
}

// purge forgets questions whose answers got lost, and reports whether there were any.
func (j *Judge) purge(now time.Time) bool {
	maps.DeleteFunc(j.pending, func(_ netip.AddrPort, p callout) bool { return !now.Before(p.until) })
	return len(j.pending) < calloutsMax
}

func (j *Judge) hash(from netip.Addr, message []byte) uint64 {
	var h maphash.Hash
	h.SetSeed(j.seed)
	ip := from.As16()
	h.Write(ip[:])
	h.Write(message)
	return h.Sum64()
}
