package takeover

import (
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/cluster/forward"
	"github.com/dnprelay/dnprelay/cluster/memaffinity"
	"github.com/dnprelay/dnprelay/sessionlog"
)

// A loser is an edge e1 that claims the session of a client, while the log says that e2 took
// it over.
type loser struct {
	*testEdge
	worker *testWorker
	addr   netip.AddrPort
	name   string
	hub    *memaffinity.Hub
	other  *memaffinity.Node
	away   bool // the affinity answers nothing
	finds  int
	tries  int
	cluster.Affinity
}

// Find makes it the affinity of the edge.
func (l *loser) Find(name string, answer func(cluster.Served, error)) {
	if l.finds++; l.away {
		answer(cluster.Served{}, cluster.ErrAffinityAway)
		return
	}
	l.Affinity.Find(name, answer)
}

// Try counts.
func (l *loser) Try(name string, seen cluster.Served, answer func(cluster.Served, error)) {
	l.tries++
	l.Affinity.Try(name, seen, answer)
}

func newLoser(t *testing.T) *loser {
	first := newTestEdge(t)
	l := &loser{testEdge: first, worker: first.workers[0], addr: clientAddr(1), hub: memaffinity.New(first.net.Now)}
	l.Affinity, l.other = l.hub.Node("e1"), l.hub.Node("e2")
	l.claimIn(l)
	k := l.worker.t
	l.join(l.addr)
	l.name = k.name(l.addr)
	l.wantClaim("it serves the client", "e1", 1)
	l.adoptedByOther()
	k.Replaced(l.name, 2)
	l.complete = false
	l.pass(100 * time.Millisecond)
	if k.counts.SessionsLost != 1 || k.byName[l.name] != nil {
		t.Fatalf("%d sessions are lost, want 1", k.counts.SessionsLost)
	}
	l.finds = 0
	return l
}

// adoptedByOther lets e2 write ADOPT, and nothing else.
func (l *loser) adoptedByOther() {
	core := sessionlog.Adopt(sessionlog.Config{Node: "e2", Rand: rand.New(rand.NewPCG(3, 4))}, l.name)
	answer := func(a sessionlog.Answer) { core.Answer(l.net.Now(), a) }
	for range 100 {
		for _, a := range core.Advance(l.net.Now()) {
			switch a.Kind {
			case sessionlog.ActionRead:
				l.log.Read(a.Log, answer)
			case sessionlog.ActionFound:
				core.Claim()
			case sessionlog.ActionAppend:
				l.log.Append(a.Write, answer)
			}
		}
		l.pass(time.Millisecond)
	}
	if core.Phase() != sessionlog.Adopted {
		l.Fatalf("e2 is %v, want adopted", core.Phase())
	}
}

func (l *loser) wantClaim(why, node string, epoch uint64) {
	l.Helper()
	if n, e := l.hub.Claim(l.name); n != node || e != epoch {
		l.Errorf("%s: the claim is that of %q in epoch %d, want %q, %d", why, n, e, node, epoch)
	}
}

func (l *loser) looksAfterAny() bool { return l.worker.t.superseded[l.name] != nil }

// wantLook wants the edge to take the session over, or not to look at it.
func (l *loser) wantLook(why string, taken, lookedAfter bool) {
	l.Helper()
	k := l.worker.t
	x := k.byName[l.name]
	if got := x.phase() == AwaitingSpace; got != taken || (l.looksAfterAny()) != lookedAfter {
		l.Errorf("%s: it takes the session over: %v, want %v; a claim is looked after: %v", why, got, taken, l.looksAfterAny())
	}
}

// rosterOf has a process of e2 in the roster.
func (l *loser) rosterOf(incarnation uint64) {
	l.view, _ = l.view.With(cluster.NewRoster([]cluster.Member{{Name: "e1", Role: cluster.RoleEdge}, {Name: "e2", Role: cluster.RoleEdge, Incarnation: incarnation}}))
}

