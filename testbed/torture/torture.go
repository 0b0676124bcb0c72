//go:build linux

// Package torture breaks edges, Redis and NATS servers under running sessions and records
// what clients and the game server notice: NATS servers, Redis, a relay and three edges, each
// a process on a host of its own; 50 clients of package dnptest, half of which only listen, behind a
// balancer in this process; and a game server made with package publisher. Package history judges the records.
//
//	verdict, err := torture.Run(ctx, torture.Config{Bin: "bin", File: "history.jsonl", …})
//
// The balancer drops the flows of an edge that dies, stops or is no longer ready, after a
// delay. In the spray phase each datagram goes to any edge. A run whose ctx ends ends with the
// fault that is under way, waits for the messages under way, and is judged.
package torture

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/dnprelay/dnprelay/internal/proctest"
	"github.com/dnprelay/dnprelay/testbed/history"
	"github.com/dnprelay/dnprelay/testbed/play"
	"github.com/dnprelay/dnprelay/testbed/rig"
)

// A Config describes a run.
type Config struct {
	play.MatchConfig // but for the numbers of relays and edges

	Phases    []string      // names; empty means all that are possible
	Scale     float64       // factor on the number of faults
	Rounds    int           // faults of each phase; 0 = as Scale says
	StopAfter time.Duration // no fault begins later; 0 = no limit
}

// A PhaseKind is faults of one kind.
type PhaseKind struct {
	Name  string
	About string
	Count int // of faults at scale 1
	needs int // what not every run has

	own    bool                                                         // cause names the phases of the history itself
	spoken bool                                                         // clients that only listen speak, too
	fast   bool                                                         // messages have fastPace
	gapMax time.Duration                                                // see history.Phase
	cause  func(r *run, ctx context.Context, phase string, n int) error // causes fault n, and returns when it has healed
}

// What phases need.
const (
	nothing    = iota
	cluster    // three NATS servers
	namespaces // these, on hosts that can be cut off, which takes root
)

// natsGapMax is the bar for gaps while a NATS server is away, and natsRounds how many rounds
// these phases have at scale 1: one for each server.
const (
	natsGapMax = 1200 * time.Millisecond
	natsRounds = 3
)

// Phases returns all phases in their order.
func Phases() []PhaseKind {
	list := []PhaseKind{
		{Name: "kill", About: "kill -9 of the edge with most clients", Count: 200, cause: (*run).crash},
		{Name: "stop", About: "SIGSTOP of the edge with most clients for 0.1 to 10 s, then SIGCONT", Count: 40, cause: (*run).stop},
		{Name: "drain", About: "SIGTERM of each edge in turn; flows move with the next datagram of their client", Count: 90, cause: (*run).drain},
		{Name: "drain-flush", About: "the same, but flows move at once, which cuts off the answers of the leaving edge", Count: 15, cause: (*run).drain},
		{Name: "redis-kill", About: "kill -9 of Redis, then of an edge, then Redis again", Count: 10, spoken: true, cause: (*run).redisFault},
		{Name: "redis-flush", About: "FLUSHALL, then kill -9 of an edge", Count: 10, spoken: true, cause: (*run).redisFault},
		{Name: "redis-lies", About: "wrong owners in Redis, then kill -9 of an edge", Count: 10, spoken: true, cause: (*run).redisFault},
		{Name: "redis-stop", About: "SIGSTOP of Redis for 5 s, and kill -9 of an edge meanwhile", Count: 10, spoken: true, cause: (*run).redisFault},
	}
	for _, k := range []PhaseKind{
		{Name: "nats-kill", About: "kill -9 of each NATS server in turn, for 3 to 8 s", needs: cluster},
		{Name: "nats-stop", About: "SIGSTOP of each NATS server in turn, for 3 to 8 s", needs: cluster},
		{Name: "nats-cut", About: "each NATS server in turn is cut off from all others for 3 to 8 s; needs root", needs: namespaces},
	} {
		k.Count, k.fast, k.gapMax, k.cause = natsRounds, true, natsGapMax, (*run).natsFault
		with := k
		with.Name, with.About = k.Name+edgeToo, k.About+"; kill -9 of the edge with most clients within the same 100 ms"
		list = append(list, k, with)
	}
	list = append(list, PhaseKind{
		Name: "nats-empty", About: "each NATS server in turn is killed and comes back without its disk, while clients are silent; then kill -9 of the edge with most clients",
		needs: cluster, Count: 1, cause: (*run).emptyNATS,
	})
	return append(list,
		PhaseKind{Name: history.Steady, About: "nothing", Count: 1, fast: true, cause: (*run).steady},
		// After it, flows may be pinned to edges that do not own their sessions. No phase in which clients only listen may follow.
		PhaseKind{Name: "spray", About: "each datagram to any edge, in turn with pinned flows", Count: 6, own: true, spoken: true, cause: (*run).spray})
}

