package telemetry

import (
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

// TestWaiting requires that a waiting node names what is missing, and that stop frees its
// port.
func TestWaiting(t *testing.T) {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := free.Addr().String()
	if _, err := Wait(addr, nil); err == nil || !strings.Contains(err.Error(), "in use by another program") {
		t.Errorf("with a port in use: %v", err)
	}
	free.Close()
	stop, err := Wait(addr, func() []string { return []string{"nats"} })
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{"/livez": "200 ok\n", "/readyz": `503 {"ready":false,"missing":["nats"]}` + "\n", "/metrics": "404 404 page not found\n"} {
		answer, err := http.Get("http://" + addr + path)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(answer.Body)
		answer.Body.Close()
		if got := answer.Status[:4] + string(body); got != want || err != nil {
			t.Errorf("%s: %q, %v; want %q", path, got, err, want)
		}
	}
	http.DefaultClient.CloseIdleConnections()
	stop()
	stop() // does nothing
	again, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatalf("the port is still taken: %v", err)
	}
	again.Close()
	if stop, err := Wait("", nil); err != nil {
		t.Error(err)
	} else {
		stop()
	}
}
