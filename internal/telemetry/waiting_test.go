package telemetry_test

import (
	"io"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/dnprelay/dnprelay/internal/telemetry"
)

// TestWaiting requires that a node that waits names what is missing, that its port is never closed before it has begun, and that Close frees it.
func TestWaiting(t *testing.T) {
	s, err := telemetry.Listen("127.0.0.1:0", func() []string { return []string{"nats"} })
	if err != nil {
		t.Fatal(err)
	}
	defer http.DefaultClient.CloseIdleConnections()
	get := func(path string) string {
		answer, err := http.Get("http://" + s.Addr().String() + path)
		if err != nil {
			t.Error(err)
			return ""
		}
		defer answer.Body.Close()
		body, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Error(err)
		}
		return answer.Status[:4] + string(body)
	}
	for path, want := range map[string]string{"/livez": "200 ok\n", "/readyz": `503 {"ready":false,"missing":["nats"]}` + "\n", "/metrics": "404 404 page not found\n"} {
		if got := get(path); got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
	var begun atomic.Bool
	asked := make(chan struct{})
	go func() {
		defer close(asked)
		for !begun.Load() {
			get("/livez")
		}
	}()
	if err := s.Show(telemetry.Config{Telemetry: open(t), Health: func() telemetry.Health { return telemetry.Health{Ready: true} }}); err != nil {
		t.Fatal(err)
	}
	begun.Store(true)
	<-asked
	if got, want := get("/readyz"), `200 {"ready":true,"missing":[]}`+"\n"; got != want {
		t.Errorf("a node that has begun: %q, want %q", got, want)
	}
	s.Close()
	s.Close() // does nothing
	again, err := telemetry.Listen(s.Addr().String(), nil)
	if err != nil {
		t.Fatalf("the port is still taken: %v", err)
	}
	again.Close()
}