// chosen returns the phases to run, with the numbers of their faults, and whether hosts are
// in namespaces. Without names, it leaves out what the run cannot have.
func (c *Config) chosen(root bool) (list []PhaseKind, spaces bool, err error) {
	list, err = play.Choose(Phases(), func(p PhaseKind) string { return p.Name }, c.Phases)
	list = slices.DeleteFunc(list, func(p PhaseKind) bool {
		if len(c.Phases) > 0 || p.needs == nothing || c.NATS >= 3 && (p.needs == cluster || root) {
			return false
		}
		c.Progress("%s is left out: %s", p.Name, p.About)
		return true
	})
	for i := range list {
		list[i].Count = cmp.Or(c.Rounds, max(1, int(float64(list[i].Count)*c.Scale)))
		spaces = spaces || list[i].needs == namespaces
	}
	return list, spaces, err
}

const edgeCount = 3

// A run is a match with faults.
type run struct {
	*play.Match
	cfg     *Config
	rng     *rand.Rand
	started time.Time
	away    int // NATS servers that were away so far
}

// Run writes a history, and checks it.
func Run(ctx context.Context, cfg Config) (v history.Verdict, err error) {
	phases, spaces, err := cfg.chosen(os.Geteuid() == 0)
	if err == nil && spaces {
		cfg.Network, err = rig.NewNamespaces()
	}
	if err != nil {
		return v, err
	}
	r := &run{cfg: &cfg, rng: rand.New(rand.NewPCG(cfg.Seed, 1)), started: time.Now()}
	cfg.Relays, cfg.Edges = 1, edgeCount
	r.Match, err = play.Open(ctx, cfg.MatchConfig)
	defer r.Close()
	if err != nil {
		return v, err
	}
	for i := 0; i < len(phases) && err == nil; i++ {
		if err = r.phase(ctx, phases[i]); err != nil {
			err = fmt.Errorf("%s: %w", phases[i].Name, err)
		}
	}
	v, failed := r.Finish(ctx)
	return v, errors.Join(err, failed)
}

// phase causes the faults of a phase, until ctx ends. A fault that has begun heals first.
func (r *run) phase(ctx context.Context, ph PhaseKind) error {
	if r.Pace.Set(play.SlowPace); ph.fast {
		r.Pace.Set(fastPace)
	}
	if r.Breaks.Set(0); ph.spoken {
		r.Breaks.Set(play.SlowPace)
	}
	for n := range ph.Count {
		if r.cfg.StopAfter > 0 && time.Since(r.started) > r.cfg.StopAfter {
			return nil
		}
		before := r.Interrupted()
		if !ph.own {
			r.Log.Phase(ph.Name, ph.gapMax)
		}
		rig.Sleep(ctx, play.Random(r.rng, 500*time.Millisecond, 1500*time.Millisecond))
		if ctx.Err() != nil {
			return nil
		}
		if err := ph.cause(r, context.WithoutCancel(ctx), ph.Name, n); err != nil {
			return err
		}
		r.AwaitListeners(context.WithoutCancel(ctx))
		line := fmt.Sprintf("%s %d/%d", ph.Name, n+1, ph.Count)
		if d := r.Interrupted() - before; d > 0 {
			line += fmt.Sprintf(": %d clients interrupted", d)
		}
		r.cfg.Progress("%s", line)
		if err := r.Check(); err != nil {
			return err
		}
	}
	return nil
}

// Amounts that a time of a run uses. Some are metrics of edges.
const (
	edgeCPU   = "edges" // in µs
	natsCPU   = "NATS servers"
	datagrams = "datagrams to clients"
	messages  = "reliable messages, both ways"
	redis     = "commands of Redis"
	writes    = `dnp_session_log_appends_total{answer="ok"}`
	forGame   = `dnp_session_from_stored_total`
	natsIn    = `dnp_nats_messages_total{direction="in"}`
	natsOut   = `dnp_nats_messages_total{direction="out"}`
)

// quotients are what the history has of the amounts: how much of one for each of the other.
var quotients = []struct{ what, of, per string }{
	{"µs of NATS servers' CPU per write to session logs", natsCPU, writes},
	{"µs of edges' CPU per datagram to a client", edgeCPU, datagrams},
	{"writes to session logs per reliable message", writes, messages},
	{"messages to game servers per reliable message", forGame, messages},
	{"NATS messages to edges per reliable message", natsIn, messages},
	{"NATS messages of edges per reliable message", natsOut, messages},
	{"commands of Redis, with those within scripts, per reliable message", redis, messages},
}

