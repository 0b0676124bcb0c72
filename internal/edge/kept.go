package edge

import (
	"crypto/sha256"
	"net/netip"
	"time"

	"github.com/dnprelay/dnprelay/dnp"
	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/internal/edge/fanout"
	"github.com/dnprelay/dnprelay/replication"
	"github.com/dnprelay/dnprelay/sessionlog"
)

// A kept is a session that a log knows, from the moment that its client proved its
// address, or that this edge wants to take it over.
type kept struct {
	k       *keeper
	name    string // of the log
	addr    netip.AddrPort
	core    *sessionlog.Session
	about   about
	session *fanout.Session // nil until the log says that it is this edge's
	feed    Feed

	awake bool
	due   time.Time
	place int // in the heap, plus one; 0 if it is not there

	way                   // of the client's datagrams
	unsure  bool          // to be left to the edge that owns it, if that lives
	until   time.Time     // when the states of the space have to be there, while it waits for them
	waited  time.Duration // how long it was lost before it was taken back
	strays  int           // datagrams that came to another worker of this edge
	dropped bool          // it was only looked at
	again   *way          // another edge gave it to this one, which still took it for its own
	asker   string        // subject of the edge that gave it to this one and waits to hear of it
	moveTo  *Worker       // that gets the session when it is handed over

	told   bool   // mailbox: a letter with number is on its way
	number uint64 // mailbox: of the newest message that is delivered
}

// answer takes an answer of the log, from any goroutine.
func (x *kept) answer(a sessionlog.Answer) {
	x.k.mail.put(x, a)
	x.k.w.wake()
}

// connected begins the session of a client that proved its address. The client is
// served when the log has it.
func (k *keeper) connected(now time.Time, conn *dnp.Conn) {
	x := &kept{k: k, addr: conn.Addr(), name: k.name(conn.Addr())}
	x.about = newAbout(k.w.edge.cfg.NewID(), k.w.listener, now, k.w.judge.Identity(conn))
	conn.SetData(nil)
	x.core = sessionlog.Open(k.cfg, x.name, conn, sessionlog.Info{ID: sessionID(x.about.ID), Addr: x.addr, About: x.about.append()})
	if old := k.byName[x.name]; old != nil && old.core.Phase() >= sessionlog.Reading && old.core.Phase() <= sessionlog.Adopted {
		k.drop(old) // the client logged in meanwhile; if the log goes against that, its next datagram is looked up
	}
	k.setWay(x, way{via: k.guests.via(x.addr)})
	k.enter(x)
	k.wake(x)
}

func sessionID(id string) (out sessionlog.ID) {
	sum := sha256.Sum256([]byte(id))
	copy(out[:], sum[:])
	return out
}

// enter makes a session known by its name and client.
func (k *keeper) enter(x *kept) {
	k.byName[x.name] = x
	k.w.edge.names.enter(nameAt{name: x.name, at: k.w})
	if x.addr.IsValid() {
		k.byAddr[x.addr] = x
		k.w.edge.directory.enter(place{x.addr, k.w.listener}, k.w)
	}
}

// opened serves a client whose session the log has.
func (k *keeper) opened(now time.Time, x *kept) {
	k.w.counts.SessionsOpened++
	x.session = x.newSession()
	x.follow()
	k.w.edge.sessions.enter(x.addr.Addr())
	k.claim(x)
	x.session.Begin(now, x.core.Conn(), x.about.claims())
}

// newSession makes the session that serves the client.
func (x *kept) newSession() *fanout.Session {
	return x.k.w.spaces.NewSession(fanout.SessionConfig{
		Space: x.about.Space, ID: x.about.ID, Client: x.about.Client, Began: time.UnixMicro(x.about.Began), Epoch: x.core.Epoch(),
	})
}

// follow begins the way of the client's messages.
func (x *kept) follow() {
	x.feed = x.k.d.From.Begin(x.about.Space, x.about.Client, x.about.ID, func(number uint64) {
		x.k.mail.delivered(x, number)
		x.k.w.wake()
	})
}

// endFeed ends it, if the session ever had one.
func (x *kept) endFeed() {
	if x.feed != nil {
		x.feed.End()
	}
}

// ends takes it that a session is not this edge's, or not any more.
func (k *keeper) ends(now time.Time, x *kept, a sessionlog.Action) {
	switch a.Kind {
	case sessionlog.ActionElsewhere:
		k.w.counts.SessionsElsewhere++
		k.strays.elsewhere(now, x.addr, a.Node, k.w.edge.cfg.Node)
	case sessionlog.ActionGone:
		k.gone(now, x)
	case sessionlog.ActionLost:
		k.w.counts.SessionsLost++
		k.lose(now, x)
		k.strays.elsewhere(now, x.addr, a.Node, k.w.edge.cfg.Node)
	case sessionlog.ActionHanded:
		k.w.counts.SessionsHanded++
		x.feed.End()
		k.handed(now, x, a)
	case sessionlog.ActionEnded:
		k.release(x)
	case sessionlog.ActionUncertain:
		k.uncertain(now, x, a)
	}
}

// uncertain ends a session whose history cannot be established.
func (k *keeper) uncertain(now time.Time, x *kept, a sessionlog.Action) {
	k.w.counts.SessionsUncertain++
	k.release(x)
	k.settle(k.lost.byName[x.name])
	if x.about.ID == "" && !x.unsure { // it was not found yet, and nobody else has it
		x.about, _ = parseAbout(a.Info.About)
		x.addr = a.Info.Addr
	}
	k.w.edge.cfg.Log.Warn("the history of a session cannot be established, so it ends", "reason", a.Reason,
		"client", x.about.Client, "session", x.about.ID, "received", a.Received, "sent", a.Sent)
	if x.about.ID == "" {
		return // nobody can be named
	}
	ev := replication.Event{
		Type: replication.EventUncertain, Space: x.about.Space, Client: x.about.Client, Session: x.about.ID, Time: now,
		Edge: k.w.edge.cfg.Node, Reason: a.Reason, Numbers: []uint64{a.Received, a.Sent},
	}
	k.w.spaces.Emit(ev)
	if x.session == nil { // it was to be taken over
		if x.about.Listener == k.w.listener {
			k.w.out.Send(x.addr, wire.AppendConnectionClose(k.w.out.Datagram(1)))
		}
		ev.Type, ev.Reason, ev.Numbers = replication.EventLeft, dnp.CloseUncertain.String(), nil
		k.w.spaces.Emit(ev)
	}
}
