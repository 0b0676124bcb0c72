package publisher

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/dnprelay/dnprelay/replication"
	"github.com/dnprelay/dnprelay/subject"
	"github.com/nats-io/nats.go"
)

// A Kind says what an Event is about. Later releases have more kinds; ignore those that you do not know.
type Kind string

// The kinds of events.
const (
	KindJoined      Kind = "joined"       // a client is in the space
	KindLeft        Kind = "left"         // it is not any more; Reason
	KindMessage     Kind = "message"      // a client sent one; Message
	KindCommand     Kind = "command"      // a client waits for the answer to Command; only if a Filter asks for it
	KindChanged     Kind = "changed"      // a client wrote Values of the state Key
	KindRefused     Kind = "refused"      // the relay refused such a write; Code, Reason
	KindLinked      Kind = "linked"       // a client accepted the link to the state Key; of one with a Distance only if that has Events
	KindPresumed    Kind = "presumed"     // it acknowledged the offer and said nothing
	KindRejected    Kind = "rejected"     // it did not accept the link
	KindReassert    Kind = "reassert"     // another relay took the space over; the Space tells it everything
	KindRecycle     Kind = "recycle"      // a session runs out of LinkIds, or of numbers (Reason lap)
	KindLimited     Kind = "limited"      // a client takes no long messages
	KindUncertain   Kind = "uncertain"    // a session ended because its log is damaged; Numbers
	KindCommandSent Kind = "command_sent" // a command, Name, went to game servers
	KindExpired     Kind = "expired"      // the relay removed the state Key, because its time to live was over
	KindSees        Kind = "sees"         // states, Keys, came into the sight of a client; Anew
	KindUnsees      Kind = "unsees"       // states, Keys, went out of its sight
	KindMissed      Kind = "missed"       // events may be missing here: NATS was away, or the loop was slow
)

// An Event is something that happened in a space. Fields that do not belong to its kind are empty.
type Event struct {
	Kind Kind
	Time time.Time

	Epoch, Seq uint64 // of KindChanged, KindRefused, KindExpired and KindReassert: the position of the space

	Client, Session, Edge string

	Key    string
	Link   uint16
	Values map[string]any // by name, in the Go type of their types: float32, [3]float32, string, []byte, nil for null
	Code   Code
	Reason string
	Detail string // of KindLeft with the reason kicked: why, if who kicked said it
	Missed int    // of KindRefused: refusals of the client before this one that were not reported

	// Of KindSees and KindUnsees, for states whose Distance has Events. Anew: the client sees Keys, and nothing else that
	// an event named before, because another edge serves it.
	Keys []string
	Anew bool

	Name    string   // of KindCommandSent
	Numbers []uint64 // of KindUncertain

	Message *Message
	Command *Command
}

// A Filter says which events a loop wants. The zero value stands for all kinds but KindCommand.
type Filter struct {
	// Kinds are the kinds of the events, if there are any.
	Kinds []Kind

	// KeyPrefix begins the keys of those events that have some: "door." or "door.north". Keys has those alone.
	KeyPrefix string

	// Client is the client of those events that have one; empty for all.
	Client string

	// Queue shares commands among game servers: of those that name one queue, each command goes to one;
	// default "commands". Each queue gets all commands.
	Queue string
}

// asks reports whether f names a kind.
func (f *Filter) asks(k Kind) bool { return slices.Contains(f.Kinds, k) }

// wants reports whether events of a kind may pass.
func (f *Filter) wants(k Kind) bool { return f.asks(k) || len(f.Kinds) == 0 && k != KindCommand }

func (f *Filter) passes(ev *Event) bool {
	return f.wants(ev.Kind) && (ev.Key == "" || strings.HasPrefix(ev.Key, f.KeyPrefix)) &&
		(len(ev.Keys) == 0 || ev.Anew || slices.ContainsFunc(ev.Keys, f.begins)) && (ev.Client == "" || f.Client == "" || ev.Client == f.Client)
}

// begins reports whether KeyPrefix begins a key.
func (f *Filter) begins(key string) bool { return strings.HasPrefix(key, f.KeyPrefix) }

// narrow leaves of an event the keys that KeyPrefix begins. Other loops have the event, too, so it makes a list of its own.
func (f *Filter) narrow(ev *Event) {
	if f.KeyPrefix != "" && len(ev.Keys) > 0 {
		ev.Keys = slices.DeleteFunc(slices.Clone(ev.Keys), func(key string) bool { return !f.begins(key) })
	}
}

