//go:build linux

// Package torture breaks edges under running sessions and records what clients and the
// game server notice: NATS servers, Redis, a relay and three edges, each a process on
// loopback; 50 clients of package dnptest behind a balancer in this process; and a game
// server made with package publisher. Package history judges the records.
//
//	verdict, err := torture.Run(ctx, torture.Config{Bin: "bin", File: "history.jsonl", …})
//
// The balancer drops the flows of an edge that dies, stops or is no longer ready, after a
// delay. In the spray phase each datagram goes to any edge.
package torture

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"syscall"
	"time"

	"github.com/dnprelay/dnprelay/testbed/history"
	"github.com/dnprelay/dnprelay/testbed/play"
	"github.com/dnprelay/dnprelay/testbed/rig"
)

// A Config describes a run.
type Config struct {
	play.MatchConfig // but for the numbers of relays and edges

	Phases    []string      // names; empty means all
	Scale     float64       // factor on the number of faults
	StopAfter time.Duration // no fault begins later; 0 = no limit
}

// A PhaseKind is faults of one kind.
type PhaseKind struct {
	Name    string
	About   string
	Count   int  // of faults at scale 1
	Excused bool // its interruptions are figures, not violations
	Cluster bool // needs three NATS servers

	cause func(r *run, ctx context.Context, phase string, n int) error // causes fault n, and returns when it has healed
}

// Phases returns all phases in their order.
func Phases() []PhaseKind {
	return []PhaseKind{
		{Name: "calm", About: "nothing, for comparison", Count: 4, cause: (*run).calm},
		{Name: "kill", About: "kill -9 of the edge with most clients", Count: 200, cause: (*run).crash},
		{Name: "stop", About: "SIGSTOP of the edge with most clients for 0.1 to 10 s, then SIGCONT", Count: 40, cause: (*run).stop},
		{Name: "drain", About: "SIGTERM of each edge in turn; flows move with the next datagram of their client", Count: 90, cause: (*run).drain},
		{Name: "drain-flush", About: "the same, but flows move at once, which cuts off the answers of the leaving edge", Count: 15, cause: (*run).drain},
		{Name: "spray", About: "each datagram to any edge, in turn with pinned flows", Count: 12, cause: (*run).sprayed},
		{Name: "redis-kill", About: "kill -9 of Redis, then of an edge, then Redis again", Count: 10, cause: (*run).redisFault},
		{Name: "redis-flush", About: "FLUSHALL, then kill -9 of an edge", Count: 10, cause: (*run).redisFault},
		{Name: "redis-lies", About: "wrong owners in Redis, then kill -9 of an edge", Count: 10, cause: (*run).redisFault},
		{Name: "redis-stop", About: "SIGSTOP of Redis for 5 s, and kill -9 of an edge meanwhile", Count: 10, cause: (*run).redisFault},
		{Name: "nats-leader", About: "kill -9 of the NATS server that leads most session logs", Count: 10, Excused: true, Cluster: true, cause: (*run).natsLeader},
	}
}

// chosen returns the phases to run, with the numbers of their faults.
func (c *Config) chosen() ([]PhaseKind, error) {
	list, err := play.Choose(Phases(), func(p PhaseKind) string { return p.Name }, c.Phases)
	list = slices.DeleteFunc(list, func(p PhaseKind) bool { return p.Cluster && c.NATS < 3 && len(c.Phases) == 0 })
	for i := range list {
		list[i].Count = max(1, int(float64(list[i].Count)*c.Scale))
	}
	return list, err
}

const edgeCount = 3

// A run is a match with faults.
type run struct {
	*play.Match
	cfg     *Config
	rng     *rand.Rand
	started time.Time
}

// Run writes a history, and checks it.
func Run(ctx context.Context, cfg Config) (v history.Verdict, err error) {
	phases, err := cfg.chosen()
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
	for _, ph := range phases {
		if err = r.phase(ctx, ph); err != nil {
			return v, fmt.Errorf("%s: %w", ph.Name, err)
		}
	}
	return r.Finish(ctx)
}

