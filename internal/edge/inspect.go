package edge

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"github.com/dnprelay/dnprelay/bus"
	"github.com/dnprelay/dnprelay/internal/edge/carrier"
	"github.com/dnprelay/dnprelay/internal/edge/fanout"
	"github.com/dnprelay/dnprelay/internal/inspect"
	"github.com/dnprelay/dnprelay/internal/inspect/desk"
	"github.com/dnprelay/dnprelay/internal/telemetry"
	"github.com/dnprelay/dnprelay/internal/version"
)

// An inspector answers the requests of people who look at the edge. A request is looked at in
// steps, of which a turn of a worker has one at most, however many people look. What takes long and needs no worker,
// to write a long answer, is done by write.
type inspector struct {
	*desk.Desk
	edge    *Edge
	started time.Time
	writing chan func() // what write has to do; nil if it does not run, and then workers do it
}

// writingMax is how many answers wait to be written. A desk has no more requests at a time.
const writingMax = 16

// write writes answers until ctx ends, in the one goroutine that calls it.
func (i *inspector) write(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case do := <-i.writing:
			do()
		}
	}
}

// finish has a request end, on no turn of a worker if write runs.
func (i *inspector) finish(end func()) {
	do := func() {
		i.Leave()
		end()
	}
	select {
	case i.writing <- do:
	default:
		do()
	}
}

// subscribe subscribes to the requests.
func (i *inspector) subscribe() error {
	s, f := i.edge.cfg.Subjects, i.edge.feeds
	err := errors.Join(f.always(s.Nodes(), i.nodes), f.always(s.Clients("*"), i.clients), f.always(s.Why("*"), i.why))
	if i.edge.cfg.Drain != nil {
		err = errors.Join(err, f.always(s.Drain(i.edge.cfg.Node), i.drain))
	}
	return err
}

// drain has the edge drain, because an operator asks for it, and answers what becomes of its sessions.
func (i *inspector) drain(m bus.Msg) {
	if _, ok := i.Take(m, inspect.ParseQuery); ok {
		i.edge.cfg.Log.Info("draining: an operator asks for it over NATS")
		i.edge.cfg.Drain(func(d telemetry.Drain) {
			i.Answer(m.Reply, inspect.DrainAnswer{Head: i.Head(nil), Sessions: d.Sessions, Reason: d.Reason})
		})
	}
}

// A visit is what a worker does about a request. It is called on turns of the worker until it
// reports that it is done.
type visit func(w *Worker, now time.Time) (done bool)

// each has workers do their part of a request, one after the other, and then calls end. The
// inbox of a worker that is full loses the request: who asked asks again.
func (i *inspector) each(workers []*Worker, begin func() visit, end func()) {
	if len(workers) == 0 {
		i.finish(end)
		return
	}
	do := begin()
	var step task
	step = func(w *Worker, now time.Time) {
		if !w.looked {
			w.looked = true
			if do(w, now) {
				i.each(workers[1:], begin, end)
				return
			}
		}
		if !w.post(0, step) {
			i.Leave()
		}
	}
	if !workers[0].post(0, step) {
		i.Leave()
	}
}

// nodes answers what this edge is.
func (i *inspector) nodes(m bus.Msg) {
	q, ok := i.Take(m, inspect.ParseQuery)
	if e := i.edge; ok && e.cfg.Node > q.After {
		i.Answer(m.Reply, inspect.NodesAnswer{Head: i.Head(nil), NodeFacts: e.nodeFacts(i.started), List: inspect.List[inspect.Member]{Entries: []inspect.Member{}}})
	}
}

func (e *Edge) nodeFacts(started time.Time) *inspect.NodeFacts {
	f := &inspect.NodeFacts{
		Version: version.Short(), Uptime: inspect.Millis(time.Since(started)), Ready: e.Ready(), Draining: e.draining.Load(),
		Workers: len(e.workers), Spaces: e.feeds.count(), Clients: e.sessions.count(), Listen: []string{},
	}
	if d := e.cfg.Durable; d != nil && d.Missing != nil {
		f.Missing = d.Missing()
	}
	for _, w := range e.workers {
		f.Waiting += w.tasks.Len()
	}
	for _, addr := range e.Addrs() {
		f.Listen = append(f.Listen, "udp://"+addr.String())
	}
	return f
}

