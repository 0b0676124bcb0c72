package relay

import (
	"time"

	"github.com/dnprelay/dnprelay/bus"
	"github.com/dnprelay/dnprelay/replication"
)

// A relay that begins to serve a space asks which sessions are there. Game servers know them already, and what they say about a
// client, at the event joined or reassert, may be here before the answers of the edges. So the relay does not refuse
// it as about an unknown client until the edges had the time to answer. What game servers publish behind it waits, too, because
// their order counts.
const (
	gatherTime  = 900 * time.Millisecond // less than publishers wait for an answer
	deferredMax = 1024                   // messages of a space; the relay refuses what is about an unknown client when there are more
)

// defers keeps a message for later, if it is about a client of which edges may be about to tell.
func (w *Worker) defers(now time.Time, sp *space, m bus.Msg, p *replication.Publish) bool {
	if !now.Before(sp.gathered) || len(sp.deferred) >= deferredMax || len(sp.deferred) == 0 && !sp.store.NamesUnknown(p) {
		return false
	}
	sp.deferred = append(sp.deferred, m)
	w.plan(sp)
	return true
}

// publishDeferred gives the store what waits, up to the first message that is about a client which is still unknown.
func (w *Worker) publishDeferred(now time.Time, sp *space) {
	all := sp.deferred
	if sp.deferred = nil; len(all) == 0 {
		return
	}
	for i, m := range all {
		w.take(now, sp.owner, m)
		if len(sp.deferred) > 0 {
			sp.deferred = append(sp.deferred, all[i+1:]...)
			return
		}
	}
}
