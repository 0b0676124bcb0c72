package gossip

import (
	"sync/atomic"
	"testing"

	"github.com/dnprelay/dnprelay/cluster"
	"github.com/hashicorp/memberlist"
)

// An inattentive delegate gives what the node was in the beginning, as often as lost
// says. It stands for announcements that come to nothing because the node takes back,
// at the same instant, what others say about its former self.
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

// TestPhaseLost loses what a node says when it is ready. It has to say it again, or
// the others would never give it anything to do.
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
