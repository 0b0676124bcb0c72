//go:build linux

package torture

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/dnprelay/dnprelay/internal/proc"
	"github.com/dnprelay/dnprelay/sessionlog"
	"github.com/dnprelay/dnprelay/testbed/history"
	"github.com/dnprelay/dnprelay/testbed/play"
	"github.com/dnprelay/dnprelay/testbed/rig"
	"github.com/nats-io/nats.go"
)

const (
	edgeCount = 3
	space     = "match"
)

// A run is a deployment with a game on it.
type run struct {
	*rig.Deployment
	*play.Table
	cfg     *Config
	log     *history.Log
	rng     *rand.Rand
	nc      *nats.Conn
	started time.Time
}

// Run writes a history, and checks it.
func Run(ctx context.Context, cfg Config) (v history.Verdict, err error) {
	phases, err := cfg.chosen()
	if err != nil {
		return v, err
	}
	r := &run{cfg: &cfg, rng: rand.New(rand.NewPCG(cfg.Seed, 1)), started: time.Now()}
	cfg.Progress("seed %d; logs are in %s, the history in %s", cfg.Seed, cfg.Dir, cfg.File)
	r.Deployment, err = rig.Deploy(ctx, deployment(&cfg))
	defer r.Deployment.Close()
	defer r.Kill()
	if err != nil {
		return v, err
	}
	if r.log, err = history.Create(cfg.File); err != nil {
		return v, err
	}
	r.log.Add(history.Record{Kind: history.Run, Note: fmt.Sprintf("seed %d, %d clients, %d edges, %d NATS servers, durability %s, flows move after %v",
		cfg.Seed, cfg.Clients, edgeCount, cfg.NATS, cfg.Durability, cfg.Reroute)})
	err = r.play(ctx, phases)
	if err = errors.Join(err, r.log.Close()); err != nil {
		return v, err
	}
	return history.CheckFile(cfg.File)
}

// deployment returns what runs.
func deployment(cfg *Config) rig.Config {
	c := rig.Config{
		Bin: cfg.Bin, NATSConf: cfg.NATSConf, Dir: cfg.Dir, NATS: cfg.NATS, Relays: 1, Edges: edgeCount,
		EdgeFlags: []string{"--workers", "1", "--open-space", space, "--sessions-per-address", "0", "--address-rate", "0", "--session-durability", cfg.Durability},
	}
	if cfg.Durability == "log" {
		c.Redis = cfg.Redis
		c.EdgeFlags = append(c.EdgeFlags, "--session-replicas", strconv.Itoa(cfg.NATS))
	}
	return c
}

// play starts the game, causes the faults, and waits until everything is delivered.
func (r *run) play(ctx context.Context, phases []PhaseKind) (err error) {
	if r.nc, err = nats.Connect(strings.Join(r.NATSURLs, ","), nats.MaxReconnects(-1), nats.ReconnectWait(100*time.Millisecond)); err != nil {
		return err
	}
	defer r.nc.Close()
	var edges []netip.AddrPort
	for _, e := range r.Edges {
		edges = append(edges, e.Host.AddrPort(rig.DNPPort))
	}
	r.Table, err = play.Open(ctx, play.TableConfig{
		Edges: edges, Players: r.cfg.Clients, Seed: r.cfg.Seed, Log: r.log,
		Game: play.GameConfig{URL: strings.Join(r.NATSURLs, ","), Space: space, Log: r.cfg.Durability == "log"},
	})
	if err != nil {
		return err
	}
	defer r.Table.Close()
	watch, err := r.watchLogs()
	if err != nil {
		return err
	}
	defer watch.Unsubscribe() // fails only when the connection is closed
	if err := r.Table.Await(ctx); err != nil {
		return err
	}
	for _, ph := range phases {
		if err := r.phase(ctx, ph); err != nil {
			return fmt.Errorf("%s: %w", ph.Name, err)
		}
	}
	r.Settle(ctx)
	return nil
}

// watchLogs records each session that its owner hands over, as the log has it.
func (r *run) watchLogs() (*nats.Subscription, error) {
	return r.nc.Subscribe("dnp.v1.log.>", func(m *nats.Msg) {
		k, err := sessionlog.ParseBlock(m.Data)
		if err != nil || k.Hand == nil || k.Ckpt == nil {
			return
		}
		if who := r.Balancer.NameAt(k.Ckpt.Info.Addr.Port()); who != "" {
			r.log.Add(history.Record{Kind: history.Handed, Who: who})
		}
	})
}

func (r *run) phase(ctx context.Context, ph PhaseKind) error {
	r.log.Phase(ph.Name, ph.Excused)
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
		r.log.Add(history.Record{Kind: history.Ops, Note: what, N: n - before[what], D: time.Since(began).Microseconds()})
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

// cpu returns the CPU time of all edges.
func (r *run) cpu() (sum time.Duration) {
	for _, e := range r.Edges {
		sum += proc.CPU(e.PID())
	}
	return sum
}
