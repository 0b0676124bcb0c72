package edge

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/dnprelay/dnprelay/bus"
	"github.com/dnprelay/dnprelay/dnp"
	"github.com/dnprelay/dnprelay/sessionlog"
)

// handOversPerSecond is how many sessions an edge that drains hands over per second, so
// that none of them waits long for the log.
const handOversPerSecond = 2000

// Times of a hand-over.
const (
	adoptAnswer = 2 * time.Second        // for the edge that is to go on to say that it does
	drainRound  = 250 * time.Millisecond // between two looks for sessions that could not be handed over
)

// A drain is the leaving of a worker.
type drain struct {
	on      bool
	closing bool // what is left is closed
	given   int  // sessions that were handed over, and nobody has said to take yet
	queue   []string
	next    time.Time // when the next session may go
	begin   time.Time // when the first may
	look    time.Time // when to look for what is left
	heirs   map[string]*heir
	spaces  []string // for which they are asked to prepare
}

// An edgeRequest is what edges ask each other, on the subject of the one that is asked.
type edgeRequest struct {
	// Prepare are spaces whose states are to be there before sessions come. The answer
	// comes when they are.
	Prepare []string `json:"prepare,omitempty"`

	// Adopt is a session that was handed over, by the name of its log, and the port that
	// its client talks to. Via is the edge to which the client's datagrams come; empty if
	// that is the one that is asked, or Unheard says that it is not known.
	Adopt    string `json:"adopt,omitempty"`
	Listener uint16 `json:"listener,omitempty"`
	Client   string `json:"client,omitempty"`
	Via      string `json:"via,omitempty"`
	Unheard  bool   `json:"unheard,omitempty"`
}

// drain hands every session of the edge over, closes those that nobody takes, and goes
// on to forward datagrams for a while.
func (e *Edge) drain() {
	d := e.cfg.Durable
	e.cfg.Log.Info("handing sessions over", "sessions", e.Kept())
	e.BeginDrain()
	var s solitude
	e.wait(d.DrainTimeout-closeTime, func() bool {
		gossips, company := e.roster.company()
		return e.Kept() == 0 || s.hopeless(time.Now(), gossips, company)
	})
	if n := e.Kept(); n > 0 {
		e.cfg.Log.Warn("no edge takes these sessions, so they end", "sessions", n)
		for _, w := range e.workers {
			w.keeper.must(func(time.Time) { w.keeper.closeRest() })
		}
		e.wait(closeTime, func() bool { return e.Kept() == 0 })
	}
	e.leaving.Store(true)
	if d.Forward != nil {
		e.wait(d.DrainLinger, func() bool { return false })
	}
}

// closeTime is how long the log has to take the ends of sessions that nobody took.
const closeTime = 2 * time.Second

// wait waits until done, which is asked a hundred times a second, but not for longer
// than d.
func (e *Edge) wait(d time.Duration, done func() bool) {
	end := time.Now().Add(d)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !done() && time.Now().Before(end) {
		<-tick.C
	}
}

// BeginDrain has the workers hand their sessions over, for a caller that turns them. It is
// done when Kept is 0.
func (e *Edge) BeginDrain() {
	e.draining.Store(true)
	for _, w := range e.workers {
		w.keeper.must(w.keeper.drainNow)
	}
}

// Kept returns how many sessions that a log knows the edge has, looks at, or handed to an
// edge that did not say yet that it takes them: it may be leaving, too.
func (e *Edge) Kept() (n int32) {
	for _, w := range e.workers {
		n += w.keeper.count.Load()
	}
	return n
}

// drainNow hands every session of a worker over.
func (k *keeper) drainNow(now time.Time) {
	d := &k.drain
	d.on, d.begin, d.heirs = true, now.Add(prepareTime), make(map[string]*heir)
	d.look = d.begin
	k.prepareHeirs(now)
}

// closeRest ends what could not be handed over.
func (k *keeper) closeRest() {
	k.drain.closing = true
	for c := range k.w.ep.All {
		c.Close(dnp.CloseDrain)
	}
}

// advanceDrain hands over as many sessions as may be and returns when there is more to
// do.
func (k *keeper) advanceDrain(now, next time.Time) time.Time {
	d := &k.drain
	if !d.on || d.closing {
		return next
	}
	if len(d.queue) == 0 && !d.look.After(now) {
		k.prepareHeirs(now)
		d.queue, d.look = slices.Sorted(maps.Keys(k.byName)), now.Add(drainRound)
	}
	for len(d.queue) > 0 && !d.next.After(now) {
		if now.Sub(d.next) > beat {
			d.next = now
		}
		d.next = d.next.Add(time.Second / handOversPerSecond * time.Duration(len(k.w.edge.workers)))
		name := d.queue[0]
		heir := k.heir(now, name)
		if heir == "" { // nobody is prepared; the next round may find somebody
			d.queue = nil
			break
		}
		k.handOver(name, heir)
		d.queue = d.queue[1:]
	}
	if len(d.queue) > 0 {
		next = earlier(next, d.next)
	}
	return earlier(next, d.look)
}

