package edge

import (
	"bytes"
	"net/netip"
	"time"

	"github.com/dnprelay/dnprelay/bus"
	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/internal/edge/fanout"
	"github.com/dnprelay/dnprelay/internal/edge/takeover"
	"github.com/dnprelay/dnprelay/replication"
)

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
		w.Deliver(now, via, hops, client, data)
		w.takeover.Misplaced(client, here)
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
	for _, w := range h.w.node.workers {
		if w.listener == h.w.listener {
			w.post(0, func(w *Worker, now time.Time) { w.takeover.ForwardTo(now, client, node) })
		}
	}
}

func (h *takeoverHost) Receive(now time.Time, client netip.AddrPort, p []byte) {
	h.w.handle(now, h.w.ep.Receive(now, client, p, h.w.out))
}

func (h *takeoverHost) Refuse(client netip.AddrPort) {
	h.w.out.Send(client, wire.AppendConnectionClose(h.w.out.Datagram(1)))
}

func (h *takeoverHost) Ask(node string, r takeover.Request, done func(now time.Time, err error)) {
	cfg := &h.w.node.cfg
	cfg.Bus.Request(bus.JSON(cfg.Subjects.Edge(node), r), takeover.ConsentTime, func(m bus.Msg, err error) {
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

func (h *takeoverHost) Spaces() []string { return h.w.spaces.Names() }

func (h *takeoverHost) Begin(now time.Time, s *takeover.Session) takeover.Feed {
	client := h.session(s)
	feed := h.feed(s)
	h.w.node.sessions.enter(s.Conn().Addr().Addr())
	client.Begin(now, s.Conn())
	return feed
}

func (h *takeoverHost) Resume(now time.Time, s *takeover.Session) takeover.Feed {
	client := h.session(s)
	conn := h.w.takeover.Restore(now, s, client.Resolve)
	if conn == nil {
		client.Discard()
		return nil
	}
	feed := h.feed(s)
	h.w.node.sessions.enter(conn.Addr().Addr())
	client.Resume(now, conn, s.Token())
	return feed
}

// session makes the session that serves a client.
func (h *takeoverHost) session(s *takeover.Session) *fanout.Session {
	about := s.About()
	return h.w.spaces.NewSession(fanout.SessionConfig{
		ID: about.ID, Claims: about.Claims(), Began: time.UnixMicro(about.Began), SessionEpoch: s.Epoch(),
	})
}

// feed begins the feed of a session's messages.
func (h *takeoverHost) feed(s *takeover.Session) takeover.Feed {
	f := &sessionFeed{session: s, worker: h.w}
	about := s.About()
	f.Feed = h.d.From.Begin(about.Space, about.Client, about.ID, f.delivered)
	return f
}

func (h *takeoverHost) Emit(ev replication.Event) { h.w.spaces.Emit(ev) }

func (h *takeoverHost) Warn(text string, args ...any) { h.w.node.cfg.Log.Warn(text, args...) }
