package natsfrom

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
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
)

// StreamName is the name of the stream.
const StreamName = "DNP_FROM"

// maxAge is how long game servers may be away. dedupe is how long the stream remembers the ids
// of messages: it costs the server about 200 bytes of memory per message. An edge that publishes
// an older message again was stopped for so long; consumers drop that message by its number.
const (
	maxAge = 10 * time.Minute
	dedupe = 2 * time.Minute
)

// A Config says where the stream is. The zero value of each number stands for its default.
type Config struct {
	// Conn is the connection to NATS. It must keep nothing for later while it is broken
	// (nats.ReconnectBufSize(-1)). The caller closes it after Run has ended.
	Conn *nats.Conn

	// Subjects are the subjects of the deployment.
	Subjects subject.Names

	// Replicas is the number of copies of a stream that Open makes; default 1.
	Replicas int

	InFlight int           // sessions that wait for a confirmation; default 4,096. Further ones wait in a queue
	Timeout  time.Duration // for a confirmation; default 1 s
	Pause    time.Duration // before a failed message is published again; default 100 ms

	// Log gets what an operator should know; nil means slog.Default().
	Log *slog.Logger
}

func (c Config) withDefaults() Config {
	c.Replicas = cmp.Or(c.Replicas, 1)
	c.Timeout = cmp.Or(c.Timeout, time.Second)
	c.Pause = cmp.Or(c.Pause, 100*time.Millisecond)
	c.Log = cmp.Or(c.Log, slog.Default())
	return c
}

// stream returns the configuration of the stream.
func (c *Config) stream() natsjs.StreamConfig {
	return natsjs.StreamConfig{
		Name: StreamName, Subjects: []string{c.Subjects.FromAll()}, Replicas: c.Replicas, Storage: natsjs.FileStorage,
		Description: "dnprelay: reliable messages of clients", MaxAge: maxAge, Duplicates: dedupe,
	}
}

// open makes the stream if it does not exist. A stream that exists may have other limits,
// which are the operator's decision.
func (c *Config) open(ctx context.Context) (natsjs.Stream, error) {
	s, err := jetstream.OpenStream(ctx, c.Conn, StreamName, c.stream)
	if err != nil {
		return nil, err
	}
	if got, want := s.CachedInfo().Config.Subjects, c.stream().Subjects; !slices.Equal(got, want) {
		return nil, fmt.Errorf("stream %s has the subjects %v, want %v", StreamName, got, want)
	}
	return s, nil
}

// A Publisher publishes the messages of all sessions of an edge.
type Publisher struct {
	cfg        Config
	requester  *jetstream.Requester
	maintainer *jetstream.Maintainer
	counts     counters
	ended      atomic.Bool
}

// Stats are counters since Open.
type Stats struct {
	Stored     uint64 // messages that the stream confirmed
	Duplicates uint64 // of these, messages that the stream had already
	Failures   uint64 // attempts that were not confirmed
	Waiting    int64  // messages that are not confirmed yet
	Replaced   uint64 // how often the stream was made again
}

type counters struct {
	stored, duplicates, failures atomic.Uint64
	waiting                      atomic.Int64
	failing                      atomic.Bool  // the log says so
	since                        atomic.Int64 // when messages began to fail, in Unix nanoseconds; 0 if they do not
}

// Open makes the stream if it does not exist.
func Open(ctx context.Context, cfg Config) (*Publisher, error) {
	cfg = cfg.withDefaults()
	stream, err := cfg.open(ctx)
	if err != nil {
		return nil, err
	}
	maintainer := jetstream.NewMaintainer(jetstream.MaintainerConfig{
		Conn: cfg.Conn, Streams: []natsjs.Stream{stream}, Log: cfg.Log,
		Want:     func(int) natsjs.StreamConfig { return cfg.stream() },
		Check:    func(int, natsjs.StreamConfig) error { return nil }, // the answers to messages show whether they are stored
		Replaced: func(int, natsjs.StreamConfig) {},
	})
	bounds := jetstream.RequesterConfig{Conn: cfg.Conn, InFlight: cfg.InFlight, Timeout: cfg.Timeout}
	return &Publisher{cfg: cfg, requester: jetstream.NewRequester(bounds), maintainer: maintainer}, nil
}

// Run works until ctx ends. Repetitions that are due later do nothing.
func (p *Publisher) Run(ctx context.Context) {
	defer p.ended.Store(true)
	var running sync.WaitGroup
	running.Go(func() { _ = p.maintainer.Run(ctx) }) // returns no error but that of Check
	p.requester.Run(ctx)
	running.Wait()
}

// Missing returns the name of the stream if it is gone, does not answer or takes no messages.
func (p *Publisher) Missing() []string { return p.maintainer.Missing() }

// retryLater lets a feed publish its first message again after a pause.
func (p *Publisher) retryLater(f *Feed, reason string) {
	p.counts.failures.Add(1)
	p.maintainer.Wrote(0, fence.Unreachable)
	if p.counts.failed(time.Now(), p.cfg.Conn.IsConnected()) {
		p.cfg.Log.Warn("messages of clients do not reach the stream; trying again", "stream", StreamName, "error", reason)
	}
	time.AfterFunc(p.cfg.Pause, func() {
		if !p.ended.Load() {
			f.publish()
		}
	})
}