// presence reports whether the loop wants to know which clients are there.
func (f *Filter) presence() bool { return f.wants(KindJoined) || f.wants(KindLeft) }

// Events yields what happens in the space, in order, until ctx ends: first KindJoined for each client that is
// there, then events as they arrive. KindJoined is the first event about a session, and comes when the relay knows the client: what
// a game server does about it then is not too early. After KindLeft the relay does not know the client any more. KindJoined and KindLeft
// come once for each session: when NATS was away or the loop was slow, the Space asks the edges for what it
// missed. Other events come at most once, and KindMissed where some may be missing.
//
// Messages of sessions in a log come as KindMessage, too; Messages yields those without a loss, and each once.
// Commands of sessions in a log are messages with a Command.
//
// An error comes without an event and is the end: that of ctx, or ErrClosed.
func (s *Space) Events(ctx context.Context, filter Filter) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		st := &stream{filter: filter, wake: make(chan struct{}, 1), ready: make(chan struct{})}
		if err := s.attach(st); err != nil {
			yield(Event{}, err)
			return
		}
		defer s.detach(st)
		wanted := true
		pass := func(ev Event) {
			if wanted && filter.passes(&ev) {
				filter.narrow(&ev)
				wanted = yield(ev, nil)
			}
		}
		err := st.loop(ctx, s, pass, &wanted)
		if wanted {
			yield(Event{}, err)
		}
	}
}

// Bounds of the events that wait for a loop. Beyond them, the Space drops events, and the loop gets KindMissed.
const (
	waitingEvents = 65_536
	waitingBytes  = 16 << 20 // of the data of messages, and of lists of keys
)

// A stream is a loop over events.
type stream struct {
	filter Filter
	wake   chan struct{} // one slot
	ready  chan struct{} // closed when the Space hears what the stream wants
	heard  bool          // ready is closed; of run

	mu    sync.Mutex // run pushes, and must not wait for the loop
	queue []Event
	bytes int
	lost  bool // events are missing
}

// push lets the loop have an event.
func (st *stream) push(ev Event) {
	st.mu.Lock()
	defer st.mu.Unlock()
	n := 0
	if ev.Message != nil {
		n = len(ev.Message.Data)
	}
	for _, key := range ev.Keys {
		n += len(key)
	}
	if len(st.queue) >= waitingEvents || st.bytes+n > waitingBytes {
		st.lost = true
		return
	}
	st.queue, st.bytes = append(st.queue, ev), st.bytes+n
	signal(st.wake)
}

// lose notes that events are missing.
func (st *stream) lose() {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.lost = true
	signal(st.wake)
}

// take returns what waits. The events are older than what is lost.
func (st *stream) take() (list []Event, lost bool) {
	st.mu.Lock()
	defer st.mu.Unlock()
	list, lost = st.queue, st.lost
	st.queue, st.bytes, st.lost = nil, 0, false
	return list, lost
}

// loop passes events on until an error ends it, or no more are wanted.
func (st *stream) loop(ctx context.Context, s *Space, pass func(Event), wanted *bool) error {
	select {
	case <-st.ready:
	case <-ctx.Done():
		return ctx.Err()
	case <-s.ctx.Done():
		return ErrClosed
	}
	w := &follower{space: s, f: pass, sessions: map[string]*presence{}, follows: st.filter.presence(), stale: true}
	w.reconnects = s.p.nc.Stats().Reconnects
	tick := time.NewTicker(revalidateInterval)
	defer tick.Stop()
	for *wanted {
		if w.reconnectedSince() {
			w.missed()
		}
		if w.follows && w.due() {
			if err := w.revalidate(ctx); err != nil {
				return err
			}
		}
		list, lost := st.take()
		for _, ev := range list {
			w.event(ev)
		}
		if lost {
			w.missed()
		}
		if len(list) > 0 || !*wanted {
			continue
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.ctx.Done():
			return ErrClosed
		case <-st.wake:
		case <-tick.C:
		}
	}
	return nil
}

// attach lets a stream have the events of the Space.
func (s *Space) attach(st *stream) error {
	return s.do(func(time.Time) error {
		if s.streams == nil {
			s.streams = map[*stream]bool{}
		}
		s.streams[st], s.attached = true, true
		return nil
	})
}

func (s *Space) detach(st *stream) {
	s.locked(func(time.Time) {
		delete(s.streams, st)
		s.attached = true
	})
	s.nudge()
}

