package systest

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/dnp/wire"
	verdict "github.com/dnprelay/dnprelay/internal/fence"
	"github.com/dnprelay/dnprelay/sessionlog"
)

// A takeoverCut is the fault that an edge lives and reaches nothing: no other edge, bus, log,
// affinity or client. With redis, the affinity is on its side: this edge reaches it, and the others
// do not.
type takeoverCut struct {
	active bool
	redis  bool
	alone  bool // this edge takes all others for dead
	noBus  bool // the bus is not reached yet
	noLog  bool
	at     time.Duration // when it began
	logAt  time.Duration // when it reached the log again
	brief  bool          // it was over before the edge could notice it
}

// Times after the end of a cut, at most. Gossip tries to join lost nodes every 10 s.
const (
	cutBusBack    = 2 * time.Second
	cutLogBack    = 2 * time.Second
	cutRedisBack  = 5 * time.Second
	cutGossipBack = 10 * time.Second

	cutKnows = time.Second // after it reaches the log, an edge knows which sessions it lost

	cutNoticed = 2 * time.Second // an edge notices by then that it is cut off
	cutRests   = 4 * time.Second
	cutHeal    = 20 * time.Second // after takeoverHeal
)

// redisLease is how long an edge that does not reach the affinity counts there as alive.
const redisLease = 1500 * time.Millisecond

var cutPlans = []takeoverPlan{
	{name: "cut off", cuts: true, loss: 0.01, spray: 0.1},
	{name: "cut off with Redis", cuts: true, cutRedis: true, loss: 0.01, spray: 0.1},
	{name: "cut off, and kills", cuts: true, kills: true, loss: 0.01},
}

// cutOff cuts an edge off for a while.
func (e *takeoverEdge) cutOff(d time.Duration) {
	w := e.w
	if !w.spare(e) || slices.ContainsFunc(w.edges, func(o *takeoverEdge) bool { return o.cut.disturbs() }) {
		return
	}
	w.tell("%s is cut off for %v", e.name, d)
	w.cutOffs++
	w.broken(e)
	e.stops()
	start, redis := e.start, w.cutRedis && w.net.Rand().IntN(3) > 0
	e.cut = takeoverCut{active: true, redis: redis, noBus: true, noLog: true, at: w.net.Elapsed()}
	e.bus.SetConnected(false)
	e.noticed()
	for _, o := range w.edges {
		if (o == e) == redis {
			continue
		}
		a, was := o.affinity, o.start
		a.away = true
		w.net.Schedule(redisLease, func() {
			if o.affinity.away && o.start == was {
				o.affinity.Leave()
			}
		})
	}
	w.net.Schedule(takeoverSilence+time.Duration(w.net.Rand().Int64N(int64(takeoverJitter))), func() {
		if e.start == start && e.cut.active {
			e.cut.alone = true
			w.tellRoster()
		}
	})
	w.net.Schedule(d, func() {
		if e.start == start && e.cut.active {
			e.mend()
		}
	})
}

// routable reports whether the balancer may send clients to the edge: one that was cut off is ready when
// it reaches the bus and the log, and the other edges may not know it yet.
func (e *takeoverEdge) routable() bool {
	was := e.alive && e.cut.logAt > 0
	return !e.dead && !was || was && !e.cut.active && !e.cut.noBus && !e.cut.noLog
}

// disturbs reports whether the edge is cut off, or not all know that it is back.
func (c *takeoverCut) disturbs() bool { return c.active || c.alone || c.noBus || c.noLog }

// mend ends the cut. What the edge reached before is there again one by one.
func (e *takeoverEdge) mend() {
	w, start, rnd := e.w, e.start, e.w.net.Rand()
	w.tell("%s is not cut off any more", e.name)
	e.cut.active, e.cut.brief = false, w.net.Elapsed()-e.cut.at < cutNoticed
	e.cut.logAt = w.net.Elapsed() + cutLogBack // at the latest
	e.wakes()
	later := func(most time.Duration, f func()) {
		w.net.Schedule(time.Duration(rnd.Int64N(int64(most))), func() {
			if e.start == start && e.alive {
				w.disturbed, e.since = w.net.Elapsed(), w.net.Elapsed()
				f()
			}
		})
	}
	later(cutBusBack, func() { e.cut.noBus = false; e.bus.SetConnected(true) })
	later(cutLogBack, func() { e.cut.noLog, e.cut.logAt = false, w.net.Elapsed() })
	for _, o := range w.edges {
		if o.affinity.away && o.alive {
			a := o.affinity
			w.net.Schedule(time.Duration(rnd.Int64N(int64(cutRedisBack))), func() {
				if a.e.affinity == a && a.away {
					a.away = false
					a.Return()
				}
			})
		}
	}
	later(cutGossipBack, func() {
		e.dead, e.cut.alone = false, false
		w.tell("%s and the others know each other again", e.name)
		w.tellRoster()
	})
}

