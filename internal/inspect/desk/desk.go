// Package desk takes the requests by which people look at a node, and bounds them: so many in a second, and so many
// at a time.
//
//	d := desk.New(bus, "e1", "edge")
//	q, ok := d.Take(m, inspect.ParseQuery)  // a request came; if it is not ok, it is answered
//	if ok && d.Enter(m.Reply) {             // workers begin with it
//		defer d.Leave()                 // when they have ended
//		d.Answer(m.Reply, answer)
//	}
//
// What requests and answers look like is in package inspect.
package desk

import (
	"sync"
	"time"

	"github.com/dnprelay/dnprelay/bus"
	"github.com/dnprelay/dnprelay/internal/inspect"
	"github.com/dnprelay/dnprelay/internal/telemetry"
)

// openMax is how many requests the workers of a node work on at a time. The others are told that it is busy.
const openMax = 8

// A Desk takes the requests for one node. All methods may be called from any goroutine.
type Desk struct {
	bus        bus.Bus
	node, role string

	// The mutex guards the limits: the goroutines of several subscriptions take requests, and workers end them.
	mu      sync.Mutex
	limiter inspect.Limiter
	open    int // requests that workers work on
}

// New returns the desk of a node, whose role is relay or edge.
func New(b bus.Bus, node, role string) *Desk { return &Desk{bus: b, node: node, role: role} }

// Take parses a request, and answers one that is malformed or too many. ok is false if nothing else is to be done.
func (d *Desk) Take(m bus.Msg, parse func([]byte) (inspect.Query, error)) (q inspect.Query, ok bool) {
	if m.Reply == "" {
		return q, false
	}
	q, err := parse(m.Data)
	switch d.count(err) {
	case inspect.Drop:
		return q, false
	case inspect.SayBusy:
		err = inspect.ErrBusy
	}
	if err != nil {
		d.Answer(m.Reply, d.Head(err))
	}
	return q, err == nil
}

// count counts a request that was parsed with err.
func (d *Desk) count(err error) inspect.Verdict {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err != nil {
		d.limiter.Counts.Malformed++
	}
	return d.limiter.Take(time.Now())
}

// Enter notes that workers begin with a request; Leave follows. It reports false, and says that the node is busy,
// if they work on too many.
func (d *Desk) Enter(reply string) bool {
	d.mu.Lock()
	full := d.open >= openMax
	if !full {
		d.open++
	}
	d.mu.Unlock()
	if full {
		d.Answer(reply, d.Head(inspect.ErrBusy))
	}
	return !full
}

// Leave notes that workers have ended a request.
func (d *Desk) Leave() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.open--
}

// Head returns the head of an answer; err may be nil.
func (d *Desk) Head(err error) inspect.Head { return inspect.NewHead(d.node, d.role, err) }

// Answer publishes an answer. Who asked notices a lost one, and asks again.
func (d *Desk) Answer(reply string, v any) { _ = d.bus.Publish(bus.JSON(reply, v)) }

// Metric returns the metric of the requests, whose name begins with dnp.relay or dnp.edge.
func (d *Desk) Metric() telemetry.Metric {
	of := telemetry.NewGroup("dnp."+d.role+".inspect.", func() inspect.LimiterCounts {
		d.mu.Lock()
		defer d.mu.Unlock()
		return d.limiter.Counts
	})
	c := &of.All
	return of.CounterBy("requests", "{request}", "Requests of people who look at the deployment, by outcome.", "outcome",
		telemetry.Parts{"answered": &c.Answered, "busy": &c.Busy, "dropped": &c.Dropped, "malformed": &c.Malformed})
}
