package compose

import (
	"log/slog"
	"testing"

	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/internal/config"
)

func TestNewGossip(t *testing.T) {
	g, err := NewGossip(&config.Gossip{GossipBind: "127.0.0.1:0"}, cluster.RoleEdge, "edge-0", 64, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	m, ok := g.Roster().Member("edge-0")
	if !ok || m.Role != cluster.RoleEdge || m.Phase != cluster.PhaseStarting || m.Shards != 64 || m.Incarnation == 0 || m.Gossip != g.Addr() {
		t.Errorf("got %+v, %v", m, ok)
	}
	if list := GossipMetrics(g); len(list) != 5 {
		t.Errorf("%d metrics", len(list))
	}
}