// listen makes the subscriptions that the streams want, and ends those that no stream wants any more.
func (s *Space) listen() {
	var streams []*stream
	wanted := map[string]wantedSubject{}
	s.locked(func(time.Time) {
		if !s.attached && !s.in.stale {
			return
		}
		s.attached, s.in.stale = false, true
		for st := range s.streams {
			streams = append(streams, st)
			if st.filter.wants(KindMessage) {
				wanted["messages"] = wantedSubject{subject: s.p.subjects.From(s.name, "*")}
			}
			if st.filter.asks(KindCommand) {
				queue := st.filter.queue()
				wanted["commands "+queue] = wantedSubject{s.p.subjects.CommandAll(s.name), queue}
			}
		}
	})
	if !s.in.stale {
		return
	}
	s.in.stale = s.in.want(wanted) != nil // the connection was closed
	for _, st := range streams {
		if !st.heard {
			st.heard = true
			close(st.ready)
		}
	}
}

func (f *Filter) queue() string { return cmp.Or(f.Queue, "commands") }

// hear takes a message of NATS that is news.
func (s *Space) hear(m *nats.Msg) {
	var ev Event
	var ok bool
	s.locked(func(now time.Time) {
		switch m.Subject {
		case s.p.subjects.Event(s.name):
			ev, ok = s.event(now, m.Data)
		default:
			ev, ok = s.said(now, m)
		}
		if !ok {
			return
		}
		for st := range s.streams {
			if !st.hears(&ev, m.Sub.Queue) {
				continue
			}
			st.push(ev)
			if ev.Kind == KindCommand {
				return // one loop of a queue gets it
			}
		}
	})
}

// hears reports whether a stream needs an event that came by a queue.
func (st *stream) hears(ev *Event, queue string) bool {
	switch ev.Kind {
	case KindCommand:
		return queue == st.filter.queue() && st.filter.passes(ev)
	case KindJoined, KindLeft:
		return st.filter.presence()
	}
	return st.filter.passes(ev)
}

// said returns the event about a message or a command of a client.
func (s *Space) said(now time.Time, m *nats.Msg) (ev Event, ok bool) {
	if _, key, isCommand := s.p.subjects.ParseCommand(m.Subject); isCommand {
		c := s.parseCommand(m.Header, m.Header.Get(subject.HeaderClient), key, m.Data)
		if c == nil || m.Reply == "" {
			return ev, false
		}
		c.reply = m.Reply
		if ms, err := strconv.ParseUint(m.Header.Get(subject.HeaderTimeout), 10, 32); err == nil {
			c.until = now.Add(time.Duration(ms) * time.Millisecond)
		}
		return Event{Kind: KindCommand, Time: now, Client: c.Client, Session: c.Session, Key: key, Name: c.Name, Command: c}, true
	}
	got, ok := s.parseMessage(m.Subject, m.Header, m.Data)
	if !ok || got.silent {
		return ev, false
	}
	return Event{Kind: KindMessage, Time: now, Client: got.Client, Session: got.Session, Message: got}, true
}

// An eventJSON is the JSON form of an event.
type eventJSON struct {
	Type       string
	Time       time.Time `json:"ts"`
	Epoch, Seq uint64

	Client, Session, Edge, Reason, Detail, Key, Command string

	Link    uint16
	Code    Code
	Values  map[string]json.RawMessage
	Numbers []uint64
	Missed  int
	Keys    []string
	Anew    bool
}

