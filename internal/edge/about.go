package edge

import (
	"encoding/json"
	"time"

	"github.com/dnprelay/dnprelay/internal/auth"
	"github.com/dnprelay/dnprelay/sessionlog"
)

// An about is what the log tells a successor of a session besides its connection. It is
// part of logs.
type about struct {
	ID       string   `json:"id"`
	Space    string   `json:"space"`
	Client   string   `json:"client"`
	Listener uint16   `json:"listener"`
	Began    int64    `json:"began"`         // Unix microseconds
	Expires  int64    `json:"exp,omitempty"` // Unix microseconds; 0 for never
	Groups   []string `json:"groups,omitempty"`
	ReadOnly bool     `json:"ro,omitempty"`
}

func newAbout(id string, listener uint16, now time.Time, c *auth.Claims) about {
	a := about{
		ID: id, Space: c.Space, Client: c.Client, Listener: listener, Began: now.UnixMicro(), Groups: c.Groups, ReadOnly: !c.Write,
	}
	if !c.Expires.IsZero() {
		a.Expires = c.Expires.UnixMicro()
	}
	return a
}

// claims returns what the client was allowed when it came.
func (a *about) claims() *auth.Claims {
	c := &auth.Claims{Client: a.Client, Space: a.Space, Groups: a.Groups, Write: !a.ReadOnly}
	if a.Expires != 0 {
		c.Expires = time.UnixMicro(a.Expires)
	}
	return c
}

func (a *about) append() []byte {
	data, err := json.Marshal(a)
	if err != nil || len(data) > sessionlog.AboutMax {
		panic("edge: a session whose description does not fit into its log") // claims are bounded
	}
	return data
}

// parseAbout parses what another edge wrote.
func parseAbout(data []byte) (a about, ok bool) {
	return a, json.Unmarshal(data, &a) == nil && a.Client != "" && a.Space != "" && a.ID != ""
}
