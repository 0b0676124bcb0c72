package systest

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"github.com/dnprelay/dnprelay/bus"
	"github.com/dnprelay/dnprelay/dnp/dnptest"
	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/internal/edge"
	"github.com/dnprelay/dnprelay/internal/edge/carrier"
)

// Bounds of carried clients in the chaos simulation.
const (
	carriedConns  = 64               // connections of an edge at most
	carriedLossy  = 0.01             // of the datagrams of WebTransport
	carriedDrain  = 4 * time.Second  // the drain timeout of edges
	carriedNotice = 20 * time.Second // in which an edge notices that a connection is lost
	carriedGiveUp = time.Minute      // for so long clients try to resume, as package client does
	carriedWell   = 3 * time.Second  // between two troubles of a client
	carriedAgree  = time.Second      // in which client and edge agree about their connection
	carriedPrompt = promptly + 2*carriedDelay

	carriedRepeats = 2 * time.Second   // after which a command that was lost has been sent again, more than once
	carriedForget  = 100 * time.Second // in which nothing remains of clients that left without a word

	// carriedRemedy is after how long a client has all values that a connection lost: the last refresh comes 1.5 s after a
	// change. An edge that sends for longer than carriedBlind to a client that gets nothing may waste all of them; then the
	// scrub brings the values, within carriedScrub.
	carriedRemedy = 1750 * time.Millisecond
	carriedBlind  = 1400 * time.Millisecond
	carriedScrub  = 7 * time.Second
)

// chaosCarried is the part of the chaos simulation that carried clients add.
type chaosCarried struct {
	g        *ring
	rng      *rand.Rand
	sessions []*carriedSession // all that began
	fragile  bool              // the next connection of a new client breaks at once
	clients  int               // that play
	quiet    bool              // no messages are sent any more
	carriedCounts
}

// carriedCounts are what happened to carried clients.
type carriedCounts struct {
	resumed   int // connections over which a session went on
	elsewhere int // clients whose tokens another process did not take
	unknown   int // clients that were told that their session is over
	in, out   int // messages to the game, and from it
}

// add adds those of another world.
func (c *carriedCounts) add(o carriedCounts) {
	c.resumed, c.elsewhere, c.unknown, c.in, c.out = c.resumed+o.resumed, c.elsewhere+o.elsewhere, c.unknown+o.unknown, c.in+o.in, c.out+o.out
}

// none reports whether something never happened that happens in most worlds.
func (c *carriedCounts) none() bool { return min(c.resumed, c.elsewhere, c.in, c.out) == 0 }

// carries reports whether a round has carried clients: two of four consecutive seeds, of which one is hostile.
func carries(seed uint64) bool { return seed&2 != 0 }

// withCarriers lets carried clients come to an edge.
func (w *world) withCarriers(cfg *edge.Config) {
	cfg.Carriers = simCarriers(w.net)
	cfg.Carriers.ConnsMax = carriedConns
	cfg.DrainTimeout = carriedDrain
}

// newChaosCarried adds carried clients to a ring whose edges take them.
func newChaosCarried(g *ring, seed uint64) *chaosCarried {
	x := &chaosCarried{g: g, rng: rand.New(rand.NewPCG(seed, 7))}
	x.clients = 1 + x.rng.IntN(4)
	for range x.clients {
		x.play()
	}
	for _, e := range g.edges {
		g.net.Every(carrier.SweepPause, func() bool {
			if !e.dead && !e.paused {
				e.process.hub.Sweep()
				e.Advance(g.net.Now())
			}
			return true
		})
	}
	return x
}

// A carriedSession is a carried client from its first connection to its end. Its edges have no durable sessions.
type carriedSession struct {
	x      *chaosCarried
	index  int
	player *player
	wire   *carriedWire
	tried  *simEdge        // to which it connected last
	at     *carriedProcess // that made its token and has its session; nil before
	answer []byte          // its latest acknowledgement
	began  time.Duration   // when it was accepted
	opened time.Duration   // when its connection was made
	lost   time.Duration   // when the connection before that was lost
	blind  time.Duration   // and how long after that its edge noticed
	rested time.Duration   // when it last took nothing
	rest   time.Duration   // and for how long
	missed bool            // it was away for so long that its edge may have given it up
	over   bool

	said      int       // messages that the client sent
	brought   int       // ordinal of the newest that its edge passed on, plus one
	broughtAt time.Time // when that was
	silent    bool      // it sends no messages, and gets none, because the game does not know it
	name      string    // as the game learns it from the first message
	game      teller
	got       int
	fineAt    time.Duration // when its connection was last as it should be
}

