package relay

import (
	"time"

	"github.com/dnprelay/dnprelay/bus"
	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/internal/inspect"
	"github.com/dnprelay/dnprelay/internal/inspect/desk"
	"github.com/dnprelay/dnprelay/internal/version"
)

// Bounds of what a relay does for people who look at it.
const (
	stepSpaces     = 512  // spaces whose names are compared in one turn of a worker
	sessionsLooked = 4096 // in a space with more sessions, the relay does not look for the edges of one client
)

// An inspector answers the requests of people who look at the relay.
type inspector struct {
	*desk.Desk
	relay   *Relay
	started time.Time
}

// each has every worker do its part, one after the other, and then calls end.
func (i *inspector) each(workers []*Worker, do func(w *Worker, now time.Time, next func()), end func()) {
	if len(workers) == 0 {
		i.Leave()
		end()
		return
	}
	w := workers[0]
	w.commands.Put(func(now time.Time) { do(w, now, func() { i.each(workers[1:], do, end) }) })
}

// spaces answers a page of the spaces that this relay holds.
func (i *inspector) spaces(m bus.Msg) {
	q, ok := i.Take(m, inspect.ParseQuery)
	if !ok || !i.Enter(m.Reply) {
		return
	}
	var pages []inspect.List[inspect.Space]
	i.each(i.relay.workers, func(w *Worker, _ time.Time, next func()) {
		var all []*space
		for _, o := range w.owned {
			all = append(all, o.spaces...)
		}
		i.list(w, all, inspect.NewPage[*space](q), func(l inspect.List[inspect.Space]) {
			pages = append(pages, l)
			next()
		})
	}, func() {
		name := (*inspect.Space).Name
		i.Answer(m.Reply, inspect.SpacesAnswer{Head: i.Head(nil), List: inspect.Cut(inspect.MergePages(pages, name), q.Max, name)})
	})
}

// list gives spaces to a page, a few on each turn, and then has it reported.
func (i *inspector) list(w *Worker, left []*space, page *inspect.Page[*space], report func(inspect.List[inspect.Space])) {
	n := min(len(left), stepSpaces)
	for _, sp := range left[:n] {
		page.Offer(sp.name, sp)
	}
	w.commands.Put(func(now time.Time) {
		if n < len(left) {
			i.list(w, left[n:], page, report)
			return
		}
		l := inspect.List[inspect.Space]{Next: page.Next()}
		for _, sp := range page.Values() {
			if w.spaces[sp.name] == sp { // else it has ended
				l.Entries = append(l.Entries, i.describe(now, sp))
			}
		}
		report(l)
	})
}

func (i *inspector) describe(now time.Time, sp *space) inspect.Space {
	o, s := sp.owner, sp.store.Stats()
	epoch, seq := sp.store.Position()
	since := o.since
	if since.IsZero() { // the relay began with this shard
		since = i.started
	}
	return inspect.Space{
		Space: sp.name, Holder: i.relay.cfg.Node, Shard: o.shard, Serving: o.serving, Epoch: epoch, Seq: seq,
		Since: inspect.Millis(max(0, now.Sub(since))), Tick: inspect.Millis(i.relay.cfg.Tick), Durable: o.durable,
		States: s.States, Views: s.Views, Clients: len(sp.present.named),
		Publishes: s.Publishes, Writes: s.Writes, Batches: s.Batches, BatchBytes: s.BatchBytes,
	}
}

// nodes answers what this relay is, and which nodes gossip knows.
func (i *inspector) nodes(m bus.Msg) {
	q, ok := i.Take(m, inspect.ParseQuery)
	if !ok || !i.Enter(m.Reply) {
		return
	}
	r := i.relay
	missing := r.Missing()
	f := &inspect.NodeFacts{
		Version: version.Short(), Uptime: inspect.Millis(time.Since(i.started)), Ready: r.Ready() && len(missing) == 0, Missing: missing, Draining: r.draining.Load(), Workers: len(r.workers),
	}
	i.each(r.workers, func(w *Worker, _ time.Time, next func()) {
		f.Spaces += len(w.spaces)
		f.Waiting += w.inbox.Len()
		for _, o := range w.owned {
			if o.serving {
				f.Shards++
			}
			for _, sp := range o.spaces {
				f.Clients += len(sp.present.named)
			}
		}
		next()
	}, func() {
		page := inspect.NewPage[inspect.Member](q)
		if roster := r.roster.Load(); roster != nil {
			for m := range roster.All() {
				page.Offer(m.Name, inspect.Member{Node: m.Name, Role: m.Role.String(), Phase: m.Phase.String(), Version: m.Version})
			}
		}
		i.Answer(m.Reply, inspect.NodesAnswer{Head: i.Head(nil), NodeFacts: f, List: page.List()})
	})
}

// why answers what the holder of a space knows of a client and a state. A relay that does not hold the space is
// silent.
func (i *inspector) why(m bus.Msg) {
	r := i.relay
	space, ok := r.cfg.Subjects.ParseAbout(m.Subject)
	if !ok || !validSpace(space) {
		return
	}
	shard := cluster.Shard(space, r.cfg.Shards)
	q, ok := i.Take(m, inspect.ParseWhy)
	if !ok || !i.Enter(m.Reply) {
		return
	}
	w := r.worker(shard)
	i.each([]*Worker{w}, func(w *Worker, _ time.Time, next func()) {
		if o := w.ownership(shard); o != nil {
			i.Answer(m.Reply, inspect.WhyAnswer{
				Head: i.Head(nil), Space: space, Client: q.Client, Key: q.Key, Facts: &inspect.Facts{Holder: i.holderFacts(w.spaces[space], o, q)},
			})
		}
		next()
	}, func() {})
}

func (i *inspector) holderFacts(sp *space, o *ownership, q inspect.Query) *inspect.HolderFacts {
	f := &inspect.HolderFacts{Relay: i.relay.cfg.Node, Loading: !o.serving, Epoch: o.epoch}
	if sp == nil || sp.owner != o {
		return f
	}
	f.Known = true
	f.Epoch, f.Seq = sp.store.Position()
	f.States = sp.store.Stats().States
	f.State, f.Connected = sp.store.Look(q.Key, q.Client)
	if f.Connected == 0 || len(sp.present.named) > sessionsLooked {
		return f
	}
	for session, n := range sp.present.named {
		if n.client == q.Client && len(f.Sessions) < inspect.SessionsMax {
			f.Sessions = append(f.Sessions, inspect.Session{Session: session, Edge: n.edge.Value(), Missed: n.missed})
		}
	}
	return f
}
