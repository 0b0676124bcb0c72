package console

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"
	"github.com/dnprelay/dnprelay/bus/natsbus"
	"github.com/dnprelay/dnprelay/internal/inspect"
)

// TestPages: each page that is open costs a copy of its space, so there are 16 at most, as SECURITY.md says.
func TestPages(t *testing.T) {
	s := New(Config{Bus: &natsbus.Bus{}})
	open := func() int {
		t.Helper()
		w := httptest.NewRecorder()
		s.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://127.0.0.1/api/live?space=arena", nil))
		return w.Code
	}
	for range 15 {
		s.pages <- struct{}{}
	}
	if got := open(); got != http.StatusUpgradeRequired {
		t.Errorf("the 16th page has the answer %d, want %d, because it is no WebSocket", got, http.StatusUpgradeRequired)
	}
	if n := len(s.pages); n != 15 {
		t.Fatalf("after it has gone, %d pages are open", n)
	}
	s.pages <- struct{}{}
	if got := open(); got != http.StatusServiceUnavailable {
		t.Errorf("the 17th page has the answer %d, want %d", got, http.StatusServiceUnavailable)
	}
	<-s.pages
	if got := open(); got != http.StatusUpgradeRequired {
		t.Errorf("after one was closed, a page has the answer %d", got)
	}
}

// send returns the answer of a server to a request.
func send(t *testing.T, s *Server, method, url, body string, change func(*http.Request)) *http.Response {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	change(r)
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w.Result()
}

// TestToken: only the whole token lets a browser in, and the cookie by which the browser shows it belongs to this page alone.
func TestToken(t *testing.T) {
	s := New(Config{Bus: &natsbus.Bus{}, Token: "a secret"})
	with := func(value string) func(*http.Request) {
		return func(r *http.Request) { r.AddCookie(&http.Cookie{Name: cookieName, Value: value, Quoted: true}) }
	}
	bare := func(*http.Request) {}
	for _, c := range []struct {
		why, method, url string
		change           func(*http.Request)
		want             int
	}{
		{"no token", "GET", "/", bare, 401},
		{"an empty token", "GET", "/?token=", bare, 401},
		{"the beginning of the token", "GET", "/?token=a", bare, 401},
		{"a form that posts the token", "POST", "/?token=a+secret", bare, 401},
		{"the token only opens the page", "GET", "/api/about?token=a+secret", bare, 401},
		{"an empty cookie", "GET", "/", with(""), 401},
		{"another cookie", "GET", "/", with("b secret"), 401},
		{"the beginning in a cookie", "GET", "/", with("a secre"), 401},
		{"the cookie", "GET", "/", with("a secret"), 200},
	} {
		answer := send(t, s, c.method, c.url, "", c.change)
		if answer.StatusCode != c.want || len(answer.Cookies()) > 0 {
			t.Errorf("%s: %d and the cookies %v, want %d and none", c.why, answer.StatusCode, answer.Cookies(), c.want)
		}
	}
	for _, scheme := range []string{"http", "https"} {
		answer := send(t, s, "GET", scheme+"://console.example/?token=a+secret", "", bare)
		if answer.StatusCode != 303 || answer.Header.Get("Location") != "/" || len(answer.Cookies()) != 1 {
			t.Fatalf("%s with the token: %d to %q with the cookies %v", scheme, answer.StatusCode, answer.Header.Get("Location"), answer.Cookies())
		}
		if c := answer.Cookies()[0]; c.Value != "a secret" || !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || c.MaxAge != 12*3600 || c.Secure != (scheme == "https") {
			t.Errorf("%s: the cookie is %q", scheme, c.Raw)
		}
	}
}

// TestHost: without a token the name in a request is an address or localhost, so that a page elsewhere whose name leads to this
// machine gets nothing.
func TestHost(t *testing.T) {
	s := New(Config{Bus: &natsbus.Bus{}})
	for host, want := range map[string]int{
		"127.0.0.1": 200, "127.0.0.1:8415": 200, "[::1]:8415": 200, "192.0.2.7:8415": 200, "localhost": 200, "localhost:8415": 200,
		"console.example": 403, "console.example:8415": 403, "localhost.example": 403, "127.0.0.1.example:8415": 403, "": 403,
	} {
		answer := send(t, s, "GET", "/", "", func(r *http.Request) { r.Host = host })
		if answer.StatusCode != want {
			t.Errorf("%q: %d, want %d", host, answer.StatusCode, want)
		}
	}
}

// TestHeaders: a browser loads nothing from elsewhere, shows the page in no other one, and tells no one its address, which
// may have the token.
func TestHeaders(t *testing.T) {
	for _, s := range []*Server{New(Config{Bus: &natsbus.Bus{}}), New(Config{Bus: &natsbus.Bus{}, Token: "a secret"})} {
		h := send(t, s, "GET", "http://127.0.0.1/", "", func(*http.Request) {}).Header
		for name, want := range map[string]string{
			"Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
			"X-Content-Type-Options":  "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-cache",
		} {
			if got := h.Get(name); got != want {
				t.Errorf("%s is %q, want %q", name, got, want)
			}
		}
	}
}