func (r *run) phase(ctx context.Context, ph PhaseKind) error {
	r.Log.Phase(ph.Name, ph.Excused)
	for n := range ph.Count {
		if r.cfg.StopAfter > 0 && time.Since(r.started) > r.cfg.StopAfter {
			return nil
		}
		before := r.Interrupted()
		rig.Sleep(ctx, play.Random(r.rng, 500*time.Millisecond, 1500*time.Millisecond))
		if err := ph.cause(r, ctx, ph.Name, n); err != nil {
			return err
		}
		line := fmt.Sprintf("%s %d/%d", ph.Name, n+1, ph.Count)
		if d := r.Interrupted() - before; d > 0 {
			line += fmt.Sprintf(": %d clients interrupted", d)
		}
		r.cfg.Progress("%s", line)
		if err := r.Check(); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// counters are the metrics of edges that count NATS messages.
var counters = map[string]string{
	`dnp_nats_messages_total{direction="in"}`:    "NATS messages to edges",
	`dnp_nats_messages_total{direction="out"}`:   "NATS messages of edges",
	`dnp_session_log_appends_total{answer="ok"}`: "writes to session logs",
	`dnp_session_from_stored_total`:              "messages to game servers",
}

// operations returns the counters of all edges together, and of Redis.
func (r *run) operations(ctx context.Context) map[string]uint64 {
	sum := map[string]uint64{}
	for _, e := range r.Edges {
		metrics := r.Web.Metrics(e.Host.At(rig.HTTPPort))
		for name, what := range counters {
			sum[what] += uint64(metrics[name])
		}
	}
	if n, err := r.RedisCommands(ctx); err == nil {
		sum["commands of Redis, those within scripts as well"] = n
	}
	return sum
}

// Times of faults.
const (
	calmTime   = 3 * time.Second
	stopLeast  = 100 * time.Millisecond
	stopMost   = 10 * time.Second
	stopNotice = 500 * time.Millisecond // after which the balancer moves the flows of a stopped edge
	sprayTime  = 5 * time.Second
	redisDown  = 3 * time.Second
)

// calm records what edges do in a time without faults.
func (r *run) calm(ctx context.Context, _ string, _ int) error {
	return r.Log.During(history.Calm, "", func() error {
		before, began := r.operations(ctx), time.Now()
		rig.Sleep(ctx, calmTime)
		for what, n := range r.operations(ctx) {
			r.Log.Add(history.Record{Kind: history.Ops, Note: what, N: n - before[what], D: time.Since(began).Microseconds()})
		}
		return nil
	})
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

// sprayed measures the CPU of edges without spraying and with it, in turn.
func (r *run) sprayed(ctx context.Context, _ string, n int) error {
	on := n%2 == 1
	what := history.Direct
	if on {
		what = "sprayed"
	}
	r.SetSpray(on)
	defer r.SetSpray(false)
	return r.Log.During(what, "", func() error {
		rig.Sleep(ctx, time.Second)
		cpu, down := r.EdgeCPU(), r.Down()
		rig.Sleep(ctx, sprayTime)
		r.Log.Add(history.Record{Kind: history.CPU, Note: what, N: r.Down() - down, D: (r.EdgeCPU() - cpu).Microseconds()})
		return nil
	})
}

// lies names an edge as the owner of every session.
const lies = `for _, k in ipairs(redis.call('KEYS', 'dnp:s:*')) do redis.call('HSET', k, 'own', ARGV[1]) end`

// redisFault breaks Redis, and kills an edge so that the loss matters.
func (r *run) redisFault(ctx context.Context, phase string, _ int) (err error) {
	switch phase {
	case "redis-kill":
		err = r.Redis.Kill()
	case "redis-flush":
		err = r.TellRedis(ctx, "FLUSHALL")
	case "redis-lies":
		err = r.TellRedis(ctx, "EVAL", lies, "0", r.Edges[r.rng.IntN(edgeCount)].Name)
	case "redis-stop":
		err = r.Redis.Signal(syscall.SIGSTOP)
	}
	if err != nil {
		return err
	}
	rig.Sleep(ctx, 300*time.Millisecond)
	err = r.Crash(ctx, phase, r.Busiest())
	switch phase {
	case "redis-kill":
		rig.Sleep(ctx, redisDown)
		err = errors.Join(err, r.Redis.Start())
	case "redis-stop":
		rig.Sleep(ctx, redisDown)
		err = errors.Join(err, r.Redis.Signal(syscall.SIGCONT))
	}
	return err
}

// natsLeader crashes the NATS server that leads most of the session logs.
func (r *run) natsLeader(ctx context.Context, _ string, _ int) error {
	leader := r.logLeader()
	if leader == nil {
		return errors.New("the session logs have no leader")
	}
	return r.Log.During("nats-leader", leader.Name, func() error {
		if err := leader.Kill(); err != nil {
			return err
		}
		rig.Sleep(ctx, 12*time.Second)
		err := leader.Start()
		rig.Sleep(ctx, 5*time.Second)
		return err
	})
}

// logShards is the number of streams of the session logs.
const logShards = 16

// logLeader returns the NATS server that leads most of the session logs, or nil.
func (r *run) logLeader() (best *rig.Node) {
	count := map[string]int{}
	for i := range logShards {
		stream, err := rig.StreamCluster(r.NC, fmt.Sprint("DNP_LOG_", i))
		if err != nil {
			continue
		}
		count[stream.Leader]++
		if n := rig.Named(r.NATS, stream.Leader); n != nil && (best == nil || count[n.Name] > count[best.Name]) {
			best = n
		}
	}
	return best
}
