package lludp

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
)

// serve returns a Server without an edge, and its HTTP side.
func serve(t *testing.T, auth string, addr string) (*Server, string) {
	t.Helper()
	socket, err := Listen(netip.MustParseAddrPort(addr))
	if err != nil {
		t.Skipf("no socket for %s: %v", addr, err)
	}
	t.Cleanup(func() { _ = socket.Close() })
	s := New(Config{Socket: socket, Region: "Lobby", Auth: auth, Log: slog.New(slog.DiscardHandler)})
	mux := http.NewServeMux()
	for pattern, h := range s.Routes() {
		mux.Handle(pattern, h)
	}
	web := httptest.NewServer(mux)
	t.Cleanup(web.Close)
	return s, web.URL
}

// post returns the status and body of an answer.
func post(t *testing.T, url, body string, headers ...string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "text/xml")
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(text)
}

// TestLoginSize: the game's service gets login messages of at most 1,357 bytes, as from other clients.
func TestLoginSize(t *testing.T) {
	s := &Server{cfg: Config{Auth: "callout"}}
	login := func(token int) ([]byte, bool) {
		cfg, ok := s.credentials(map[string]string{"first": "Ada", "last": "Resident", "passwd": "$1$0123", "token": strings.Repeat("t", token)})
		return cfg.Login, ok
	}
	least, _ := login(0)
	const most = 1357
	if p, ok := login(most - len(least)); !ok || len(p) != most {
		t.Errorf("a login message of %d bytes is refused", len(p))
	}
	if p, ok := login(most - len(least) + 1); ok {
		t.Errorf("a login message of %d bytes is accepted", len(p))
	}
}

// TestLoginRefusals: logins that the edge is not asked about.
func TestLoginRefusals(t *testing.T) {
	named := func(name, more string) string {
		return callText("<member><name>first</name><value>" + name + "</value></member>" + more)
	}
	ada := named("Ada", "")
	for _, c := range []struct {
		why, auth, addr, body string
		headers               []string
		status                int
		want                  string
	}{
		{"a page of another site", "token", "127.0.0.1:0", ada, []string{"Origin", "https://evil.example"}, http.StatusForbidden, "may not log in"},
		{"a form, which a page of another site could send", "token", "127.0.0.1:0", ada, []string{"Content-Type", "text/plain"}, http.StatusUnsupportedMediaType, "text/xml"},
		{"too large", "token", "127.0.0.1:0", ada + strings.Repeat(" ", requestMax), nil, http.StatusRequestEntityTooLarge, "32 KiB"},
		{"no XML", "token", "127.0.0.1:0", "{}", nil, http.StatusBadRequest, "no XML-RPC"},
		{"another method", "token", "127.0.0.1:0", strings.Replace(ada, "login_to_simulator", "x", 1), nil, http.StatusBadRequest, "no XML-RPC"},
		{"no name", "token", "127.0.0.1:0", callText(""), nil, http.StatusOK, "first name is needed"},
		{"a long name", "token", "127.0.0.1:0", named(strings.Repeat("a", nameMax+1), ""), nil, http.StatusOK, "first name is needed"},
		{"no token", "token", "127.0.0.1:0", ada, nil, http.StatusOK, "token is needed"},
		{"a long token", "token", "127.0.0.1:0", named("Ada", "<member><name>token</name><value>"+strings.Repeat("a", 1351)+"</value></member>"), nil, http.StatusOK, "token is needed"},
		{"a long password", "callout", "127.0.0.1:0", named("Ada", "<member><name>passwd</name><value>"+strings.Repeat("a", passwordMax+1)+"</value></member>"), nil, http.StatusOK, "too long"},
		{"an address that viewers cannot be told", "open", "[::1]:0", ada, nil, http.StatusOK, "--lludp-public"},
	} {
		s, url := serve(t, c.auth, c.addr)
		status, text := post(t, url+LoginPath, c.body, c.headers...)
		if status != c.status || !strings.Contains(text, c.want) || status == http.StatusOK && !strings.Contains(text, "<name>login</name><value><string>false</string>") {
			t.Errorf("%s: %d %s; want %d and %q", c.why, status, text, c.status, c.want)
		}
		if len(s.logins.byCode) != 0 || s.logins.places.All() != 0 {
			t.Errorf("%s: a refused login keeps a place", c.why)
		}
	}
}

// TestCapabilities: who has the secret of a viewer gets the few capabilities that there are.
func TestCapabilities(t *testing.T) {
	s, url := serve(t, "open", "127.0.0.1:0")
	gone := make(chan struct{})
	close(gone)
	s.seeds.bySecret["secret"] = &peer{gone: gone}
	for _, c := range []struct {
		path   string
		status int
		want   string
	}{
		{"secret", http.StatusOK, "<key>EventQueueGet</key><string>" + url + SeedPath + "secret/EventQueueGet</string>"},
		{"secret/EventQueueGet", http.StatusOK, "<key>events</key><array></array>"},
		{"secret/FetchInventoryDescendents2", http.StatusOK, "<key>items</key><array></array>"},
		{"secret/GetTexture", http.StatusNotFound, ""},
		{"other", http.StatusNotFound, ""},
		{"other/EventQueueGet", http.StatusNotFound, ""},
	} {
		if status, text := post(t, url+SeedPath+c.path, "<llsd></llsd>"); status != c.status || !strings.Contains(text, c.want) {
			t.Errorf("%s: %d %s; want %d and %q", c.path, status, text, c.status, c.want)
		}
	}
}
