package relay

import (
	"slices"
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
func (sp *space) defers(now time.Time, m bus.Msg, p *replication.Publish) bool {
	if !now.Before(sp.gathered) || len(sp.deferred) >= deferredMax || len(sp.deferred) == 0 && !slices.ContainsFunc(p.Ops, sp.unknown) {
		return false
	}
	sp.deferred = append(sp.deferred, m)
	return true
}

// unknown reports whether an op is about a client that is not in the space.
func (sp *space) unknown(op replication.Op) bool {
	if op.Client == "" {
		return false
	}
	_, sessions := sp.store.Look("", op.Client)
	return sessions == 0
}

// publishDeferred has what waits published, up to the first message that is about a client which is still unknown.
func (sp *space) publishDeferred(publish func(m bus.Msg)) {
	all := sp.deferred
	sp.deferred = nil
	for i, m := range all {
		if publish(m); len(sp.deferred) > 0 {
			sp.deferred = append(sp.deferred, all[i+1:]...)
			return
		}
	}
}
