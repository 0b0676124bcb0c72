package natslog

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/dnprelay/dnprelay/internal/fence"
	"github.com/dnprelay/dnprelay/internal/natsask"
	"github.com/dnprelay/dnprelay/sessionlog"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Log is sessionlog.Log over JetStream.
type Log struct {
	cfg    Config
	api    string // prefix of the subjects of JetStream's API
	secret []byte
	writes *natsask.Asker
	steps  *natsask.Asker // of reads
	counts counters
	outage outage

	// Reads are begun by workers and ended by the connection, so neither owns them.
	mu      sync.Mutex
	waiting []*walk
	walking int
}

var _ sessionlog.Log = (*Log)(nil)

// Open makes the streams, if they do not exist, and checks that they are those of this
// deployment; the error wraps ErrDeployment if they are not.
func Open(ctx context.Context, cfg Config) (*Log, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	js, err := jetstream.New(cfg.Conn, cfg.JetStream...)
	if err != nil {
		return nil, fmt.Errorf("JetStream: %w", err)
	}
	var secret string
	for g := range cfg.Streams {
		stream, err := cfg.open(ctx, js, g)
		if err != nil {
			return nil, err
		}
		secret += stream.Metadata[metaSecret]
	}
	l := &Log{cfg: cfg, api: apiPrefix(js.Options()), secret: []byte(secret)}
	ask := natsask.Config{Conn: cfg.Conn, InFlight: cfg.InFlight, Queue: cfg.Queue, Timeout: cfg.Timeout}
	if l.writes, err = natsask.New(ask); err != nil {
		return nil, fmt.Errorf("session log: %w", err)
	}
	ask.InFlight, ask.Queue = cfg.Reads, cfg.Reads // each has one step under way
	if l.steps, err = natsask.New(ask); err != nil {
		return nil, fmt.Errorf("session log: %w", err)
	}
	return l, nil
}

func apiPrefix(o jetstream.JetStreamOptions) string {
	switch {
	case o.APIPrefix != "":
		return o.APIPrefix
	case o.Domain != "":
		return "$JS." + o.Domain + ".API"
	}
	return "$JS.API"
}

// Shards returns the number of log shards, for sessionlog.NewBatches.
func (l *Log) Shards() int { return l.cfg.Shards }

// Secret returns what makes the names of logs, see sessionlog.Key. It was made with the first
// stream and is as secret as the logs are.
func (l *Log) Secret() []byte { return l.secret }

// Run does the work until ctx ends. What is under way is answered then; what is asked
// afterwards is not.
func (l *Log) Run(ctx context.Context) {
	var running sync.WaitGroup
	running.Go(func() { l.writes.Run(ctx) })
	running.Go(func() { l.steps.Run(ctx) })
	running.Wait()
	l.drop()
}

// Append implements sessionlog.Log.
func (l *Log) Append(writes []sessionlog.Write, answer func(i int, a sessionlog.Answer)) {
	requests := make([]natsask.Request, len(writes))
	for i := range writes {
		requests[i] = natsask.Request{Msg: l.message(&writes[i]), Done: func(m *nats.Msg, err error) {
			a := l.verdict(time.Now(), m, err)
			l.counts.appends[a.Verdict].Add(1)
			answer(i, a)
		}}
	}
	l.counts.bytes.Add(bytes(writes))
	l.writes.Ask(requests...)
}

func bytes(writes []sessionlog.Write) (n uint64) {
	for i := range writes {
		n += uint64(len(writes[i].Data))
	}
	return n
}

func (l *Log) message(w *sessionlog.Write) *nats.Msg {
	h := nats.Header{natsask.HeaderExpect: {strconv.FormatUint(w.Expect, 10)}}
	if w.Rollup {
		h[natsask.HeaderRollup] = rollup
	}
	if w.Final {
		h[natsask.HeaderTTL] = final
	}
	return &nats.Msg{Subject: l.cfg.Subjects.Log(sessionlog.Shard(w.Log, l.cfg.Shards), w.Log), Header: h, Data: w.Data}
}

// Values of headers. They are shared by all messages.
var (
	rollup = []string{"sub"}
	final  = []string{finalTTL}
)

// verdict judges the answer to a write.
func (l *Log) verdict(now time.Time, m *nats.Msg, err error) sessionlog.Answer {
	if err != nil {
		if errors.Is(err, nats.ErrMaxPayload) && l.counts.tooLarge.Add(1) == 1 {
			l.cfg.Log.Error("a write of a session log is larger than NATS takes; its session stands still", "max_payload", l.cfg.Conn.MaxPayload())
		}
		return sessionlog.Answer{Verdict: failure(err)}
	}
	switch ack, ok := natsask.ParseAck(m.Data); {
	case !ok:
		return sessionlog.Answer{Verdict: fence.Unknown}
	case ack.Code == 0:
		if l.outage.taken(now) {
			l.cfg.Log.Info("the session log takes writes again")
		}
		return sessionlog.Answer{Verdict: fence.OK, Seq: ack.Seq}
	case ack.Code == natsask.CodeStale:
		return sessionlog.Answer{Verdict: fence.Stale}
	case ack.Code == natsask.CodeBusy:
		return sessionlog.Answer{Verdict: fence.Busy}
	default: // out of space, no leader, too many requests: to be tried again in a while
		l.counts.refused.Add(1)
		if l.outage.refused(now) {
			l.cfg.Log.Warn("the session log refuses writes; clients that say something reliable end, and new ones are rejected. "+
				"Make room for JetStream, raise its limits, or bring its servers back", "code", ack.Code, "error", ack.Text)
		}
		return sessionlog.Answer{Verdict: fence.Unreachable}
	}
}

func failure(err error) fence.Verdict {
	if errors.Is(err, natsask.ErrNotSent) {
		return fence.Unreachable
	}
	return fence.Unknown
}