// TestChanges has the requests to change something that never come to NATS.
func TestChanges(t *testing.T) {
	edit, look := New(Config{Bus: &natsbus.Bus{}, Edit: true}), New(Config{Bus: &natsbus.Bus{}})
	const publish, drain = "http://127.0.0.1/api/publish?space=", "http://127.0.0.1/api/drain?node="
	for _, c := range []struct {
		why       string
		s         *Server
		url, body string
		of, site  string
		want      int
	}{
		{"without --edit", look, publish + "s", "{}", "application/json", "", 403},
		{"a drain without --edit", look, drain + "e", "{}", "application/json", "", 403},
		{"a form", edit, publish + "s", "{}", "text/plain", "same-origin", 403},
		{"a form that drains", edit, drain + "e", "{}", "text/plain", "same-origin", 403},
		{"a page elsewhere", edit, publish + "s", "{}", "application/json", "cross-site", 403},
		{"no space", edit, publish, "{}", "application/json", "same-origin", 400},
		{"every space", edit, publish + "*", "{}", "application/json", "same-origin", 400},
		{"another subject", edit, publish + "s.get", "{}", "application/json", "same-origin", 400},
		{"every edge", edit, drain + "*", "{}", "application/json", "same-origin", 400},
		{"no JSON", edit, publish + "s", "{", "application/json", "same-origin", 400},
		{"more than 64 KiB", edit, publish + "s", `"` + strings.Repeat("x", 64<<10) + `"`, "application/json", "same-origin", 400},
	} {
		answer := send(t, c.s, "POST", c.url, c.body, func(r *http.Request) {
			r.Header.Set("Content-Type", c.of)
			r.Header.Set("Sec-Fetch-Site", c.site)
		})
		if answer.StatusCode != c.want {
			t.Errorf("%s: %d, want %d", c.why, answer.StatusCode, c.want)
		}
	}
}

// TestQuestions has the questions that never come to NATS, and which part of a list others are about.
func TestQuestions(t *testing.T) {
	s := New(Config{Bus: &natsbus.Bus{}})
	for _, path := range []string{
		"live?space=", "live?space=a.b", "live?space=*", "clients?space=a.b", "clients?space=s&near=a..b",
		"why?space=*&client=c&key=k", "why?space=s&client=&key=k", "why?space=s&client=a.b&key=k", "why?space=s&client=c&key=", "why?space=s&client=c&key=a..b",
	} {
		if answer := send(t, s, "GET", "http://127.0.0.1/api/"+path, "", func(*http.Request) {}); answer.StatusCode != 400 {
			t.Errorf("%s: %d, want 400", path, answer.StatusCode)
		}
	}
	for query, want := range map[string]inspect.Query{
		"": {Max: 100}, "max=7&after=b": {Max: 7, After: "b"}, "max=0": {Max: 100}, "max=-1": {Max: 100}, "max=x": {Max: 100}, "max=501": {Max: 500},
	} {
		if got := pageOf(httptest.NewRequestWithContext(t.Context(), "GET", "/?"+query, nil)); got != want {
			t.Errorf("%q asks for %+v, want %+v", query, got, want)
		}
	}
}

// TestNodes: a node that only gossip knows does not look as if it answered, and a page without nodes gets a list.
func TestNodes(t *testing.T) {
	answers := []inspect.NodesAnswer{{Head: inspect.NewHead("r1", "relay", nil), NodeFacts: &inspect.NodeFacts{Spaces: 2}}}
	all := string(appendJSON(nil, nodesOf(answers, []inspect.Member{{Node: "e1", Role: "edge"}})))
	if !strings.Contains(all, `"spaces":2`) || !strings.HasSuffix(all, `},{"node":"e1","role":"edge","silent":true}]}`) {
		t.Errorf("the page gets %s", all)
	}
	if none := string(appendJSON(nil, nodesOf(nil, nil))); none != `{"entries":[]}` {
		t.Errorf("without nodes the page gets %s", none)
	}
}

// oneConn is a listener that one connection comes to.
type oneConn struct {
	conns chan net.Conn
	end   chan struct{}
}

func (l *oneConn) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.end:
		return nil, net.ErrClosed
	}
}

func (l *oneConn) Close() error   { close(l.end); return nil }
func (l *oneConn) Addr() net.Addr { return &net.TCPAddr{} }

// TestPageTakesNothing: a page that takes no frame for 10 s is gone, as SECURITY.md says.
func TestPageTakesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		took := make(chan time.Duration, 1)
		web := http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			conn, err := websocket.Accept(w, r, nil)
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.CloseNow()
			began := time.Now()
			if err := show(t.Context(), conn, []byte("{}")); err == nil {
				t.Error("the page took the frame")
			}
			took <- time.Since(began)
		})}
		l := &oneConn{conns: make(chan net.Conn, 1), end: make(chan struct{})}
		served := make(chan error, 1)
		go func() { served <- web.Serve(l) }()
		page, edge := net.Pipe() // it has no buffer
		l.conns <- edge
		const request = "GET / HTTP/1.1\r\nHost: console.example\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n" +
			"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
		if _, err := io.WriteString(page, request); err != nil {
			t.Fatal(err)
		}
		if answer, err := http.ReadResponse(bufio.NewReaderSize(page, 16), nil); err != nil || answer.StatusCode != http.StatusSwitchingProtocols {
			t.Fatalf("%v, %v", answer, err)
		}
		if d := <-took; d != 10*time.Second {
			t.Errorf("the page was gone after %v, want 10 s", d)
		}
		if err := errors.Join(page.Close(), web.Close()); err != nil {
			t.Error(err)
		}
		<-served
	})
}
