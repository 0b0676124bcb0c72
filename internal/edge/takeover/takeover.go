package takeover

import (
	"net/netip"
	"time"

	"github.com/dnprelay/dnprelay/dnp"
	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/internal/auth"
	"github.com/dnprelay/dnprelay/internal/turn/heap"
	"github.com/dnprelay/dnprelay/replication"
	"github.com/dnprelay/dnprelay/sessionlog"
)

// A worker with durable sessions turns each turnInterval. A worker that did not turn for
// stallMax was stopped, and other edges may have its sessions.
const (
	turnInterval = 100 * time.Millisecond
	stallMax     = 300 * time.Millisecond
)

// A Takeover keeps all durable sessions of one worker, which owns it.
type Takeover struct {
	*base
	claims
	drainer
	preparer
	standby
}

// New returns a Takeover without sessions.
func New(cfg Config) *Takeover {
	cfg.Locations.grow()
	b := &base{
		cfg: cfg, host: cfg.Host, locations: cfg.Locations,
		log: sessionlog.Config{
			Node: cfg.Node, Rand: cfg.Rand, Format: func() uint8 { return cfg.Host.View().roster.Format() },
			UndeliveredBytesMax: undeliveredMax, BlockBytes: blockBytesMax,
		},
		byName: make(map[string]*Session), byAddr: make(map[netip.AddrPort]*Session),
		due:     heap.New(func(a, b *Session) bool { return a.due.Before(b.due) }, func(s *Session) *int { return &s.heapIndex }),
		orphans: newOrphans(), paths: newPaths(),
	}
	return &Takeover{base: b, claims: newClaims(b), drainer: drainer{base: b}, preparer: preparer{base: b}, standby: standby{base: b}}
}

// Begin begins a turn. It comes before anything else, because it notices when the process
// was stopped.
func (t *Takeover) Begin(now time.Time) {
	if len(t.byAddr) > 0 && !t.turned.IsZero() && now.Sub(t.turned) > stallMax {
		t.counts.Stalls++
		t.revalidateAll()
	}
	t.turned = now
}

// Connected begins the session of a client that proved its address. The client is served
// when the log has the session.
func (t *Takeover) Connected(now time.Time, conn *dnp.Conn, id string, claims *auth.Claims) {
	s := &Session{client: conn.Addr(), name: t.name(conn.Addr()), toWorker: -1, About: newAbout(id, t.cfg.Listener, now, claims)}
	s.Log = sessionlog.Open(t.log, s.name, conn, sessionlog.Info{ID: s.About.logID(), Addr: s.client, About: s.About.marshal()})
	if old := t.byName[s.name]; old != nil && (old.adopting() || old.departure == given) {
		t.forget(old) // if the log goes against the login, the client's next datagram is looked up
	}
	t.setPath(s, Path{Edge: t.paths.edge(s.client)})
	t.enter(s)
	t.wake(s)
}

// Handle takes an event of a connection.
func (t *Takeover) Handle(now time.Time, ev *dnp.Event) {
	if s := t.byAddr[ev.Conn.Addr()]; s != nil && s.Log.Conn() == ev.Conn {
		switch ev.Kind {
		case dnp.EventAnswered:
			t.confirm(s)
		case dnp.EventUnanswered:
			t.seek(now, s)
		}
		s.Log.Handle(now, ev)
		t.wake(s)
	}
}

// answered has an answer of the log handled. Any goroutine may call it.
func (t *Takeover) answered(s *Session, a sessionlog.Answer) {
	t.host.Must(func(now time.Time) { t.answer(now, s, a) })
}

// answer handles an answer of the log.
func (t *Takeover) answer(now time.Time, s *Session, a sessionlog.Answer) {
	t.heardLog(now, a.Verdict)
	s.Log.Answer(now, a)
	t.wake(s)
}

// Delivered notes that the message of a client with this number, and all before it, can no
// longer get lost.
func (t *Takeover) Delivered(now time.Time, s *Session, number uint64) {
	s.Log.Delivered(now, number)
	t.wake(s)
}

