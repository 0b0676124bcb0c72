package takeover

import (
	"encoding/json"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/cluster/memaffinity"
	"github.com/dnprelay/dnprelay/dnp"
	"github.com/dnprelay/dnprelay/dnp/dnptest"
	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/internal/auth"
	"github.com/dnprelay/dnprelay/replication"
	"github.com/dnprelay/dnprelay/sessionlog"
)

// TestAskedAgain: an edge to which datagrams of a client come while another edge takes the
// session over asks until that one has it, and forwards them. To drop them costs the client
// one of the six attempts that it has.
func TestAskedAgain(t *testing.T) {
	e := newTestEdge(t)
	w, addr, hub := e.workers[0], clientAddr(1), memaffinity.New(e.net.Now)
	e.claimIn(hub.Node("e1"))
	dead, other, name := hub.Node("e3"), hub.Node("e2"), w.t.name(addr)
	dead.Claim(name, 1)
	dead.Leave()
	other.Try(name, cluster.Served{Node: "e3", Epoch: 1}, func(cluster.Served, error) {})

	w.deliver(addr, "", 3, 1, 0)
	w.deliver(addr, "", 3, 2, 0)
	e.pass(3*askAgainTime + 10*time.Millisecond)
	if len(e.forwarded) > 0 || len(w.t.byName) > 0 {
		t.Errorf("e2 tries: forwarded to %q; %d sessions are taken over", e.forwarded, len(w.t.byName))
	}
	other.Claim(name, 2)
	e.pass(askAgainTime)
	if !slices.Equal(e.forwarded, []string{"e2", "e2"}) {
		t.Errorf("e2 has it: forwarded to %q, want both datagrams to e2", e.forwarded)
	}
	e.pass(orphanTime)
	if n := len(w.t.orphans.byAddr) + w.t.orphans.byDue.Len(); n > 0 {
		t.Errorf("%d traces are left", n)
	}
}

// TestAskedInVain: an edge asks about a client whose session no edge gets for as long as the
// client's datagrams wait.
func TestAskedInVain(t *testing.T) {
	l := newLoser(t)
	other := clientAddr(2)
	dead, name := l.hub.Node("e3"), l.worker.t.name(other)
	dead.Claim(name, 1)
	dead.Leave()
	l.other.Try(name, cluster.Served{Node: "e3", Epoch: 1}, func(cluster.Served, error) {})
	l.worker.deliver(other, "", 3, 1, 0)
	l.pass(time.Second)
	if want := int(orphanTime / askAgainTime); l.finds != want || l.tries != want {
		t.Errorf("it asked %d times and tried %d times, want %d", l.finds, l.tries, want)
	}
}

// TestOthersTryInItsName: an edge to which the client's datagrams come takes the session over from an owner that it
// cannot reach, although another edge tries again and again, because of forged ones.
func TestOthersTryInItsName(t *testing.T) {
	next, w, due := takenByDatagram(t)
	next.pass(orphanTime)
	addr := clientAddr(1)
	w.t.cfg.Forward = nil
	hub := memaffinity.New(next.net.Now)
	next.claimIn(hub.Node("e9"))
	hub.Node("e1").Claim(w.t.name(addr), 1)
	other := hub.Node("e5")
	for range 20 {
		other.Try(w.t.name(addr), cluster.Served{Node: "e1", Epoch: 1}, func(cluster.Served, error) {})
		w.deliver(addr, "", due...)
		next.pass(askAgainTime)
	}
	w.wantPhase("the client's next command came", addr, Serving)
}

// TestForwardedByItsOwner: the log names an edge that was started again and knows nothing of the session, and the
// affinity names the former owner, which forwards the client's datagrams to it. It does not send them back.
func TestForwardedByItsOwner(t *testing.T) {
	next, due := ownedElsewhere(t)
	w, addr, hub := next.workers[0], clientAddr(1), memaffinity.New(next.net.Now)
	w.t.cfg.Node = "e1" // as the log says
	next.claimIn(hub.Node("e1"))
	former := hub.Node("e2")
	former.Claim(w.t.name(addr), 1)
	next.roster(map[string]cluster.Phase{"e1": cluster.PhaseReady, "e2": cluster.PhaseReady})
	for range 20 {
		former.Try(w.t.name(addr), cluster.Served{Node: "e2", Epoch: 1}, func(cluster.Served, error) {})
		w.deliver(addr, "e2", due...)
		next.pass(askAgainTime)
	}
	w.wantPhase("the client's datagrams came", addr, Serving)
	if len(next.forwarded) > 0 {
		t.Errorf("they are sent back to %v", next.forwarded)
	}
}

