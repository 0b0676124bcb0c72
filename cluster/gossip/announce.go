package gossip

import (
	"bytes"
	"context"
	"time"

	"github.com/dnprelay/dnprelay/cluster"
	"github.com/hashicorp/memberlist"
)

// Least times between two announcements of what this node tells. A phase is
// worth more than a load.
const (
	phaseInterval   = 250 * time.Millisecond
	loadInterval    = 2 * time.Second
	announceTimeout = 100 * time.Millisecond // until it is looked whether the announcement counts, see tell
)

// SetPhase tells the others where this node is in its life.
func (g *Gossip) SetPhase(p cluster.Phase) {
	g.edit(func(m *cluster.Member) { m.Phase = p }, true)
}

// SetLoad tells the others how busy this node feels, 0 to [cluster.LoadMax];
// more is taken for that. It may be called at any rate.
func (g *Gossip) SetLoad(load int) {
	g.edit(func(m *cluster.Member) { m.Load = uint8(max(0, min(load, cluster.LoadMax))) }, false)
}

// SetAddresses tells the others where this node offers its services. It keeps the
// slice.
func (g *Gossip) SetAddresses(list []cluster.Address) error {
	m := g.cfg.Self
	m.Addresses = list
	if err := m.Validate(); err != nil {
		return err
	}
	g.edit(func(m *cluster.Member) { m.Addresses = list }, true)
	return nil
}

// SetSender tells the others the id under which this process seals datagrams; see
// cluster/forward.
func (g *Gossip) SetSender(id uint64) {
	g.edit(func(m *cluster.Member) { m.Sender = id }, true)
}

func (g *Gossip) edit(change func(*cluster.Member), urgent bool) {
	if !g.table.edit(change) {
		return
	}
	wake := g.calm
	if urgent {
		wake = g.urgent
	}
	select {
	case wake <- struct{}{}:
	default:
	}
}

// announce tells the others what has changed, until ctx ends. What changes in
// between is told together.
func (g *Gossip) announce(ctx context.Context) {
	for {
		wait := phaseInterval
		select {
		case <-ctx.Done():
			return
		case <-g.urgent:
		case <-g.calm:
			wait = loadInterval
		}
		for ctx.Err() == nil && !g.tell() {
		}
		g.pause(ctx, wait)
	}
}

// tell tells the others what this node is. It reports false if that came to nothing:
// UpdateNode is ignored, for ever, if this node takes back at the same instant what
// others say about it, as it does when it meets them after a restart, because its number
// is then too low. It returns at the end of the timeout then. An edge whose address for
// datagrams of others is not told is taken for dead by them, and takes them for dead.
func (g *Gossip) tell() bool {
	before := g.list.LocalNode().Meta
	// A broadcast that did not come through in time is repaired by the next comparison
	// of two nodes.
	if err := g.list.UpdateNode(announceTimeout); err != nil {
		g.log.Debug("gossip", "event", err.Error())
	}
	after := g.list.LocalNode().Meta
	return !bytes.Equal(after, before) || bytes.Equal(after, g.table.NodeMeta(memberlist.MetaMaxSize))
}

// pause waits, after something urgent was told at most phaseInterval.
func (g *Gossip) pause(ctx context.Context, wait time.Duration) {
	rest := time.NewTimer(wait)
	defer rest.Stop()
	soon := time.NewTimer(phaseInterval)
	defer soon.Stop()
	var urgent chan struct{} // listened to when something may be told again
	for {
		select {
		case <-ctx.Done():
			return
		case <-rest.C:
			return
		case <-soon.C:
			urgent = g.urgent
		case <-urgent:
			select {
			case g.urgent <- struct{}{}: // leave it to announce
			default:
			}
			return
		}
	}
}
