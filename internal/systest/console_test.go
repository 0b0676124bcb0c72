package systest

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"strings"
	"testing"

	ws "github.com/coder/websocket"
	"github.com/dnprelay/dnprelay/dnp/dnptest"
	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/internal/console"
)

// newConsole serves the console of a stack, and returns its address.
func newConsole(s *stack, change func(*console.Config)) string {
	s.Helper()
	cfg := console.Config{Bus: s.bus("console"), Shards: 64, Space: "s", Edit: true}
	change(&cfg)
	server := httptest.NewServer(console.New(cfg))
	s.Cleanup(server.Close)
	return server.URL
}

// fetch returns the status and the body of an answer.
func fetch(t *testing.T, client *http.Client, r *http.Request) (status int, body string) {
	t.Helper()
	answer, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	b, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(b)
}

func request(t *testing.T, method, url, body string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// frames reads the frames of a space until one has a text.
func frames(t *testing.T, ctx context.Context, url, want string) *ws.Conn {
	t.Helper()
	c, _, err := ws.Dial(ctx, strings.Replace(url, "http", "ws", 1)+"/api/live?space=s", nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.CloseNow() })
	c.SetReadLimit(1 << 20)
	readUntil(t, ctx, c, want)
	return c
}

func readUntil(t *testing.T, ctx context.Context, c *ws.Conn, want string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		_, p, err := c.Read(ctx)
		if err != nil {
			t.Fatalf("no frame with %s: %v", want, err)
		}
		if strings.Contains(string(p), want) {
			return
		}
	}
}

// TestConsole looks at a space through the server of the console, and publishes through it.
func TestConsole(t *testing.T) {
	t.Parallel()
	s := newStack(t, local(wire.Denetwork))
	url := newConsole(s, func(*console.Config) {})
	s.publish(`{"op":"put","key":"lamp","audience":{"groups":["red"]},"values":[{"name":"on","type":"uint8","value":0}]}`)
	c := frames(t, s.ctx, url, `"key":"lamp"`) // whatever the audience
	post := request(t, "POST", url+"/api/publish?space=s", `{"op":"set","key":"lamp","values":{"on":7}}`)
	post.Header.Set("Content-Type", "application/json")
	if status, body := fetch(t, http.DefaultClient, post); status != 200 || !strings.Contains(body, `"seq"`) {
		t.Errorf("publish: %d %s", status, body)
	}
	readUntil(t, s.ctx, c, ",0,7]]")
	s.client(0, dnptest.Cpp())
	readUntil(t, s.ctx, c, `"type":"joined"`)
	for path, want := range map[string]string{
		"/api/spaces":          `"space":"s"`,
		"/api/nodes":           `"role":"edge"`,
		"/api/clients?space=s": `"carrier":"udp"`,
		"/":                    "console.js",
	} {
		if status, body := fetch(t, http.DefaultClient, request(t, "GET", url+path, "")); status != 200 || !strings.Contains(body, want) {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
	_, body := fetch(t, http.DefaultClient, request(t, "GET", url+"/api/clients?space=s", ""))
	var list struct{ Entries []struct{ Client string } }
	if err := json.Unmarshal([]byte(body), &list); err != nil || len(list.Entries) != 1 {
		t.Fatalf("%v in %s", err, body)
	}
	_, body = fetch(t, http.DefaultClient, request(t, "GET", url+"/api/why?space=s&key=lamp&client="+list.Entries[0].Client, ""))
	if !strings.Contains(body, `"not_in_audience"`) {
		t.Errorf("why: %s", body)
	}
}

// TestConsoleRefuses: who may not look, and who may not publish, is told why.
func TestConsoleRefuses(t *testing.T) {
	t.Parallel()
	s := newStack(t, local(wire.Denetwork))
	url := newConsole(s, func(c *console.Config) { c.Edit = false })
	secret := newConsole(s, func(c *console.Config) { c.Token = "a secret" })
	foreign := request(t, "GET", url+"/api/spaces", "")
	foreign.Host = "console.example"
	form := request(t, "POST", secret+"/api/publish?space=s", `{"op":"clear"}`)
	form.Header.Set("Content-Type", "text/plain")
	json := request(t, "POST", url+"/api/publish?space=s", `{"op":"clear"}`)
	json.Header.Set("Content-Type", "application/json")
	for name, c := range map[string]struct {
		r      *http.Request
		status int
		body   string
	}{
		"a name that leads here":      {foreign, 403, "other names need a token"},
		"without the token":           {request(t, "GET", secret+"/", ""), 401, "unauthorized"},
		"with another token":          {request(t, "GET", secret+"/?token=x", ""), 401, "unauthorized"},
		"the token only opens a page": {request(t, "GET", secret+"/api/spaces?token=a+secret", ""), 401, "unauthorized"},
		"a form":                      {form, 401, "unauthorized"},
		"without --edit":              {json, 403, "--edit"},
		"no space":                    {request(t, "GET", url+"/api/live?space=a.b", ""), 400, "want a space"},
		"no client":                   {request(t, "GET", url+"/api/why?space=s&key=k", ""), 400, "want a client"},
		"no such page":                {request(t, "GET", url+"/etc/passwd", ""), 404, ""},
	} {
		if status, body := fetch(t, http.DefaultClient, c.r); status != c.status || !strings.Contains(body, c.body) {
			t.Errorf("%s: %d %s, want %d with %q", name, status, body, c.status, c.body)
		}
	}
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	known := &http.Client{Jar: jar}
	if status, body := fetch(t, known, request(t, "GET", secret+"/?token=a+secret", "")); status != 200 || !strings.Contains(body, "console.js") {
		t.Errorf("with the token: %d %s", status, body)
	}
	if status, _ := fetch(t, known, request(t, "GET", secret+"/api/about", "")); status != 200 {
		t.Errorf("with the cookie: %d", status)
	}
	form = request(t, "POST", secret+"/api/publish?space=s", `{"op":"clear"}`)
	form.Header.Set("Content-Type", "text/plain")
	if status, body := fetch(t, known, form); status != 403 || !strings.Contains(body, "want JSON") {
		t.Errorf("a form with the cookie: %d %s", status, body)
	}
	known.CloseIdleConnections()
}