// TestAskedAnotherWorker: datagrams that come to a worker while another worker of the edge
// takes the session over by its name go to that one.
func TestAskedAnotherWorker(t *testing.T) {
	first, addr := newTestEdge(t), clientAddr(1)
	first.join(addr)
	next := first.next()
	next.complete = false
	w, other := next.workers[0], next.addWorker()
	other.t.Give(w.t.name(addr), Path{}, "")
	w.deliver(addr, "", 3, 0, 0, 0)
	next.pass(100 * time.Millisecond)
	if got := w.t.counts.OrphansForwarded; got != 1 || len(w.t.orphans.byAddr) > 0 {
		t.Errorf("%d datagrams are passed on, %d clients wait, want 1 and 0", got, len(w.t.orphans.byAddr))
	}
}

// TestLoginMeanwhile: when a client logs in while this edge takes its old session over,
// nothing is left of either attempt, so that its next datagram is looked up.
func TestLoginMeanwhile(t *testing.T) {
	for _, phase := range []phase{AwaitingSpace, Adopting} {
		first, addr := newTestEdge(t), clientAddr(1)
		first.join(addr)
		next := first.next()
		next.complete = false
		w := next.workers[0]
		name := w.t.name(addr)
		w.t.Give(name, Path{}, "")
		next.pass(200 * time.Millisecond)
		old := w.session(addr)
		if phase == Adopting {
			next.complete = true
			w.turn() // the log is asked, and has not answered
		}
		w.wantPhase("before the login", addr, phase)
		w.endpoint.LogIn(next.net.Now(), addr, &auth.Claims{Client: "c", Space: "s", Write: true}, w)
		w.handle(next.net.Now(), w.endpoint.Advance(next.net.Now(), w))
		w.wantPhase("the login begins a session", addr, Opening)
		next.pass(time.Second)
		if w.t.counts.SessionsElsewhere != 1 || len(w.t.byName) > 0 || len(w.t.byAddr) > 0 {
			t.Errorf("%v: %d sessions are elsewhere, %v are left, want 1 and none", phase, w.t.counts.SessionsElsewhere, w.t.byName)
		}
		if old.phase() != Over || len(w.t.awaiting) > 0 {
			t.Errorf("%v: it goes on to take the old session over, which no datagram could find", phase)
		}
		if next.locations.present(name) {
			t.Errorf("%v: the client would not be looked up", phase)
		}
	}
}

// forged is a request of a client that never proves its address.
func (w *testWorker) forged(i int) { w.deliver(clientAddr(i), "e2", 0, 1, 0, 0, 0) }

// TestForgedPaths: requests that no client stands behind do not take the return path from
// clients that are there, however many come over another edge.
func TestForgedPaths(t *testing.T) {
	e := newTestEdge(t)
	w := e.workers[0]
	for i := range 140_000 {
		w.forged(i)
		if i%1000 == 0 {
			e.pass(time.Millisecond)
		}
	}
	addr := clientAddr(1 << 20)
	e.join(addr)
	if w.t.counts.PathsDisplaced == 0 || len(w.t.paths.byAddr) > pathsMax {
		t.Errorf("%d paths were displaced, %d are known", w.t.counts.PathsDisplaced, len(w.t.paths.byAddr))
	}
	e.pass(pathTime + time.Second) // by then only the session has the client's path
	e.over[addr] = 0
	w.session(addr).Log.Conn().Close(dnp.CloseKicked)
	e.pass(time.Second)
	if e.direct[addr] > 0 || e.over[addr] == 0 {
		t.Errorf("the end: %d datagrams leave directly, %d over the edge that the client comes over", e.direct[addr], e.over[addr])
	}
	e.pass(20 * time.Second)
	e.locations.hint(e.net.Now(), clientOf(7), "e9") // forgets hints that are over
	e.locations.Withdraw(clientOf(7), "e9")
	if n := len(w.t.paths.byAddr) + w.t.paths.byUntil.Len() + w.t.detours + len(w.t.byAddr) + len(e.locations.byClient) + len(e.locations.byName); n > 0 {
		t.Errorf("%d traces are left of clients that are gone", n)
	}
}

