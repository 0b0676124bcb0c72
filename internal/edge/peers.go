package edge

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"github.com/dnprelay/dnprelay/bus"
	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/cluster/forward"
	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/internal/edge/fanout"
	"github.com/dnprelay/dnprelay/internal/edge/takeover"
	"github.com/dnprelay/dnprelay/replication"
	"github.com/dnprelay/dnprelay/subject"
)

// Serves reports whether this edge has the session of a client, and in which epoch; 0
// while it is taken over. Any goroutine may ask.
func (n *node) Serves(c forward.Client) (epoch uint64, ok bool) {
	_, epoch, ok = n.server(c)
	return epoch, ok
}

// Forwarded handles what came from other edges. It copies the datagrams.
func (n *node) Forwarded(list []forward.Delivery) {
	for _, d := range list {
		client, data := d.Client.Addr, bytes.Clone(d.Data)
		if d.Overtaken {
			n.overtaken(d)
		}
		w := n.workerFor(d.Client) // nil for a listener that only another edge has
		switch {
		case d.Kind == forward.Misled: // the next datagram of the client has this edge look again
			n.locations.Withdraw(d.Client, d.Via)
		case w == nil:
		case d.Kind == forward.ToClient:
			w.post(len(data), func(w *Worker, now time.Time) {
				w.sendDirectly(client, data)
				n.locations.Returned(now, d.Client, d.Via)
			})
		case d.Kind == forward.ToOwner || d.Kind == forward.Orphan:
			w.post(len(data), func(w *Worker, now time.Time) { w.Deliver(now, d.Via, d.Hops, client, data) })
		}
	}
}

// overtaken has a session read its log, because another edge says that it is in a later epoch than
// the one in which this edge serves it.
func (n *node) overtaken(d forward.Delivery) {
	if w, _, ok := n.server(d.Client); ok {
		w.post(0, func(w *Worker, _ time.Time) { w.takeover.Overtaken(d.Client.Addr, d.Epoch) })
	}
}

// SetRoster tells the edge which nodes are there. The edge takes over sessions of edges that
// left. One goroutine at a time calls it.
func (n *node) SetRoster(r cluster.Roster) {
	old := n.view.Load()
	view, left := old.With(r)
	n.view.Store(view)
	if view.Edges() > 0 && old.Edges() == 0 && n.cfg.Durable != nil {
		for _, w := range n.workers {
			w.must(func(now time.Time) { w.takeover.EdgesKnown(now) })
		}
	}
	for _, node := range left {
		n.Gone(node)
	}
}

// Gone takes over, with the other edges that are ready, the sessions of a dead edge. The name
// of a session decides which edge takes it over.
func (n *node) Gone(node string) {
	if n.cfg.Durable == nil || n.cfg.Durable.Affinity == nil {
		return
	}
	n.cfg.Log.Info("taking over sessions of an edge that is gone", "edge", node)
	n.takeOver(node)
}

// Answers of edges. An edge consents to take a session when the log says that it has it:
// before, it may die, and no edge would look after a client that says nothing.
var (
	answerDone    = []byte(`{}`)
	answerRefused = []byte(`{"refused":true}`)
	errRefused    = errors.New("edge: the other edge refuses")
)

// reply answers another edge, if it waits.
func (n *node) reply(to string, ok bool) {
	answer := answerRefused
	if ok {
		answer = answerDone
	}
	if to != "" {
		_ = n.cfg.Bus.Publish(bus.Msg{Subject: to, Data: answer}) // without an answer, it asks the next edge
	}
}

func (n *node) asked(m bus.Msg) {
	var r takeover.Request
	switch {
	case json.Unmarshal(m.Data, &r) != nil:
	case n.draining.Load():
		n.reply(m.Reply, false)
	case r.Adopt != "":
		client, _ := netip.ParseAddrPort(r.ClientAddr) // a hint; the log has the address
		w := n.workerFor(forward.Client{Addr: client, Listener: r.Listener})
		if w == nil || !w.post(len(m.Data), func(w *Worker, _ time.Time) { w.takeover.Give(r.Adopt, r.Path(), m.Reply) }) {
			n.reply(m.Reply, false)
		}
	default:
		n.prepare(r.Prepare, m.Reply)
	}
}

// prepare has every worker follow spaces, and answers when all have their states.
func (n *node) prepare(names []string, reply string) {
	names = slices.DeleteFunc(names, func(name string) bool { return !subject.ValidToken(name) })
	var left atomic.Int32
	var refused atomic.Bool
	left.Store(int32(len(n.workers)))
	answer := func(ok bool) { // of one worker
		if !ok {
			refused.Store(true)
		}
		if left.Add(-1) == 0 {
			n.reply(reply, !refused.Load())
		}
	}
	for _, w := range n.workers {
		if !w.post(0, func(w *Worker, now time.Time) { w.takeover.Prepare(now, names, answer) }) {
			answer(false)
		}
	}
}

