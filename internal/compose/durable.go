package compose

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/dnprelay/dnprelay/bus/natsbus"
	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/internal/config"
	"github.com/dnprelay/dnprelay/internal/edge"
	"github.com/dnprelay/dnprelay/internal/edge/takeover"
	"github.com/dnprelay/dnprelay/internal/telemetry"
	"github.com/dnprelay/dnprelay/sessionlog/natsfrom"
	"github.com/dnprelay/dnprelay/sessionlog/natslog"
	"github.com/dnprelay/dnprelay/subject"
)

// A Durable is what an edge needs to keep sessions in a log. It is nil if sessions end with
// the edge.
type Durable struct {
	bus      *natsbus.Bus // its own connection, because the log must not wait behind batches
	log      *sessionLog
	from     *natsfrom.Publisher
	affinity Affinity // nil if there is no Redis
	redis    []telemetry.Metric
	flags    *config.Sessions
}

// An Affinity stores in Redis which edge serves which session.
type Affinity interface {
	cluster.Affinity

	// Run reaches the servers again that are lost, until ctx ends.
	Run(ctx context.Context)

	// Missing names the servers that do not answer.
	Missing() []string
}

// An OpenAffinity makes an Affinity of the Redis servers at urls for the edge node, and returns its metrics. Package
// redisaffinity has the only one. Command edge passes it in, so that relay, which needs no Redis, does not link the client
// of Redis: that client took a seventh of the time in which Go compiled relay.
type OpenAffinity func(urls []string, node string, log *slog.Logger) (Affinity, []telemetry.Metric, error)

// OpenDurable opens the session log that the flags name; nil if they name none. connect
// makes a connection to NATS, which the caller closes after Run. timeout is how long JetStream may be
// unavailable; 0 is without limit. affinity may be nil if the flags name no Redis.
func OpenDurable(ctx context.Context, c *config.Sessions, node string, connect func() (*natsbus.Bus, error), affinity OpenAffinity,
	subjects subject.Names, timeout time.Duration, log *slog.Logger) (d *Durable, err error) {
	if c.SessionDurability != "log" {
		return nil, nil
	}
	d = &Durable{flags: c}
	if d.bus, err = connect(); err != nil {
		return nil, err
	}
	if urls := c.RedisURLs(); urls != nil {
		if d.affinity, d.redis, err = affinity(urls, node, log); err != nil {
			return nil, err
		}
	}
	err = openStore(ctx, timeout, "--session-replicas", log, func(ctx context.Context) (err error) {
		if d.log, err = openSessionLog(ctx, c.SessionReplicas, natslog.Config{Conn: d.bus.Conn(), Subjects: subjects, Log: log}); err == nil {
			d.from, err = natsfrom.Open(ctx, natsfrom.Config{Conn: d.bus.Conn(), Subjects: subjects, Replicas: c.SessionReplicas, Log: log})
		}
		return err
	})
	return d, err
}

// Edge returns the configuration of the edge, with forwarding if it is not nil; nil if
// sessions end with the edge.
func (d *Durable) Edge(forwarding *Forwarding) *edge.Durable {
	if d == nil {
		return nil
	}
	e := &edge.Durable{
		Ports: takeover.Ports{Log: d.log, Secret: d.log.secret(), OnForgot: d.log.onForgot, AnswerOnly: d.flags.AnswerOnly},
		From:  fromNATS{d.from}, Missing: d.missing, DrainLinger: d.flags.DrainLinger,
	}
	if d.affinity != nil {
		e.Affinity = d.affinity
	}
	if forwarding != nil {
		e.Forward = forwarding
	}
	return e
}

// key returns a secret of the edge with this name, the same for each of its processes; nil if sessions end with the edge.
func (d *Durable) key(node string) []byte {
	if d == nil {
		return nil
	}
	return append(append([]byte("edge "), d.log.secret()...), node...)
}

// Maintain makes the streams of the log again that are deleted, until ctx ends. It returns an error
// if the edge must end.
func (d *Durable) Maintain(ctx context.Context) error {
	if d == nil {
		return nil
	}
	return d.log.maintain(ctx)
}

// Run serves the edge until ctx ends, which must be after the edge has ended.
func (d *Durable) Run(ctx context.Context) {
	if d == nil {
		return
	}
	var running sync.WaitGroup
	running.Go(func() { d.log.run(ctx) })
	running.Go(func() { d.from.Run(ctx) })
	if d.affinity != nil {
		running.Go(func() { d.affinity.Run(ctx) })
	}
	running.Wait()
}

// missing names what is not available.
func (d *Durable) missing() (list []string) {
	if d == nil {
		return nil
	}
	if !d.bus.Connected() {
		list = append(list, "log")
	}
	list = append(list, d.log.missing()...)
	list = append(list, d.from.Missing()...)
	if d.affinity != nil {
		list = append(list, d.affinity.Missing()...)
	}
	return list
}

// Metrics returns the metrics of the log and of Redis.
func (d *Durable) Metrics() []telemetry.Metric {
	if d == nil {
		return nil
	}
	of := telemetry.NewGroup("dnp.session.from.", d.from.Stats)
	return slices.Concat(d.log.metrics(), d.redis, []telemetry.Metric{
		of.Counter("stored", "{message}", "Reliable messages of clients that the stream for game servers confirmed.", &of.All.Stored),
		of.Counter("failures", "{attempt}", "Attempts to store a reliable message that the stream did not confirm.", &of.All.Failures),
		of.Gauge("waiting", "{message}", "Reliable messages of clients that the stream has not confirmed yet.", &of.All.Waiting),
		replacedMetric(func() uint64 { return d.log.replaced() + d.from.Stats().Replaced }),
	})
}

// fromNATS adapts natsfrom to edge.From.
type fromNATS struct{ p *natsfrom.Publisher }

// Begin implements edge.From.
func (f fromNATS) Begin(space, client, session string, delivered func(uint64)) edge.Feed {
	return f.p.Begin(space, client, session, delivered)
}