// TestGreetedElsewhere: a client that begins while the edge drains, and whose balancer sends
// everything here, gets all of it to the edge that greets it.
func TestGreetedElsewhere(t *testing.T) {
	e := newTestEdge(t)
	w := e.workers[0]
	e.roster(map[string]cluster.Phase{"e1": cluster.PhaseDraining, "e2": cluster.PhaseReady})
	w.t.Drain(e.net.Now())
	for _, p := range [][]byte{{0, 1, 0, 0, 0}, {4, 0, 0}, {3, 0, 0, 0}} {
		w.deliver(clientAddr(1), "", p...)
	}
	e.pass(orphanTime)
	if !slices.Equal(e.forwarded, []string{"e2", "e2", "e2"}) || e.direct[clientAddr(1)] > 0 {
		t.Errorf("forwarded to %q, want all of it to e2; answered directly %d times", e.forwarded, e.direct[clientAddr(1)])
	}
}

// TestNotBack: a datagram is not forwarded back to the edge that it came over, whatever
// hint there is: both hops would be wasted on one mistake.
func TestNotBack(t *testing.T) {
	e := newTestEdge(t)
	w, addr := e.workers[0], clientAddr(1)
	e.locations.hint(e.net.Now(), w.t.client(addr), "e2")
	w.deliver(addr, "e2", 3, 0, 0, 0)
	if len(e.forwarded) > 0 || !w.t.orphans.waiting(addr) {
		t.Errorf("forwarded to %q, want it to wait", e.forwarded)
	}
	if kind, _, node := e.locations.locate(e.net.Now(), w.t.client(addr)); kind == placeElsewhere {
		t.Errorf("the hint is still %q", node)
	}
}

// TestPathOfTheAdopted: the return path of a session that is taken over is known from its
// datagrams, long after they waited, from the paths of strangers, and from its last owner.
func TestPathOfTheAdopted(t *testing.T) {
	first, addr := newTestEdge(t), clientAddr(1)
	first.join(addr)
	for why, take := range map[string]func(w *testWorker){
		"because of a datagram": func(w *testWorker) { w.deliver(addr, "e2", 3, 0, 0, 0) },
		"by name": func(w *testWorker) {
			w.t.notePath(w.net.Now(), addr, "e2")
			w.t.Give(w.t.name(addr), Path{Unknown: true}, "")
		},
		"by the word of its last owner": func(w *testWorker) { w.t.Give(w.t.name(addr), Path{Edge: "e2"}, "") },
	} {
		next := first.next()
		next.complete = false
		take(next.workers[0])
		next.pass(2 * orphanTime)
		if s := next.workers[0].t.byAddr[addr]; s == nil || s.path.Edge != "e2" {
			t.Errorf("%s: want it looked at, and its client to come over e2: %+v", why, s)
		}
	}
}

// TestForgedWay: datagrams that anybody can write do not change the return path of a session. They
// are a reason to ask its client, by all ways.
func TestForgedWay(t *testing.T) {
	e := newTestEdge(t)
	w, addr := e.workers[0], clientAddr(1)
	c := e.join(addr)
	play := func(d time.Duration, forge func()) {
		for end := e.net.Elapsed() + d; e.net.Elapsed() < end; {
			forge()
			c.Advance(e.net.Now())
			e.pass(20 * time.Millisecond)
		}
	}
	e.overEdge = map[string]int{}
	play(20*time.Second, func() {
		for i, p := range [][]byte{{3, 'x'}, {2}, {0xff}, {0, 1, 0, 0, 0}, {6, 0, 0, 0}, {7, 0, 0x80}} {
			w.deliver(addr, []string{"e3", "e4", "e5", "e6", "e3", "e2"}[i], p...)
		}
		if s := w.session(addr); s == nil || s.path.Edge != "e2" || len(s.others.list) > 3 {
			t.Fatalf("the path is %+v", s)
		}
	})
	if n := e.overEdge["e3"]; n == 0 || n > 600 { // of which each question takes some
		t.Errorf("%v datagrams by each way, want questions by each, at most once in one to four seconds", e.overEdge)
	}
	e.via = "e4"
	for range 3 {
		if err := c.Send(e.net.Now(), []byte("moved")); err != nil {
			t.Fatal(err)
		}
		play(2*time.Second, func() {})
	}
	if s := w.session(addr); s == nil || s.path.Edge != "e4" || c.Phase() != dnptest.Connected {
		t.Errorf("a client that moved to another way is at %+v, and is %v", s, c.Phase())
	}
	play(10*time.Second, func() {})
	if s := w.session(addr); s == nil || len(s.others.list) > 0 {
		t.Errorf("other ways are left: %+v", s)
	}
}