// event applies an event to the copy, and returns it for streams. It ignores data that is no event: whoever may
// publish on the subject may send anything.
func (s *Space) event(now time.Time, data []byte) (out Event, ok bool) {
	var ev eventJSON
	if json.Unmarshal(data, &ev) != nil || ev.Type == "" {
		return out, false
	}
	out = Event{
		Kind: Kind(ev.Type), Time: ev.Time, Epoch: ev.Epoch, Seq: ev.Seq, Client: ev.Client, Session: ev.Session, Edge: ev.Edge, Key: ev.Key,
		Link: ev.Link, Code: ev.Code, Reason: ev.Reason, Detail: ev.Detail, Missed: ev.Missed, Name: ev.Command, Numbers: ev.Numbers,
		Keys: ev.Keys, Anew: ev.Anew,
	}
	switch replication.EventType(ev.Type) {
	case replication.EventReassert:
		s.heard = now
		s.follow(ev.Epoch)
	case replication.EventChanged:
		s.follow(ev.Epoch)
		s.written(ev, false)
	case replication.EventLeft:
		if ev.Reason != "replaced" { // by a newer session of the same client
			delete(s.groups, ev.Client)
			delete(s.eyes, ev.Client)
			for _, key := range s.madeBy(ev.Client) {
				s.forgetForeign(key)
			}
		}
	case replication.EventCommand:
		out.Kind = KindCommandSent
	}
	if len(ev.Values) > 0 && len(s.streams) > 0 {
		out.Values = make(map[string]any, len(ev.Values))
		st := s.states[ev.Key]
		for name, raw := range ev.Values {
			out.Values[name] = st.decode(name, raw)
		}
	}
	return out, true
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

// revalidateInterval is how often a stream checks whether it may have missed events, and the
// shortest pause between its questions to the edges.
const revalidateInterval = 500 * time.Millisecond

// absenceMax is for how long the edges may not name a session until a stream reports that it left.
// When a NATS server dies, edges look for another one as the game server does, and a session that an edge
// lost is without one until another edge adopts it. reasonMissed is the reason that a stream gives.
const (
	absenceMax   = 10 * time.Second
	reasonMissed = "missed"
)

// A follower knows which sessions it has reported.
type follower struct {
	space      *Space
	f          func(Event)
	sessions   map[string]*presence // by id; as many as the edges admit
	follows    bool                 // the loop wants to know which clients are there
	reconnects uint64
	stale      bool // events may have been missed
	asked      time.Time
	gone       []string // sessions that left last
}

type presence struct {
	client, edge string
	absent       time.Time // when the edges began not to name it; zero if they named it
}

// event passes an event on, unless it reports what is known.
func (w *follower) event(ev Event) {
	switch ev.Kind {
	case KindJoined:
		w.joined(ev)
	case KindLeft:
		if w.sessions[ev.Session] != nil {
			delete(w.sessions, ev.Session)
			w.left(ev)
		}
	default:
		w.heardOf(ev)
		w.f(ev)
	}
}

// heardOf reports that a client joined whose session is in an event before it was told of. NATS keeps the order of what
// one node publishes. The event may have been lost while NATS was away; and behind several servers, what a relay publishes
// about a session may overtake what the edge did. The relay knows the client in both cases.
func (w *follower) heardOf(ev Event) {
	if ev.Session != "" && w.follows && w.sessions[ev.Session] == nil && !slices.Contains(w.gone, ev.Session) {
		w.joined(Event{Kind: KindJoined, Time: ev.Time, Client: ev.Client, Session: ev.Session})
		w.stale = true // the edges know whether it is there
	}
}

// goneMax bounds the sessions of which a stream knows that they ended. A message may be heard behind that.
const goneMax = 256

func (w *follower) left(ev Event) {
	if w.gone = append(w.gone, ev.Session); len(w.gone) > goneMax {
		w.gone = slices.Delete(w.gone, 0, goneMax/4)
	}
	w.f(ev)
}

func (w *follower) joined(ev Event) {
	if p := w.sessions[ev.Session]; p != nil {
		p.absent, p.edge = time.Time{}, ev.Edge
		return
	}
	w.sessions[ev.Session] = &presence{client: ev.Client, edge: ev.Edge}
	w.f(ev)
}

// missed reports that events are missing here. Among them may be those about sessions, of which the edges know.
func (w *follower) missed() {
	w.stale = true
	w.f(Event{Kind: KindMissed, Time: time.Now()})
}

// reconnectedSince reports whether NATS was away since the last call, and has the subscriptions again: who reads the states
// then, over whatever connection, hears of everything that comes later.
func (w *follower) reconnectedSince() bool {
	n := w.space.p.nc.Stats().Reconnects
	if n == w.reconnects || w.space.p.nc.FlushTimeout(revalidateInterval) != nil {
		return false
	}
	w.reconnects = n
	w.reconnected()
	return true
}

// due reports whether it is time to revalidate.
func (w *follower) due() bool {
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
		w.joined(Event{Kind: KindJoined, Time: asked, Client: c.Client, Session: c.Session, Edge: c.Edge})
	}
	for session, p := range w.sessions {
		switch {
		case named[session]:
		case p.absent.IsZero():
			p.absent, w.stale = asked, true
		case asked.Sub(p.absent) >= absenceMax:
			delete(w.sessions, session)
			w.left(Event{Kind: KindLeft, Time: asked, Client: p.client, Session: session, Edge: p.edge, Reason: reasonMissed})
		default:
			w.stale = true
		}
	}
}
