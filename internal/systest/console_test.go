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
	"time"

	ws "github.com/coder/websocket"
	"github.com/dnprelay/dnprelay/bus/natsbus"
	"github.com/dnprelay/dnprelay/dnp/dnptest"
	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/internal/console"
	"github.com/dnprelay/dnprelay/subject"
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

// post returns a request as the page makes it.
func post(t *testing.T, url, body string) *http.Request {
	t.Helper()
	r := request(t, http.MethodPost, url, body)
	r.Header.Set("Content-Type", "application/json")
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
	set := post(t, url+"/api/publish?space=s", `{"op":"set","key":"lamp","values":{"on":7}}`)
	if status, body := fetch(t, http.DefaultClient, set); status != 200 || !strings.Contains(body, `"seq"`) {
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

// TestConsoleNear asks through the console who is near a state, as its edge knows it.
func TestConsoleNear(t *testing.T) {
	t.Parallel()
	s := newStack(t, local(wire.Denetwork))
	url := newConsole(s, func(*console.Config) {})
	s.publish(`{"op":"put","key":"npc","interest":{"at":"pos","bands":[{"within":10},{"within":100}]},"values":[{"name":"pos","type":"vector2f32","value":[30,40]}]}`)
	c := frames(t, s.ctx, url, `"key":"npc"`)
	s.client(0, dnptest.Cpp())
	readUntil(t, s.ctx, c, `"type":"joined"`)
	var list struct {
		Entries []struct {
			Client string
			Near   json.RawMessage
		}
	}
	ask := func(query string) {
		t.Helper()
		_, body := fetch(t, http.DefaultClient, request(t, "GET", url+"/api/clients?space=s"+query, ""))
		list.Entries = nil
		if err := json.Unmarshal([]byte(body), &list); err != nil {
			t.Fatalf("%v in %s", err, body)
		}
	}
	ask("")
	if len(list.Entries) != 1 || list.Entries[0].Near != nil {
		t.Fatalf("there is %+v, want a client of which nothing else was asked", list.Entries)
	}
	name := list.Entries[0].Client
	if ask("&near=npc"); len(list.Entries) != 0 {
		t.Errorf("without an eye, near is %+v", list.Entries)
	}
	s.publish(`{"op":"eye","client":"` + name + `","at":[0,0]}`)
	const want = `{"eyes":1,"distance":50,"band":2,"bands":2,"sees":true}`
	for end := time.Now().Add(patience); len(list.Entries) != 1 || string(list.Entries[0].Near) != want; ask("&near=npc") { // until the edge has looked
		if time.Now().After(end) {
			t.Fatalf("near is %s, want %s", list.Entries, want)
		}
	}
	if status, body := fetch(t, http.DefaultClient, request(t, "GET", url+"/api/clients?space=s&near=a..b", "")); status != 400 || !strings.Contains(body, "want the key of a state") {
		t.Errorf("a malformed place: %d %s", status, body)
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
	drain := post(t, url+"/api/drain?node=e", "{}")
	form := request(t, "POST", secret+"/api/publish?space=s", `{"op":"clear"}`)
	form.Header.Set("Content-Type", "text/plain")
	json := post(t, url+"/api/publish?space=s", `{"op":"clear"}`)
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
		"a drain without --edit":      {drain, 403, "--edit"},
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

// TestConsoleRights: whatever the page asks for, NATS decides by the user of the console. An observer changes nothing, a
// game server drains no edge.
func TestConsoleRights(t *testing.T) {
	t.Parallel()
	s := secureServer(t)
	start(t, "relay", "serve", "--nats-url", as(s, "relay"), "--http", "", "--gossip-bind", "127.0.0.1:0", "--node", "r1")
	e := start(t, "edge", "serve", "--nats-url", as(s, "edge"), "--http", "", "--gossip-bind", "127.0.0.1:0", "--listen", "udp://127.0.0.1:0", "--open-space", "s", "--node", "e1")
	e.says("bus reached")
	game := connectAs(t, s, "publisher")
	accepted(t, game, subject.Names{}, []byte(`{"op":"put","key":"k","values":[{"name":"n","type":"uint8","value":7}]}`))
	consoles := map[string]string{}
	for _, user := range []string{"observer", "publisher", "admin"} {
		b, err := natsbus.Connect(natsbus.Config{URL: as(s, user), Name: "console", OnError: func(error) {}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(b.Close)
		server := httptest.NewServer(console.New(console.Config{Bus: b, Shards: 64, Space: "s", Edit: true}))
		t.Cleanup(server.Close)
		consoles[user] = server.URL
	}
	const set, kick, drain = "/api/publish?space=s", "/api/publish?space=s&kick", "/api/drain?node=e1"
	bodies := map[string]string{set: `{"op":"set","key":"k","values":{"n":8}}`, kick: `{"op":"kick","client":"c"}`, drain: "{}"}
	for _, c := range []struct {
		user, path string
		status     int
		body       string
	}{
		{"observer", set, 403, "may not publish"},
		{"observer", kick, 403, "may not publish"},
		{"observer", drain, 502, "may not publish"},
		{"publisher", set, 200, `"seq"`},
		{"publisher", kick, 200, `"unknown_client"`},
		{"publisher", drain, 502, "may not publish"},
		{"admin", "/api/drain?node=e2", 502, "no edge e2"},
		{"admin", "/api/drain?node=e.1", 400, "name of an edge"},
		{"admin", drain, 200, `"sessions":"closed"`},
	} {
		if status, body := fetch(t, http.DefaultClient, post(t, consoles[c.user]+c.path, bodies[c.path])); status != c.status || !strings.Contains(body, c.body) {
			t.Errorf("%s posts to %s: %d %s, want %d with %q", c.user, c.path, status, body, c.status, c.body)
		}
		if c.user == "observer" {
			m, err := game.Request(subject.Names{}.Get("s", "k"), nil, patience)
			if err != nil || !strings.Contains(string(m.Data), `"value":7`) {
				t.Errorf("after what an observer asked for at %s, the state is %v, %v", c.path, m, err)
			}
		}
	}
	e.ends(0)
}

// TestConsoleOutage: a page whose program has no connection to NATS is told so, keeps what it has, and goes on afterwards.
func TestConsoleOutage(t *testing.T) {
	t.Parallel()
	s := newStack(t, local(wire.Denetwork))
	url := newConsole(s, func(*console.Config) {})
	s.publish(`{"op":"put","key":"lamp","values":[{"name":"on","type":"uint8","value":0}]}`)
	c := frames(t, s.ctx, url, `"key":"lamp"`)
	readUntil(t, s.ctx, c, `"complete":true`)
	s.nats.Shutdown()
	readUntil(t, s.ctx, c, `"complete":false,"waiting":"no connection to NATS`)
	for path, body := range map[string]string{"/api/spaces": "", "/api/nodes": "", "/api/why?space=s&client=c&key=lamp": "", "/api/publish?space=s": `{"op":"clear"}`, "/api/drain?node=e": "{}"} {
		r := request(t, "GET", url+path, "")
		if body != "" {
			r = post(t, url+path, body)
		}
		if status, body := fetch(t, http.DefaultClient, r); status != 502 || !strings.Contains(body, "no connection to NATS") {
			t.Errorf("%s: %d %s, want 502 with the reason", path, status, body)
		}
	}
	s.startNATS(s.port)
	readUntil(t, s.ctx, c, `"complete":true`)
	s.publish(`{"op":"put","key":"lamp","values":[{"name":"on","type":"uint8","value":7}]}`)
	readUntil(t, s.ctx, c, `7]`)
}