// TestPathUnknown: nothing is sent to the client of a session that was taken over in silence
// before one of its datagrams comes, or when the edge that it came over is gone, if the
// balancer minds.
func TestPathUnknown(t *testing.T) {
	first, addr := newTestEdge(t), clientAddr(1)
	first.join(addr)
	for _, answerOnly := range []bool{false, true} {
		next := first.next()
		next.complete = false
		w := next.workers[0]
		w.t.cfg.AnswerOnly = answerOnly
		sends := func(why string, direct, over int) {
			t.Helper()
			next.direct[addr], next.over[addr] = 0, 0
			w.Send(addr, []byte{0})
			if next.direct[addr] != direct || next.over[addr] != over {
				t.Errorf("%s (answers only: %v): %d datagrams leave directly, %d over another edge; want %d and %d",
					why, answerOnly, next.direct[addr], next.over[addr], direct, over)
			}
		}
		unknown := 1
		if answerOnly {
			unknown = 0
		}
		w.t.Give(w.t.name(addr), Path{Unknown: true}, "")
		next.pass(time.Second)
		w.wantPhase("it is being taken over", addr, AwaitingSpace)
		sends("nothing came", unknown, 0)
		w.deliver(addr, "", 3, 0, 0, 0)
		sends("it comes directly", 1, 0)
		answer := func(edge string) {
			for range 2 {
				w.deliver(addr, edge, 3, 0, 0, 0)
				w.t.confirm(w.session(addr))
			}
		}
		w.deliver(addr, "e2", 3, 0, 0, 0)
		w.t.confirm(w.session(addr))
		sends("something comes over another edge, perhaps a guess", 1, 1)
		next.over[addr] = 0
		w.Send(addr, []byte{byte(wire.CommandLinkUpdate)})
		if next.over[addr] != 0 {
			t.Errorf("values leave by every way (answers only: %v)", answerOnly)
		}
		next.pass(2100 * time.Millisecond)
		sends("nothing else comes over it", 1, 0)
		answer("")
		sends("the client answers by the path that is known", 1, 0)
		for _, a := range []struct {
			edge string
			over int
		}{{"e2", 1}, {"", 0}, {"e2", 1}, {"", 0}} {
			w.deliver(addr, a.edge, 3, 0, 0, 0)
			w.t.confirm(w.session(addr))
			sends("no two answers in a row come over another edge", 1, a.over)
		}
		next.pass(2100 * time.Millisecond)
		answer("e2")
		sends("the client comes over another edge", 0, 1)
		next.unreachable = true
		sends("that edge is gone", unknown, 0)
		w.deliver(addr, "", 3, 0, 0, 0)
		sends("something comes directly again", 1+unknown, 0)
		answer("")
		sends("the client comes directly again", 1, 0)
		if w.t.detours != 0 || (w.t.counts.PathsUnknown > 0) != answerOnly {
			t.Errorf("%d clients do not come directly, %d datagrams were dropped", w.t.detours, w.t.counts.PathsUnknown)
		}
	}
}

// TestPathOfFirst: the first datagram that comes in the name of a client whose session was taken
// over in silence is its path only where a balancer minds; elsewhere it is a reason to ask.
func TestPathOfFirst(t *testing.T) {
	first, addr := newTestEdge(t), clientAddr(1)
	first.join(addr)
	for answerOnly, want := range map[bool]Path{true: {Edge: "e3"}, false: {}} {
		next := first.next()
		next.complete = false
		w := next.workers[0]
		w.t.cfg.AnswerOnly = answerOnly
		w.t.Give(w.t.name(addr), Path{Unknown: true}, "")
		next.pass(time.Second)
		w.deliver(addr, "e3", 3, 0, 0, 0)
		if s := w.session(addr); s.path != want {
			t.Errorf("answers only: %v: the path is %+v, want %+v", answerOnly, s.path, want)
		}
	}
}

