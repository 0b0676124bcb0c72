package systest

import (
	"context"
	"net/http"
	"net/netip"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/dnp/dnptest"
	"github.com/nats-io/nats.go"
)

var devNATS = regexp.MustCompile(`game servers  (\S+)`)

// TestDevKeepsSessions has everything in one process, with sessions in a log, and a Redis that
// is not there: it serves and says so. What a client says is kept for game servers, also
// for those of a second start.
func TestDevKeepsSessions(t *testing.T) {
	ports := freePorts(t, 2)
	addr, web := ports[0], ports[1]
	data := t.TempDir()
	for round := range 2 {
		p := start(t, "relay", "dev", "--data", data, "--session-durability", "log", "--redis", "redis://127.0.0.1:1", "--listen", "udp://"+addr,
			"--nats-listen", "127.0.0.1:0", "--http", web)
		p.says("dnpctl watch")
		eventually(t, "ready without Redis", func() bool {
			h, status := readiness(t, web)
			return status == http.StatusOK && h.Ready && slices.Equal(h.Missing, []string{"redis"})
		})
		nc, err := nats.Connect(devNATS.FindStringSubmatch(p.output.String())[1])
		if err != nil {
			t.Fatal(err)
		}
		if n := streamed(t, nc); n != round {
			t.Errorf("start %d finds %d messages, want %d", round+1, n, round)
		}
		hello(t, netip.MustParseAddrPort(addr))
		eventually(t, "what the client said is kept", func() bool { return streamed(t, nc) == round+1 })
		nc.Close()
		p.term()
		p.ends(0)
	}
}

// hello has a client say a message, and waits until it is acknowledged.
func hello(t *testing.T, server netip.AddrPort) {
	t.Helper()
	patient := dnptest.Cpp()
	patient.GiveUp = patience
	player, err := dnptest.RunUDP(t.Context(), dnptest.Config{Behaviour: patient, Server: server}, netip.AddrPort{})
	if err != nil {
		t.Fatal(err)
	}
	defer player.Close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	err = player.Until(ctx, func(c *dnptest.Client) bool { return c.Phase() == dnptest.Connected && len(c.Links()) > 0 })
	if err != nil {
		t.Fatalf("the client sees no state: %v", err)
	}
	if err := player.Do(func(now time.Time, c *dnptest.Client) { err = c.Send(now, []byte("hello")) }); err != nil {
		t.Fatal(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := player.Until(ctx, func(c *dnptest.Client) bool { return c.Queued() == 0 }); err != nil {
		t.Fatalf("what the client says is not acknowledged: %v", err)
	}
}