// TestLostUnclaimed: an edge that lost a session to another keeps its claim, and takes the
// session back when the other one does not claim it: it may have died behind its ADOPT, and
// no other edge would look after a client that says nothing.
func TestLostUnclaimed(t *testing.T) {
	l := newLoser(t)
	l.wantClaim("the other edge has no claim yet", "e1", 1)
	l.wantLook("the other edge has time to claim it", false, true)
	l.away = true
	l.pass(claimPatience)
	l.wantLook("the affinity does not answer", false, true)
	if l.finds != 1 || l.tries != 0 {
		t.Errorf("it asked %d times within %v and tried %d times, want 1 and 0", l.finds, claimPatience, l.tries)
	}
	l.away = false
	l.roster(map[string]cluster.Phase{"e1": cluster.PhaseReady, "e2": cluster.PhaseReady})
	l.pass(2 * claimPatience)
	l.wantLook("no edge claims it; e2 lives, because it started again", true, true)
	l.wantClaim("it has not got it yet", "e1", 1)
}

// TestLostWhileAway: what the affinity does not have when it is back may be on its way. The other
// edge has as long as otherwise to claim the session.
func TestLostWhileAway(t *testing.T) {
	for _, claims := range []bool{true, false} {
		l := newLoser(t)
		l.away = true
		l.pass(3*claimPatience + claimPatience/2)
		l.away = false
		l.pass(claimPatience)
		l.wantLook("the affinity was away", false, true)
		if claims {
			l.other.Claim(l.name, 2)
		}
		l.pass(claimPatience)
		l.wantLook("e2 had its time to claim it", !claims, !claims)
	}
}

// TestLostToRestarted: an owner whose process lives on has more time to claim the session than one that
// has been restarted, which does not know of it.
func TestLostToRestarted(t *testing.T) {
	for _, restarts := range []bool{true, false} {
		l := newLoser(t)
		l.worker.t.settle(l.name)
		l.rosterOf(1)
		l.worker.t.lose(l.net.Now(), &Session{name: l.name, Log: sessionlog.Adopt(l.worker.t.log, l.name)}, "e2")
		if restarts {
			l.rosterOf(2)
		}
		l.pass(claimPatienceAlive - 100*time.Millisecond)
		l.wantLook("e2 did not claim it", restarts, true)
		l.pass(claimPatience)
		l.wantLook("e2 did not claim it within ten seconds", true, true)
	}
}

// TestLostToOthers: an edge leaves a session that it lost to another edge that is about to
// take it over, and to another worker of its own, until nothing comes of that.
func TestLostToOthers(t *testing.T) {
	l := newLoser(t)
	l.pass(claimPatience - 200*time.Millisecond)
	l.other.Try(l.name, cluster.Served{Node: "e1", Epoch: 1}, func(cluster.Served, error) {})
	l.pass(200 * time.Millisecond)
	l.wantLook("e2 tries", false, true)
	l.locations.enter(l.name, forward.Client{}, 1)
	l.pass(claimPatience)
	l.wantLook("another worker tries", false, true)
	l.locations.leave(l.name, 1)
	l.pass(claimPatience)
	l.wantLook("no edge has it", true, true)
	if l.tries != 2 {
		t.Errorf("it tried %d times, want 2", l.tries)
	}
}

// TestLostClaimed: what the other edge claims is its own.
func TestLostClaimed(t *testing.T) {
	l := newLoser(t)
	l.other.Claim(l.name, 2)
	l.pass(claimPatience)
	l.wantLook("e2 claims it", false, false)
	l.wantClaim("e2 claims it", "e2", 2)
	l.pass(2 * claimPatience)
	if l.finds != 1 || len(l.worker.t.superseded) > 0 {
		t.Errorf("it asked %d times, want 1", l.finds)
	}
}

// TestLostEnded: no claim is left on a session that ended at the other edge before that one
// claimed it, or whose log is damaged by then, which is told once.
func TestLostEnded(t *testing.T) {
	for uncertain := range 2 {
		l := newLoser(t)
		entries := l.log.Entries(l.name)
		last, reason := entries[len(entries)-1].Seq, "peer"
		end := sessionlog.Block{Epoch: 2, Owner: 1, Number: 2, Previous: last, Close: &reason}
		data := [][]byte{end.Append(nil), []byte("junk")}[uncertain]
		l.log.Append(sessionlog.Write{Log: l.name, Expect: last, Data: data}, func(sessionlog.Answer) {})
		l.pass(3 * claimPatience)
		l.wantLook("there is nothing to take over", false, false)
		l.wantClaim("the session is over", "", 0)
		if n := l.worker.t.counts.SessionsUncertain; n != uint64(uncertain) {
			t.Errorf("%d sessions are uncertain, want %d", n, uncertain)
		}
	}
}