// TestPathUnknownIsHanded: the next owner of a session is told that its path is not known.
func TestPathUnknownIsHanded(t *testing.T) {
	e, first, second := newDrained(t)
	w, addr := e.workers[0], clientAddr(1)
	w.t.cfg.AnswerOnly = true
	w.t.setPath(w.session(addr), Path{Unknown: true})
	w.t.Drain(e.net.Now())
	e.pass(time.Second)
	r := first.last
	if first.given+second.given != 1 || !r.Unheard || r.Via != "" {
		t.Fatalf("%d edges get it, the first as %+v", first.given+second.given, r)
	}
	data, err := json.Marshal(r)
	if err != nil || json.Unmarshal(data, &r) != nil {
		t.Fatal(err)
	}
	next := e.next().workers[0]
	next.t.cfg.AnswerOnly = true
	next.t.Give(r.Adopt, r.Path(), "")
	if s := next.t.byName[r.Adopt]; s == nil || !s.path.Unknown {
		t.Errorf("the next owner takes it as %+v", s)
	}
}

// TestUncertain: an edge that is to take over a session whose log is damaged says whose it
// was and which numbers the log knows, and tells the client.
func TestUncertain(t *testing.T) {
	first, addr := newTestEdge(t), clientAddr(1)
	c := first.join(addr)
	for range 3 {
		if err := c.Send(first.net.Now(), []byte("said")); err != nil {
			t.Fatal(err)
		}
	}
	c.Advance(first.net.Now())
	first.pass(100 * time.Millisecond)
	s := first.workers[0].session(addr)
	received, sent := s.Log.Conn().NextNumbers()
	if received < 3 {
		t.Fatalf("the next number of the client is %d, want 3 at least", received)
	}
	entries := first.log.Entries(s.name)
	junk := sessionlog.Write{Log: s.name, Expect: entries[len(entries)-1].Seq, Data: []byte("junk")}
	first.log.Append(junk, func(sessionlog.Answer) {})
	first.net.Run(50 * time.Millisecond)

	next := first.next()
	next.workers[0].t.Give(s.name, Path{}, "")
	next.pass(100 * time.Millisecond)
	if len(next.events) != 2 || next.events[0].Type != replication.EventUncertain || next.events[1].Type != replication.EventLeft {
		t.Fatalf("the events are %+v, want uncertain and left", next.events)
	}
	if ev := next.events[0]; ev.Session != s.About.ID || !slices.Equal(ev.Numbers, []uint64{received, sent}) {
		t.Errorf("it is told %+v, want session %s and the numbers %d, %d", ev, s.About.ID, received, sent)
	}
	if next.direct[addr] != 1 {
		t.Errorf("the client is sent %d datagrams, want the end", next.direct[addr])
	}
}

// TestMisplaced: a session whose datagrams come to another worker goes there, through the
// log.
func TestMisplaced(t *testing.T) {
	e, addr := newTestEdge(t), clientAddr(1)
	e.join(addr)
	w, other := e.workers[0], e.addWorker()
	w.t.setPath(w.session(addr), Path{})
	said := w.says(addr)
	e.pass(4 * time.Second) // after which the client repeats nothing
	for i := range 10 * moveAfter {
		forged := [][]byte{{3, byte(i), 0}, said, {4, said[1] + 1, said[2]}} // the second is a repeat, the third is cut
		other.deliver(addr, "", forged[i%len(forged)]...)
		e.pass(time.Millisecond)
	}
	if w.session(addr) == nil {
		t.Fatal("datagrams that anybody can write move the session")
	}
	received, _ := w.session(addr).Log.Conn().NextNumbers()
	for i := range moveAfter {
		w.wantPhase("it stays until enough datagrams of the client came", addr, Serving)
		other.deliver(addr, "", 4, byte(received)+byte(i), 0, 'x')
		e.pass(time.Millisecond)
	}
	e.pass(100 * time.Millisecond)
	w.wantPhase("it was handed over", addr, Over)
	other.wantPhase("it goes where the datagrams come", addr, Serving)
	if got, epoch, ok := e.locations.Server(w.t.client(addr)); !ok || got != other.index || epoch != 2 {
		t.Errorf("it is at worker %d in epoch %d, want %d and 2", got, epoch, other.index)
	}
}