// play begins a client.
func (x *chaosCarried) play() {
	g := x.g
	s := &carriedSession{x: x, index: len(x.sessions), broughtAt: g.net.Now(), silent: x.rng.IntN(3) == 0}
	x.sessions = append(x.sessions, s)
	kind := carrier.WebSocket
	if x.rng.IntN(3) == 0 {
		kind = carrier.WebTransport
	}
	s.game = teller{w: g.world, name: func() string { return s.name }, over: func() bool { return s.over },
		payload: func(i int) []byte { return fmt.Appendf(nil, "g%d", i) }}
	s.wire = newCarriedWire(x.home(), carriedConfig{
		Net: g.net, Kind: kind, Loss: carriedLossy, Choose: s.choose, Opened: s.open, Refused: s.refused, Closed: s.closed, Wrong: g.audit.problem,
		Waits:    func() bool { return s.player != nil && s.player.Queued() > 0 },
		FromEdge: func(_ *carriedConn, p []byte) { g.toClient(s.player.addr, p) },
		ToClient: func(p []byte) {
			s.player.do(func(now time.Time) { s.player.Receive(now, s.player.edge.addr, p) })
		},
		ToEdge: func(c *carriedConn, p []byte) {
			if e := x.edgeOf(c.process); e != nil {
				e.receiveCarried(c.conn, p)
			}
		},
	})
	g.net.Schedule(0, s.talk)
}

// home returns the real address of a client, which may change.
func (x *chaosCarried) home() netip.Addr {
	return netip.AddrFrom4([4]byte{203, 0, 113, byte(1 + x.rng.IntN(250))})
}

// edgeOf returns the edge whose process this is, nil if it has ended.
func (x *chaosCarried) edgeOf(process *carriedProcess) *simEdge {
	for _, e := range x.g.edges {
		if e.process == process && !e.dead {
			return e
		}
	}
	return nil
}

// choose returns the process to connect to, mostly that of its session.
func (s *carriedSession) choose() *carriedProcess {
	edges := s.x.g.edges
	s.tried = edges[s.x.rng.IntN(len(edges))]
	if e := s.x.edgeOf(s.at); e != nil && s.x.rng.IntN(3) > 0 {
		s.tried = e
	}
	if s.tried.dead {
		return nil
	}
	return s.tried.process
}

// open goes on over a new connection, or connects for the first time.
func (s *carriedSession) open(c *carriedConn) {
	g := s.x.g
	s.opened = g.net.Elapsed()
	g.print("client %d is connected to %s by %v as %v", s.index, c.process.name, s.wire.Kind, c.conn.Addr())
	switch {
	case s.player == nil:
		s.begin(c)
		if s.x.fragile {
			s.x.fragile = false
			g.net.Schedule(time.Duration(s.x.rng.IntN(30))*time.Millisecond, s.breaks)
		}
	case c.conn.Addr() != s.player.addr:
		g.audit.problem("a client is %v with the token of %v", c.conn.Addr(), s.player.addr)
	case c.process != s.at:
		g.audit.problem("%s takes the token of client %d, which %s made", c.process.name, s.index, s.at.name)
	default:
		s.x.resumed++
		if len(s.answer) > 0 {
			s.wire.send(s.answer) // as clients of INTERFACES.md do, so that the edge learns that it is there
		}
	}
}

// begin makes the client.
func (s *carriedSession) begin(c *carriedConn) {
	g := s.x.g
	s.at = c.process
	s.player = &player{edge: s.tried, addr: c.conn.Addr(), carried: s}
	b := dnptest.Cpp()
	b.Name, b.GiveUp = "carried", carriedGiveUp
	app := g.seeing(s.player)
	app.Connected = func() { s.began = g.net.Elapsed() }
	app.Closed, app.Message = s.left, s.message
	g.add(s.player, b, app, func(d []byte) {
		if wire.Command(d[0]) == wire.CommandReliableAck {
			s.answer = bytes.Clone(d)
		}
		s.wire.send(d)
	})
	g.audit.players = append(g.audit.players, s.player)
}