// TestLostWhileLeaving: an edge that leaves takes nothing back. Its claim stays, so that
// others find the session when it is gone.
func TestLostWhileLeaving(t *testing.T) {
	l := newLoser(t)
	l.worker.t.Drain(l.net.Now())
	l.pass(2 * claimPatience)
	l.wantLook("it leaves", false, true)
	l.wantClaim("it leaves", "e1", 1)
}

// TestLostPace: so many sessions may be lost at once as an edge has, and not all are looked at
// in one turn.
func TestLostPace(t *testing.T) {
	l := newLoser(t)
	l.other.Claim(l.name, 2)
	l.pass(claimPatience)
	l.finds, l.away = 0, true
	k := l.worker.t
	for i := range supersededMax + 1 {
		x := &Session{name: clientAddr(i).String(), feed: noFeed{}}
		x.Log = sessionlog.Adopt(k.log, x.name)
		k.lose(l.net.Now(), x, "e2")
	}
	if n := len(k.superseded); n != supersededMax {
		t.Errorf("%d claims are looked after, want %d at most", n, supersededMax)
	}
	l.net.Run(claimPatience)
	l.pass(50 * time.Millisecond)
	if most := workerAdoptionsPerSecond + workerAdoptionsPerSecond/20; l.finds < workerAdoptionsPerSecond || l.finds > most {
		t.Errorf("it asked %d times within 50 ms, want %d to %d", l.finds, workerAdoptionsPerSecond, most)
	}
}

// TestLostAgain: an edge that took a session back and lost it again waits for twice as long.
func TestLostAgain(t *testing.T) {
	l := newLoser(t)
	k := l.worker.t
	l.pass(claimPatience + 100*time.Millisecond)
	x := k.byName[l.name]
	if x == nil || x.patience != claimPatience {
		t.Fatalf("the session is taken back as %+v", x)
	}
	k.forget(x)
	k.lose(l.net.Now(), x, "e2")
	l.pass(2*claimPatience - 100*time.Millisecond)
	if k.byName[l.name] != nil {
		t.Error("it is taken back before twice the time is over")
	}
	l.pass(claimPatience)
	if y := k.byName[l.name]; y == nil || y.patience != 2*claimPatience {
		t.Errorf("then it is taken back as %+v", y)
	}
	x.patience = claimPatienceMax
	if k.lose(l.net.Now(), x, "e2"); k.superseded[l.name].patience != claimPatienceMax {
		t.Errorf("in the end it waits for %v", k.superseded[l.name].patience)
	}
}

// TestUnclaimedByItsOwner: an edge leaves a session that it inherited to the living owner that the log names, but not
// if that owner had its time to claim it: it may be a new process that does not know of the session.
func TestUnclaimedByItsOwner(t *testing.T) {
	e := newTestEdge(t)
	e.roster(map[string]cluster.Phase{"e1": cluster.PhaseReady, "e2": cluster.PhaseReady})
	for _, unclaimed := range []bool{false, true} {
		s := &Session{yields: true, dead: "e3", unclaimed: unclaimed}
		if lives := e.workers[0].t.mayLive(s, &sessionlog.Action{Node: "e2"}); lives == unclaimed {
			t.Errorf("unclaimed: %v, the owner may live: %v", unclaimed, lives)
		}
	}
}

// TestInheritedWait: an edge that is alone, and whose log did not answer for long enough, waits before it takes inherited sessions over, and
// does not ask for the next turn at once.
func TestInheritedWait(t *testing.T) {
	e := newTestEdge(t)
	e.roster(map[string]cluster.Phase{"e1": cluster.PhaseReady, "e2": cluster.PhaseReady})
	e.roster(map[string]cluster.Phase{"e1": cluster.PhaseReady})
	k := e.workers[0].t
	k.inherit("e2", []string{"session"}, false)
	now := e.net.Now()
	k.reach.gap = now
	if k.mayJudge(now) {
		t.Fatalf("the edge may judge others at once; alone: %v", k.host.View().alone)
	}
	if next := k.advanceInherited(now, now.Add(time.Hour)); !next.After(now) || next.After(now.Add(turnInterval)) || len(k.inherited) != 1 {
		t.Errorf("it wants its next turn after %v, with %d sessions to take over", next.Sub(now), len(k.inherited))
	}
}
