//go:build linux

package torture

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/dnprelay/dnprelay/internal/proc"
	"github.com/dnprelay/dnprelay/testbed/history"
	"github.com/dnprelay/dnprelay/testbed/play"
	"github.com/dnprelay/dnprelay/testbed/rig"
)

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
		if err := r.fault(ctx, ph.Name, n); err != nil {
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

func (r *run) random(least, most time.Duration) time.Duration {
	return least + time.Duration(r.rng.Int64N(int64(most-least)))
}

// counters are the metrics of edges that count NATS messages.
var counters = map[string]string{
	`dnp_nats_messages_total{direction="in"}`:    "NATS messages to edges",
	`dnp_nats_messages_total{direction="out"}`:   "NATS messages of edges",
	`dnp_session_log_appends_total{answer="ok"}`: "writes to session logs",
	`dnp_session_from_stored_total`:              "messages to game servers",
}

// count records what edges do in 3 s in which nothing happens.
func (r *run) count(ctx context.Context) error {
	before, began := r.operations(ctx), time.Now()
	proc.Sleep(ctx, 3*time.Second)
	after := r.operations(ctx)
	for what, n := range after {
		r.Log.Add(history.Record{Kind: history.Ops, Note: what, N: n - before[what], D: time.Since(began).Microseconds()})
	}
	return nil
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

func (r *run) cpu() (sum time.Duration) {
	for _, e := range r.Edges {
		sum += proc.CPU(e.PID())
	}
	return sum
}