// refused handles that an edge does not take the token. Only the process that made it does.
func (s *carriedSession) refused(x *carriedProcess) {
	if x == s.at {
		s.x.g.audit.problem("%s does not take its token of client %d", x.name, s.index)
	}
	s.x.elsewhere++
	s.player.do(s.player.Close)
}

// closed handles that an edge ends the connection.
func (s *carriedSession) closed(c *carriedConn, r carrier.Reason) {
	s.x.g.print("%s closes the connection of client %d: %s", c.process.name, s.index, r.Text())
	switch {
	case s.over:
	case r == carrier.Unknown && !s.missed:
		s.x.g.audit.problem("%s tells client %d that no edge has its session, but it was not away for long", c.process.name, s.index)
	case r == carrier.Unknown:
		s.x.unknown++
		s.player.do(s.player.Close)
	case r == carrier.Over && s.missed: // it came back in that moment
		s.player.do(s.player.Close)
	case r == carrier.Over:
		s.x.g.audit.problem("%s ends the connection of client %d, which has not left", c.process.name, s.index)
	}
}

// left handles the end of the client, and has it begin anew.
func (s *carriedSession) left(reason string) {
	x := s.x
	x.g.print("client %d ends: %s", s.index, reason)
	if s.over {
		return
	}
	s.over = true
	s.wire.hangUp()
	x.g.audit.players = slices.DeleteFunc(x.g.audit.players, func(p *player) bool { return p == s.player })
	x.g.net.Schedule(time.Duration(50+x.rng.IntN(400))*time.Millisecond, x.play)
}

// talk has the client and the game send messages, unless it is a silent client.
func (s *carriedSession) talk() {
	x, g := s.x, s.x.g
	if s.over || s.silent {
		return
	}
	if p := s.player; p != nil && p.Phase() == dnptest.Connected && p.Queued() < 30 && !x.quiet {
		p.do(func(now time.Time) {
			if p.Send(now, fmt.Appendf(nil, "c%d.%d", s.index, s.said)) == nil {
				s.said++
			}
		})
	}
	if s.name != "" && !x.quiet {
		s.game.tell()
	}
	g.net.Schedule(time.Duration(50+x.rng.IntN(300))*time.Millisecond, s.talk)
}

// message takes a message of the game, which has to be the next one.
func (s *carriedSession) message(m dnptest.Message) {
	switch want := s.game.payload(s.got); {
	case !m.Reliable, string(m.Data) == farewell:
	case !bytes.Equal(m.Data, want):
		s.x.g.audit.problem("client %d gets %q, want %q", s.index, m.Data, want)
	default:
		s.got++
		s.x.out++
	}
}

// published checks the messages of clients that edges pass on. One may be missing only if the edge was without the bus.
func (x *chaosCarried) published(from string, m bus.Msg) {
	_, name, ok := x.g.subjects.ParseFrom(m.Subject)
	var index, n int
	if _, err := fmt.Sscanf(string(m.Data), "c%d.%d", &index, &n); !ok || err != nil {
		return
	}
	s, now := x.sessions[index], x.g.net.Now()
	e := x.edgeOf(s.at)
	switch {
	case e == nil || e.node != from:
		x.g.audit.problem("%s passes a message of client %d on, whose session is not there", from, index)
		return
	case s.name != "" && s.name != name:
		x.g.audit.problem("client %d sends messages as %s and as %s", index, s.name, name)
	case n < s.brought, n > s.brought && !e.awayAt.After(s.broughtAt.Add(-time.Second)):
		x.g.audit.problem("%s passes message %d of client %d on, want %d", from, n, index, s.brought)
	}
	s.name, s.brought, s.broughtAt = name, n+1, now
	x.in++
}

// steady reports whether the client has had a connection to the edge of its session for so long that nothing is missing.
func (s *carriedSession) steady() bool {
	w, now := s.wire, s.x.g.net.Elapsed()
	remedy := carriedRemedy
	if min(s.blind, s.opened-s.lost) > carriedBlind {
		remedy = carriedScrub
	}
	return w.Kind == carrier.WebSocket && w.now != nil && w.now.process == s.at && !w.now.broken && !w.stalled && now-s.opened > remedy && now-s.rested > carriedRemedy
}

