package gossip

import (
	"context"

	"github.com/dnprelay/dnprelay/cluster"
)

// narrate logs who comes and goes, until ctx ends.
func (g *Gossip) narrate(ctx context.Context) {
	var old cluster.Roster
	for {
		select {
		case <-ctx.Done():
			return
		case <-g.table.news:
		}
		now := g.Roster()
		d := now.Since(old)
		for _, m := range d.Left {
			g.log.Info("gossip: member is gone", "member", m.Name, "role", m.Role, "members", now.Len())
		}
		for _, m := range d.Joined {
			if m.Name != g.cfg.Self.Name {
				g.log.Info("gossip: member is there", "member", m.Name, "role", m.Role, "address", m.Gossip, "members", now.Len())
			}
		}
		old = now
	}
}
