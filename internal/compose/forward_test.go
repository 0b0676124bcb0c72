package compose

import (
	"bytes"
	"log/slog"
	"net/netip"
	"strings"
	"testing"

	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/dnp/admit"
	"github.com/dnprelay/dnprelay/internal/config"
)

func TestForwardingNeedsKeys(t *testing.T) {
	var text bytes.Buffer
	log := slog.New(slog.NewTextHandler(&text, nil))
	g, err := NewGossip(&config.Gossip{GossipBind: "127.0.0.1:0"}, cluster.RoleEdge, "e", 64, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	w, err := NewForwarding(&config.Forward{ForwardListen: "127.0.0.1:0"}, admit.Rate{}, "e", g, log)
	if w != nil || err != nil || strings.Count(text.String(), "not forwarded") != 1 {
		t.Errorf("without keys: %v, %v, and the log says %q", w, err, text.String())
	}
	var d *Durable
	if d.Edge(nil) != nil {
		t.Error("an edge without a log gets one")
	}
}

func TestForwardAddresses(t *testing.T) {
	gossip := netip.MustParseAddrPort("10.0.0.1:7946")
	for _, c := range []struct{ asked, bound, want string }{
		{"", "[::]:7947", "10.0.0.1:7947"},
		{"", "127.0.0.1:5", "127.0.0.1:5"},
		{"192.0.2.1", "[::]:7947", "192.0.2.1:7947"},
		{"192.0.2.1:9", "[::]:7947", "192.0.2.1:9"},
		{"[fd00::1]", "[::]:7947", "[fd00::1]:7947"},
		{"fd00::1", "[::]:7947", "[fd00::1]:7947"},
	} {
		got, err := advertisedAt(c.asked, netip.MustParseAddrPort(c.bound), gossip)
		if err != nil || got.String() != c.want {
			t.Errorf("%q at %s: got %v, %v, want %s", c.asked, c.bound, got, err, c.want)
		}
	}
}
