package natslog

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dnprelay/dnprelay/internal/fence"
	"github.com/dnprelay/dnprelay/internal/jetstream"
	"github.com/dnprelay/dnprelay/internal/outage"
	"github.com/dnprelay/dnprelay/sessionlog"
	"github.com/dnprelay/dnprelay/subject"
	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
	"golang.org/x/time/rate"
)

// Bounds of a read. A log ends its session at 4 MiB without a checkpoint, and a checkpoint is
// at most one message of NATS.
const (
	readEntriesMax = 32_768
	readBytesMax   = 8 << 20
)

// reads is how many reads are under way; others wait, one for each session.
const reads = 128

// readTimeout bounds a read from its first request on. A read takes a round trip for each
// write since the checkpoint.
const readTimeout = 2 * time.Second

// maxAge is how long a stream keeps a write at most. A session that writes nothing for so long
// loses its log, and a session that was never closed is forgotten then.
const maxAge = 24 * time.Hour

// closedTTL is how long the stream remembers the end of a session. It must outlast every
// write that is on its way, and every stop of an edge after which its clients live on.
const closedTTL = "10m"

// A Config says where the logs are. The zero value of each number stands for its default.
type Config struct {
	// Conn is the connection to NATS. It must keep nothing for later while it is broken
	// (nats.ReconnectBufSize(-1)). The caller closes it after Run has ended.
	Conn *nats.Conn

	// Subjects are the subjects of the deployment.
	Subjects subject.Names

	// Copy is 0 for a log of which there is one copy, or 1 to 3 for one of three copies of a log, each of
	// which lies on a server of its own; see [Copies].
	Copy int

	// Shards is the number of log shards of the deployment, default 64. Streams is the
	// number of streams that hold them, default 16, or 4 for a copy. Both numbers are fixed when
	// the streams are made, and Open and Maintain refuse others.
	Shards, Streams int

	// Bounds of writes, with the defaults of jetstream.RequesterConfig. A client waits for 3 s.
	InFlight, Queue int
	Timeout         time.Duration

	// Forgot, if set, is called from the goroutine of Maintain when the server of a copy lost writes. lost reports
	// whether a log may lack some; any goroutine may call it.
	Forgot func(copy int, lost func(log string) bool)

	// Log gets what an operator should know; nil means slog.Default().
	Log *slog.Logger
}

func (c Config) withDefaults() Config {
	c.Shards = cmp.Or(c.Shards, 64)
	streams := 16
	if c.Copy > 0 {
		streams = copyStreams
	}
	c.Streams = min(cmp.Or(c.Streams, streams), c.Shards)
	c.Log = cmp.Or(c.Log, slog.Default())
	return c
}

// Keys of metadata of the streams: the key of the hash that names logs, and the number of copies of each log.
const (
	metaSecret = "dnprelay-log-secret"
	metaCopies = "dnprelay-log-copies"
)

// StreamName returns the name of the g-th stream of a log of which there is one copy.
func StreamName(g int) string { return "DNP_LOG_" + strconv.Itoa(g) }

// logs describes the log streams. They have no limit of messages per subject, because such a
// limit would delete the checkpoint that a log begins with; checkpoints themselves delete what
// precedes them.
func (c *Config) logs() jetstream.Shards {
	s := jetstream.Shards{
		Shards:     jetstream.Count{N: c.Shards, Key: "dnprelay-log-shards", Name: "log shards"},
		Streams:    jetstream.Count{N: c.Streams, Key: "dnprelay-log-streams", Name: "log streams"},
		StreamName: c.streamName, Subject: c.subjects, Secret: metaSecret,
		Config: natsjs.StreamConfig{
			Description: "dnprelay: the logs of sessions", Replicas: 1,
			MaxAge: maxAge, MaxMsgsPerSubject: -1, AllowRollup: true,
			Metadata: map[string]string{metaCopies: strconv.Itoa(c.copies())},
		},
		Features: "rollups, message TTLs, no limit of messages per subject and no direct get",
	}
	if c.Copy > 0 {
		s.Config.Description = "dnprelay: a copy of the logs of sessions"
		s.Config.Placement = &natsjs.Placement{Tags: []string{CopyTag(c.Copy)}}
		s.Features = "rollups, message TTLs, no limit of messages per subject, no direct get, and one replica, placed by the tag " + CopyTag(c.Copy)
	}
	return s
}

