package main

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dnprelay/dnprelay/internal/telemetry"
)

// TestDrain drains edges that require a token, or none.
func TestDrain(t *testing.T) {
	const token = "0123456789abcdefghijklmn"
	file := func(text string) string {
		name := filepath.Join(t.TempDir(), "token")
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	var status int
	var asked, bearer string
	edge := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked, bearer = r.Method+" "+r.URL.Path, r.Header.Get("Authorization")
		if status == http.StatusTemporaryRedirect {
			w.Header().Set("Location", "/elsewhere")
		}
		w.WriteHeader(status)
	}))
	defer edge.Close()
	for _, c := range []struct {
		why, file string
		status    int
		bearer    string // that the edge receives
		err       string
	}{
		{"no token, no header", "", 202, "", ""},
		{"the token of the file", file(token + "\n"), 202, "Bearer " + token, ""},
		{"without the token of the edge, the error names the flag", "", 401, "", "--http-token must be that of the edge"},
		{"with another token, too", file(token), 401, "Bearer " + token, "--http-token must be that of the edge"},
		{"an edge without a token serves only its own machine", "", 403, "", "both need --http-token"},
		{"a server that is not an edge", "", 404, "", "is it an edge?"},
		{"a redirect does not receive the token", file(token), 307, "Bearer " + token, "307"},
	} {
		status = c.status
		command := drainCommand{Node: edge.URL, HTTPToken: c.file}
		if problems := command.Problems(); len(problems) > 0 {
			t.Fatalf("%s: %v", c.why, problems)
		}
		err := command.Run(t.Context(), slog.New(slog.DiscardHandler))
		if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: %v, want %q", c.why, err, c.err)
		}
		if asked != "POST /drain" || bearer != c.bearer {
			t.Errorf("%s: the edge gets %s with %q, want POST /drain with %q", c.why, asked, bearer, c.bearer)
		}
	}
	for body, want := range map[telemetry.Drain]string{
		{Sessions: "handed_over"}: "the edge hands its sessions over and ends",
		{Sessions: "handed_over", Reason: "no other edge listens on port 1\x1b"}: "the edge ends, and closes the sessions that it cannot hand over: no other edge listens on port 1",
		{Sessions: "closed"}: "the edge closes its sessions and ends; only edges with --session-durability log hand them over",
		{}:                   "the edge ends",
	} {
		if got := drainText(body); !strings.HasPrefix(got, want) || strings.Contains(got, "\x1b") {
			t.Errorf("%+v: %q, want %q", body, got, want)
		}
	}
	for why, command := range map[string]drainCommand{
		"a missing file": {Node: "127.0.0.1:1", HTTPToken: filepath.Join(t.TempDir(), "none")},
		"a short token":  {Node: "127.0.0.1:1", HTTPToken: file("short")},
	} {
		if len(command.Problems()) != 1 {
			t.Errorf("%s: %v, want one problem", why, command.Problems())
		}
	}
}
