package gossip

import (
	"sync/atomic"
	"testing"

	"github.com/dnprelay/dnprelay/cluster"
	"github.com/hashicorp/memberlist"
)

// An inattentive delegate returns the first description of the node, as often as lost says. It stands for
// announcements without effect, because the node refutes at the same instant what others say about its
// former process.
type inattentive struct {
	memberlist.Delegate
	lost  atomic.Int32
	first []byte
}

func (d *inattentive) NodeMeta(limit int) []byte {
	if d.first == nil {
		d.first = d.Delegate.NodeMeta(limit)
	}
	if d.lost.Add(-1) >= 0 {
		return d.first
	}
	return d.Delegate.NodeMeta(limit)
}

// TestPhaseLost loses the announcement that a node is ready. The node must repeat it, or the others would
// never give it work.
func TestPhaseLost(t *testing.T) {
	a := start(t, "a")
	lost := &inattentive{}
	b := start(t, "b", joining(a), func(c *Config) {
		c.Self.Phase = cluster.PhaseStarting
		c.spoil = func(m *memberlist.Config) { lost.Delegate, m.Delegate = m.Delegate, lost }
	})
	b.until("meets a", sees(2))
	lost.lost.Store(3)
	b.SetPhase(cluster.PhaseReady)
	a.until("b is ready", func(r cluster.Roster) bool {
		m, ok := r.Member("b")
		return ok && m.Phase == cluster.PhaseReady
	})
}
