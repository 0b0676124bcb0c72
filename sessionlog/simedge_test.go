package sessionlog_test

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"github.com/dnprelay/dnprelay/dnp"
	"github.com/dnprelay/dnprelay/dnp/netstate"
	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/sessionlog"
)

// front is the balancer: it sends the datagrams of a client to one edge until that edge counts as dead.
type front struct{ w *world }

func (f front) Receive(_ time.Time, from netip.AddrPort, p []byte) {
	c := f.w.client(from)
	if c.misrouted != nil && f.w.net.Elapsed() < c.misroutedTill && f.w.net.Rand().IntN(2) == 0 {
		c.misrouted.greet(c, p)
		return
	}
	if c.route.dead {
		c.route = f.w.living(nil)
	}
	c.route.datagram(c, p, 0)
}
func (front) Advance(time.Time)              {}
func (front) NextTimeout() (time.Time, bool) { return time.Time{}, false }

func (w *world) client(addr netip.AddrPort) *simClient {
	for _, c := range w.clients {
		if c.addr == addr {
			return c
		}
	}
	panic("a datagram of an unknown client")
}

// living returns an edge that does not count as dead.
func (w *world) living(but *simEdge) *simEdge {
	var all []*simEdge
	for _, e := range w.edges {
		if !e.dead && e != but {
			all = append(all, e)
		}
	}
	if len(all) == 0 {
		return w.edges[w.net.Rand().IntN(edgesMax)]
	}
	return all[w.net.Rand().IntN(len(all))]
}

// wouldBeLast reports whether e must not fail, because no other edge would be left.
func (w *world) wouldBeLast(e *simEdge) bool {
	well := 0
	for _, o := range w.edges {
		if o.alive && !o.paused && o != e {
			well++
		}
	}
	return well == 0 || !e.alive || e.paused
}

// A simEdge is an edge, whose process dies, is stopped, and starts again.
type simEdge struct {
	w      *world
	index  int
	start  int  // ordinal of the process
	alive  bool // the process exists
	paused bool
	since  time.Duration // of the pause
	dead   bool          // the others take it for dead, after a while
	asleep []func()
	rand   *rand.Rand

	ep       *dnp.Endpoint
	sources  [statesMax]*dnp.Source
	sessions map[netip.AddrPort]*sessionlog.Session
	greets   map[netip.AddrPort]time.Duration // when a client asked for a connection
	buffers  map[netip.AddrPort][][]byte
	tokens   map[*sessionlog.Session]uint64
	outbox   map[*sessionlog.Session][]sessionlog.Message
	armed    time.Duration
	buf      []byte
	log      sessionlog.Log
}

func (e *simEdge) name() string { return fmt.Sprintf("edge-%d", e.index) }

// boot starts a process.
func (e *simEdge) boot() {
	e.start++
	e.alive, e.paused, e.dead, e.asleep, e.armed = true, false, false, nil, 0
	e.rand = rand.New(rand.NewPCG(e.w.net.Rand().Uint64(), 1))
	ep, err := dnp.New(dnp.Config{Listen: true, Logged: true, Rand: e.rand})
	if err != nil {
		panic(err)
	}
	e.ep = ep
	e.sessions = map[netip.AddrPort]*sessionlog.Session{}
	e.greets = map[netip.AddrPort]time.Duration{}
	e.buffers = map[netip.AddrPort][][]byte{}
	e.tokens = map[*sessionlog.Session]uint64{}
	e.outbox = map[*sessionlog.Session][]sessionlog.Message{}
	for k := range e.sources {
		layout, err := netstate.NewLayout([]netstate.Value{{Type: 5}})
		if err != nil {
			panic(err)
		}
		e.sources[k] = ep.NewSource(dnp.SourceConfig{State: netstate.NewState(layout), Message: fmt.Append(nil, k), Ref: uint64(k)})
	}
	if e.log = e.w.store; e.w.copies != nil {
		e.log = e.quorum()
	}
	e.update()
}

