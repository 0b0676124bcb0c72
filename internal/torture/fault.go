//go:build linux

package torture

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"syscall"
	"time"

	"github.com/dnprelay/dnprelay/internal/proc"
)

// Times of faults.
const (
	stopLeast  = 100 * time.Millisecond
	stopMost   = 10 * time.Second
	stopNotice = 500 * time.Millisecond // after which the balancer moves the flows of a stopped edge
	drainMost  = 90 * time.Second
	sprayTime  = 5 * time.Second
	redisDown  = 3 * time.Second
)

// fault lets the n-th fault of a phase happen, and heal.
func (r *run) fault(ctx context.Context, phase string, n int) error {
	r.sleep(ctx, r.random(500*time.Millisecond, 1500*time.Millisecond))
	switch phase {
	case "calm":
		return r.during(noteCalm, "", func() error { return r.count(ctx) })
	case "kill":
		return r.kill(ctx, phase)
	case "stop":
		return r.stop(ctx)
	case "drain", "drain-flush":
		return r.drain(ctx, phase, n%edgeCount)
	case "spray":
		return r.sprayed(ctx, n%2 == 1)
	case "redis-kill", "redis-flush", "redis-lies", "redis-stop":
		return r.redisFault(ctx, phase)
	case "nats-leader":
		return r.natsLeader(ctx)
	}
	return fmt.Errorf("phase %q is not implemented", phase)
}

// during notes a fault around f.
func (r *run) during(how, who string, f func() error) error {
	r.faults++
	n := r.faults
	r.note.add(Record{Kind: kindFault, N: n, Who: who, Note: how})
	err := f()
	r.note.add(Record{Kind: kindHealed, N: n})
	return err
}

// kill crashes the edge with most clients; the balancer notices after a while.
func (r *run) kill(ctx context.Context, how string) error {
	i := r.balancer.most()
	e := r.edges[i]
	err := r.during(how, e.Name, func() error {
		if err := e.Kill(); err != nil {
			return err
		}
		r.sleep(ctx, r.cfg.Reroute)
		r.balancer.reroute(i, true)
		r.sleep(ctx, 1500*time.Millisecond)
		return nil
	})
	if err != nil {
		return err
	}
	return r.again(ctx, i)
}

// again starts an edge again that has ended.
func (r *run) again(ctx context.Context, i int) error {
	if err := r.edges[i].Start(); err != nil {
		return err
	}
	if err := r.ready(ctx, r.edges[i]); err != nil {
		return err
	}
	r.balancer.avoid(i, false)
	return nil
}

// stop pauses the edge with most clients, short pauses as often as long ones.
func (r *run) stop(ctx context.Context) error {
	i := r.balancer.most()
	e := r.edges[i]
	spread := math.Log(float64(stopMost) / float64(stopLeast))
	d := time.Duration(float64(stopLeast) * math.Exp(r.rng.Float64()*spread))
	err := r.during("stop "+d.Round(time.Millisecond).String(), e.Name, func() error {
		if err := e.Signal(syscall.SIGSTOP); err != nil {
			return err
		}
		r.sleep(ctx, min(d, stopNotice))
		if d > stopNotice {
			r.balancer.reroute(i, true)
			r.sleep(ctx, d-stopNotice)
		}
		return e.Signal(syscall.SIGCONT)
	})
	r.sleep(ctx, time.Second)
	r.balancer.avoid(i, false)
	return err
}

// drain tells an edge to leave. Its flows move when it is not ready any more.
func (r *run) drain(ctx context.Context, how string, i int) error {
	e := r.edges[i]
	err := r.during(how, e.Name, func() error {
		r.balancer.avoid(i, true)
		if err := e.Signal(syscall.SIGTERM); err != nil {
			return err
		}
		err := proc.Await(ctx, drainMost, e.Name+" has handed its sessions over", func() bool { return e.Ended() != nil || !r.isReady(e) })
		if err != nil {
			return err
		}
		r.sleep(ctx, r.cfg.Reroute)
		r.balancer.reroute(i, how == "drain-flush")
		return proc.Await(ctx, drainMost, e.Name+" has ended", func() bool { return e.Ended() != nil })
	})
	if err != nil {
		return err
	}
	return r.again(ctx, i)
}

// sprayed measures a while with or without spraying.
func (r *run) sprayed(ctx context.Context, on bool) error {
	what := noteDirect
	if on {
		what = "sprayed"
	}
	r.balancer.setSpray(on)
	defer r.balancer.setSpray(false)
	return r.during(what, "", func() error {
		r.sleep(ctx, time.Second)
		cpu, down := r.cpu(), r.balancer.down.Load()
		r.sleep(ctx, sprayTime)
		r.note.add(Record{Kind: kindCost, Note: what, N: r.balancer.down.Load() - down, D: (r.cpu() - cpu).Microseconds()})
		return nil
	})
}

// lies names an edge as the owner of every session.
const lies = `for _, k in ipairs(redis.call('KEYS', 'dnp:s:*')) do redis.call('HSET', k, 'own', ARGV[1]) end`

// redisFault breaks Redis, and kills an edge so that it matters.
func (r *run) redisFault(ctx context.Context, phase string) (err error) {
	switch phase {
	case "redis-kill":
		err = r.redis.Kill()
	case "redis-flush":
		err = r.tell("FLUSHALL")
	case "redis-lies":
		err = r.tell("EVAL", lies, "0", r.edges[r.rng.IntN(edgeCount)].Name)
	case "redis-stop":
		err = r.redis.Signal(syscall.SIGSTOP)
	}
	if err != nil {
		return err
	}
	r.sleep(ctx, 300*time.Millisecond)
	err = r.kill(ctx, phase)
	switch phase {
	case "redis-kill":
		r.sleep(ctx, redisDown)
		err = firstError(err, r.redis.Start())
	case "redis-stop":
		r.sleep(ctx, redisDown)
		err = firstError(err, r.redis.Signal(syscall.SIGCONT))
	}
	return err
}

func firstError(a, b error) error {
	if a != nil {
		return a
	}
	return b
}

// natsLeader crashes the NATS server that leads most of the session logs.
func (r *run) natsLeader(ctx context.Context) error {
	leader := r.logLeader()
	if leader == nil {
		return fmt.Errorf("the session logs have no leader")
	}
	return r.during("nats-leader", leader.Name, func() error {
		if err := leader.Kill(); err != nil {
			return err
		}
		r.sleep(ctx, 12*time.Second)
		if err := leader.Start(); err != nil {
			return err
		}
		r.sleep(ctx, 5*time.Second)
		return nil
	})
}

// logShards is how many streams the session logs have.
const logShards = 16

func (r *run) logLeader() *node {
	count := map[string]int{}
	var best *node
	for i := range logShards {
		m, err := r.nc.Request(fmt.Sprintf("$JS.API.STREAM.INFO.DNP_LOG_%d", i), nil, time.Second)
		var info struct{ Cluster struct{ Leader string } }
		if err != nil || json.Unmarshal(m.Data, &info) != nil {
			continue
		}
		name := info.Cluster.Leader
		count[name]++
		for _, n := range r.nats {
			if n.Name == name && (best == nil || count[name] > count[best.Name]) {
				best = n
			}
		}
	}
	return best
}