// tellAfter is how long messages must fail, although there is a connection, until that is a line in the log. The
// loss of the connection is one already, and the election of a leader takes 4 to 9 s.
const tellAfter = outage.End

// failed notes that a message failed, and reports whether that is to be told.
func (c *counters) failed(now time.Time, connected bool) bool {
	if !connected {
		c.since.Store(0)
		return false
	}
	c.since.CompareAndSwap(0, now.UnixNano())
	return now.UnixNano()-c.since.Load() >= int64(tellAfter) && !c.failing.Swap(true)
}

// confirmed counts a message that is stored.
func (p *Publisher) confirmed(a jetstream.Ack) {
	p.counts.stored.Add(1)
	p.maintainer.Wrote(0, fence.OK)
	if a.Duplicate {
		p.counts.duplicates.Add(1)
	}
	p.counts.since.Store(0)
	if p.counts.failing.Load() && p.counts.failing.Swap(false) {
		p.cfg.Log.Info("messages of clients reach the stream again", "stream", StreamName)
	}
}

// Stats returns the counters.
func (p *Publisher) Stats() Stats {
	c := &p.counts
	return Stats{Stored: c.stored.Load(), Duplicates: c.duplicates.Load(), Failures: c.failures.Load(), Waiting: c.waiting.Load(), Replaced: p.maintainer.Replaced()}
}

// A Feed publishes the messages of one session. Its methods may be called from any goroutine
// and do not block.
type Feed struct {
	p         *Publisher
	subject   string
	session   string
	delivered func(number uint64)

	// Deliver is called by a worker, confirmations come from the connection.
	mu      sync.Mutex
	waiting []sessionlog.Message // the first is under way; the session bounds them
	ended   bool
}

// Begin returns the feed of a session of a client; session names it for ever. A goroutine of the
// Publisher calls delivered when the message with this number and all before it are stored;
// delivered must not block.
func (p *Publisher) Begin(space, client, session string, delivered func(number uint64)) *Feed {
	return &Feed{p: p, subject: p.cfg.Subjects.From(space, client), session: session, delivered: delivered}
}

// Deliver publishes a message behind those before. Its data must not be changed.
func (f *Feed) Deliver(m sessionlog.Message) {
	f.mu.Lock()
	if f.ended {
		f.mu.Unlock()
		return
	}
	f.waiting = append(f.waiting, m)
	first := len(f.waiting) == 1
	f.mu.Unlock()
	f.p.counts.waiting.Add(1)
	if first {
		f.publish()
	}
}

// End forgets the messages that are not confirmed: the next owner of the session publishes
// them. delivered may be called once more.
func (f *Feed) End() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.p.counts.waiting.Add(-int64(len(f.waiting)))
	f.waiting, f.ended = nil, true
}

// publish publishes the first message that waits.
func (f *Feed) publish() {
	f.mu.Lock()
	if len(f.waiting) == 0 {
		f.mu.Unlock()
		return
	}
	m := f.waiting[0]
	f.mu.Unlock()
	number := strconv.FormatUint(m.Number, 10)
	header := nats.Header{
		subject.HeaderSession: {f.session}, subject.HeaderNumber: {number}, subject.HeaderPrevious: {strconv.FormatUint(m.Previous, 10)},
		subject.HeaderReliable: {"true"}, nats.MsgIdHdr: {f.session + ":" + number},
	}
	for name, value := range m.Header {
		header[name] = []string{value}
	}
	f.p.requester.Send(jetstream.Request{
		Msg:  &nats.Msg{Subject: f.subject, Data: m.Data, Header: header},
		Done: func(reply *nats.Msg, err error) { f.answered(m.Number, reply, err) },
	})
}

// answered takes the stream's answer to a message.
func (f *Feed) answered(number uint64, reply *nats.Msg, err error) {
	if err != nil {
		f.p.retryLater(f, err.Error())
		return
	}
	ack, ok := jetstream.ParseAck(reply.Data)
	switch {
	case !ok:
		f.p.retryLater(f, "an answer that cannot be read")
	case ack.Code != 0: // possibly because another copy of the message is under way
		f.p.retryLater(f, ack.Text)
	case ack.Stream != StreamName:
		f.p.retryLater(f, "stream "+ack.Stream+" answers")
	default:
		f.p.confirmed(ack)
		f.publishNext(number)
	}
}

// publishNext goes on behind a message that is stored, unless the feed has ended.
func (f *Feed) publishNext(number uint64) {
	f.mu.Lock()
	if len(f.waiting) == 0 || f.waiting[0].Number != number {
		f.mu.Unlock()
		return
	}
	f.waiting[0] = sessionlog.Message{}
	f.waiting = f.waiting[1:]
	more := len(f.waiting) > 0
	f.mu.Unlock()
	f.p.counts.waiting.Add(-1)
	f.delivered(number)
	if more {
		f.publish()
	}
}