// update is what the replicas of the edge do: they follow the values.
func (e *simEdge) update() {
	for k, v := range e.w.values {
		b := binary.LittleEndian.AppendUint32(nil, v)
		if s := e.sources[k]; string(s.State().Value(0)) != string(b) {
			s.State().Set(0, b)
			s.Changed(0)
		}
	}
}

// run runs f in the process; if that is stopped, when it goes on.
func (e *simEdge) run(f func()) { e.runAs(e.start, f) }

func (e *simEdge) runAs(start int, f func()) {
	switch {
	case !e.alive || start != e.start:
	case e.paused:
		if len(e.asleep) < 2000 {
			e.asleep = append(e.asleep, func() { e.runAs(start, f) })
		}
	default:
		f()
		e.turn()
	}
}

// after runs f after d, unless the process has ended by then.
func (e *simEdge) after(d time.Duration, f func()) {
	start := e.start
	e.w.net.Schedule(d, func() { e.runAs(start, f) })
}

func (e *simEdge) kill() {
	if e.w.wouldBeLast(e) {
		return
	}
	e.w.tell("%s is killed", e.name())
	e.broke(false)
	e.alive = false
	e.noticed()
	e.w.net.Schedule(time.Duration(1000+e.w.net.Rand().IntN(2000))*time.Millisecond, e.boot)
}

// broke notes the clients whose service is interrupted.
func (e *simEdge) broke(handed bool) {
	for _, c := range e.w.clients {
		if s := e.sessions[c.addr]; s != nil && s.Phase() == sessionlog.Owning && c.owner == e && !c.frozen {
			c.broken, c.adopted, c.handed = e.w.net.Elapsed(), false, handed
			if !handed {
				e.w.chk.kills++
			}
		}
	}
}

// noticed makes the others notice after a while that this edge is silent. They adopt its sessions.
func (e *simEdge) noticed() {
	start := e.start
	e.w.net.Schedule(detectMin+time.Duration(e.w.net.Rand().Int64N(int64(detectJitter))), func() {
		if e.start != start || e.alive && !e.paused {
			return
		}
		e.dead = true
		for _, c := range e.w.clients {
			if c.owner == e {
				o := e.w.living(e)
				o.run(func() { o.adopt(c) })
			}
		}
	})
}

func (e *simEdge) pause(d time.Duration) {
	if e.w.wouldBeLast(e) {
		return
	}
	e.w.tell("%s is stopped for %v", e.name(), d)
	e.w.chk.pauses++
	e.paused, e.since = true, e.w.net.Elapsed()
	e.noticed()
	start := e.start
	e.w.net.Schedule(d, func() {
		if e.start == start {
			e.resume()
		}
	})
}

func (e *simEdge) resume() {
	if !e.alive || !e.paused {
		return
	}
	e.w.tell("%s goes on", e.name())
	e.paused, e.dead = false, false
	asleep := e.asleep
	e.asleep = nil
	if e.w.net.Elapsed()-e.since > 300*time.Millisecond && !e.w.deaf {
		for _, s := range e.sessions {
			s.Revalidate()
		}
	}
	e.w.net.Schedule(0, func() { e.run(func() {}) })
	for _, f := range asleep {
		e.w.net.Schedule(0, f)
	}
}

// greet takes a datagram like an edge that does not know of the client's session.
func (e *simEdge) greet(c *simClient, p []byte) {
	p = slices.Clone(p)
	e.after(0, func() {
		if s := e.sessions[c.addr]; s == nil || s.Phase() == sessionlog.Opening {
			e.handle(e.ep.Receive(e.w.net.Now(), c.addr, p, e))
		}
	})
}

// drain hands every session over to another edge.
func (e *simEdge) drain() {
	e.run(func() {
		for _, s := range e.sessions {
			s.HandOver(e.w.living(e).name())
		}
		e.broke(true)
	})
}

// datagram takes a datagram of a client, from the balancer or another edge.
func (e *simEdge) datagram(c *simClient, p []byte, hops int) {
	p = slices.Clone(p)
	e.after(200*time.Microsecond, func() { e.direct(c, p, hops) })
}

