package main

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestDrain tells an edge to leave that wants a token, or none.
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
		bearer    string // that the edge is sent
		err       string
	}{
		{"no token, no header", "", 202, "", ""},
		{"the token of the file", file(token + "\n"), 202, "Bearer " + token, ""},
		{"without the token of the edge it says what is missing", "", 401, "", "--http-token has to be that of the edge"},
		{"so with another one", file(token), 401, "Bearer " + token, "--http-token has to be that of the edge"},
		{"an edge elsewhere that has none serves only its own machine", "", 403, "", "only if both have --http-token"},
		{"what is not an edge is named", "", 404, "", "is it an edge?"},
		{"a token goes to nobody else", file(token), 307, "Bearer " + token, "307"},
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
	for why, command := range map[string]drainCommand{
		"a file that is not there":    {Node: "127.0.0.1:1", HTTPToken: filepath.Join(t.TempDir(), "none")},
		"a token that can be guessed": {Node: "127.0.0.1:1", HTTPToken: file("short")},
	} {
		if len(command.Problems()) != 1 {
			t.Errorf("%s: %v, want one problem", why, command.Problems())
		}
	}
}
