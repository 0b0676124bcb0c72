package edge

import (
	"errors"
	"net/netip"
	"sync"
	"time"

	"github.com/dnprelay/dnprelay/bus"
	"github.com/dnprelay/dnprelay/internal/edge/carrier"
	"github.com/dnprelay/dnprelay/internal/edge/fanout"
	"github.com/dnprelay/dnprelay/internal/inspect"
	"github.com/dnprelay/dnprelay/internal/telemetry"
	"github.com/dnprelay/dnprelay/internal/version"
)

// inspectionsMax is how many requests of people an edge works on at a time. The others are told that it is
// busy.
const inspectionsMax = 8

// An inspector answers the requests of people who look at the edge. A request is looked at in
// steps, each a task of a worker, so that no turn takes long.
//
// The mutex guards the limits: the goroutines of three subscriptions take requests, and workers
// end them.
type inspector struct {
	edge    *Edge
	started time.Time

	mu      sync.Mutex
	limiter inspect.Limiter
	open    int // requests that workers work on
}

// subscribe subscribes to the requests.
func (i *inspector) subscribe() error {
	s, f := i.edge.cfg.Subjects, i.edge.feeds
	return errors.Join(f.always(s.Nodes(), i.nodes), f.always(s.Clients("*"), i.clients), f.always(s.Why("*"), i.why))
}

// take parses a request, and answers one that is malformed or too many. ok is false if nothing
// else is to be done.
func (i *inspector) take(m bus.Msg, parse func([]byte) (inspect.Query, error)) (q inspect.Query, ok bool) {
	if m.Reply == "" {
		return q, false
	}
	q, err := parse(m.Data)
	switch i.count(err) {
	case inspect.Drop:
		return q, false
	case inspect.SayBusy:
		err = inspect.ErrBusy
	}
	if err != nil {
		i.answer(m.Reply, i.head(err))
	}
	return q, err == nil
}

// count counts a request that was parsed with err.
func (i *inspector) count(err error) inspect.Verdict {
	i.mu.Lock()
	defer i.mu.Unlock()
	if err != nil {
		i.limiter.Counts.Malformed++
	}
	return i.limiter.Take(time.Now())
}

// enter notes that workers begin with a request. It reports false, and says that the edge is busy, if
// they work on too many.
func (i *inspector) enter(reply string) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.open >= inspectionsMax {
		i.answer(reply, i.head(inspect.ErrBusy))
		return false
	}
	i.open++
	return true
}

func (i *inspector) leave() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.open--
}

func (i *inspector) head(err error) inspect.Head {
	return inspect.NewHead(i.edge.cfg.Node, "edge", err)
}

// answer publishes an answer. Who asked notices a lost one, and asks again.
func (i *inspector) answer(reply string, v any) { _ = i.edge.cfg.Bus.Publish(bus.JSON(reply, v)) }

// A visit is what a worker does about a request. It is called on turns of the worker until it
// reports that it is done.
type visit func(w *Worker, now time.Time) (done bool)

// each has workers do their part of a request, one after the other, and then calls end. The
// inbox of a worker that is full loses the request: who asked asks again.
func (i *inspector) each(workers []*Worker, begin func() visit, end func()) {
	if len(workers) == 0 {
		i.leave()
		end()
		return
	}
	do := begin()
	var step task
	step = func(w *Worker, now time.Time) {
		if do(w, now) {
			i.each(workers[1:], begin, end)
		} else if !w.post(0, step) {
			i.leave()
		}
	}
	if !workers[0].post(0, step) {
		i.leave()
	}
}

// nodes answers what this edge is.
func (i *inspector) nodes(m bus.Msg) {
	q, ok := i.take(m, inspect.ParseQuery)
	if e := i.edge; ok && e.cfg.Node > q.After {
		i.answer(m.Reply, inspect.NodesAnswer{Head: i.head(nil), NodeFacts: e.nodeFacts(i.started), List: inspect.List[inspect.Member]{Entries: []inspect.Member{}}})
	}
}

func (e *Edge) nodeFacts(started time.Time) *inspect.NodeFacts {
	f := &inspect.NodeFacts{
		Version: version.Short(), Uptime: inspect.Millis(time.Since(started)), Ready: e.Ready(), Draining: e.draining.Load(),
		Workers: len(e.workers), Spaces: e.feeds.count(), Clients: e.sessions.count(), Listen: []string{},
	}
	for _, w := range e.workers {
		f.Waiting += w.tasks.Len()
	}
	for _, addr := range e.Addrs() {
		f.Listen = append(f.Listen, "udp://"+addr.String())
	}
	return f
}

// clients answers a page of the clients in a space. An edge that does not follow the space is silent.
func (i *inspector) clients(m bus.Msg) {
	space, ok := i.edge.cfg.Subjects.ParseAbout(m.Subject)
	workers := i.edge.feeds.followers(space)
	if !ok || len(workers) == 0 {
		return
	}
	q, ok := i.take(m, inspect.ParseQuery)
	if !ok || !i.enter(m.Reply) {
		return
	}
	var pages []inspect.List[inspect.Client]
	i.each(workers, func() visit {
		var l *fanout.Listing
		return func(w *Worker, now time.Time) bool {
			if l == nil {
				l = w.spaces.List(space, q, w.describe)
			}
			done := l.Step(now)
			if done {
				pages = append(pages, l.Page())
			}
			return done
		}
	}, func() {
		name := (*inspect.Client).Name
		a := inspect.ClientsAnswer{Head: i.head(nil), Space: space, List: inspect.Cut(inspect.MergePages(pages, name), q.Max, name)}
		i.answer(m.Reply, a)
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
	space, ok := i.edge.cfg.Subjects.ParseAbout(m.Subject)
	workers := i.edge.feeds.followers(space)
	if !ok || len(workers) == 0 {
		return
	}
	q, ok := i.take(m, inspect.ParseWhy)
	if !ok || !i.enter(m.Reply) {
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
		i.answer(reply, inspect.WhyAnswer{
			Head: i.head(nil), Space: space, Client: q.Client, Key: q.Key, Facts: facts, Reasons: inspect.Reasons(facts),
		})
	}
}

// metric returns the metric of requests of people.
func (i *inspector) metric() telemetry.Metric {
	of := telemetry.Group[inspect.LimiterCounts]{Prefix: "dnp.edge.inspect.", Read: func() inspect.LimiterCounts {
		i.mu.Lock()
		defer i.mu.Unlock()
		return i.limiter.Counts
	}}
	return of.CounterBy("requests", "{request}", "Requests of people who look at the deployment, by outcome.", "outcome", (*inspect.LimiterCounts).Each)
}