// says has a client say the next reliable message, and returns the datagram.
func (w *testWorker) says(addr netip.AddrPort) []byte {
	received, _ := w.session(addr).Log.Conn().NextNumbers()
	p := []byte{byte(wire.CommandReliableMessage), byte(received), byte(received >> 8), 'x'}
	w.deliver(addr, "", p...)
	w.pass(100 * time.Millisecond)
	return p
}

// takenByDatagram returns a next edge e9 that reads the log of a session, because a datagram
// of its client came, while the edge e1 that owns the session lives. due is the next reliable
// command of the client.
func takenByDatagram(t *testing.T) (next *testEdge, w *testWorker, due []byte) {
	next, due = ownedElsewhere(t)
	next.roster(map[string]cluster.Phase{"e1": cluster.PhaseReady, "e9": cluster.PhaseReady})
	w = next.workers[0]
	w.t.cfg.Node = "e9"
	w.deliver(clientAddr(1), "", 3, 0, 0, 0)
	return next, w, due
}

// ownedElsewhere returns an edge that knows nothing of a session whose log names the edge e1. due is the next
// reliable command of its client.
func ownedElsewhere(t *testing.T) (next *testEdge, due []byte) {
	first, addr := newTestEdge(t), clientAddr(1)
	first.join(addr)
	first.workers[0].says(addr)
	received, _ := first.workers[0].session(addr).Log.Conn().NextNumbers()
	return first.next(), []byte{byte(wire.CommandReliableMessage), byte(received), byte(received >> 8), 'x'}
}

// TestYieldsAfterOrphanTime: an edge whose read of a log takes longer than datagrams wait
// leaves the session to the living edge that owns it, and forwards the client's next
// datagram.
func TestYieldsAfterOrphanTime(t *testing.T) {
	next, w, _ := takenByDatagram(t)
	addr := clientAddr(1)
	w.t.Advance(next.net.Now(), next.net.Now().Add(time.Hour)) // the log is asked
	w.t.orphans.advance(next.net.Now().Add(orphanTime), next.net.Now().Add(time.Hour))
	next.pass(100 * time.Millisecond)
	w.wantPhase("e1 owns it and lives", addr, Over)
	w.deliver(addr, "", 3, 0, 0, 0)
	if !slices.Equal(next.forwarded, []string{"e1"}) {
		t.Errorf("the next datagram is forwarded to %q, want e1", next.forwarded)
	}
}

// A countingLog counts the reads.
type countingLog struct {
	sessionlog.Log
	reads int
}

func (l *countingLog) Read(log string, answer func(sessionlog.Answer)) {
	l.reads++
	l.Log.Read(log, answer)
}

// TestForgedOwner: where no datagram reaches the living owner of a session, an edge takes the
// session over when a datagram comes that only its client is likely to have written. With one
// that anybody can write it reads the log, a few times a second for each client.
func TestForgedOwner(t *testing.T) {
	for _, claimed := range []bool{false, true} {
		next, w, due := takenByDatagram(t)
		addr, log := clientAddr(1), &countingLog{Log: next.log}
		w.t.cfg.Forward, w.t.cfg.Log = nil, log
		if claimed {
			hub := memaffinity.New(next.net.Now)
			next.claimIn(hub.Node("e9"))
			hub.Node("e1").Claim(w.t.name(addr), 1)
		}
		forged := [][]byte{
			{3, 'x'}, {2}, {0xff}, {0, 1, 0, 0, 0}, {7, 0, 0x80}, {8, 0, 0x80},
			{4, 0x30, 0x75, 'x'}, {4, due[1], due[2]}, {6, 0x30, 0x75, 0}, {4, due[1] + 20, due[2], 'x'}, {5, due[1] + 200, 0, 0},
		}
		for i := range 500 {
			w.deliver(addr, "", forged[i%len(forged)]...)
			next.pass(4 * time.Millisecond)
		}
		next.pass(orphanTime)
		w.wantPhase("anybody can have written what came", addr, Over)
		if log.reads == 0 || log.reads > 3*20 {
			t.Errorf("the log was read %d times", log.reads)
		}
		w.deliver(addr, "", due...)
		next.pass(100 * time.Millisecond)
		w.wantPhase("the client's next command came", addr, Serving)
	}
}