// unknowing reports whether the edge may not have read in the log which sessions it lost, so that it
// sends to their clients, or greets with this datagram a client in whose name a twin requests a
// connection: an edge that was cut off cannot always find out which edge has the session.
func (e *takeoverEdge) unknowing(b []byte) bool {
	greets := b[0] == byte(wire.CommandConnectionAck) || bytes.HasPrefix(b, []byte{byte(wire.CommandReliableMessageLong), 0, 0})
	return e.w.cuts && (greets || e.cut.noLog || e.w.net.Elapsed() < e.cut.logAt+cutKnows || e.cut.brief && e.affinity.away)
}

// roster returns what an edge knows of the others.
func (c *takeoverCut) roster(e *takeoverEdge, all cluster.Roster) cluster.Roster {
	switch {
	case !c.active && !c.alone:
		e.knows = all
	case c.alone:
		e.knows = cluster.NewRoster([]cluster.Member{{Name: e.name, Role: cluster.RoleEdge, Phase: cluster.PhaseReady, Incarnation: uint64(e.start)}})
	}
	return e.knows // the edge that is cut off hears of no change
}

// begin has the affinity of a process that starts while another edge is cut off with Redis.
func (a *takeoverAffinity) begin() {
	if slices.ContainsFunc(a.e.w.edges, func(o *takeoverEdge) bool { return o != a.e && o.cut.active && o.cut.redis }) {
		a.away = true
		a.Leave()
	}
}

// edge returns the edge with a name.
func (w *takeoverWorld) edge(name string) *takeoverEdge {
	return w.edges[slices.IndexFunc(w.edges, func(e *takeoverEdge) bool { return e.name == name })]
}

// robs wants no edge to take a session from one that is well, if the client is not sent to the edge
// that takes it. It knows the owner by the log, before the next one writes ADOPT.
func (f *fence) robs(l *fencedLog, log, to string) {
	if !f.w.cuts || l.node == "" || l.node == to {
		return
	}
	from := f.w.edge(l.node)
	for _, p := range f.w.players {
		now := f.w.net.Elapsed()
		sent := f.w.edge(to).heard[p.addr]
		if p.log() == log && !p.frozen && from.well() && from.start == l.start && now-from.since > cutRests && (sent == 0 || now-sent > cutRests) {
			f.w.failf("%s takes the session of player %d from %s, which is well, and the client is not sent there", to, p.index, l.node)
		}
	}
}

// A cutLog is the log as an edge sees it that may be cut off. Requests of such an edge have no
// answer.
type cutLog struct {
	e *takeoverEdge
	sessionlog.Log
}

// Append implements sessionlog.Log.
func (l cutLog) Append(w sessionlog.Write, answer func(sessionlog.Answer)) {
	l.ask(answer, func(answer func(sessionlog.Answer)) { l.Log.Append(w, answer) })
}

// Read implements sessionlog.Log.
func (l cutLog) Read(log string, answer func(sessionlog.Answer)) {
	l.ask(answer, func(answer func(sessionlog.Answer)) { l.Log.Read(log, answer) })
}

func (l cutLog) ask(answer func(sessionlog.Answer), send func(func(sessionlog.Answer))) {
	if !l.e.w.cuts {
		send(answer)
		return
	}
	done := false
	once := func(a sessionlog.Answer) {
		if !done {
			done = true
			answer(a)
		}
	}
	l.e.w.net.Schedule(500*time.Millisecond, func() { once(sessionlog.Answer{Verdict: verdict.Unknown}) })
	if !l.e.cut.noLog {
		send(func(a sessionlog.Answer) {
			if !l.e.cut.noLog {
				once(a)
			}
		})
	}
}

// TestTakeoverCutOff plays clients whose edges are cut off and come back. Everything else is as in
// TestTakeover, of which it plays a tenth as many seeds.
func TestTakeoverCutOff(t *testing.T) {
	playSeeds(t, max(*takeoverSeeds/10, min(*takeoverSeeds, 2*len(cutPlans))), cutPlans)
}

// cutTime returns how long an edge is cut off.
func cutTime(rnd *rand.Rand) time.Duration {
	return time.Duration(500+rnd.IntN(9500)) * time.Millisecond
}
