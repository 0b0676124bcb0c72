package main

import (
	"encoding/json"
	"encoding/pem"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestPlacement checks what counts as too many pods on one node.
func TestPlacement(t *testing.T) {
	for _, c := range []struct{ why, pods, want string }{
		{"each on a node of its own", "nats a nats b nats c redis a redis b edge a edge b", "edge: a 1, b 1|nats: a 1, b 1, c 1|redis: a 1, b 1|the loss of any one node leaves enough pods of each kind that has several"},
		{"two of three NATS servers are the quorum", "nats a nats a nats b", "nats: a 2, b 1|WARNING: the loss of node a takes 2 of 3 pods of nats"},
		{"two of five are not", "nats a nats a nats b nats c nats d", "nats: a 2, b 1, c 1, d 1|the loss of any one node leaves enough pods of each kind that has several"},
		{"one edge is left", "edge a edge a edge b", "edge: a 2, b 1|the loss of any one node leaves enough pods of each kind that has several"},
		{"no edge is left, and no Redis", "edge a edge a redis b redis b", "edge: a 2|redis: b 2|WARNING: the loss of node a takes 2 of 2 pods of edge|WARNING: the loss of node b takes 2 of 2 pods of redis"},
		{"a single pod is not the fault of its node", "nats a relay a", "nats: a 1|relay: a 1|the loss of any one node leaves enough pods of each kind that has several"},
	} {
		var pods []placed
		f := strings.Fields(c.pods)
		for i := 0; i < len(f); i += 2 {
			pods = append(pods, placed{f[i], f[i+1]})
		}
		if got := strings.Join(place(pods).lines(), "|"); got != c.want {
			t.Errorf("%s: %s\ngot  %s\nwant %s", c.why, c.pods, got, c.want)
		}
	}
}

// TestPlacementAsks lets the command ask an API server as a pod does.
func TestPlacementAsks(t *testing.T) {
	const list = `{"items":[
		{"metadata":{"labels":{"app.kubernetes.io/component":"edge","app.kubernetes.io/name":"relay"}},"spec":{"nodeName":"a"}},
		{"metadata":{"labels":{"app.kubernetes.io/component":"test"}},"spec":{"nodeName":"a"}},
		{"metadata":{"labels":{"app.kubernetes.io/name":"nats"},"deletionTimestamp":"2026-01-01T00:00:00Z"},"spec":{"nodeName":"a"}}]}`
	status, body := http.StatusOK, list
	var asked, bearer string
	api := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked, bearer = r.URL.Path+" "+r.URL.Query().Get("labelSelector"), r.Header.Get("Authorization")
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	}))
	defer api.Close()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"token": "secret\n", "namespace": "games",
		"ca.crt": string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: api.Certificate().Raw})),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	command := placementCommand{Release: "r1", API: api.URL, Account: dir}
	pods, err := command.pods(t.Context())
	if err != nil || len(pods) != 1 || pods[0] != (placed{"edge", "a"}) {
		t.Errorf("the pods are %v, %v; want the edge, and neither the test nor a pod that ends", pods, err)
	}
	if asked != "/api/v1/namespaces/games/pods app.kubernetes.io/part-of=dnprelay,app.kubernetes.io/instance=r1" || bearer != "Bearer secret" {
		t.Errorf("the API is asked for %s with %q", asked, bearer)
	}
	if got, err := json.Marshal(place(pods)); err != nil || string(got) != `{"pods":[{"kind":"edge","node":"a","count":1}],"warnings":[]}` {
		t.Errorf("with --json it prints %s, %v", got, err)
	}
	if got := place([]placed{{"edge", "a"}, {"edge", "a"}}).Warnings; len(got) != 1 || got[0] != (placementIssue{"a", "edge", 2, 2}) {
		t.Errorf("the warnings are %+v, want one: both edges are on one node", got)
	}
	for why, c := range map[string]struct {
		status     int
		body, want string
	}{
		"no right":      {http.StatusForbidden, "", "403"},
		"no list":       {http.StatusOK, "hello", "no list of pods"},
		"another label": {http.StatusOK, `{"items":[]}`, "release r1 has no pods that run"},
	} {
		status, body = c.status, c.body
		if err := command.Run(t.Context(), slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", why, err, c.want)
		}
	}
	command.Account = t.TempDir()
	if err := command.Run(t.Context(), slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "needs a pod with a service account") {
		t.Errorf("outside of a cluster: %v", err)
	}
}
