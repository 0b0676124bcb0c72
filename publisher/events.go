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

// An Event is news of a space. Fields that do not belong to its type are empty.
type Event struct {
	Type string // joined, left, linked, presumed, rejected, changed, refused, reassert, recycle, uncertain, command

	Time       time.Time `json:"ts"`
	Epoch, Seq uint64

	Client  string
	Session string // of joined and left
	Edge    string
	Reason  string // of left and recycle
	Key     string // of linked, presumed, rejected, changed and refused
	Link    uint16
	Code    string                     // of refused
	Values  map[string]json.RawMessage // of changed and refused, by name, as JSON
	Numbers []uint64                   // of uncertain
	Command string                     // of command: its name
}

// event applies an event to the copy. It ignores data that is no event: whoever may
// publish on the subject may send anything.
func (s *Space) event(now time.Time, data []byte) {
	var ev Event
	if json.Unmarshal(data, &ev) != nil {
		return
	}
	switch replication.EventType(ev.Type) {
	case replication.EventReassert:
		s.heard = now
		s.follow(ev.Epoch)
	case replication.EventChanged:
		s.written(ev)
	case replication.EventLeft:
		if ev.Reason != "replaced" { // by a newer session of the same client
			delete(s.groups, ev.Client)
		}
	}
}

// whoPause is how long Who waits for further edges after each answer, because it does not
// know how many there are.
const whoPause = 300 * time.Millisecond

// A Client is a session in a space.
type Client struct{ Client, Session, Edge string }

// Who asks the edges which clients are in the space.
func (s *Space) Who(ctx context.Context) (list []Client, err error) {
	inbox := s.p.nc.NewInbox()
	answers, err := s.p.nc.SubscribeSync(inbox)
	if err != nil {
		return nil, fmt.Errorf("who is in space %s: %w", s.name, err)
	}
	defer unsubscribe(answers)
	if err := s.p.nc.PublishRequest(s.p.subjects.Who(s.name), inbox, nil); err != nil {
		return nil, fmt.Errorf("who is in space %s: %w", s.name, err)
	}
	for {
		wait, cancel := context.WithTimeout(ctx, whoPause)
		m, err := answers.NextMsgWithContext(wait)
		cancel()
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case errors.Is(err, context.DeadlineExceeded), errors.Is(err, nats.ErrNoResponders):
			return list, nil
		case err != nil:
			return nil, fmt.Errorf("who is in space %s: %w", s.name, err)
		}
		var a struct {
			Edge    string
			Clients []Client
		}
		if json.Unmarshal(m.Data, &a) != nil {
			continue
		}
		for _, c := range a.Clients {
			c.Edge = a.Edge
			list = append(list, c)
		}
	}
}

// Bounds of the messages that wait for the function of Follow or Listen. NATS drops what
// exceeds them. Follow then asks the edges which clients are there.
const (
	waitingMessages = 65_536
	waitingBytes    = 16 << 20
)

func (s *Space) subscribeSync(subject string) (*nats.Subscription, error) {
	sub, err := s.p.nc.SubscribeSync(subject)
	if err != nil {
		return nil, err
	}
	if err := sub.SetPendingLimits(waitingMessages, waitingBytes); err != nil {
		unsubscribe(sub)
		return nil, err
	}
	return sub, nil
}

func unsubscribe(sub *nats.Subscription) { _ = sub.Unsubscribe() } // fails only if the connection is closed

// revalidateInterval is how often Follow checks whether it may have missed events, and the
// shortest pause between its questions to the edges.
const revalidateInterval = 500 * time.Millisecond

// absenceMax is for how long the edges may not name a session until Follow reports that it left.
// When a NATS server dies, edges look for another one as the game server does, and a session that an edge
// lost is without one until another edge adopts it. reasonMissed is the reason that Follow gives.
const (
	absenceMax   = 10 * time.Second
	reasonMissed = "missed"
)