// takeOver has the first worker take over the sessions of a dead edge, and all workers look for the clients that they
// reached by it.
func (n *node) takeOver(node string) {
	for i, w := range n.workers {
		w.must(func(now time.Time) {
			if i == 0 {
				w.takeover.EdgeGone(now, node)
			}
			w.takeover.EdgeLost(now, node)
		})
	}
}

// A takeoverHost carries out what the durable sessions of a worker want. Its methods implement
// takeover.Host.
type takeoverHost struct {
	w *Worker
	d *Durable
}

func (h *takeoverHost) Must(do func(now time.Time)) { h.w.must(do) }

func (h *takeoverHost) View() *takeover.View { return h.w.node.view.Load() }

func (h *takeoverHost) Workers() int { return len(h.w.node.workers) }

func (h *takeoverHost) Pass(worker int, client netip.AddrPort, p []byte, via string, hops uint8) {
	data, here := bytes.Clone(p), h.w.index
	h.w.node.workers[worker].post(len(data), func(w *Worker, now time.Time) {
		w.takeover.Misplaced(client, here, data)
		w.Deliver(now, via, hops, client, data)
	})
}

func (h *takeoverHost) Move(worker int, name string) {
	to := h.w.node.workers[worker]
	to.must(func(time.Time) { to.takeover.Give(name, takeover.Path{}, "") })
}

func (h *takeoverHost) AdoptAt(listener uint16, name string) {
	if to := h.w.node.workerOf(listener, []byte(name)); to != nil {
		to.post(len(name), func(w *Worker, _ time.Time) { w.takeover.Give(name, takeover.Path{Unknown: true}, "") })
	}
}

func (h *takeoverHost) Moved(client netip.AddrPort, node string) {
	h.w.node.moved(client)
	for _, w := range h.w.node.workers {
		if w.listener == h.w.listener {
			w.post(0, func(w *Worker, now time.Time) { w.takeover.ForwardTo(now, client, node) })
		}
	}
}

func (h *takeoverHost) Receive(now time.Time, client netip.AddrPort, p []byte) {
	h.w.receive(now, client, p)
}

func (h *takeoverHost) Direct(client netip.AddrPort, p []byte) { h.w.sendDirectly(client, p) }

func (h *takeoverHost) Refuse(client netip.AddrPort) {
	h.w.out.Send(client, wire.AppendConnectionClose(h.w.out.Datagram(1)))
}

func (h *takeoverHost) Ask(node string, r takeover.Request, done func(now time.Time, err error)) {
	cfg := &h.w.node.cfg
	m := bus.JSON(cfg.Subjects.Edge(node), r)
	m.Reply = subject.InboxPeer // edges cannot send to the inboxes of edges, where relays answer
	cfg.Bus.Request(m, takeover.ConsentTime, func(m bus.Msg, err error) {
		if err == nil && bytes.Equal(m.Data, answerRefused) {
			err = errRefused
		}
		h.w.must(func(now time.Time) { done(now, err) })
	})
}

func (h *takeoverHost) Reply(to string) { h.w.node.reply(to, true) }

func (h *takeoverHost) Follow(now time.Time, space string) bool {
	return h.w.spaces.Follow(now, space).Complete()
}

func (h *takeoverHost) Knows(s *takeover.Session, refs []uint64) bool {
	return h.w.spaces.Knows(s.About.Space, s.About.Client, refs)
}

func (h *takeoverHost) Spaces() []string { return h.w.spaces.Names() }

func (h *takeoverHost) Serve(now time.Time, s *takeover.Session) takeover.Feed {
	about := &s.About
	client := h.w.spaces.NewSession(fanout.SessionConfig{
		ID: about.ID, Claims: *about.Claims(), Began: time.UnixMicro(about.Began), SessionEpoch: s.Log.Epoch(),
	})
	adopted := s.Log.Conn() == nil
	if adopted && s.Log.Restore(now, h.w.ep, client.Resolve) == nil {
		client.Discard()
		return nil
	}
	feed := &sessionFeed{session: s, client: client, worker: h.w}
	feed.told = feed.tell
	feed.Feed = h.d.From.Begin(about.Space, about.Client, about.ID, feed.delivered)
	h.w.node.sessions.enter(s.Log.Conn().Addr().Addr())
	if adopted {
		client.Resume(now, s.Log.Conn(), s.Log.Token(), s.Log.Commands())
	} else {
		client.Begin(now, s.Log.Conn())
	}
	return feed
}

func (h *takeoverHost) Emit(ev replication.Event) { h.w.spaces.Emit(ev) }

func (h *takeoverHost) LogAnswers(now time.Time, answers bool) {
	n := h.w.node
	switch {
	case answers && n.silence.Works(now):
		n.cfg.Log.Info("the session log answers again", "node", n.cfg.Node)
	case !answers && n.connection.Settled(now) && n.silence.Fails(now): // the loss of the bus says it all
		n.cfg.Log.Warn("the session log does not answer; what clients say is not acknowledged, and new clients are not admitted", "node", n.cfg.Node)
	}
}

func (h *takeoverHost) Warn(text string, args ...any) { h.w.node.cfg.Log.Warn(text, args...) }
