package compose

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/dnprelay/dnprelay/bus/natsbus"
	"github.com/dnprelay/dnprelay/cluster/redisaffinity"
	"github.com/dnprelay/dnprelay/internal/config"
	"github.com/dnprelay/dnprelay/internal/edge"
	"github.com/dnprelay/dnprelay/internal/jetstream"
	"github.com/dnprelay/dnprelay/internal/telemetry"
	"github.com/dnprelay/dnprelay/sessionlog/natsfrom"
	"github.com/dnprelay/dnprelay/sessionlog/natslog"
	"github.com/dnprelay/dnprelay/subject"
)

// A Durable is what an edge needs to keep sessions in a log. A nil Durable is that of an
// edge that does not.
type Durable struct {
	bus      *natsbus.Bus // its own, because the log must not wait behind batches
	log      *natslog.Log
	from     *natsfrom.Publisher
	affinity *redisaffinity.Affinity // nil if there is no Redis
	flags    *config.Sessions
}

// OpenDurable opens what the flags want; nil if that is nothing. connect makes a
// connection to NATS, which is closed by Close. timeout is how long JetStream may be
// away; 0 is for ever.
func OpenDurable(ctx context.Context, c *config.Sessions, node string, connect func() (*natsbus.Bus, error),
	subjects subject.Names, timeout time.Duration, log *slog.Logger) (d *Durable, err error) {
	if c.SessionDurability != "log" {
		return nil, nil
	}
	d = &Durable{flags: c}
	defer func() {
		if err != nil {
			d.Close()
		}
	}()
	if d.bus, err = connect(); err != nil {
		return nil, err
	}
	if c.Redis != "" {
		if d.affinity, err = redisaffinity.Open(redisaffinity.Config{URL: c.Redis, Node: node, Log: log}); err != nil {
			return nil, err
		}
	}
	err = again(ctx, timeout, log, func(ctx context.Context) error { return d.openStreams(ctx, subjects, log) })
	return d, err
}

func (d *Durable) openStreams(ctx context.Context, subjects subject.Names, log *slog.Logger) (err error) {
	if d.log, err = natslog.Open(ctx, natslog.Config{Conn: d.bus.Conn(), Subjects: subjects, Replicas: d.flags.SessionReplicas, Log: log}); err == nil {
		d.from, err = natsfrom.Open(ctx, natsfrom.Config{Conn: d.bus.Conn(), Subjects: subjects, Replicas: d.flags.SessionReplicas, Log: log})
	}
	return err
}

// again does what needs JetStream until it works. A deployment that contradicts this
// node does not get better by waiting.
func again(ctx context.Context, timeout time.Duration, log *slog.Logger, do func(context.Context) error) error {
	start := time.Now()
	for {
		attempt, cancel := context.WithTimeout(ctx, 5*time.Second)
		err := do(attempt)
		cancel()
		switch {
		case err == nil || errors.Is(err, jetstream.ErrDeployment) || ctx.Err() != nil:
			return err
		case timeout > 0 && time.Since(start) >= timeout:
			return fmt.Errorf("gave up after %v: %w", timeout, err)
		}
		log.Warn("JetStream is not there, trying again", "error", err)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Second):
		}
	}
}

// Edge returns what the edge is to use, with forwarding if it is not nil; nil if it keeps
// no log.
func (d *Durable) Edge(forwarding *Forwarding) *edge.Durable {
	if d == nil {
		return nil
	}
	e := &edge.Durable{
		Log: d.log, Shards: d.log.Shards(), Secret: d.log.Secret(), From: fromNATS{d.from},
		DrainTimeout: d.flags.DrainTimeout, DrainLinger: d.flags.DrainLinger,
		AnswerOnly: d.flags.AnswerOnly,
	}
	if d.affinity != nil {
		e.Affinity = d.affinity
	}
	if forwarding != nil {
		e.Forward = forwarding
	}
	return e
}

// Run does the work until ctx ends, which has to be after the edge.
func (d *Durable) Run(ctx context.Context) {
	if d == nil {
		return
	}
	var running sync.WaitGroup
	running.Go(func() { d.log.Run(ctx) })
	running.Go(func() { d.from.Run(ctx) })
	if d.affinity != nil {
		running.Go(func() { d.affinity.Run(ctx) })
	}
	running.Wait()
}

// Close closes the connection to NATS, after Run.
func (d *Durable) Close() {
	if d != nil && d.bus != nil {
		d.bus.Close()
	}
}

// missing names what is not there.
func (d *Durable) missing() (list []string) {
	if d == nil {
		return nil
	}
	if !d.bus.Connected() {
		list = append(list, "log")
	}
	if d.affinity != nil && d.affinity.Err() != nil {
		list = append(list, "redis")
	}
	return list
}

// Metrics returns what is shown at /metrics of the log and of the affinity.
func (d *Durable) Metrics() []telemetry.Metric {
	if d == nil {
		return nil
	}
	all := []telemetry.Metric{
		telemetry.CounterBy("dnp.session.log.appends", "{write}", "Writes to session logs, by how the store answered.", "answer",
			func(observe func(string, uint64)) { observeVerdicts(observe, d.log.Stats().Appends) }),
		telemetry.CounterBy("dnp.session.log.reads", "{read}", "Reads of session logs, by how the store answered.", "answer",
			func(observe func(string, uint64)) { observeVerdicts(observe, d.log.Stats().Reads) }),
		telemetry.Counter("dnp.session.log.io", "By", "Bytes of writes to session logs.", func() uint64 { return d.log.Stats().Bytes }),
		telemetry.Counter("dnp.session.from.stored", "{message}", "Reliable messages of clients that the stream for game servers confirmed.",
			func() uint64 { return d.from.Stats().Stored }),
		telemetry.Counter("dnp.session.from.failures", "{attempt}", "Attempts that it did not confirm.", func() uint64 { return d.from.Stats().Failures }),
		telemetry.Gauge("dnp.session.from.waiting", "{message}", "Reliable messages of clients that are not confirmed yet.",
			func() float64 { return float64(d.from.Stats().Waiting) }),
	}
	if d.affinity == nil {
		return all
	}
	return append(all,
		telemetry.Counter("dnp.session.affinity.trips", "{trip}", "Ways to Redis and back.", func() uint64 { return d.affinity.Stats().Trips }),
		telemetry.Counter("dnp.session.affinity.writes", "{write}", "Claims, renewals and releases.", func() uint64 { return d.affinity.Stats().Writes }),
		telemetry.Counter("dnp.session.affinity.asks", "{question}", "Questions that Redis answered.", func() uint64 { return d.affinity.Stats().Asks }),
		telemetry.Counter("dnp.session.affinity.failures", "{command}", "Commands without an answer of Redis.", func() uint64 { return d.affinity.Stats().Failures }),
	)
}

func observeVerdicts(observe func(string, uint64), v natslog.Verdicts) {
	observe("ok", v.OK)
	observe("stale", v.Stale)
	observe("busy", v.Busy)
	observe("unknown", v.Unknown)
	observe("unreachable", v.Unreachable)
}

// fromNATS is natsfrom as an edge wants it.
type fromNATS struct{ p *natsfrom.Publisher }

// Begin implements edge.From.
func (f fromNATS) Begin(space, client, session string, delivered func(uint64)) edge.Feed {
	return f.p.Begin(natsfrom.Source{Space: space, Client: client, Session: session}, delivered)
}
