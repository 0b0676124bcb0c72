package systest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/dnprelay/dnprelay/internal/telemetry"
)

// metric returns what an edge shows at /metrics under a name with labels.
func (r *rescue) metric(edge int, name string) float64 {
	r.Helper()
	for line := range strings.Lines(get(r.T, "http://"+r.webs[edge]+"/metrics")) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			v, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			if err != nil {
				r.Fatal(err)
			}
			return v
		}
	}
	r.Fatalf("edge %d does not show %s", edge+1, name)
	return 0
}

// shows waits until an edge shows a value: counters may be a quarter of a second old.
func (r *rescue) shows(edge int, name string, want float64) {
	r.Helper()
	eventually(r.T, fmt.Sprintf("edge %d shows %s %v", edge+1, name, want), func() bool { return r.metric(edge, name) == want })
}

// readiness returns what a node says at /readyz, and with which status.
func readiness(t *testing.T, web string) (h telemetry.Health, status int) {
	t.Helper()
	answer, err := http.Get("http://" + web + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if err := json.NewDecoder(answer.Body).Decode(&h); err != nil {
		t.Fatal(err)
	}
	return h, answer.StatusCode
}
