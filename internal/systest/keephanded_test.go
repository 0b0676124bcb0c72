package systest

import (
	"slices"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/sessionlog"
)

// heir returns the edge that the session of a client was handed over to; nil if nobody has
// gone on since, and nobody was asked to.
func (p *keepPlayer) heir() *keepEdge {
	entries := p.w.store.Entries(p.log())
	k, err := sessionlog.ParseBlock(entries[len(entries)-1].Data)
	if err != nil {
		p.w.Fatal(err)
	}
	if k.Hand == nil {
		return nil
	}
	i := slices.IndexFunc(p.w.edges, func(e *keepEdge) bool { return e.name == *k.Hand })
	return p.w.edges[i]
}

// keeps reports whether the edge has the session of a client.
func (e *keepEdge) keeps(p *keepPlayer) bool {
	return slices.ContainsFunc(e.workers, func(k *keepWorker) bool { return k.worker.Serves(p.addr) })
}

// silentClient plays until a client that says nothing is served, and returns it and its edge.
func silentClient(t *testing.T, seed uint64) (w *keepWorld, p *keepPlayer, first *keepEdge) {
	t.Helper()
	w = newKeepWorld(t, seed)
	p = w.players[keepPlayers-1] // it only watches
	w.net.Run(2 * time.Second)
	if first = p.owner(); first == nil {
		t.Fatal("the client has no session")
	}
	return w, p, first
}

// TestHandedToTheDead: an edge hands the session of a client over that says nothing, and both
// it and the next owner die before that one has the session. Others find it all the same,
// because the first one's claim stays until that of the next owner replaces it.
func TestHandedToTheDead(t *testing.T) {
	for seed := range uint64(4) {
		w, p, first := silentClient(t, seed)
		first.drain()
		w.within(time.Second, "the session is handed over", func() bool { return p.heir() != nil && !first.keeps(p) })
		heir := p.heir()
		heir.ends()
		first.ends()
		i := slices.IndexFunc(w.edges, func(e *keepEdge) bool { return e != first && e != heir })
		w.within(15*time.Second, "the third edge goes on", func() bool { return w.edges[i].keeps(p) })
	}
}