// enter begins with a request about a space. It reports false if the space has no followers, or there are too many requests.
func (i *inspector) enter(m bus.Msg, parse func([]byte) (inspect.Query, error)) (space string, workers []*Worker, q inspect.Query, ok bool) {
	space, ok = i.edge.cfg.Subjects.ParseAbout(m.Subject)
	if workers = i.edge.feeds.followers(space); !ok || len(workers) == 0 {
		return space, nil, q, false
	}
	q, ok = i.Take(m, parse)
	return space, workers, q, ok && i.Enter(m.Reply)
}

// clients answers a page of the clients in a space. An edge that does not follow the space is silent.
func (i *inspector) clients(m bus.Msg) {
	space, workers, q, ok := i.enter(m, inspect.ParseClients)
	if !ok {
		return
	}
	var pages []inspect.List[inspect.Client]
	nowhere := ""
	i.each(workers, func() visit {
		var l *fanout.Listing
		return func(w *Worker, now time.Time) bool {
			if l == nil {
				l = w.spaces.List(space, q, w.describe)
			}
			done := l.Step(now)
			if done {
				pages = append(pages, l.Page())
				nowhere = l.Nowhere() // the replicas of the workers differ for a moment only
			}
			return done
		}
	}, func() {
		name := (*inspect.Client).Name
		a := inspect.ClientsAnswer{Head: i.Head(nil), Space: space, Nowhere: nowhere, List: inspect.Cut(inspect.MergePages(pages, name), q.Max, name)}
		i.Answer(m.Reply, a)
	})
}

// describe adds to what is known of a client how it comes, and from where.
func (w *Worker) describe(c *inspect.Client, addr netip.AddrPort) {
	c.Carrier = "udp"
	if carrier.Carried(addr.Addr()) && int(addr.Port()) < carrier.Kinds {
		c.Carrier = carrier.Kind(addr.Port()).String()
	}
	c.Address = w.node.cfg.LogAddresses.text(w.node.home(addr))
}

// why answers why a client has what it has of a state. An edge without a session of the client is
// silent.
func (i *inspector) why(m bus.Msg) {
	space, workers, q, ok := i.enter(m, inspect.ParseWhy)
	if !ok {
		return
	}
	i.each(workers, func() visit {
		var inquiry *fanout.Inquiry
		return func(w *Worker, now time.Time) bool {
			if inquiry == nil {
				inquiry = w.spaces.Inquire(space, q.Client, q.Key)
			}
			done := inquiry.Step(now)
			if done {
				i.explain(m.Reply, space, q, w.found(inquiry.Facts(), space, q.Client))
			}
			return done
		}
	}, func() {})
}

// found returns the sessions of a client that a worker serves, or else the one that it is taking over.
func (w *Worker) found(served []*inspect.EdgeFacts, space, client string) []*inspect.EdgeFacts {
	for _, f := range served {
		f.Draining = w.node.draining.Load()
	}
	if len(served) == 0 && w.takeover != nil {
		if id, phase, ok := w.takeover.Adopting(space, client); ok {
			served = append(served, &inspect.EdgeFacts{Edge: w.node.cfg.Node, Session: id, Adopting: phase})
		}
	}
	return served
}

func (i *inspector) explain(reply, space string, q inspect.Query, found []*inspect.EdgeFacts) {
	for _, f := range found {
		facts := &inspect.Facts{Edge: f}
		i.Answer(reply, inspect.WhyAnswer{
			Head: i.Head(nil), Space: space, Client: q.Client, Key: q.Key, Facts: facts, Reasons: inspect.Reasons(facts),
		})
	}
}
