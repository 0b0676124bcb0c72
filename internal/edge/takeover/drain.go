package takeover

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/dnp"
)

// edgeHandOversPerSecond is how many sessions an edge that drains hands over per second, so
// that none of them waits long for the log.
const edgeHandOversPerSecond = 2000

// Times of a hand-over.
const (
	// ConsentTime is how long an edge has to answer a Request.
	ConsentTime = 2 * time.Second

	prepareTime = 100 * time.Millisecond // for the others to answer before the first session goes, so that all get their part
	drainRound  = 250 * time.Millisecond // between two looks for sessions that could not be handed over
)

// A drainer hands all sessions of the worker over.
type drainer struct {
	*base
	closing    bool // the drain closes the sessions that remain
	candidates candidates
	queue      []string  // sessions of this round
	begin      time.Time // when the first session may go
	pace       pace      // of hand-overs
	look       time.Time // when the next round begins
}

// Drain begins to hand every session of the worker over.
func (d *drainer) Drain(now time.Time) {
	d.leaving, d.begin = true, now.Add(prepareTime)
	d.look = d.begin
	d.askCandidates(now)
}

// CloseRest ends what could not be handed over.
func (d *drainer) CloseRest() {
	d.closing = true
	for c := range d.cfg.Endpoint.All {
		c.Close(dnp.CloseDrain)
	}
}

// askCandidates asks the edges that are ready to prepare the spaces of this worker, unless
// their last answer still counts.
func (d *drainer) askCandidates(now time.Time) {
	spaces := d.host.Spaces()
	for _, node := range d.candidates.update(now, d.host.View().readyAt(d.cfg.Listener), spaces) {
		d.host.Ask(node, Request{Prepare: spaces}, func(now time.Time, err error) {
			if d.candidates.answered(now, node, spaces, err) && len(d.queue) == 0 && now.After(d.begin) {
				d.look = now
			}
		})
	}
}

// advanceDrain hands over as many sessions as may be, and returns when there is more to do.
func (d *drainer) advanceDrain(now, next time.Time) time.Time {
	if !d.leaving || d.closing {
		return next
	}
	if len(d.queue) == 0 && !d.look.After(now) {
		d.askCandidates(now)
		d.queue, d.look = slices.Sorted(maps.Keys(d.byName)), now.Add(drainRound)
	}
	interval := time.Second / edgeHandOversPerSecond * time.Duration(d.host.Workers())
	for len(d.queue) > 0 && d.pace.take(now, interval) {
		name := d.queue[0]
		node := d.candidates.successor(now, name, d.host.View().readyAt(d.cfg.Listener))
		if node == "" { // no edge is prepared; the next round may find one
			d.queue = nil
			break
		}
		d.handOver(name, node)
		d.queue = d.queue[1:]
	}
	if len(d.queue) > 0 { // the next round begins when this one is over, which may be after look
		return earlier(next, d.pace.next)
	}
	return earlier(next, d.look)
}

func (d *drainer) handOver(name, node string) {
	s := d.byName[name]
	if s == nil || !s.stays() {
		return // it is over, on its way, or looked at again
	}
	s.departure = handingOver
	s.Log.HandOver(node)
	d.wake(s)
}

// handed asks the successor of a session to take it. This edge's claim stays until that of
// the successor replaces it: if the successor dies before it has one, the claim leads the
// others to a client that says nothing.
func (d *drainer) handed(s *Session, node string) {
	s.endFeed()
	if s.toWorker >= 0 {
		d.host.Move(s.toWorker, s.name)
		return
	}
	r := Request{Adopt: s.name, Listener: d.cfg.Listener, ClientAddr: s.client.String(), Unheard: s.way().Unknown}
	if d.cfg.Forward != nil && !r.Unheard {
		r.Via = d.pathAt(node, s)
	}
	s.departure = given
	d.host.Ask(node, r, func(now time.Time, err error) { d.consented(now, node, s, err) })
}

// pathAt returns over which edge the datagrams of a client come to the successor node: the
// one over which they come here, or else this one. A balancer may let answers of no other
// edge through.
func (d *drainer) pathAt(node string, s *Session) string {
	switch s.path.Edge {
	case "":
		return d.cfg.Node
	case node:
		return "" // they come to the successor itself
	}
	return s.path.Edge
}

// consented handles the answer of the successor of a session. err is nil if it has the session.
func (d *drainer) consented(now time.Time, node string, s *Session, err error) {
	if err != nil {
		d.candidates.failed(now, node)
	}
	if s.departure != given {
		return // it was given back meanwhile, or its client logged in
	}
	path := s.way()
	d.forget(s)
	switch {
	case err == nil:
		d.host.Moved(s.client, node)
	case !d.closing: // this edge serves it until the next round
		next := d.adopt(s.name, netip.AddrPort{}, true)
		next.named = !path.Unknown
		d.setPath(next, path)
	}
}

