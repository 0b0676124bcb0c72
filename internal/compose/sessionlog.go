package compose

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/dnprelay/dnprelay/internal/fence"
	"github.com/dnprelay/dnprelay/internal/jetstream"
	"github.com/dnprelay/dnprelay/internal/telemetry"
	"github.com/dnprelay/dnprelay/sessionlog"
	"github.com/dnprelay/dnprelay/sessionlog/natslog"
	"github.com/dnprelay/dnprelay/sessionlog/quorumlog"
	"golang.org/x/sync/errgroup"
)

// A sessionLog is the session log of an edge, in one copy or in three.
type sessionLog struct {
	log    sessionlog.Log // the only copy, or quorum
	copies []*natslog.Log
	quorum *quorumlog.Log // nil with one copy

	refresh atomic.Pointer[func(lost func(string) bool)] // what onForgot set

	appends, reads jetstream.Verdicts
	bytes          atomic.Uint64
}

var _ sessionlog.Log = (*sessionLog)(nil)

// openSessionLog opens the log in 1 copy, or in natslog.Copies. It finds the servers of three copies later, in maintain.
func openSessionLog(ctx context.Context, copies int, cfg natslog.Config) (*sessionLog, error) {
	if copies == 1 {
		only, err := natslog.Open(ctx, cfg)
		return &sessionLog{log: only, copies: []*natslog.Log{only}}, err
	}
	l := &sessionLog{}
	cfg.Forgot = l.forgot
	var logs [natslog.Copies]sessionlog.Log
	for i := range logs {
		cfg.Copy = i + 1
		c, err := natslog.Open(ctx, cfg)
		if err != nil {
			return nil, err
		}
		l.copies, logs[i] = append(l.copies, c), c
	}
	l.quorum = quorumlog.New(quorumlog.Config{Copies: logs})
	l.log = l.quorum
	return l, nil
}

// Append implements sessionlog.Log.
func (l *sessionLog) Append(w sessionlog.Write, answer func(sessionlog.Answer)) {
	l.bytes.Add(uint64(len(w.Data)))
	l.log.Append(w, func(a sessionlog.Answer) {
		l.appends[a.Verdict].Add(1)
		answer(a)
	})
}

// Read implements sessionlog.Log.
func (l *sessionLog) Read(log string, answer func(sessionlog.Answer)) {
	l.log.Read(log, func(a sessionlog.Answer) {
		l.reads[a.Verdict].Add(1)
		answer(a)
	})
}

// secret returns the key of the names of logs.
func (l *sessionLog) secret() []byte { return l.copies[0].Secret() }

// onForgot sets the function that is told when a server of a copy lost logs.
func (l *sessionLog) onForgot(handle func(lost func(string) bool)) { l.refresh.Store(&handle) }

// forgot has the sessions write what a copy lost.
func (l *sessionLog) forgot(copy int, lost func(string) bool) {
	l.quorum.Forgot(copy, lost)
	if refresh := l.refresh.Load(); refresh != nil {
		(*refresh)(lost)
	}
}

func (l *sessionLog) run(ctx context.Context) {
	var running sync.WaitGroup
	for _, c := range l.copies {
		running.Go(func() { c.Run(ctx) })
	}
	running.Wait()
}

func (l *sessionLog) maintain(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, c := range l.copies {
		group.Go(func() error { return c.Maintain(ctx) })
	}
	return group.Wait()
}

// missing names the streams that are missing. Those of three copies count only if fewer than two copies were found or
// answer.
func (l *sessionLog) missing() (list []string) {
	found := 0
	for _, c := range l.copies {
		if len(c.Servers()) > 0 {
			found++
		}
		list = append(list, c.Missing()...)
	}
	if l.quorum != nil && found >= natslog.Copies-1 && l.quorum.Ready() {
		return nil
	}
	return list
}

// replaced returns how many streams were made again.
func (l *sessionLog) replaced() (n uint64) {
	for _, c := range l.copies {
		n += c.Replaced()
	}
	return n
}

// answers returns numbers of answers by the names of their verdicts.
func answers(c *fence.Counts) telemetry.Parts {
	p := telemetry.Named[fence.Verdict](c[:])
	delete(p, fence.Verdict(0).String()) // no answer has it
	return p
}

// metrics returns the metrics of the log; those of copies are absent with one copy.
func (l *sessionLog) metrics() []telemetry.Metric {
	of := telemetry.NewGroup("dnp.session.log.", func() [2]fence.Counts { return [...]fence.Counts{l.appends.Counts(), l.reads.Counts()} })
	all := []telemetry.Metric{
		of.CounterBy("appends", "{write}", "Writes to session logs, by answer of the store.", "answer", answers(&of.All[0])),
		of.CounterBy("reads", "{read}", "Reads of session logs, by answer of the store.", "answer", answers(&of.All[1])),
		telemetry.Counter("dnp.session.log.io", "By", "Bytes of writes to session logs.", l.bytes.Load),
	}
	if l.quorum == nil {
		return all
	}
	byCopy := func(value func(s *quorumlog.Stats, i int) float64) func(func(string, float64)) {
		return func(observe func(string, float64)) {
			s := l.quorum.Stats()
			for i := range l.copies {
				observe(strconv.Itoa(i+1), value(&s, i))
			}
		}
	}
	return append(all,
		telemetry.GaugeBy("dnp.session.log.copy.up", "{copy}", "1 for a copy of the session logs that answers this edge, 0 for one that does not.", "copy",
			byCopy(func(s *quorumlog.Stats, i int) float64 {
				if s.Up[i] {
					return 1
				}
				return 0
			})),
		telemetry.GaugeBy("dnp.session.log.copy.behind", "{session}", "Sessions of this edge whose log lacks the newest writes in a copy.", "copy",
			byCopy(func(s *quorumlog.Stats, i int) float64 { return float64(s.Behind[i]) })),
		telemetry.Counter("dnp.session.log.leads", "{log}", "Times that this edge took the right to write to a session log in three copies.",
			func() uint64 { return l.quorum.Stats().Leads }),
	)
}