// Follow calls f with the events of the space until ctx ends, in order: first joined for
// each client that is there, then events as they arrive. It reports joined and left once
// for each session: when NATS was away or f was slow, it asks the edges for what it
// missed. It reports other events at most once. The error is that of ctx, or says why
// Follow cannot receive events.
func (s *Space) Follow(ctx context.Context, f func(Event)) error {
	sub, err := s.subscribeSync(s.p.subjects.Event(s.name))
	if err != nil {
		return fmt.Errorf("follow space %s: %w", s.name, err)
	}
	defer unsubscribe(sub)
	w := &follower{space: s, f: f, sessions: map[string]*presence{}, stale: true}
	for {
		if w.due() {
			if err := w.revalidate(ctx); err != nil {
				return err
			}
		}
		wait, cancel := context.WithTimeout(ctx, revalidateInterval)
		m, err := sub.NextMsgWithContext(wait)
		cancel()
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err == nil:
			w.event(m.Data)
		case errors.Is(err, nats.ErrSlowConsumer):
			w.stale = true
		case !errors.Is(err, context.DeadlineExceeded):
			return fmt.Errorf("follow space %s: %w", s.name, err)
		}
	}
}

// A follower knows which sessions it has reported.
type follower struct {
	space      *Space
	f          func(Event)
	sessions   map[string]*presence // by id; as many as the edges admit
	reconnects uint64
	stale      bool // events may have been missed
	asked      time.Time
}

type presence struct {
	client, edge string
	absent       time.Time // when the edges began not to name it; zero if they named it
}

// event passes an event on, unless it reports what is known.
func (w *follower) event(data []byte) {
	var ev Event
	if json.Unmarshal(data, &ev) != nil || ev.Type == "" {
		return
	}
	switch replication.EventType(ev.Type) {
	case replication.EventJoined:
		w.joined(ev)
	case replication.EventLeft:
		if w.sessions[ev.Session] != nil {
			delete(w.sessions, ev.Session)
			w.f(ev)
		}
	default:
		w.f(ev)
	}
}

func (w *follower) joined(ev Event) {
	if p := w.sessions[ev.Session]; p != nil {
		p.absent, p.edge = time.Time{}, ev.Edge
		return
	}
	w.sessions[ev.Session] = &presence{client: ev.Client, edge: ev.Edge}
	w.f(ev)
}

// due notes whether NATS was away, and reports whether it is time to revalidate.
func (w *follower) due() bool {
	if n := w.space.p.nc.Stats().Reconnects; n != w.reconnects {
		w.reconnects = n
		w.reconnected()
	}
	return w.stale && time.Since(w.asked) >= revalidateInterval && w.space.p.nc.IsConnected()
}

// revalidate compares the known sessions with those that the edges name.
func (w *follower) revalidate(ctx context.Context) error {
	w.asked = time.Now()
	list, err := w.space.Who(ctx)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		w.stale = true // NATS is away
		return nil
	}
	w.answered(w.asked, list)
	return nil
}

// reconnected forgets since when the edges do not name sessions: they could not while NATS was away.
func (w *follower) reconnected() {
	w.stale = true
	for _, p := range w.sessions {
		p.absent = time.Time{}
	}
}

// answered takes what the edges answer to a question at a time.
func (w *follower) answered(asked time.Time, list []Client) {
	w.stale = false
	named := map[string]bool{}
	for _, c := range list {
		named[c.Session] = true
		w.joined(Event{Type: string(replication.EventJoined), Time: asked, Client: c.Client, Session: c.Session, Edge: c.Edge})
	}
	for session, p := range w.sessions {
		switch {
		case named[session]:
		case p.absent.IsZero():
			p.absent, w.stale = asked, true
		case asked.Sub(p.absent) >= absenceMax:
			delete(w.sessions, session)
			w.f(Event{Type: string(replication.EventLeft), Time: asked, Client: p.client, Session: session, Edge: p.edge, Reason: reasonMissed})
		default:
			w.stale = true
		}
	}
}