// step checks the sessions at one moment.
func (x *chaosCarried) step() {
	now := x.g.net.Elapsed()
	for _, s := range x.sessions {
		c := s.wire.now
		if s.over || c == nil || c.broken || c.process.gone || c.process.rests() || s.wire.stalled || s.player == nil {
			s.fineAt = now
			continue
		}
		if have := c.process.hub.Conn(s.player.addr); have == c.conn || s.missed {
			s.fineAt = now
		} else if now-s.fineAt > carriedAgree {
			x.g.audit.problem("%s has not the connection that client %d has", c.process.name, s.index)
		}
		if home := c.conn.Home(); home != c.home {
			x.g.audit.problem("client %d comes from %v, its edge has %v", s.index, c.home, home)
		}
	}
}

// fault lets one thing fail that concerns carried clients.
func (x *chaosCarried) fault() {
	e := x.g.edges[x.rng.IntN(len(x.g.edges))]
	var live []*carriedSession
	for _, s := range x.sessions {
		if s.well() {
			live = append(live, s)
		}
	}
	var s *carriedSession
	if len(live) > 0 {
		s = live[x.rng.IntN(len(live))]
	}
	switch kind := x.rng.IntN(13); {
	case kind == 0:
		x.kill(e)
	case kind == 1:
		x.drain(e)
	case s == nil:
	case kind == 2:
		x.fragile = true
		s.player.do(s.player.Close)
	case kind == 3:
		s.player.do(s.player.Close)
	case kind < 6:
		s.leaves(time.Duration(5+x.rng.IntN(45)) * time.Second)
	case kind < 8:
		s.stall(time.Duration(200+x.rng.IntN(7800)) * time.Millisecond)
	case kind < 10:
		s.moves()
	default:
		s.breaks()
	}
}

// well reports whether the client is connected and has been for so long that nothing of earlier trouble is left. Edges give a
// client up that acknowledges nothing for 10 s, so troubles must not add up.
func (s *carriedSession) well() bool {
	w, since := s.wire, s.x.g.net.Elapsed()-carriedWell
	return !s.over && s.began > 0 && w.now != nil && !w.now.broken && !w.stalled && max(s.opened, s.rested, s.began) < since
}

// breaks breaks the connection. The client notices at once.
func (s *carriedSession) breaks() {
	s.loses(0)
}

// moves changes the address of the client, which notices by and by that nothing arrives any more.
func (s *carriedSession) moves() {
	s.wire.home = s.x.home()
	s.loses(time.Duration(1+s.x.rng.IntN(4000)) * time.Millisecond)
}

// leaves has the client be without a connection for so long, which its edge knows. It may give the client up.
func (s *carriedSession) leaves(d time.Duration) {
	s.x.g.print("client %d is away for %v", s.index, d)
	s.wire.breakOff(0, carriedDelay)
	s.missed, s.lost, s.blind = true, s.x.g.net.Elapsed(), carriedDelay
	s.wire.next = s.x.g.net.Elapsed() + d
}

// loses breaks the connection. The client notices after so long, the edge at once or much later.
func (s *carriedSession) loses(client time.Duration) {
	edge := carriedDelay
	if s.x.rng.IntN(2) == 0 {
		edge = time.Duration(s.x.rng.Int64N(int64(carriedNotice)))
	}
	s.x.g.print("the connection of client %d breaks; it notices after %v, its edge after %v", s.index, client, edge)
	s.wire.breakOff(client, edge)
	s.lost, s.blind = s.x.g.net.Elapsed(), edge
}

// stall has the client take nothing for a while.
func (s *carriedSession) stall(d time.Duration) {
	if !s.wire.stalled {
		s.x.g.print("client %d takes nothing for %v", s.index, d)
		s.wire.stall(d)
		s.x.g.net.Schedule(d, func() { s.rested, s.rest = s.x.g.net.Elapsed(), d })
	}
}

// late returns how old what the client gets may be: after a rest it gets what was sent meanwhile, and over a new connection
// the commands that were lost, whose values are as old. A WebTransport loses commands at any time.
func (s *carriedSession) late() (d time.Duration) {
	now := s.x.g.net.Elapsed()
	if s.wire.Kind == carrier.WebTransport {
		d = carriedRepeats
	}
	if s.rest > 0 && now-s.rested < promptly {
		d = max(d, s.rest)
	}
	if s.lost > 0 && now-s.opened < carriedRemedy {
		d = max(d, now-s.lost)
	}
	return d
}

// heal has all clients that are away come back.
func (x *chaosCarried) heal() {
	for _, s := range x.sessions {
		s.wire.next = min(s.wire.next, x.g.net.Elapsed())
	}
}