// handOver gives a session to another edge.
func (k *keeper) handOver(name, heir string) {
	x := k.byName[name]
	if x == nil || x.core.Phase() != sessionlog.Owning {
		return // it is over, or looked at again
	}
	x.core.HandOver(heir)
	k.wake(x)
}

// handed tells the next owner that a session is its own, if it takes it. This edge's claim
// stays until that of the next owner replaces it: should the next owner die before it has
// one, that is how others find a client that says nothing.
func (k *keeper) handed(now time.Time, x *kept, a sessionlog.Action) {
	if to := x.moveTo; to != nil {
		name := x.name
		to.keeper.must(func(time.Time) { to.adopt(name, way{}, "") })
		return
	}
	r := edgeRequest{Adopt: x.name, Listener: k.w.listener, Client: x.addr.String()}
	from := x.way
	r.Unheard = from.unheard
	if k.d.Forward != nil && !r.Unheard {
		r.Via = k.cameOver(x, a.Node)
	}
	given := nameAt{x.name, k.w, true}
	k.drain.given++
	k.w.edge.names.enter(given)
	k.ask(a.Node, r, func(now time.Time, err error) {
		k.drain.given--
		k.w.edge.names.leave(given)
		if h := k.drain.heirs[a.Node]; h != nil && err != nil {
			h.fail(now)
		}
		switch {
		case err == nil:
			k.w.edge.moved(k.w.listener, x.addr, a.Node)
		case !k.drain.closing: // it goes on here until the next try
			k.setWay(k.adopt(x.name, netip.AddrPort{}, true), from)
		}
	})
}

// cameOver returns over which edge the datagrams of a client come to the next owner of
// its session: that over which they came here, or else this one. A balancer may let
// answers of no other edge through.
func (k *keeper) cameOver(x *kept, heir string) (via string) {
	switch via = x.via; via {
	case "":
		return k.w.edge.cfg.Node
	case heir:
		return "" // they come to it
	}
	return via
}

// ask asks another edge, and tells the worker whether it does what it is asked.
func (k *keeper) ask(node string, r edgeRequest, done func(now time.Time, err error)) {
	data, err := json.Marshal(r)
	if err != nil {
		panic("edge: a request that JSON cannot express: " + err.Error())
	}
	cfg := &k.w.edge.cfg
	cfg.Bus.Request(bus.Msg{Subject: cfg.Subjects.Edge(node), Data: data}, adoptAnswer, func(m bus.Msg, err error) {
		if err == nil && bytes.Equal(m.Data, answerRefused) {
			err = errRefused
		}
		k.must(func(now time.Time) { done(now, err) })
	})
}

// Answers of edges. A session is consented to when the log says that the other edge has
// it: before, that edge may die, and nobody would look after a client that says nothing.
var (
	answerDone    = []byte(`{}`)
	answerRefused = []byte(`{"refused":true}`)
	errRefused    = errors.New("edge: the other edge refuses")
)

// reply answers another edge, if it waits.
func (e *Edge) reply(to string, answer []byte) {
	if to != "" {
		_ = e.cfg.Bus.Publish(bus.Msg{Subject: to, Data: answer}) // it asks the next one
	}
}

// asked takes a request of another edge.
func (e *Edge) asked(m bus.Msg) {
	var r edgeRequest
	if json.Unmarshal(m.Data, &r) != nil {
		return
	}
	if e.draining.Load() {
		e.reply(m.Reply, answerRefused)
		return
	}
	if r.Adopt != "" {
		client, _ := netip.ParseAddrPort(r.Client) // the log says who it is
		w := e.workerFor(r.Listener, client)
		if w == nil {
			e.reply(m.Reply, answerRefused)
			return
		}
		if !w.post(len(m.Data), func(w *Worker, _ time.Time) { w.adopt(r.Adopt, way{r.Via, r.Unheard}, m.Reply) }) {
			e.reply(m.Reply, answerRefused)
		}
		return
	}
	e.prepare(r.Prepare, m.Reply)
}

// greetElsewhere lets another edge greet a client, because this one leaves. What the client
// says next goes there, too: a balancer may send it here all the time, and no log has it
// before it has proved its address. It reports false if there is none.
func (k *keeper) greetElsewhere(now time.Time, from netip.AddrPort, h held) bool {
	heir := k.w.edge.roster.heir(k.name(from), false)
	if heir == "" || !k.forward(heir, from, h) {
		return false
	}
	k.strays.elsewhere(now, from, heir, k.w.edge.cfg.Node)
	return true
}

// heirs returns all other edges that work.
func (v *rosterView) heirs() (names []string) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	for m := range v.roster.All() {
		if m.CanServe() && m.Name != v.self {
			names = append(names, m.Name)
		}
	}
	return names
}
