package takeover

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/dnprelay/dnprelay/dnp"
)

// handOversPerSecond is how many sessions an edge that drains hands over per second, so
// that none of them waits long for the log.
const handOversPerSecond = 2000

// Times of a hand-over.
const (
	// ConsentTime is how long an edge has to answer a Request.
	ConsentTime = 2 * time.Second

	prepareTime = 100 * time.Millisecond // for the others to answer before the first session goes, so that all get their part
	drainRound  = 250 * time.Millisecond // between two looks for sessions that could not be handed over
)

// Bounds of an edge that is asked to prepare spaces. It refuses before the other edge stops
// waiting.
const (
	prepareMax   = ConsentTime * 3 / 4
	preparingMax = 256 // requests that wait, per worker
)

// Drain begins to hand every session of the worker over.
func (t *Takeover) Drain(now time.Time) {
	d := &t.draining
	d.on, d.begin = true, now.Add(prepareTime)
	d.look = d.begin
	t.askCandidates(now)
}

// CloseRest ends what could not be handed over.
func (t *Takeover) CloseRest() {
	t.draining.closing = true
	for c := range t.cfg.Endpoint.All {
		c.Close(dnp.CloseDrain)
	}
}

// askCandidates asks the edges that are ready to prepare the spaces of this worker, unless
// their last answer still counts.
func (t *Takeover) askCandidates(now time.Time) {
	spaces := t.host.Spaces()
	for _, node := range t.draining.candidates.update(now, t.host.View().successors(), spaces) {
		t.host.Ask(node, Request{Prepare: spaces})
	}
}

// advanceDrain hands over as many sessions as may be, and returns when there is more to do.
func (t *Takeover) advanceDrain(now, next time.Time) time.Time {
	d := &t.draining
	if !d.on || d.closing {
		return next
	}
	if len(d.queue) == 0 && !d.look.After(now) {
		t.askCandidates(now)
		d.queue, d.look = slices.Sorted(maps.Keys(t.byName)), now.Add(drainRound)
	}
	for len(d.queue) > 0 && !d.next.After(now) {
		if now.Sub(d.next) > turnInterval {
			d.next = now
		}
		d.next = d.next.Add(time.Second / handOversPerSecond * time.Duration(t.host.Workers()))
		name := d.queue[0]
		node := d.candidates.successor(now, name, t.host.View().successors())
		if node == "" { // no edge is prepared; the next round may find one
			d.queue = nil
			break
		}
		t.handOver(name, node)
		d.queue = d.queue[1:]
	}
	if len(d.queue) > 0 {
		next = earlier(next, d.next)
	}
	return earlier(next, d.look)
}

// handOver gives a session to another edge.
func (t *Takeover) handOver(name, node string) {
	s := t.byName[name]
	if s == nil || s.phase != Serving && s.phase != Revalidating {
		return // it is over, on its way, or looked at again
	}
	s.phase = HandingOver
	s.log.HandOver(node)
	t.wake(s)
}

// handed asks the successor of a session to take it. This edge's claim stays until that of
// the successor replaces it: if the successor dies before it has one, the claim leads the
// others to a client that says nothing.
func (t *Takeover) handed(s *Session, node string) {
	s.endFeed()
	if s.toWorker >= 0 {
		t.host.Move(s.toWorker, s.name)
		return
	}
	r := Request{Adopt: s.name, Listener: t.cfg.Listener, Client: s.client.String(), Unheard: s.path.Unknown, session: s}
	if t.cfg.Forwards && !r.Unheard {
		r.Via = t.pathAt(node, s)
	}
	s.phase = Given
	t.host.Ask(node, r)
}

// pathAt returns over which edge the datagrams of a client come to the successor node: the
// one over which they come here, or else this one. A balancer may let answers of no other
// edge through.
func (t *Takeover) pathAt(node string, s *Session) string {
	switch s.path.Edge {
	case "":
		return t.cfg.Node
	case node:
		return "" // they come to the successor itself
	}
	return s.path.Edge
}

// Consented handles the answer of another edge to a request. err is nil if the edge did what
// it was asked.
func (t *Takeover) Consented(now time.Time, node string, r Request, err error) {
	d := &t.draining
	if r.session == nil {
		if d.candidates.answered(now, node, r.Prepare, err) && len(d.queue) == 0 && now.After(d.begin) {
			d.look = now
		}
		return
	}
	if err != nil {
		d.candidates.failed(now, node)
	}
	s := r.session
	if s.phase != Given {
		return // it was given back meanwhile, or its client logged in
	}
	path := s.path
	t.forget(s)
	switch {
	case err == nil:
		t.host.Moved(s.client, node)
	case !d.closing: // this edge serves it until the next round
		t.setPath(t.adopt(s.name, netip.AddrPort{}, true), path)
	}
}

// Prepare follows spaces and calls done, on this turn or a later one: with true when the
// worker has their states, and with false when that takes too long.
func (t *Takeover) Prepare(now time.Time, spaces []string, done func(ok bool)) {
	if len(t.preparing) >= preparingMax {
		done(false)
		return
	}
	for _, name := range spaces {
		t.host.Follow(now, name)
	}
	t.preparing = append(t.preparing, preparation{spaces, now.Add(prepareMax), done})
}

// advancePreparing answers requests whose spaces are complete, or took too long, and returns
// when there is more to do.
func (t *Takeover) advancePreparing(now, next time.Time) time.Time {
	t.preparing = slices.DeleteFunc(t.preparing, func(p preparation) bool {
		missing := slices.ContainsFunc(p.spaces, func(name string) bool { return !t.host.Follow(now, name) })
		if missing && now.Before(p.until) {
			next = earlier(next, p.until)
			return false
		}
		p.done(!missing)
		return true
	})
	return next
}
