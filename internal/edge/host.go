package edge

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/dnprelay/dnprelay/bus"
	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/internal/edge/takeover"
	"github.com/dnprelay/dnprelay/replication"
	"github.com/dnprelay/dnprelay/sessionlog"
)

// A host carries out what the durable sessions of a worker want. Its methods implement
// takeover.Host.
type host struct {
	w *Worker
	d *Durable
}

func (h *host) BorrowLocations() *takeover.Locations {
	h.w.edge.locations.mu.Lock()
	return &h.w.edge.locations.table
}

func (h *host) ReturnLocations() { h.w.edge.locations.mu.Unlock() }

func (h *host) View() *takeover.View { return h.w.edge.view.Load() }

func (h *host) Workers() int { return len(h.w.edge.workers) }

func (h *host) Pass(worker int, client netip.AddrPort, p []byte, via string, hops uint8) {
	data, here := bytes.Clone(p), h.w.index
	h.w.edge.workers[worker].post(len(data), func(w *Worker, now time.Time) {
		w.Deliver(now, via, hops, client, data)
		w.takeover.Passed(client, here)
	})
}

func (h *host) Move(worker int, name string) {
	to := h.w.edge.workers[worker]
	to.must(func(time.Time) { to.takeover.Give(name, takeover.Path{}, "") })
}

func (h *host) AdoptAt(listener uint16, name string) {
	var b [4]byte
	copy(b[:], name) // as good as random
	if to := h.w.edge.workerOf(listener, uint32(b[0])|uint32(b[1])<<8|uint32(b[2])<<16); to != nil {
		to.post(len(name), func(w *Worker, _ time.Time) { w.takeover.Give(name, takeover.Path{Unknown: true}, "") })
	}
}

func (h *host) Moved(client netip.AddrPort, node string) {
	for _, w := range h.w.edge.workers {
		if w.listener == h.w.listener {
			w.post(0, func(w *Worker, now time.Time) { w.takeover.ForwardTo(now, client, node) })
		}
	}
}

func (h *host) Receive(now time.Time, client netip.AddrPort, p []byte) {
	h.w.handle(now, h.w.ep.Receive(now, client, p, h.w.out))
}

func (h *host) Refuse(client netip.AddrPort) {
	h.w.out.Send(client, wire.AppendConnectionClose(h.w.out.Datagram(1)))
}

func (h *host) Forward(node string, client netip.AddrPort, hops uint8, p []byte) bool {
	return h.d.Forward.Forward(node, h.w.listener, client, hops, p)
}

func (h *host) Return(node string, client netip.AddrPort, epoch uint64, p []byte) bool {
	return h.d.Forward.Return(node, h.w.listener, client, epoch, p)
}

func (h *host) Ask(node string, r takeover.Request) {
	data, err := json.Marshal(r)
	if err != nil {
		panic("edge: a request that JSON cannot express: " + err.Error())
	}
	cfg := &h.w.edge.cfg
	cfg.Bus.Request(bus.Msg{Subject: cfg.Subjects.Edge(node), Data: data}, takeover.ConsentTime, func(m bus.Msg, err error) {
		if err == nil && bytes.Equal(m.Data, answerRefused) {
			err = errRefused
		}
		h.w.must(func(now time.Time) { h.w.takeover.Consented(now, node, r, err) })
	})
}

func (h *host) Reply(to string, ok bool) { h.w.edge.reply(to, ok) }

func (h *host) Append(writes []sessionlog.Write, owners []*takeover.Session) {
	h.d.Log.Append(writes, func(i int, a sessionlog.Answer) { h.answered(owners[i], a) })
}

func (h *host) Read(name string, owner *takeover.Session) {
	h.d.Log.Read(name, func(a sessionlog.Answer) { h.answered(owner, a) })
}

func (h *host) answered(to *takeover.Session, a sessionlog.Answer) {
	h.w.mail.put(letter{to: to, answer: a})
	h.w.wake()
}