// Log is sessionlog.Log over JetStream.
type Log struct {
	cfg        Config
	secret     []byte
	writes     *jetstream.Requester
	steps      *jetstream.Requester // of reads
	connection *connection          // nil without Copy
	maintainer *jetstream.Maintainer
	counts     counters

	highest  atomic.Uint64 // sequence that a write got, whatever the stream
	outage   outage.Outage
	tooLarge rate.Sometimes // what to say of writes that are

	servers []atomic.Pointer[string] // of a copy: name of the server of each stream; nil while it is not known

	// Workers begin reads and the connection ends them, so neither owns them.
	mu      sync.Mutex
	waiting []*read
	reading int
}

var _ sessionlog.Log = (*Log)(nil)

// Open makes the streams that do not exist, and checks that all are streams of this
// deployment; if they are not, errors.Is of the error and jetstream.ErrDeployment is true, and the error is a
// [CopiesError] if they were made for another number of copies. For one of three copies it finds the
// secret only, and Maintain does the rest, because the server of the copy may be away.
func Open(ctx context.Context, cfg Config) (*Log, error) {
	cfg = cfg.withDefaults()
	if cfg.Copy < 0 || cfg.Copy > Copies {
		return nil, fmt.Errorf("copy %d of the session log: want 1 to %d", cfg.Copy, Copies)
	}
	secret, err := cfg.findSecret(ctx)
	if err != nil {
		return nil, err
	}
	logs := cfg.logs()
	logs.SecretText = secret // with another one, edges would give one session two names
	streams := make([]natsjs.Stream, cfg.Streams)
	if cfg.Copy == 0 {
		if streams, err = logs.Open(ctx, cfg.Conn, nil); err != nil {
			return nil, err
		}
	}
	l := &Log{cfg: cfg, secret: []byte(secret), tooLarge: rate.Sometimes{Interval: time.Minute}}
	m := jetstream.MaintainerConfig{
		Conn: cfg.Conn, Streams: streams, Log: cfg.Log,
		Check: func(g int, got natsjs.StreamConfig) error {
			if err := cfg.checkCopies(got); err != nil {
				return err
			}
			return logs.Check(g, got)
		},
		Want:     func(g int) natsjs.StreamConfig { return logs.Stream(g, time.Now(), l.highest.Load()) },
		Replaced: func(int, natsjs.StreamConfig) {}, // sessions find their logs shorter than before
	}
	bounds := jetstream.RequesterConfig{Conn: cfg.Conn, InFlight: cfg.InFlight, Queue: cfg.Queue, Timeout: cfg.Timeout}
	if cfg.Copy > 0 {
		m.Seen, m.Forgot = l.seen, l.forgot
		m.Replaced = func(g int, _ natsjs.StreamConfig) { l.tell(g) }
		bounds.Conn, bounds.Inbox = nil, cfg.Conn.NewInbox()
	}
	l.maintainer = jetstream.NewMaintainer(m)
	l.writes = jetstream.NewRequester(bounds)
	bounds.InFlight, bounds.Queue = reads, reads // each read has one step under way
	if cfg.Copy > 0 {
		bounds.Inbox = cfg.Conn.NewInbox()
	}
	l.steps = jetstream.NewRequester(bounds)
	if cfg.Copy > 0 {
		l.servers = make([]atomic.Pointer[string], cfg.Streams)
		l.connection = newConnection(cfg.Copy, cfg.Conn, cfg.Log, l.writes, l.steps)
	}
	return l, nil
}

// Secret returns the key of the hash that names logs, see sessionlog.Key. It was made with the
// first stream and is as secret as the logs are.
func (l *Log) Secret() []byte { return l.secret }

