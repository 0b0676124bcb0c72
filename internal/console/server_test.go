package console

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/dnprelay/dnprelay/bus/natsbus"
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
	s.pages <- struct{}{}
	if got := open(); got != http.StatusServiceUnavailable {
		t.Errorf("the 17th page has the answer %d, want %d", got, http.StatusServiceUnavailable)
	}
	<-s.pages
	if got := open(); got != http.StatusUpgradeRequired {
		t.Errorf("after one was closed, a page has the answer %d", got)
	}
}