func (h *host) Find(q takeover.Question) {
	h.d.Affinity.Find(q.Name, func(s cluster.Served, err error) {
		h.w.must(func(now time.Time) { h.w.takeover.Located(now, q, s, err) })
	})
}

func (h *host) Try(q takeover.Question) {
	h.d.Affinity.Try(q.Name, q.Seen, func(s cluster.Served, err error) {
		h.w.must(func(now time.Time) { h.w.takeover.Tried(now, q, s, err) })
	})
}

func (h *host) Claim(name string, epoch uint64)   { h.d.Affinity.Claim(name, epoch) }
func (h *host) Release(name string, epoch uint64) { h.d.Affinity.Release(name, epoch) }

// List chooses on the goroutine of the affinity, because a dead edge may have had many
// sessions.
func (h *host) List(node string, rounds int) {
	h.d.Affinity.Claimed(node, func(claims []string) {
		names := h.View().Inherited(node, slices.Clone(claims))
		size := 0
		for _, name := range names {
			size += len(name)
		}
		h.w.post(size, func(w *Worker, _ time.Time) { w.takeover.Orphaned(node, names) })
	}, func(err error) {
		h.w.must(func(now time.Time) { h.w.takeover.Listed(now, node, rounds, err) })
	})
}

func (h *host) Follow(now time.Time, name string) {
	if sp := h.w.space(name); len(sp.sessions) == 0 {
		sp.emptyAt = now
	}
}

func (h *host) Complete(name string) bool { return h.w.space(name).replica.Complete() }

func (h *host) Spaces() []string { return slices.Sorted(maps.Keys(h.w.spaces)) }

func (h *host) Begin(now time.Time, s *takeover.Session) takeover.Feed {
	about := s.About()
	fs := newSession(h.w.space(about.Space), s.Conn(), about.ID, about.Client, about.BeganAt())
	fs.durable = s
	feed := h.feed(s)
	h.w.begun(fs)
	fs.give(now, about.Claims())
	fs.emit(now, replication.Event{Type: replication.EventJoined, Edge: h.w.edge.cfg.Node})
	fs.space.enter(fs)
	return feed
}

func (h *host) Resume(now time.Time, s *takeover.Session) takeover.Feed {
	about := s.About()
	fs := newSession(h.w.space(about.Space), nil, about.ID, about.Client, about.BeganAt())
	fs.durable = s
	if fs.conn = h.w.takeover.Restore(now, s, fs.resolve); fs.conn == nil {
		for len(fs.own) > 0 {
			fs.own[0].forget()
		}
		return nil
	}
	fs.lastToken = s.Token()
	fs.expectQueued()
	feed := h.feed(s)
	h.w.begun(fs)
	fs.resume(now, about.Claims())
	return feed
}

// feed begins the feed of a session's messages.
func (h *host) feed(s *takeover.Session) takeover.Feed {
	f := &sessionFeed{session: s, worker: h.w}
	about := s.About()
	f.Feed = h.d.From.Begin(about.Space, about.Client, about.ID, func(number uint64) {
		h.w.mail.putDelivered(f, number)
		h.w.wake()
	})
	return f
}

func (h *host) Emit(ev replication.Event) { h.w.emit(ev) }

func (h *host) Warn(text string, args ...any) { h.w.edge.cfg.Log.Warn(text, args...) }

// Deliver handles a datagram of a client that came over another edge; via is empty if
// it came to another worker of this one.
func (w *Worker) Deliver(now time.Time, via string, hops uint8, client netip.AddrPort, datagram []byte) {
	if w.takeover != nil && w.takeover.Intercept(now, client, datagram, via, hops) {
		return
	}
	w.handle(now, w.ep.Receive(now, client, datagram, w.out))
}

// A returning sends what is for clients that come over other edges back over these.
type returning struct {
	Output
	t *takeover.Takeover
}

// Send implements dnp.Sender.
func (r *returning) Send(to netip.AddrPort, b []byte) {
	if !r.t.Return(to, b) {
		r.Output.Send(to, b)
	}
}