// amounts returns what was used so far.
func (r *run) amounts(ctx context.Context) map[string]int64 {
	sum := map[string]int64{edgeCPU: rig.CPU(r.Edges).Microseconds(), natsCPU: rig.CPU(r.NATS).Microseconds(), datagrams: int64(r.Down()), messages: int64(r.Reliable())}
	for _, e := range r.Edges {
		metrics := r.Web.Metrics(e.Host.At(rig.HTTPPort))
		for _, name := range []string{writes, forGame, natsIn, natsOut} {
			sum[name] += int64(metrics[name])
		}
	}
	if n, err := r.RedisCommands(ctx); err == nil {
		sum[redis] = int64(n)
	}
	return sum
}

// measure writes to the history what the phase uses in a while.
func (r *run) measure(ctx context.Context, what string, d time.Duration) error {
	return r.Log.During(what, "", func() error {
		rig.Sleep(ctx, measureRest)
		before := r.amounts(ctx)
		rig.Sleep(ctx, d)
		after := r.amounts(ctx)
		for _, q := range quotients {
			r.Log.Add(history.Record{Kind: history.Used, Note: q.what, D: after[q.of] - before[q.of], N: uint64(after[q.per] - before[q.per])})
		}
		return nil
	})
}

// Times of faults.
const (
	fastPace     = 50 * time.Millisecond // of messages while NATS servers are lost, and while nothing is
	stopLeast    = 100 * time.Millisecond
	stopMost     = 10 * time.Second
	stopNotice   = 500 * time.Millisecond // after which the balancer moves the flows of a stopped edge
	measureRest  = time.Second
	steadyTime   = 10 * time.Second
	sprayTime    = 5 * time.Second
	redisDown    = 3 * time.Second
	natsLeast    = 3 * time.Second // clients give up after as much
	natsMost     = 8 * time.Second
	togetherMost = 100 * time.Millisecond // between the loss of a NATS server and that of an edge
	emptyRest    = 2 * time.Second        // after a server is back, until the next one goes; deploy/RUNBOOK.md wants more
	wholeMost    = 5 * time.Minute        // nats-server 2.15.2 took 95 s once to bring a copy up to date: "Expected first catchup entry to be a snapshot"
)

// steady measures a time without faults.
func (r *run) steady(ctx context.Context, _ string, _ int) error {
	return r.measure(ctx, history.NoFault, steadyTime)
}

// crash crashes the edge with most clients.
func (r *run) crash(ctx context.Context, phase string, _ int) error {
	return r.Crash(ctx, phase, r.Busiest())
}

// drain drains each edge in turn.
func (r *run) drain(ctx context.Context, phase string, n int) error {
	edge := n % edgeCount
	err := r.Log.During(phase, r.Edges[edge].Name, func() error { return r.Drain(ctx, edge, phase == "drain-flush") })
	if err != nil {
		return err
	}
	return r.Restart(ctx, edge)
}

// stop pauses the edge with most clients. The logarithm of the duration is uniform.
func (r *run) stop(ctx context.Context, _ string, _ int) error {
	i := r.Busiest()
	e := r.Edges[i]
	spread := math.Log(float64(stopMost) / float64(stopLeast))
	d := time.Duration(float64(stopLeast) * math.Exp(r.rng.Float64()*spread))
	err := r.Log.During("stop "+d.Round(time.Millisecond).String(), e.Name, func() error {
		if err := e.Signal(syscall.SIGSTOP); err != nil {
			return err
		}
		rig.Sleep(ctx, min(d, stopNotice))
		if d > stopNotice {
			r.Reroute(i, true)
			rig.Sleep(ctx, d-stopNotice)
		}
		return e.Signal(syscall.SIGCONT)
	})
	rig.Sleep(ctx, time.Second)
	r.Avoid(i, false)
	return err
}

// spray measures what edges use without spraying and with it.
func (r *run) spray(ctx context.Context, phase string, _ int) error {
	r.Log.Phase(phase+", direct", 0)
	if err := r.measure(ctx, history.NoFault, sprayTime); err != nil {
		return err
	}
	r.Log.Phase(phase, 0)
	r.SetSpray(true)
	defer r.SetSpray(false)
	return r.measure(ctx, phase, sprayTime)
}