// Bounds of an edge that is asked to prepare spaces. It refuses before the other edge stops
// waiting.
const (
	prepareMax   = ConsentTime * 3 / 4
	preparingMax = 256 // requests that wait, per worker
)

// A preparer follows spaces for other edges, which drain.
type preparer struct {
	*base
	preparing []preparation
}

// A preparation is spaces whose states the worker is asked to have.
type preparation struct {
	spaces []string
	until  time.Time
	done   func(ok bool)
}

// Prepare follows spaces and calls done, on this turn or a later one: with true when the
// worker has their states, and with false when that takes too long.
func (p *preparer) Prepare(now time.Time, spaces []string, done func(ok bool)) {
	if len(p.preparing) >= preparingMax {
		done(false)
		return
	}
	for _, name := range spaces {
		p.host.Follow(now, name)
	}
	p.preparing = append(p.preparing, preparation{spaces, now.Add(prepareMax), done})
}

// advancePreparing answers requests whose spaces are complete, or took too long, and returns
// when there is more to do. It names no time for a space that becomes complete: each message
// of a space makes the worker turn.
func (p *preparer) advancePreparing(now, next time.Time) time.Time {
	p.preparing = slices.DeleteFunc(p.preparing, func(x preparation) bool {
		missing := slices.ContainsFunc(x.spaces, func(name string) bool { return !p.host.Follow(now, name) })
		if missing && now.Before(x.until) {
			next = earlier(next, x.until)
			return false
		}
		x.done(!missing)
		return true
	})
	return next
}

// Times of an edge that looks for successors of its sessions.
const (
	preparedTime   = 10 * time.Second // for which an answer counts; an edge follows spaces without sessions for longer
	candidatePause = time.Second      // before an edge that refused is asked again, or given anything
)

// candidates are the other edges that may succeed this one. A session is handed over only
// to an edge that has the states of its space: until that edge has them it claims nothing,
// and the session has no owner meanwhile. So an edge that drains asks the others to
// prepare, and hands sessions over to those that say that they did.
type candidates struct {
	byNode map[string]*candidate
	spaces []string // that they are asked to prepare
}

type candidate struct {
	asking bool
	until  time.Time // for how long it is prepared
	again  time.Time // when it may be asked again
}

// update notes the edges that are ready, and the spaces that they have to prepare. It
// returns the edges to be asked.
func (c *candidates) update(now time.Time, nodes, spaces []string) (ask []string) {
	if slices.ContainsFunc(spaces, func(name string) bool { return !slices.Contains(c.spaces, name) }) {
		c.byNode = nil // earlier answers were about other spaces
	}
	if c.byNode == nil {
		c.byNode = make(map[string]*candidate)
	}
	c.spaces = spaces
	maps.DeleteFunc(c.byNode, func(node string, _ *candidate) bool { return !slices.Contains(nodes, node) })
	for _, node := range nodes {
		x := c.byNode[node]
		if x == nil {
			x = &candidate{}
			c.byNode[node] = x
		}
		if !x.asking && !x.again.After(now) {
			x.asking = true
			ask = append(ask, node)
		}
	}
	return ask
}

// answered notes whether an edge has prepared spaces. It reports whether that makes it a
// successor.
func (c *candidates) answered(now time.Time, node string, spaces []string, err error) bool {
	x := c.byNode[node]
	if x == nil || slices.ContainsFunc(c.spaces, func(name string) bool { return !slices.Contains(spaces, name) }) {
		return false // the question was about other spaces
	}
	x.asking = false
	if err != nil {
		c.failed(now, node)
		return false
	}
	x.until, x.again = now.Add(preparedTime), now.Add(preparedTime/2)
	return true
}

// failed notes that an edge refused a session or did not answer.
func (c *candidates) failed(now time.Time, node string) {
	if x := c.byNode[node]; x != nil {
		x.until, x.again = time.Time{}, now.Add(candidatePause)
	}
}

// successor returns which of the edges that are ready and prepared should have a session;
// empty for none.
func (c *candidates) successor(now time.Time, name string, ready []string) string {
	return cluster.Choose(name, slices.DeleteFunc(ready, func(node string) bool {
		x := c.byNode[node]
		return x == nil || !x.until.After(now)
	}))
}

// hopePatience is how long an edge that drains waits while no candidate is known. An edge
// that was restarted in place is back by then, in its phase starting at least; and there
// is enough left of the ten seconds that container runtimes give a process to tell its
// clients that it ends.
const hopePatience = 5 * time.Second

// A Hope says whether an edge that drains may still find a successor for its sessions.
type Hope struct {
	alone time.Time // since when no candidate is known; zero if one is
}

// Update takes what View.MaySucceed says at a time. It reports whether there is hope: there
// is none after no candidate was known for hopePatience, and none without gossip, because no
// candidate can become known.
func (h *Hope) Update(now time.Time, gossip, candidates bool) bool {
	switch {
	case candidates:
		h.alone = time.Time{}
	case h.alone.IsZero():
		h.alone = now
	}
	return candidates || gossip && now.Sub(h.alone) < hopePatience
}
