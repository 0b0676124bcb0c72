package systest

import (
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// TestWrongCredentials starts nodes that the NATS server does not want. Each says so in
// one line and ends, at once and not after the time for which it waits for a server. (With
// --start-timeout 0, which is for pods, it waits and says in /readyz what is missing.)
func TestWrongCredentials(t *testing.T) {
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, Username: "dnprelay", Password: "right", NoSigs: true, NoLog: true})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(patience) {
		t.Fatal("the server is not ready")
	}
	addr := strings.TrimPrefix(s.ClientURL(), "nats://")
	member, err := nats.Connect("nats://dnprelay:right@" + addr)
	if err != nil {
		t.Fatal(err)
	}
	defer member.Close()
	for _, url := range []string{"nats://dnprelay:wrong@" + addr, "nats://" + addr} {
		for _, p := range []*process{
			start(t, "relay", "serve", "--nats-url", url, "--http", "", "--start-timeout", "1h"),
			start(t, "edge", "serve", "--nats-url", url, "--http", "", "--listen", "udp://127.0.0.1:0", "--start-timeout", "1h"),
		} {
			p.ends(1, "bad NATS credentials", addr)
			if n := strings.Count(p.output.String(), "\n"); n != 2 || !strings.Contains(p.output.String(), "msg=starting") {
				t.Errorf("%d lines, want one, and before it that the node starts:\n%s", n, p.output)
			}
			if strings.Contains(p.output.String(), "wrong@") || strings.Contains(p.output.String(), ":wrong") {
				t.Errorf("the password is in the output:\n%s", p.output)
			}
		}
	}
	if err := member.Flush(); err != nil {
		t.Errorf("a client with the right password: %v", err)
	}
}
