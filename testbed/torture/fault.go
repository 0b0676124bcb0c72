//go:build linux

package torture

import (
	"context"
	"errors"
	"fmt"
	"math"
	"syscall"
	"time"

	"github.com/dnprelay/dnprelay/internal/proc"
	"github.com/dnprelay/dnprelay/testbed/history"
	"github.com/dnprelay/dnprelay/testbed/rig"
)

// Times of faults.
const (
	stopLeast  = 100 * time.Millisecond
	stopMost   = 10 * time.Second
	stopNotice = 500 * time.Millisecond // after which the balancer moves the flows of a stopped edge
	sprayTime  = 5 * time.Second
	redisDown  = 3 * time.Second
)

// fault causes fault n of a phase, and returns when it has healed.
func (r *run) fault(ctx context.Context, phase string, n int) error {
	proc.Sleep(ctx, r.random(500*time.Millisecond, 1500*time.Millisecond))
	switch phase {
	case "calm":
		return r.Log.During(history.Calm, "", func() error { return r.count(ctx) })
	case "kill":
		return r.Crash(ctx, phase, r.Busiest())
	case "stop":
		return r.stop(ctx)
	case "drain", "drain-flush":
		edge := n % edgeCount
		err := r.Log.During(phase, r.Edges[edge].Name, func() error { return r.Drain(ctx, edge, phase == "drain-flush") })
		if err != nil {
			return err
		}
		return r.Restart(ctx, edge)
	case "spray":
		return r.sprayed(ctx, n%2 == 1)
	case "redis-kill", "redis-flush", "redis-lies", "redis-stop":
		return r.redisFault(ctx, phase)
	case "nats-leader":
		return r.natsLeader(ctx)
	}
	return fmt.Errorf("phase %q is not implemented", phase)
}

// stop pauses the edge with most clients. The logarithm of the duration is uniform.
func (r *run) stop(ctx context.Context) error {
	i := r.Busiest()
	e := r.Edges[i]
	spread := math.Log(float64(stopMost) / float64(stopLeast))
	d := time.Duration(float64(stopLeast) * math.Exp(r.rng.Float64()*spread))
	err := r.Log.During("stop "+d.Round(time.Millisecond).String(), e.Name, func() error {
		if err := e.Signal(syscall.SIGSTOP); err != nil {
			return err
		}
		proc.Sleep(ctx, min(d, stopNotice))
		if d > stopNotice {
			r.Reroute(i, true)
			proc.Sleep(ctx, d-stopNotice)
		}
		return e.Signal(syscall.SIGCONT)
	})
	proc.Sleep(ctx, time.Second)
	r.Avoid(i, false)
	return err
}

// sprayed measures the CPU of edges with or without spraying.
func (r *run) sprayed(ctx context.Context, on bool) error {
	what := history.Direct
	if on {
		what = "sprayed"
	}
	r.SetSpray(on)
	defer r.SetSpray(false)
	return r.Log.During(what, "", func() error {
		proc.Sleep(ctx, time.Second)
		cpu, down := r.cpu(), r.Down()
		proc.Sleep(ctx, sprayTime)
		r.Log.Add(history.Record{Kind: history.CPU, Note: what, N: r.Down() - down, D: (r.cpu() - cpu).Microseconds()})
		return nil
	})
}

// lies names an edge as the owner of every session.
const lies = `for _, k in ipairs(redis.call('KEYS', 'dnp:s:*')) do redis.call('HSET', k, 'own', ARGV[1]) end`

// redisFault breaks Redis, and kills an edge so that the loss matters.
func (r *run) redisFault(ctx context.Context, phase string) (err error) {
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
	proc.Sleep(ctx, 300*time.Millisecond)
	err = r.Crash(ctx, phase, r.Busiest())
	switch phase {
	case "redis-kill":
		proc.Sleep(ctx, redisDown)
		err = errors.Join(err, r.Redis.Start())
	case "redis-stop":
		proc.Sleep(ctx, redisDown)
		err = errors.Join(err, r.Redis.Signal(syscall.SIGCONT))
	}
	return err
}

// natsLeader crashes the NATS server that leads most of the session logs.
func (r *run) natsLeader(ctx context.Context) error {
	leader := r.logLeader()
	if leader == nil {
		return errors.New("the session logs have no leader")
	}
	return r.Log.During("nats-leader", leader.Name, func() error {
		if err := leader.Kill(); err != nil {
			return err
		}
		proc.Sleep(ctx, 12*time.Second)
		if err := leader.Start(); err != nil {
			return err
		}
		proc.Sleep(ctx, 5*time.Second)
		return nil
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
