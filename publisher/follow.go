package publisher

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/dnprelay/dnprelay/replication"
	"github.com/nats-io/nats.go"
)

// Bounds of events that wait for Follow's function. What comes beyond is dropped, and
// who is there is asked for anew.
const (
	followMessages = 65_536
	followBytes    = 16 << 20
)

// lookInterval is how often Follow looks whether NATS was away; missedMax is how often a
// session may be absent from the answers of the edges before it has left.
const (
	lookInterval = 500 * time.Millisecond
	missedMax    = 2
)

// reasonMissed is why a session left whose event was lost.
const reasonMissed = "missed"

// Follow calls f with what happens in the space until ctx ends, in order: first joined
// for each client that is there, then events as they come. Each session is joined once
// and left once: what is lost while NATS is away, or while f is slow, is made good by
// asking the edges. Other events are at most once. The error is that of ctx, or says
// why the space cannot be heard.
func (s *Space) Follow(ctx context.Context, f func(Event)) error {
	sub, err := s.p.nc.SubscribeSync(s.p.subjects.Event(s.name))
	if err != nil {
		return fmt.Errorf("follow space %s: %w", s.name, err)
	}
	defer func() { _ = sub.Unsubscribe() }() // fails only if the connection is closed
	if err := sub.SetPendingLimits(followMessages, followBytes); err != nil {
		return fmt.Errorf("follow space %s: %w", s.name, err)
	}
	w := &follower{space: s, f: f, there: map[string]*presence{}}
	if err := w.ask(ctx); err != nil {
		return err
	}
	for {
		wait, cancel := context.WithTimeout(ctx, lookInterval)
		m, err := sub.NextMsgWithContext(wait)
		cancel()
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err == nil:
			w.event(m.Data)
		case errors.Is(err, nats.ErrSlowConsumer):
			w.doubt = true
		case !errors.Is(err, context.DeadlineExceeded):
			return fmt.Errorf("follow space %s: %w", s.name, err)
		}
		if err := w.look(ctx); err != nil {
			return err
		}
	}
}

// A follower knows which sessions it has told of.
type follower struct {
	space      *Space
	f          func(Event)
	there      map[string]*presence // by session; as many as the edges let in
	reconnects uint64
	doubt      bool // something may be missing
	asked      time.Time
}

type presence struct {
	client, edge string
	missed       int
}

// event passes an event on, unless it says what is known.
func (w *follower) event(data []byte) {
	var ev Event
	if json.Unmarshal(data, &ev) != nil || ev.Type == "" {
		return
	}
	switch replication.EventType(ev.Type) {
	case replication.EventJoined:
		w.joined(ev)
	case replication.EventLeft:
		if w.there[ev.Session] != nil {
			delete(w.there, ev.Session)
			w.f(ev)
		}
	default:
		w.f(ev)
	}
}

func (w *follower) joined(ev Event) {
	if p := w.there[ev.Session]; p != nil {
		p.missed, p.edge = 0, ev.Edge
		return
	}
	w.there[ev.Session] = &presence{client: ev.Client, edge: ev.Edge}
	w.f(ev)
}

// look asks the edges again if NATS was away or something was dropped, until nothing is
// doubtful.
func (w *follower) look(ctx context.Context) error {
	if n := w.space.p.nc.Stats().Reconnects; n != w.reconnects {
		w.reconnects, w.doubt = n, true
	}
	if !w.doubt || time.Since(w.asked) < lookInterval || !w.space.p.nc.IsConnected() {
		return nil
	}
	return w.ask(ctx)
}

// ask compares what is known with what the edges say.
func (w *follower) ask(ctx context.Context) error {
	w.asked = time.Now()
	list, err := w.space.Who(ctx)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		w.doubt = true // NATS is away
		return nil
	}
	w.doubt = false
	named := make(map[string]bool, len(list))
	for _, c := range list {
		named[c.Session] = true
		w.joined(Event{Type: string(replication.EventJoined), Time: w.asked, Client: c.Client, Session: c.Session, Edge: c.Edge})
	}
	for session, p := range w.there {
		switch {
		case named[session]:
			p.missed = 0
			continue
		case p.missed+1 < missedMax:
			p.missed++
			w.doubt = true
			continue
		}
		delete(w.there, session)
		w.f(Event{Type: string(replication.EventLeft), Time: w.asked, Client: p.client, Session: session, Edge: p.edge, Reason: reasonMissed})
	}
	return nil
}