// spare reports whether an edge may fail because the other one serves.
func (x *chaosCarried) spare(e *simEdge) bool {
	well := func(e *simEdge) bool { return !e.dead && !e.drains && !e.paused }
	return well(e) && slices.ContainsFunc(x.g.edges, func(o *simEdge) bool { return o != e && well(o) })
}

// kill kills an edge and starts it again.
func (x *chaosCarried) kill(e *simEdge) {
	if x.spare(e) {
		x.end(e)
	}
}

// end ends the process of an edge and starts another one. Its clients by UDP cannot know, so they begin anew.
func (x *chaosCarried) end(e *simEdge) {
	x.g.print("%s ends", e.node)
	e.kill()
	gone := 0
	for _, p := range slices.Clone(x.g.audit.players) {
		if p.carried == nil && p.edge == e {
			x.g.audit.players = slices.DeleteFunc(x.g.audit.players, func(o *player) bool { return o == p })
			p.do(p.Close)
			gone++
		}
	}
	x.g.net.Schedule(time.Duration(500+x.rng.IntN(2500))*time.Millisecond, func() {
		e.boot()
		for range gone {
			x.g.play(e)
		}
	})
}

// drain ends an edge in order, and starts it again.
func (x *chaosCarried) drain(e *simEdge) {
	if !x.spare(e) {
		return
	}
	x.g.print("%s drains", e.node)
	e.drains = true
	e.edge.BeginDrain()
	process := e.starts
	x.g.net.Schedule(carriedDrain, func() {
		if e.dead || e.starts != process {
			return
		}
		if n := e.worker.Counts().Sessions; n > 0 {
			x.g.audit.problem("%s has %d sessions at the end of its drain", e.node, n)
		}
		x.g.net.Schedule(carriedDelay, func() { // what it said last is on its way
			if e.starts == process && !e.dead {
				x.end(e)
			}
		})
	})
}

// check wants each client to be connected, with all messages, and nothing to be left of others.
func (x *chaosCarried) check() {
	g := x.g
	g.Helper()
	n := 0
	for _, s := range x.sessions {
		if s.over {
			continue
		}
		n++
		if s.player == nil || s.player.Phase() != dnptest.Connected || s.wire.now == nil || s.wire.now.process != s.at || s.at.gone {
			g.Errorf("client %d is not connected to the edge of its session in the end", s.index)
		}
		if s.said != s.brought || s.game.told != s.got || s.game.telling {
			g.Errorf("client %d sent %d messages, of which the edge passed on %d; the game sent %d (one waits: %t), of which the client got %d",
				s.index, s.said, s.brought, s.game.told, s.game.telling, s.got)
		}
	}
	if n != x.clients {
		g.Errorf("%d carried clients play in the end, want %d", n, x.clients)
	}
	for end := g.net.Elapsed() + carriedForget; x.remains() != "" && g.net.Elapsed() < end; {
		g.net.Run(time.Second)
	}
	if left := x.remains(); left != "" {
		g.Errorf("%v after the end, %s", carriedForget, left)
	}
}

// remains describes what is left of clients that have gone.
func (x *chaosCarried) remains() string {
	for _, e := range x.g.edges {
		sessions, conns := 0, 0
		for _, p := range x.g.audit.players {
			if p.edge == e {
				sessions++
			}
			if p.edge == e && p.carried != nil {
				conns++
			}
		}
		count, have := e.process.hub.Stats().Conns, 0
		for _, n := range count {
			have += n
		}
		if n := e.worker.Counts().Sessions; n != int64(sessions) || have != conns {
			return fmt.Sprintf("%s has %d sessions and %d connections, want %d and %d", e.node, n, have, sessions, conns)
		}
		if free := seats(e.process.hub); free != carriedConns-conns {
			return fmt.Sprintf("%s has %d places for connections besides %d that are used, of %d", e.node, free, conns, carriedConns)
		}
	}
	return ""
}

// seats returns how many more connections a hub takes.
func seats(hub *carrier.Hub) int {
	var all []*carrier.Seat
	defer func() {
		for _, s := range all {
			s.Release()
		}
	}()
	for {
		s, _, ok := hub.Reserve(carrier.WebSocket, netip.IPv6Unspecified(), "")
		if !ok {
			return len(all)
		}
		all = append(all, s)
	}
}