// lies names an edge as the owner of every session.
const lies = `for _, k in ipairs(redis.call('KEYS', 'dnp:s:*')) do redis.call('HSET', k, 'own', ARGV[1]) end`

// redisFault breaks Redis, and kills an edge so that the loss matters.
func (r *run) redisFault(ctx context.Context, phase string, _ int) (err error) {
	how := strings.TrimPrefix(phase, "redis-")
	switch how {
	case "flush":
		err = r.TellRedis(ctx, "FLUSHALL")
	case "lies":
		err = r.TellRedis(ctx, "EVAL", lies, "0", r.Edges[r.rng.IntN(edgeCount)].Name)
	default:
		err = r.setAway(how, r.Redis, true)
	}
	if err != nil {
		return err
	}
	rig.Sleep(ctx, 300*time.Millisecond)
	err = r.Crash(ctx, phase, r.Busiest())
	if how == "kill" || how == "stop" {
		rig.Sleep(ctx, redisDown)
		err = errors.Join(err, r.setAway(how, r.Redis, false))
	}
	return err
}

// edgeToo ends the names of phases in which an edge dies together with a NATS server.
const edgeToo = "-edge"

// natsFault takes each NATS server away in turn, and brings it back. The next fault has to
// wait until all copies of all streams are up to date, and all nodes ready.
func (r *run) natsFault(ctx context.Context, phase string, _ int) error {
	server, edge := r.NATS[r.away%len(r.NATS)], r.Busiest()
	r.away++
	how, both := strings.CutSuffix(strings.TrimPrefix(phase, "nats-"), edgeToo)
	err := r.Log.During(phase, server.Name, func() error {
		steps := []func() error{func() error { return r.setAway(how, server, true) }}
		if both {
			steps = append(steps, func() error { return r.Edges[edge].Kill() })
			r.rng.Shuffle(2, func(i, j int) { steps[i], steps[j] = steps[j], steps[i] })
		}
		var err error
		for _, step := range steps {
			err = errors.Join(err, step())
			rig.Sleep(ctx, play.Random(r.rng, 0, togetherMost))
		}
		if both {
			rig.Sleep(ctx, r.cfg.Reroute)
			r.Reroute(edge, true)
		}
		rig.Sleep(ctx, play.Random(r.rng, natsLeast, natsMost))
		return errors.Join(err, r.setAway(how, server, false))
	})
	if err == nil && both {
		err = r.Restart(ctx, edge)
	}
	if err == nil {
		err = r.awaitWhole(ctx)
	}
	return err
}

// awaitWhole waits until all NATS servers have their streams and all nodes are ready.
func (r *run) awaitWhole(ctx context.Context) error {
	return proctest.Await(ctx, wholeMost, "the cluster is whole", func() bool {
		return r.Whole(r.NC) && !slices.ContainsFunc(slices.Concat(r.Relays, r.Edges), func(n *rig.Node) bool { return !r.IsReady(n) })
	})
}

// emptyNATS replaces all NATS servers one after another while clients are silent, and kills an edge. The others find
// its sessions only if edges have written them again.
func (r *run) emptyNATS(ctx context.Context, phase string, _ int) error {
	pace := r.Pace.Load()
	r.Pace.Set(0)
	defer r.Pace.Set(time.Duration(pace))
	for _, server := range r.NATS {
		err := r.Log.During(phase, server.Name, func() error {
			err := server.Kill()
			if err == nil {
				err = r.WipeNATS(server)
			}
			rig.Sleep(ctx, play.Random(r.rng, 0, natsLeast))
			return errors.Join(err, server.Start())
		})
		if err == nil {
			err = r.awaitWhole(ctx)
		}
		if err != nil {
			return err
		}
		rig.Sleep(ctx, emptyRest)
	}
	edge := r.Busiest()
	err := r.Log.During(phase+edgeToo, r.Edges[edge].Name, func() error {
		err := r.Edges[edge].Kill()
		rig.Sleep(ctx, r.cfg.Reroute)
		r.Reroute(edge, true)
		r.Pace.Set(time.Duration(pace)) // the clients of the killed edge notice if they have no session
		rig.Sleep(ctx, natsMost)
		return err
	})
	if err != nil {
		return err
	}
	return r.Restart(ctx, edge)
}

// setAway takes a node away, or brings it back.
func (r *run) setAway(how string, n *rig.Node, away bool) error {
	switch {
	case how == "cut":
		return r.Cut(n.Host, away)
	case how == "stop" && away:
		return n.Signal(syscall.SIGSTOP)
	case how == "stop":
		return n.Signal(syscall.SIGCONT)
	case away:
		return n.Kill()
	}
	return n.Start()
}
