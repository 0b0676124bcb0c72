//go:build linux

package bench

import (
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/internal/auth"
	"github.com/nats-io/nats.go"
)

// Logins are the messages with which clients log in, as --auth of the edges wants it: open,
// token or callout.
type Logins struct {
	auth   string
	tokens []string
	forged []byte
}

// NewLogins makes the logins of clients and a forged one. It writes the key of tokens into a
// file.
func NewLogins(kind string, clients int, keyFile string) (*Logins, error) {
	l := &Logins{auth: kind, forged: []byte("a stranger, and what it says is its password")}
	if kind != "token" {
		return l, nil
	}
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	for i := range clients + 1 {
		name := fmt.Sprint("player", i)
		token, err := auth.Issue(private, auth.Claims{Client: name, ID: name, Space: Space, Write: true, Expires: now.Add(time.Hour)}, now)
		if err != nil {
			return nil, err
		}
		l.tokens = append(l.tokens, token)
	}
	l.forged = auth.AppendMessage(nil, l.tokens[clients])
	l.forged[len(l.forged)-20] ^= 1 // in the signature, so that it costs the edge most
	text, err := auth.EncodePublic(public)
	if err != nil {
		return nil, err
	}
	return l, os.WriteFile(keyFile, text, 0o644)
}

// Forge appends what a stranger begins with: a login that the edge or the game's service
// refuses, or a request with open.
func (l *Logins) Forge(b []byte) []byte {
	if l.auth == "open" {
		return wire.AppendConnectionRequest(b)
	}
	return wire.ReliableMessage{Data: l.forged}.Append(b)
}

// Begin has the clients of a scene log in, before they connect, and answers edges that ask
// who they are.
func (l *Logins) Begin(s *Scene) (err error) {
	switch l.auth {
	case "token":
		s.Swarm.Login = func(i int) []byte { return auth.AppendMessage(nil, l.tokens[i]) }
	case "callout":
		s.Swarm.Login = func(i int) []byte { return fmt.Appendf(nil, "player%d, and what it says is its password", i) }
		_, err = s.Publisher.NC.Subscribe(s.Publisher.Subjects.Auth(), answerCallout)
	}
	return err
}

// answerCallout is the game's service: it knows clients by their names.
func answerCallout(m *nats.Msg) {
	var question struct{ Message []byte }
	answer := `{"error":"who is that?"}`
	if json.Unmarshal(m.Data, &question) == nil && strings.HasPrefix(string(question.Message), "player") {
		name, _, _ := strings.Cut(string(question.Message), ",")
		answer = fmt.Sprintf(`{"client":%q,"space":%q}`, name, Space)
	}
	_ = m.Respond([]byte(answer)) // without an answer the edge asks again
}
