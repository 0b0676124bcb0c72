//go:build linux

package clustertest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"
)

// A run is a cluster with a game server and players, on which faults are tried.
type run struct {
	*deployment
	cfg       *Config
	rng       *rand.Rand
	game      *game
	ledger    *ledger
	lamp      *lamp
	everybody []*player
}

// Run starts the cluster, tries the faults and ends everything. The report has what
// was measured until then also if there is an error.
func Run(ctx context.Context, cfg Config) (report Report, err error) {
	faults, err := cfg.chosen()
	if err != nil {
		return report, err
	}
	report = Report{Seed: cfg.Seed, Started: time.Now()}
	cfg.Progress("seed %d; logs and streams are in %s", cfg.Seed, cfg.Dir)
	d, err := deploy(ctx, &cfg)
	if err != nil {
		return report, err
	}
	defer d.close()
	cfg.Progress("%d NATS servers, %d relays and %d edges run; hosts are cut off by %s", servers, relays, edges, d.means())
	r := &run{deployment: d, cfg: &cfg, rng: rand.New(rand.NewPCG(cfg.Seed, 100))}
	stop, err := r.populate(ctx)
	defer stop()
	if err != nil {
		return report, err
	}
	for _, f := range faults {
		for n := range cfg.roundsOf(f) {
			if ctx.Err() != nil || cfg.StopAfter > 0 && time.Since(report.Started) > cfg.StopAfter {
				report.Cut = true
				return report, ctx.Err()
			}
			round, err := r.round(ctx, f)
			if err != nil {
				return report, fmt.Errorf("%s, round %d: %w", f.Name, n+1, err)
			}
			report.Rounds = append(report.Rounds, round)
			cfg.Progress("%s %d/%d: %s", f.Name, n+1, cfg.roundsOf(f), round)
		}
	}
	report.Took = time.Since(report.Started)
	return report, nil
}

// populate brings the game server and the players, and waits until these see
// everything.
func (r *run) populate(ctx context.Context) (stop func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	stop = func() {
		cancel()
		running.Wait()
		for _, p := range r.everybody {
			p.peer.Close()
		}
		if r.game != nil {
			r.game.nc.Close()
		}
	}
	if r.game, err = newGame(r.deployment); err != nil {
		return stop, err
	}
	r.ledger = &ledger{game: r.game}
	if err := r.game.once(ctx, putOp(lampKey, 0, "read-write")); err != nil {
		return stop, err
	}
	running.Go(func() { r.game.run(ctx) })
	if r.everybody, err = r.join(ctx); err != nil {
		return stop, err
	}
	r.lamp = &lamp{player: r.everybody[0]}
	running.Go(func() { r.lamp.run(ctx) })
	if _, err := r.equalSince(ctx, true); err != nil {
		return stop, err
	}
	return stop, nil
}