// direct gives a datagram to the edge that should have it.
func (e *simEdge) direct(c *simClient, p []byte, hops int) {
	s := e.sessions[c.addr]
	request := wire.Command(p[0]) == wire.CommandConnectionRequest
	_, known := e.ep.Conn(c.addr)
	greeting := e.w.net.Elapsed()-e.greets[c.addr] < 5*time.Second && e.greets[c.addr] != 0
	owner := c.owner
	if owner != nil && e.w.net.Rand().Float64() < e.w.lies {
		owner = e.w.edges[e.w.net.Rand().IntN(edgesMax)]
	}
	switch {
	case known, greeting && s == nil && owner == nil:
		e.handle(e.ep.Receive(e.w.net.Now(), c.addr, p, e))
	case s != nil && s.Phase() != sessionlog.Over:
		if b := e.buffers[c.addr]; len(b) < 8 {
			e.buffers[c.addr] = append(b, p)
		}
	case owner == nil && request && c.start == 0:
		e.greets[c.addr] = e.w.net.Elapsed() + 1
		e.handle(e.ep.Receive(e.w.net.Now(), c.addr, p, e))
	case owner == nil || hops >= 2:
	case owner != e && !owner.dead:
		owner.datagram(c, p, hops+1)
	default:
		e.adopt(c)
		e.buffers[c.addr] = append(e.buffers[c.addr], p)
	}
}

// adopt takes over the session of a client.
func (e *simEdge) adopt(c *simClient) {
	if s := e.sessions[c.addr]; s != nil && s.Phase() != sessionlog.Over {
		return
	}
	if _, known := e.ep.Conn(c.addr); known {
		return
	}
	e.sessions[c.addr] = sessionlog.Adopt(e.config(), c.log)
}

func (e *simEdge) config() sessionlog.Config { return sessionlog.Config{Node: e.name(), Rand: e.rand} }

// install opens the session of a client whose numbers do not begin at 0.
func (e *simEdge) install(c *simClient) {
	conn, err := e.ep.Restore(e.w.net.Now(), c.addr, snapshotAt(c.start), func(uint64) *dnp.Source { return nil })
	if err != nil {
		panic(err)
	}
	e.open(c, conn)
}

// snapshotAt returns the snapshot of a new connection with other first numbers.
func snapshotAt(n uint64) []byte {
	ep, err := dnp.New(dnp.Config{Listen: true, Probe: dnp.ProbeNone, Rand: rand.New(rand.NewPCG(1, 1))})
	if err != nil {
		panic(err)
	}
	ep.Receive(time.Unix(1, 0), vip, []byte{0, 1, 0, 0, 0}, &simEdge{w: nil})
	c, _ := ep.Conn(vip)
	b := c.AppendSnapshot(nil)
	b[3] = 1                     // the client knows command 10
	const received, sent = 6, 22 // where the two numbers are, among fields that are zero
	out := binary.AppendUvarint(slices.Clone(b[:received]), n)
	out = append(out, b[received+1:sent]...)
	out = binary.AppendUvarint(out, n)
	return append(out, b[sent+1:]...)
}

func (e *simEdge) open(c *simClient, conn *dnp.Conn) {
	info := sessionlog.Info{Addr: c.addr, About: []byte("player")}
	binary.LittleEndian.PutUint64(info.ID[:], e.rand.Uint64())
	e.sessions[c.addr] = sessionlog.Open(e.config(), c.log, conn, info)
}

// Datagram and Send implement dnp.Sender.
func (e *simEdge) Datagram(size int) []byte {
	e.buf = make([]byte, 0, size)
	return e.buf
}

func (e *simEdge) Send(to netip.AddrPort, b []byte) {
	if e.w == nil {
		return
	}
	e.w.chk.sends(e.w.client(to), b)
	e.w.net.Send(vip, to, b)
}