// Missing returns the names of the streams that are gone, do not answer or take no writes, or, of a
// copy, were not found yet.
func (l *Log) Missing() []string { return l.maintainer.Missing() }

// Maintain makes the streams again that are deleted, until ctx ends. It returns an error if another
// node made one that is not of this deployment, with another secret, or for another number of copies; the edge must
// end then. A copy does nothing before Maintain has found its streams.
func (l *Log) Maintain(ctx context.Context) error { return l.maintainer.Run(ctx) }

// Run works until ctx ends. It then answers what is under way; later calls are not answered.
func (l *Log) Run(ctx context.Context) {
	var running sync.WaitGroup
	running.Go(func() { l.writes.Run(ctx) })
	running.Go(func() { l.steps.Run(ctx) })
	if l.connection != nil {
		running.Go(func() { l.connection.run(ctx) })
	}
	running.Wait()
	l.failReads()
}

// Append implements sessionlog.Log.
func (l *Log) Append(w sessionlog.Write, answer func(sessionlog.Answer)) {
	l.writes.Send(jetstream.Request{Msg: l.message(&w), Done: func(m *nats.Msg, err error) {
		a := l.judge(time.Now(), m, err)
		l.maintainer.Wrote(sessionlog.Shard(w.Log, l.cfg.Shards)%l.cfg.Streams, a.Verdict)
		l.hear(a.Seq)
		answer(a)
	}})
}

// hear notes the sequence of a write, above which a stream begins that has to be made again.
func (l *Log) hear(seq uint64) {
	for old := l.highest.Load(); seq > old && !l.highest.CompareAndSwap(old, seq); old = l.highest.Load() {
	}
}

// Values of headers, which all messages share.
var (
	rollup = []string{"sub"}
	closed = []string{closedTTL}
)

func (l *Log) message(w *sessionlog.Write) *nats.Msg {
	h := nats.Header{natsjs.ExpectedLastSubjSeqHeader: {strconv.FormatUint(w.Expect, 10)}}
	if w.Rollup {
		h[natsjs.MsgRollup] = rollup
	}
	if w.Final {
		h[natsjs.MsgTTLHeader] = closed
	}
	return &nats.Msg{Subject: l.cfg.subject(sessionlog.Shard(w.Log, l.cfg.Shards), w.Log), Header: h, Data: w.Data}
}

// judge judges the answer to a write. An error code of which the verdict knows nothing means
// that the store has no space, no leader or too many requests, so the write is to be repeated
// after a pause.
func (l *Log) judge(now time.Time, m *nats.Msg, err error) sessionlog.Answer {
	v, ack := jetstream.Judge(m, err, fence.Unreachable)
	switch {
	case v == fence.TooLarge:
		l.tooLarge.Do(func() {
			l.cfg.Log.Warn("ending sessions: writes of their logs are larger than the max_payload of NATS", "max_payload", l.cfg.Conn.MaxPayload())
		})
	case v == fence.OK && l.outage.Works(now):
		l.cfg.Log.Info("the session log takes writes again", "copy", l.cfg.Copy)
	case v == fence.Unreachable && err == nil:
		switch began := l.outage.Fails(now); {
		case began && l.cfg.Copy > 0:
			l.cfg.Log.Warn("a copy of the session log refuses writes. Make room for JetStream, or raise its limits", "copy", l.cfg.Copy, "code", ack.Code, "error", ack.Text)
		case began:
			l.cfg.Log.Warn("the session log refuses writes; clients with a reliable command under way end, and new ones are rejected. "+
				"Make room for JetStream, raise its limits, or bring its servers back", "code", ack.Code, "error", ack.Text)
		}
	}
	return sessionlog.Answer{Verdict: v, Seq: ack.Seq}
}

// counters are bumped by several goroutines. They are for tests; the owner of the log counts its answers.
type counters struct {
	steps  atomic.Uint64 // requests for reads
	forgot atomic.Uint64 // streams of a copy that lacked writes which they had, because their server lost them
}

// Replaced returns how many streams were made again.
func (l *Log) Replaced() uint64 { return l.maintainer.Replaced() }
