package edge

import (
	"bytes"
	"encoding/json"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"github.com/dnprelay/dnprelay/bus"
	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/internal/edge/fanout"
	"github.com/dnprelay/dnprelay/internal/edge/takeover"
	"github.com/dnprelay/dnprelay/replication"
	"github.com/dnprelay/dnprelay/sessionlog"
)

// A takeoverHost carries out what the durable sessions of a worker want. Its methods implement
// takeover.Host.
type takeoverHost struct {
	w *Worker
	d *Durable
}

func (h *takeoverHost) BorrowLocations() *takeover.Locations {
	h.w.edge.locations.mu.Lock()
	return &h.w.edge.locations.table
}

func (h *takeoverHost) ReturnLocations() { h.w.edge.locations.mu.Unlock() }

func (h *takeoverHost) View() *takeover.View { return h.w.edge.view.Load() }

func (h *takeoverHost) Workers() int { return len(h.w.edge.workers) }

func (h *takeoverHost) Pass(worker int, client netip.AddrPort, p []byte, via string, hops uint8) {
	data, here := bytes.Clone(p), h.w.index
	h.w.edge.workers[worker].post(len(data), func(w *Worker, now time.Time) {
		w.Deliver(now, via, hops, client, data)
		w.takeover.Passed(client, here)
	})
}

func (h *takeoverHost) Move(worker int, name string) {
	to := h.w.edge.workers[worker]
	to.must(func(time.Time) { to.takeover.Give(name, takeover.Path{}, "") })
}

func (h *takeoverHost) AdoptAt(listener uint16, name string) {
	var b [4]byte
	copy(b[:], name) // as good as random
	if to := h.w.edge.workerOf(listener, uint32(b[0])|uint32(b[1])<<8|uint32(b[2])<<16); to != nil {
		to.post(len(name), func(w *Worker, _ time.Time) { w.takeover.Give(name, takeover.Path{Unknown: true}, "") })
	}
}

func (h *takeoverHost) Moved(client netip.AddrPort, node string) {
	for _, w := range h.w.edge.workers {
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

func (h *takeoverHost) Forward(node string, client netip.AddrPort, hops uint8, p []byte) bool {
	return h.d.Forward.Forward(node, h.w.listener, client, hops, p)
}

func (h *takeoverHost) Return(node string, client netip.AddrPort, epoch uint64, p []byte) bool {
	return h.d.Forward.Return(node, h.w.listener, client, epoch, p)
}

func (h *takeoverHost) Ask(node string, r takeover.Request) {
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

func (h *takeoverHost) Reply(to string, ok bool) { h.w.edge.reply(to, ok) }

func (h *takeoverHost) Append(writes []sessionlog.Write, owners []*takeover.Session) {
	h.d.Log.Append(writes, func(i int, a sessionlog.Answer) { h.answered(owners[i], a) })
}

func (h *takeoverHost) Read(name string, owner *takeover.Session) {
	h.d.Log.Read(name, func(a sessionlog.Answer) { h.answered(owner, a) })
}

func (h *takeoverHost) answered(to *takeover.Session, a sessionlog.Answer) {
	h.w.mail.Put(letter{to: to, answer: a})
}

func (h *takeoverHost) Find(q takeover.Question) {
	h.d.Affinity.Find(q.Name, func(s cluster.Served, err error) {
		h.w.must(func(now time.Time) { h.w.takeover.Located(now, q, s, err) })
	})
}

func (h *takeoverHost) Try(q takeover.Question) {
	h.d.Affinity.Try(q.Name, q.Seen, func(s cluster.Served, err error) {
		h.w.must(func(now time.Time) { h.w.takeover.Tried(now, q, s, err) })
	})
}

func (h *takeoverHost) Claim(name string, epoch uint64)   { h.d.Affinity.Claim(name, epoch) }
func (h *takeoverHost) Release(name string, epoch uint64) { h.d.Affinity.Release(name, epoch) }

// List chooses on the goroutine of the affinity, because a dead edge may have had many
// sessions.
func (h *takeoverHost) List(node string, rounds int) {
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

func (h *takeoverHost) Follow(now time.Time, space string) bool {
	return h.w.spaces.Follow(now, space).Complete()
}

func (h *takeoverHost) Spaces() []string { return h.w.spaces.Names() }

func (h *takeoverHost) Begin(now time.Time, s *takeover.Session) takeover.Feed {
	client := h.session(s)
	feed := h.feed(s)
	h.w.edge.sessions.enter(s.Conn().Addr().Addr())
	client.Begin(now, s.Conn(), s.About().Claims())
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
	h.w.edge.sessions.enter(conn.Addr().Addr())
	client.Resume(now, conn, s.Token(), s.About().Claims())
	return feed
}

// session makes the session that serves a client.
func (h *takeoverHost) session(s *takeover.Session) *fanout.Session {
	about := s.About()
	return h.w.spaces.NewSession(fanout.SessionConfig{
		Space: about.Space, ID: about.ID, Client: about.Client, Began: about.BeganAt(), Epoch: s.Epoch(),
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

func (h *takeoverHost) Warn(text string, args ...any) { h.w.edge.cfg.Log.Warn(text, args...) }

// Deliver handles a datagram of a client that came over the edge via; via is empty if it came
// directly to this edge.
func (w *Worker) Deliver(now time.Time, via string, hops uint8, client netip.AddrPort, datagram []byte) {
	if w.takeover != nil && w.takeover.Intercept(now, client, datagram, via, hops) {
		return
	}
	w.handle(now, w.ep.Receive(now, client, datagram, w.out))
}

// A returning sends datagrams to clients by their return paths.
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

// A letter carries to a worker what must not get lost, unlike a task: an answer of the log,
// without which a session stands still for ever; the number of a delivered message; or
// something to do, such as to handle an answer of the affinity or of another edge. Letters
// need no bound of their own: a session asks the log one question at a time, other questions
// are bounded where they are asked, and a feed has one letter on its way at most.
type letter struct {
	answer sessionlog.Answer
	to     *takeover.Session
	feed   *sessionFeed
	do     func(now time.Time)
}

// A sessionFeed is the feed of a session that tells its worker what is delivered.
type sessionFeed struct {
	takeover.Feed
	session *takeover.Session
	worker  *Worker

	posted atomic.Bool   // a letter is on its way
	number atomic.Uint64 // of the newest message that is delivered
}

// delivered notes, from any goroutine, that the message with this number and all before it
// are delivered.
func (f *sessionFeed) delivered(number uint64) {
	f.number.Store(number)
	if f.posted.CompareAndSwap(false, true) {
		f.worker.mail.Put(letter{feed: f})
	}
}

// Deliver implements takeover.Feed.
func (f *sessionFeed) Deliver(m sessionlog.Message) {
	f.worker.spaces.Counts().MessagesIn++
	f.Feed.Deliver(m)
}

// must has something done on a turn of the worker. Unlike a task it does not get lost. It
// may be called from any goroutine.
func (w *Worker) must(do func(now time.Time)) {
	w.mail.Put(letter{do: do})
}

// openMail handles the letters that came since the last turn.
func (w *Worker) openMail(now time.Time) {
	for _, l := range w.mail.Take() {
		switch {
		case l.do != nil:
			l.do(now)
		case l.feed != nil:
			l.feed.posted.Store(false)
			w.takeover.Delivered(now, l.feed.session, l.feed.number.Load())
		default:
			w.takeover.Answer(now, l.to, l.answer)
		}
	}
}