// Replaced handles news from the affinity: another edge has a session in a later epoch than
// this edge knows. The log decides.
func (t *Takeover) Replaced(name string, epoch uint64) {
	if s := t.byName[name]; s != nil && epoch > s.Log.Epoch() {
		t.revalidate(s)
	}
}

// Overtaken handles the same news from another edge, about the session of a client.
func (t *Takeover) Overtaken(client netip.AddrPort, epoch uint64) { t.Replaced(t.name(client), epoch) }

// Return sends a datagram to a client by its return path. It reports false if the host has
// to send the datagram directly. With AnswerOnly it drops the datagram if the path is
// unknown, or if the edge on it cannot be reached.
func (t *Takeover) Return(to netip.AddrPort, p []byte) bool {
	if t.direct() {
		return false
	}
	s := t.byAddr[to]
	if s == nil {
		return t.returnBy(Path{Edge: t.paths.edge(to)}, to, 0, p)
	}
	epoch, others := s.Log.Epoch(), s.others.list
	switch {
	case !isBulk(p):
		t.bySearch(s, epoch, p)
		for _, o := range others {
			if o.until.After(t.turned) && !t.returnBy(Path{Edge: o.edge}, to, epoch, p) {
				t.host.Direct(to, p)
			}
		}
	case len(others) > 0 && s.path.Edge != "":
		return t.cfg.Forward.Return(s.path.Edge, t.client(to), epoch, p) || t.returnBy(Path{Edge: others[len(others)-1].edge}, to, epoch, p)
	}
	return t.returnBy(s.path, to, epoch, p)
}

// isBulk reports whether a datagram carries values or an unreliable message. These are many, and
// go by one way only.
func isBulk(p []byte) bool {
	cmd := wire.Command(p[0])
	return cmd == wire.CommandLinkUpdate || cmd == wire.CommandMessage
}

// returnBy sends a datagram to a client by one path. It reports false if the host has to send
// it directly.
func (t *Takeover) returnBy(path Path, to netip.AddrPort, epoch uint64, p []byte) bool {
	switch {
	case path == Path{}:
		return false
	case path.Edge != "" && t.cfg.Forward.Return(path.Edge, t.client(to), epoch, p):
		return true
	}
	if t.cfg.AnswerOnly { // the client will come another way, if it comes
		t.counts.PathsUnknown++
	}
	return t.cfg.AnswerOnly
}

// Advance does what is due and returns when there is more to do, next at the latest. A
// turn calls it twice: before the endpoint, for what the log answered, and after it, for
// what has to be stored.
func (t *Takeover) Advance(now, next time.Time) time.Time {
	next = t.askAgain(now, next)
	t.paths.advance(now)
	next = t.advanceProbe(now, next)
	next = t.advanceInherited(now, next)
	next = t.advanceSuperseded(now, next)
	next = t.advanceDrain(now, next)
	next = t.advanceAwaiting(now, next)
	next = t.advancePreparing(now, next)
	next = t.advanceStandby(now, next)
	for s, ok := t.due.First(); ok && !s.due.After(now); s, ok = t.due.First() {
		t.due.Remove(s)
		t.wake(s)
	}
	for i := 0; i < len(t.awake); i++ { // more may wake meanwhile
		s := t.awake[i]
		t.awake[i] = nil
		s.queued = false
		t.advanceSession(now, s)
	}
	t.awake = t.awake[:0]
	if s, ok := t.due.First(); ok {
		next = earlier(next, s.due)
	}
	if len(t.byName) > 0 {
		return earlier(next, now.Add(turnInterval))
	}
	return next
}

// advanceSession carries out the actions of a session and plans when to look at it again.
func (t *Takeover) advanceSession(now time.Time, s *Session) {
	if s.departure >= given {
		return
	}
	for _, a := range s.Log.Advance(now) {
		t.act(now, s, a)
	}
	if s.departure == gone {
		return
	}
	if s.Log.Phase() == sessionlog.Owning && !s.Log.Revalidating() {
		t.owned(now, s)
	}
	at, more := s.Log.NextTimeout()
	if look := t.watch(now, s); !look.IsZero() && (!more || look.Before(at)) {
		at, more = look, true
	}
	switch {
	case !more && s.Log.Phase() == sessionlog.Over:
		t.end(s)
	case !more:
		t.plan(s, time.Time{})
	case !at.After(now):
		t.wake(s)
	default:
		t.plan(s, at)
	}
}

