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
		why, method, path, from, file, bearer, origin string
		want                                          int
	}{
		{"reading needs nothing", "GET", "/metrics", "192.0.2.1:5", file, "", "", 200},
		{"reading needs nothing", "HEAD", "/readyz", "192.0.2.1:5", "", "", "", 200},
		{"no token", "POST", "/drain", "127.0.0.1:5", file, "", "", 401},
		{"another token", "POST", "/drain", "127.0.0.1:5", file, "Bearer " + strings.Repeat("x", 32), "", 401},
		{"half of the token", "POST", "/drain", "127.0.0.1:5", file, "Bearer " + token[:31], "", 401},
		{"another scheme", "POST", "/drain", "127.0.0.1:5", file, "Basic " + token, "", 401},
		{"the token", "POST", "/drain", "192.0.2.1:5", file, "Bearer " + token, "", 200},
		{"the inside of the process", "GET", "/debug/pprof/heap", "127.0.0.1:5", file, "", "", 401},
		{"the inside of the process", "GET", "/debug/pprof/heap", "192.0.2.1:5", file, "Bearer " + token, "", 200},
		{"a missing file", "POST", "/drain", "127.0.0.1:5", file + "x", "Bearer " + token, "", 401},
		{"without a file, from here", "POST", "/drain", "127.0.0.1:5", "", "", "", 200},
		{"without a file, from here", "DELETE", "/drain", "[::1]:5", "", "", "", 200},
		{"without a file, from here", "POST", "/drain", "[::ffff:127.0.0.1]:5", "", "", "", 200},
		{"without a file, from elsewhere", "POST", "/drain", "192.0.2.1:5", "", "", "", 403},
		{"without a file, from elsewhere", "PUT", "/metrics", "192.0.2.1:5", "", "Bearer " + token, "", 403},
		{"without a file, from elsewhere", "GET", "/debug/pprof/heap", "192.0.2.1:5", "", "", "", 403},
		{"a web page in a browser on this machine", "POST", "/drain", "127.0.0.1:5", "", "", "https://evil.example", 403},
	} {
		r := httptest.NewRequest(c.method, c.path, nil)
		r.RemoteAddr = c.from
		r.Header.Set("Authorization", c.bearer)
		if c.origin != "" {
			r.Header.Set("Origin", c.origin)
		}
		w := httptest.NewRecorder()
		guard(c.file, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})).ServeHTTP(w, r)
		if w.Code != c.want {
			t.Errorf("%s: %s %s from %s with %q answers %d, want %d", c.why, c.method, c.path, c.from, c.bearer, w.Code, c.want)
		}
		if strings.Contains(w.Body.String(), token) {
			t.Error("an answer has the token")
		}
	}
	write("short")
	if _, err := ReadToken(file); err == nil {
		t.Error("a short token was read")
	}
	write(token + " and more")
	if _, err := ReadToken(file); err == nil {
		t.Error("two words were read")
	}
}