// TestGreetedInItsName: a forged request has an edge greet a client whose owner has died. The
// edge takes its session over all the same when something comes that a stranger does not say.
func TestGreetedInItsName(t *testing.T) {
	first, addr := newTestEdge(t), clientAddr(1)
	c := first.join(addr)
	for range 3 {
		if err := c.Send(first.net.Now(), []byte("said")); err != nil {
			t.Fatal(err)
		}
	}
	c.Advance(first.net.Now())
	first.pass(100 * time.Millisecond)
	received, sent := first.workers[0].session(addr).Log.Conn().NextNumbers()
	for _, p := range [][]byte{{4, byte(received), 0, 'x'}, {6, byte(sent + 8), 0, 0}, {7, 0x34, 0x12}, {8, 0x34, 0x12}} {
		next := first.next()
		w := next.workers[0]
		w.deliver(addr, "", 0, 1, 0, 0, 0)
		next.pass(10 * time.Millisecond)
		if !w.endpoint.Unproven(addr) {
			t.Fatal("the request is not greeted")
		}
		w.deliver(addr, "", 6, 0, 0, 1) // an acknowledgement of the greeting, with an error code
		w.wantPhase("a client that is greeted says that", addr, Over)
		w.deliver(addr, "", p...)
		next.pass(100 * time.Millisecond)
		w.wantPhase("only a client with a session says that", addr, Serving)
	}
}

// TestGreetedAndServed: a forged request has an edge greet a client that another edge serves. What does not
// belong to the attempt to connect goes on to that edge: answers to its questions, and what is not reliable.
func TestGreetedAndServed(t *testing.T) {
	e, addr := newTestEdge(t), clientAddr(1)
	w := e.workers[0]
	w.deliver(addr, "", 0, 1, 0, 0, 0)
	e.pass(10 * time.Millisecond)
	if !w.endpoint.Unproven(addr) {
		t.Fatal("the request is not greeted")
	}
	w.deliver(addr, "", 9, 1, 0, 0)
	if len(e.forwarded) > 0 || w.t.orphans.waiting(addr) {
		t.Error("an update of a client that is greeted makes the edge ask who serves it")
	}
	w.t.hintElsewhere(e.net.Now(), addr, "e2")
	for n, p := range [][]byte{{1}, {3, 'x'}, {4, 1, 0, 'x'}, {6, 8, 0, 0}, {7, 0x34, 0x12}, {8, 0x34, 0x12}, {9, 1, 0, 0}} {
		if w.deliver(addr, "", p...); len(e.forwarded) != n+1 {
			t.Fatalf("% x is not forwarded", p)
		}
	}
	e.forwarded = nil
	for _, p := range [][]byte{{0, 1, 0, 0, 0}, {6, 0, 0, 1}, {4, 0, 0, 'x'}} {
		if w.deliver(addr, "", p...); len(e.forwarded) > 0 {
			t.Fatalf("% x is forwarded: it may be the client's answer to the greeting", p)
		}
	}
}

// TestYieldsToAnotherListener: an edge that leaves a session to its living owner does not
// have a worker of another listener take it over either.
func TestYieldsToAnotherListener(t *testing.T) {
	next, w, _ := takenByDatagram(t)
	name := w.t.name(clientAddr(1))
	next = next.next()
	next.roster(map[string]cluster.Phase{"e1": cluster.PhaseReady, "e9": cluster.PhaseReady})
	w = next.workers[0]
	w.t.cfg.Node, w.t.cfg.Listener = "e9", listener+1
	w.t.adopt(name, netip.AddrPort{}, true)
	next.pass(100 * time.Millisecond) // AdoptAt fails the test
	if n := w.t.Count(); n > 0 {
		t.Errorf("%d sessions are left", n)
	}
}

