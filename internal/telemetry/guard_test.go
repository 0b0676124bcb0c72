package telemetry

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestGuard requires that everyone who reaches the port may read public data, and that
// changes need the token or, without one, a program on this machine.
func TestGuard(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	write := func(token string) {
		if err := os.WriteFile(file, []byte(token+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const token = "0123456789abcdef0123456789abcdef"
	write(token)
	for _, c := range []struct {
		why, method, path, from, file, bearer string
		want                                  int
	}{
		{"reading needs nothing", "GET", "/metrics", "192.0.2.1:5", file, "", 200},
		{"reading needs nothing", "HEAD", "/readyz", "192.0.2.1:5", "", "", 200},
		{"no token", "POST", "/drain", "127.0.0.1:5", file, "", 401},
		{"another token", "POST", "/drain", "127.0.0.1:5", file, "Bearer " + strings.Repeat("x", 32), 401},
		{"half of the token", "POST", "/drain", "127.0.0.1:5", file, "Bearer " + token[:31], 401},
		{"another scheme", "POST", "/drain", "127.0.0.1:5", file, "Basic " + token, 401},
		{"the token", "POST", "/drain", "192.0.2.1:5", file, "Bearer " + token, 200},
		{"the inside of the process", "GET", "/debug/pprof/heap", "127.0.0.1:5", file, "", 401},
		{"the inside of the process", "GET", "/debug/pprof/heap", "192.0.2.1:5", file, "Bearer " + token, 200},
		{"names of spaces", "GET", "/debug/spaces", "192.0.2.1:5", "", "", 403},
		{"a missing file", "POST", "/drain", "127.0.0.1:5", file + "x", "Bearer " + token, 401},
		{"without a file, from here", "POST", "/drain", "127.0.0.1:5", "", "", 200},
		{"without a file, from here", "DELETE", "/drain", "[::1]:5", "", "", 200},
		{"without a file, from here", "POST", "/drain", "[::ffff:127.0.0.1]:5", "", "", 200},
		{"without a file, from elsewhere", "POST", "/drain", "192.0.2.1:5", "", "", 403},
		{"without a file, from elsewhere", "PUT", "/metrics", "192.0.2.1:5", "", "Bearer " + token, 403},
		{"without a file, from elsewhere", "GET", "/debug/pprof/heap", "192.0.2.1:5", "", "", 403},
	} {
		r := httptest.NewRequest(c.method, "http://127.0.0.1:8413"+c.path, nil)
		r.RemoteAddr = c.from
		r.Header.Set("Authorization", c.bearer)
		w := httptest.NewRecorder()
		guard(c.file, "127.0.0.1:8413", http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})).ServeHTTP(w, r)
		if w.Code != c.want {
			t.Errorf("%s: %s %s from %s with %q answers %d, want %d", c.why, c.method, c.path, c.from, c.bearer, w.Code, c.want)
		}
		if strings.Contains(w.Body.String(), token) {
			t.Error("an answer has the token")
		}
	}
	write(token[:21])
	if _, err := ReadToken(file); err == nil {
		t.Error("a token of 21 bytes was read, which is less than 128 bits")
	}
	write(token[:22] + "\n")
	if got, err := ReadToken(file); err != nil || got != token[:22] {
		t.Errorf("a token of 22 bytes is %q, %v", got, err)
	}
	write(token + " and more")
	if _, err := ReadToken(file); err == nil {
		t.Error("two words were read")
	}
}

// TestWebPages requires that a web page in a browser on the machine of a node changes nothing
// and sees nothing of the inside of the process: neither with a request to another site, nor
// with a name of its own that it points to this machine (DNS rebinding).
func TestWebPages(t *testing.T) {
	for _, c := range []struct {
		why, listen, host, site, origin string
		want                            int
	}{
		{"a program, by address", "127.0.0.1:8413", "127.0.0.1:8413", "", "", 200},
		{"a program, by another address of loopback", ":8413", "127.8.9.1:8413", "", "", 200},
		{"a program, by IPv6", "[::1]:8413", "[::1]:8413", "", "", 200},
		{"a program, by name", ":8413", "localhost:8413", "", "", 200},
		{"a program, by name", "localhost:80", "LocalHost", "", "", 200},
		{"a program, by the name of --http", "node1.example:8413", "node1.example:8413", "", "", 200},
		{"an address that was typed into a browser", "127.0.0.1:8413", "127.0.0.1:8413", "none", "", 200},
		{"a link of the index of /debug/pprof", "127.0.0.1:8413", "localhost:8413", "same-origin", "", 200},
		{"another site", "127.0.0.1:8413", "127.0.0.1:8413", "cross-site", "", 403},
		{"another port of this machine", "127.0.0.1:8413", "localhost:8413", "same-site", "", 403},
		{"another site, an old browser", "127.0.0.1:8413", "127.0.0.1:8413", "", "https://evil.example", 403},
		{"a page in a sandbox, an old browser", "127.0.0.1:8413", "127.0.0.1:8413", "", "null", 403},
		{"a name that points here", "127.0.0.1:8413", "evil.example:8413", "same-origin", "http://evil.example:8413", 403},
		{"a name that points here, without headers", ":8413", "evil.example:8413", "", "", 403},
		{"a name that begins well", ":8413", "localhost.evil.example:8413", "", "", 403},
		{"an address for which browsers send no headers", ":8413", "0.0.0.0:8413", "", "", 403},
		{"an address for which browsers send no headers", "0.0.0.0:8413", "0.0.0.0:8413", "", "", 403},
		{"an address for which browsers send no headers", "[::]:8413", "[::]:8413", "", "", 403},
		{"no host", ":8413", "", "", "", 403},
	} {
		for _, request := range []string{"GET /debug/pprof/profile", "POST /drain"} {
			method, path, _ := strings.Cut(request, " ")
			r := httptest.NewRequest(method, path, nil)
			r.RemoteAddr, r.Host = "127.0.0.1:5", c.host
			for header, value := range map[string]string{"Sec-Fetch-Site": c.site, "Origin": c.origin} {
				if value != "" {
					r.Header.Set(header, value)
				}
			}
			w := httptest.NewRecorder()
			guard("", c.listen, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})).ServeHTTP(w, r)
			if w.Code != c.want {
				t.Errorf("%s: %s of %s at %s (site %q, origin %q) answers %d, want %d", c.why, request, c.host, c.listen, c.site, c.origin, w.Code, c.want)
			}
		}
	}
}