// handle takes the events of the endpoint.
func (e *simEdge) handle(events []dnp.Event) {
	for i := range events {
		ev := &events[i]
		c := e.w.client(ev.Conn.Addr())
		if ev.Kind == dnp.EventConnected {
			e.open(c, ev.Conn)
			continue
		}
		if ev.Kind == dnp.EventClosed {
			e.w.tell("%s, client %d: connection ends, %v", e.name(), c.index, ev.Reason)
		}
		if s := e.sessions[c.addr]; s != nil {
			s.Handle(e.w.net.Now(), ev)
		}
	}
}

// turn does everything that is due, and arms the timer.
func (e *simEdge) turn() {
	for range 1000 {
		now := e.w.net.Now()
		e.handle(e.ep.Advance(now, e))
		next, ok := e.ep.NextTimeout()
		for _, addr := range slices.SortedFunc(maps.Keys(e.sessions), netip.AddrPort.Compare) {
			s := e.sessions[addr]
			c := e.w.client(addr)
			for _, a := range slices.Clone(s.Advance(now)) {
				e.act(c, s, a)
			}
			e.serve(c, s)
			if t, due := s.NextTimeout(); due && (!ok || t.Before(next)) {
				next, ok = t, true
			}
			if _, more := s.NextTimeout(); !more && s.Phase() == sessionlog.Over && e.sessions[addr] == s {
				delete(e.sessions, addr)
				delete(e.tokens, s)
				delete(e.outbox, s)
			}
		}
		if t, due := e.ep.NextTimeout(); due && (!ok || t.Before(next)) {
			next, ok = t, true
		}
		if e.ep.Pending() {
			e.ep.Flush(now, e)
		}
		if !ok {
			return
		}
		if wait := next.Sub(now); wait > 0 {
			e.arm(wait)
			return
		}
	}
	panic("the edge is due without end")
}

func (e *simEdge) arm(wait time.Duration) {
	at := e.w.net.Elapsed() + wait
	if e.armed > e.w.net.Elapsed() && e.armed <= at {
		return
	}
	e.armed = at
	e.after(wait, func() {})
}

// serve gives a session the messages of the game, and links the states of the client's audience.
func (e *simEdge) serve(c *simClient, s *sessionlog.Session) {
	conn := s.Conn()
	if s.Phase() != sessionlog.Owning || conn == nil || !conn.Established() {
		return
	}
	if _, known := e.tokens[s]; !known {
		return
	}
	for len(slices.Collect(conn.QueuedTokens)) < 8 && int(e.tokens[s]) < c.outLen {
		if err := conn.Send(c.payload(int(e.tokens[s])), e.tokens[s]+1); err != nil && !(err == dnp.ErrTooLarge && c.refuses(int(e.tokens[s]))) {
			return
		}
		e.tokens[s]++
	}
	for k, wanted := range c.wanted {
		if _, linked := conn.LinkOf(e.sources[k]); wanted && !linked {
			_ = conn.Link(e.sources[k], true)
		} else if !wanted && linked {
			conn.Unlink(e.sources[k], false)
		}
	}
}

// act carries out an action of a session.
func (e *simEdge) act(c *simClient, s *sessionlog.Session, a sessionlog.Action) {
	w, start := e.w, e.start
	if a.Kind > sessionlog.ActionRead && a.Kind != sessionlog.ActionDeliver {
		w.tell("%s, client %d: %v %s %s epoch %d", e.name(), c.index, a.Kind, a.Node, a.Reason, a.Epoch)
	}
	switch a.Kind {
	case sessionlog.ActionAppend:
		e.log.Append(e.written(a.Write), func(answer sessionlog.Answer) {
			e.runAs(start, func() { s.Answer(w.net.Now(), answer) })
		})
	case sessionlog.ActionRead:
		e.log.Read(a.Log, func(answer sessionlog.Answer) {
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

// deliver gives a message to the game.
func (e *simEdge) deliver(c *simClient, s *sessionlog.Session, m sessionlog.Message) {
	e.outbox[s] = append(e.outbox[s], m)
	if len(e.outbox[s]) == 1 {
		e.publish(c, s)
	}
}

// publish sends the messages that the game does not have yet, in order, and repeats that.
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