// owned notes that this edge owns a session and has nothing to revalidate.
func (t *Takeover) owned(now time.Time, s *Session) {
	if s.search.silent {
		t.seek(now, s)
	}
	if s.givenBack != nil { // this edge owned it all the time; the giver may forget it all the same
		s.givenBack = nil
		t.reply(s)
	}
}

// end handles that the log has ended a session at this worker. A session that was given
// away waits for its successor. If another edge gave the session to this one while this one
// still took it for its own, the worker begins to take it over. It yields then: what the giver
// said may be older than the log, which may name a living owner.
func (t *Takeover) end(s *Session) {
	t.plan(s, time.Time{})
	if s.departure == given && s.givenBack == nil {
		return
	}
	t.forget(s)
	if s.givenBack != nil {
		next := t.adopt(s.name, netip.AddrPort{}, true)
		next.asker = s.asker
		next.named = true
		t.setPath(next, *s.givenBack)
		s.givenBack = nil
	}
}

// act carries out one action of a session. Actions after which nothing follows do not forget
// the session: advanceSession does, with end.
func (t *Takeover) act(now time.Time, s *Session, a sessionlog.Action) {
	switch a.Kind {
	case sessionlog.ActionAppend:
		t.counts.LogWrites++
		t.cfg.Log.Append(a.Write, func(answer sessionlog.Answer) { t.answered(s, answer) })
	case sessionlog.ActionRead:
		t.cfg.Log.Read(a.Log, func(answer sessionlog.Answer) { t.answered(s, answer) })
	case sessionlog.ActionOpened:
		t.counts.SessionsOpened++
		t.publishClaim(s)
		s.feed = t.host.Serve(now, s)
	case sessionlog.ActionFound:
		t.found(now, s, a)
	case sessionlog.ActionAdopted:
		t.adopted(now, s)
	case sessionlog.ActionDeliver:
		s.feed.Deliver(a.Message)
	case sessionlog.ActionElsewhere:
		t.counts.SessionsElsewhere++
		t.hintElsewhere(now, s.client, a.Node)
	case sessionlog.ActionGone:
		t.settle(s.name)
		t.nothingFound(now, s)
	case sessionlog.ActionLost:
		t.counts.SessionsLost++
		t.lose(now, s, a.Node)
		t.hintElsewhere(now, s.client, a.Node)
	case sessionlog.ActionHanded:
		t.counts.SessionsHanded++
		t.counts.QueuedLost += uint64(a.Lost)
		t.handed(s, a.Node)
	case sessionlog.ActionEnded:
		t.release(s)
	case sessionlog.ActionUncertain:
		t.uncertain(now, s, a)
	}
}

func (t *Takeover) uncertain(now time.Time, s *Session, a sessionlog.Action) {
	t.counts.SessionsUncertain++
	t.release(s)
	t.settle(s.name)
	if s.About.ID == "" && !s.yields { // not found yet; with yields, another edge may own it
		s.About, _ = parseAbout(a.Info.About)
		s.client = a.Info.Addr
	}
	t.host.Warn("ending session: its history cannot be established",
		"reason", a.Reason, "client", s.About.Client, "session", s.About.ID, "received", a.Received, "sent", a.Sent)
	if s.About.ID == "" {
		return // no client can be named
	}
	ev := replication.Event{
		Type: replication.EventUncertain, Space: s.About.Space, Client: s.About.Client, Session: s.About.ID, Time: now,
		Edge: t.cfg.Node, Reason: a.Reason, Numbers: []uint64{a.Received, a.Sent},
	}
	t.host.Emit(ev)
	if s.feed == nil { // it was to be taken over
		if s.About.Listener == t.cfg.Listener {
			t.host.Refuse(s.client)
		}
		ev.Type, ev.Reason, ev.Numbers = replication.EventLeft, dnp.CloseUncertain.String(), nil
		t.host.Emit(ev)
	}
}
