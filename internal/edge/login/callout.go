package login

import (
	"encoding/json"
	"hash/maphash"
	"net/netip"
	"time"

	"github.com/dnprelay/dnprelay/bus"
	"github.com/dnprelay/dnprelay/dnp"
	"github.com/dnprelay/dnprelay/internal/auth"
)

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

// loginCallout judges a login by what the game's service says.
func (j *Judge) loginCallout(now time.Time, from netip.AddrPort, message []byte) (dnp.LoginVerdict, any) {
	if j.refusals == nil {
		j.refusals = make([]refusal, refusalsMax)
	}
	login := j.hash(from.Addr(), message)
	if r := j.refusals[login%refusalsMax]; r.login == login && now.Before(r.until) {
		j.Logins[auth.Refused]++
		return dnp.LoginRefuse, nil
	}
	if p, ok := j.pending[from]; ok && now.Before(p.until) {
		return dnp.LoginWait, nil
	}
	if len(j.pending) >= calloutsMax && !j.purge(now) {
		j.Logins[auth.Busy]++
		return dnp.LoginWait, nil // the client repeats it
	}
	j.pending[from] = callout{login: login, until: now.Add(2 * calloutTimeout)}
	j.callOut(from, login, message)
	return dnp.LoginWait, nil
}

// callOut asks the service.
func (j *Judge) callOut(from netip.AddrPort, login uint64, message []byte) {
	j.Callouts++
	m := bus.JSON(j.cfg.Subjects.Auth(), calloutRequest{Address: from.String(), Message: message, Edge: j.cfg.Node})
	j.host.Request(m, calloutTimeout, func(now time.Time, answer []byte, err error) { j.calledOut(now, from, login, answer, err) })
}

// calledOut handles the service's answer.
func (j *Judge) calledOut(now time.Time, from netip.AddrPort, login uint64, data []byte, err error) {
	if p, ok := j.pending[from]; !ok || p.login != login {
		return // forgotten
	}
	delete(j.pending, from)
	if err != nil {
		j.Logins[auth.NoService]++
		return // the client repeats its login, and the service is asked again
	}
	claims, reason := parseAnswer(now, data)
	j.Logins[reason]++
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
	for from, p := range j.pending {
		if !now.Before(p.until) {
			delete(j.pending, from)
		}
	}
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
