package telemetry

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"strings"
)

// tokenMin is the least length of a token in bytes: nobody guesses 128 bits in hex, or
// in base64.
const tokenMin = 22

// ReadToken reads a file with a token: one word of at least 22 bytes.
func ReadToken(file string) (string, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	token := strings.TrimSpace(string(b))
	if len(token) < tokenMin || strings.ContainsAny(token, " \t\r\n") {
		return "", fmt.Errorf("%s: want one word of at least %d bytes", file, tokenMin)
	}
	return token, nil
}

var errNoBearer = errors.New("this needs the token of --http-token, as Authorization: Bearer")

// guard lets through what only looks. What changes something, and what shows the inside
// of the process, needs the token in a file, which is read at each such request, so that
// it can be replaced. Without a file it has to come from this machine, and not from a web
// page that a browser on it shows.
func guard(file string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if looks(r) {
			next.ServeHTTP(w, r)
			return
		}
		if file == "" && (!local(r) || r.Header.Get("Origin") != "") {
			http.Error(w, "this is for loopback only, unless there is --http-token", http.StatusForbidden)
			return
		}
		if file != "" && !bears(r, file) {
			w.Header().Set("WWW-Authenticate", "Bearer")
			http.Error(w, errNoBearer.Error(), http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// looks reports whether a request changes nothing and shows what everybody may see.
func looks(r *http.Request) bool {
	return (r.Method == http.MethodGet || r.Method == http.MethodHead) && !strings.HasPrefix(r.URL.Path, "/debug/")
}

func local(r *http.Request) bool {
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	return err == nil && from.Addr().Unmap().IsLoopback()
}

// bears compares digests, whose comparison takes the same time for every token.
func bears(r *http.Request, file string) bool {
	want, err := ReadToken(file)
	got, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if err != nil || !ok {
		return false
	}
	a, b := sha256.Sum256([]byte(want)), sha256.Sum256([]byte(got))
	return subtle.ConstantTimeCompare(a[:], b[:]) == 1
}
