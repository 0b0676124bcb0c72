package sessionlog_test

import (
	"slices"
	"time"

	"github.com/dnprelay/dnprelay/dnp"
	"github.com/dnprelay/dnprelay/sessionlog"
)

// act carries out what a session wants.
func (e *simEdge) act(c *simClient, s *sessionlog.Session, a sessionlog.Action) {
	w := e.w
	if a.Kind > sessionlog.ActionRead && a.Kind != sessionlog.ActionDeliver {
		w.tell("%s, client %d: %v %s %s epoch %d", e.name(), c.index, a.Kind, a.Node, a.Reason, a.Epoch)
	}
	switch a.Kind {
	case sessionlog.ActionAppend:
		e.batches.Add(s, e.written(a.Write))
	case sessionlog.ActionRead:
		start := e.start
		w.store.Read(a.Log, func(answer sessionlog.Answer) {
			answer.Entries = e.readable(answer.Entries)
			e.runAs(start, func() { s.Answer(w.net.Now(), answer) })
		})
	case sessionlog.ActionOpened:
		c.owner = e
		e.tokens[s] = 0
	case sessionlog.ActionFound:
		s.Claim()
	case sessionlog.ActionAdopted:
		e.restore(c, s)
	case sessionlog.ActionDeliver:
		e.deliver(c, s, a.Message)
	case sessionlog.ActionLost:
		w.chk.lost(c, s, a)
	case sessionlog.ActionUncertain:
		w.chk.failf("the session of client %d ends as uncertain: %s; numbers %d and %d", c.index, a.Reason, a.Received, a.Sent)
	case sessionlog.ActionHanded:
		w.chk.hands++
		for _, o := range w.edges {
			if o.name() == a.Node && o != e {
				o.after(300*time.Microsecond, func() { o.adopt(c) })
			}
		}
	}
}

// restore goes on with a session that was adopted.
func (e *simEdge) restore(c *simClient, s *sessionlog.Session) {
	w := e.w
	conn := s.Restore(w.net.Now(), e.ep, func(ref uint64) *dnp.Source {
		if ref >= statesMax {
			return nil
		}
		return e.sources[ref]
	})
	if conn == nil {
		return
	}
	c.owner, c.adopted = e, true
	w.chk.adoptions++
	e.tokens[s] = s.Token()
	for token := range conn.QueuedTokens {
		e.tokens[s] = max(e.tokens[s], token)
	}
	buffered := e.buffers[c.addr]
	delete(e.buffers, c.addr)
	for _, p := range buffered {
		e.after(0, func() { e.direct(c, p, 0) })
	}
}

// flushWrites sends the writes of all sessions, those of a log shard as one.
func (e *simEdge) flushWrites() {
	start := e.start
	e.batches.Flush(func(_ int, writes []sessionlog.Write, sessions []*sessionlog.Session) {
		e.w.store.Append(writes, func(i int, a sessionlog.Answer) {
			e.runAs(start, func() { sessions[i].Answer(e.w.net.Now(), a) })
		})
	})
}

// deliver gives a message to the game.
func (e *simEdge) deliver(c *simClient, s *sessionlog.Session, m sessionlog.Message) {
	e.outbox[s] = append(e.outbox[s], m)
	if len(e.outbox[s]) == 1 {
		e.publish(c, s)
	}
}

// publish sends what the game does not have yet, in order, again and again.
func (e *simEdge) publish(c *simClient, s *sessionlog.Session) {
	w, start := e.w, e.start
	batch := slices.Clone(e.outbox[s])
	if len(batch) == 0 {
		return
	}
	if w.healed || w.net.Rand().IntN(20) > 0 {
		w.net.Schedule(time.Millisecond, func() {
			for _, m := range batch {
				w.chk.toGame(c, m)
			}
			w.net.Schedule(time.Millisecond, func() {
				e.runAs(start, func() { e.delivered(c, s, batch[len(batch)-1].Number) })
			})
		})
	}
	e.after(50*time.Millisecond, func() { e.publish(c, s) })
}

func (e *simEdge) delivered(c *simClient, s *sessionlog.Session, number uint64) {
	out := e.outbox[s]
	for len(out) > 0 && out[0].Number <= number {
		out = out[1:]
	}
	e.outbox[s] = out
	s.Delivered(e.w.net.Now(), number)
}