// TestQuestionsAboutStrangers: what the edge asks about strangers is bounded, however many
// datagrams come in their names. Those that may begin a session are the endpoint's without a
// question; sessions that a balancer moves here, many at once, are asked about even beside a
// flood of those.
func TestQuestionsAboutStrangers(t *testing.T) {
	l := newLoser(t)
	l.addWorker() // the bounds are those of the edge
	l.claimIn(l)
	const seconds, moved = 3, 10_000
	next := 1000
	deliver := func(p ...byte) {
		l.workers[next%2].deliver(clientAddr(next), "", p...)
		next++
	}
	for range seconds * 100 {
		for range 1000 { // 100,000 requests per second
			deliver(0, 1, 0, 0, 0)
		}
		l.pass(10 * time.Millisecond)
	}
	if most := (seconds + 1) * 250; l.finds > most || l.finds < most/2 {
		t.Errorf("%d questions in %d s, want up to %d", l.finds, seconds, most)
	}
	if n := l.worker.endpoint.Stats().DatagramsIn + l.workers[1].endpoint.Stats().DatagramsIn; n < seconds*90_000 {
		t.Errorf("the endpoint got %d requests, want nearly all", n)
	}
	l.finds = 0
	for range moved / 1000 {
		for range 1000 {
			deliver(3, 1, 0)
		}
		l.pass(orphanTime)
	}
	if l.finds < moved || l.finds > moved+seconds { // one more for the claim of the loser
		t.Errorf("%d questions about %d clients that a balancer moved", l.finds, moved)
	}
	for range 20 {
		for range orphansMax {
			deliver(3, 1, 0)
		}
		l.pass(orphanTime)
	}
	if most := 16_384 + 8*500; l.finds > most || l.finds < most*3/4 {
		t.Errorf("%d questions in 7.5 s, want up to %d", l.finds, most)
	}
}

// TestReadsForStrangers: an edge reads the log for up to 500 clients a second that no edge claims.
func TestReadsForStrangers(t *testing.T) {
	e := newTestEdge(t)
	e.addWorker()
	log := &countingLog{Log: e.log}
	for _, w := range e.workers {
		w.t.cfg.Log = log
	}
	const seconds = 3
	for n := range seconds * 4000 {
		e.workers[n%2].deliver(clientAddr(n), "", 3, 1, 0)
		if n%40 == 0 {
			e.pass(10 * time.Millisecond)
		}
	}
	if most := (seconds + 1) * 500; log.reads > most || log.reads < most/2 {
		t.Errorf("%d reads in %d s, want up to %d", log.reads, seconds, most)
	}
}

// TestReturnedHint: an edge that returns datagrams over this one serves their client, and this
// one does not ask again where the client is served.
func TestReturnedHint(t *testing.T) {
	e := newTestEdge(t)
	w, addr := e.workers[0], clientAddr(1)
	e.locations.hint(e.net.Now(), w.t.client(addr), "e2")
	for range 10 {
		e.pass(elsewhereTime - time.Millisecond)
		e.locations.Returned(e.net.Now(), w.t.client(addr), "e2")
		w.deliver(addr, "", 3, 1, 0)
	}
	if len(e.forwarded) != 10 || w.t.counts.OrphansHeld > 0 {
		t.Errorf("%d of 10 datagrams are forwarded, and %d had to wait", len(e.forwarded), w.t.counts.OrphansHeld)
	}
	e.pass(elsewhereTime * 3 / 4)
	e.locations.Returned(e.net.Now(), w.t.client(addr), "e3")
	e.pass(elsewhereTime / 2)
	if kind, _, _ := e.locations.locate(e.net.Now(), w.t.client(addr)); kind == placeElsewhere {
		t.Error("what another edge returned counts")
	}
}

// TestReturnedNowhere: while a session begins, the log says to other edges that there is none. The first answer to its
// client that leaves by this edge shows who serves the client.
func TestReturnedNowhere(t *testing.T) {
	e := newTestEdge(t)
	w, addr := e.workers[0], clientAddr(1)
	e.locations.hint(e.net.Now(), w.t.client(addr), "")
	e.locations.Returned(e.net.Now(), w.t.client(addr), "e2")
	w.deliver(addr, "", 3, 1, 0)
	if len(e.forwarded) != 1 {
		t.Errorf("the hint that no edge serves the client counts for more than what another edge returned")
	}
}
