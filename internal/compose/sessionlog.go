package compose

import (
	"context"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dnprelay/dnprelay/internal/config"
	"github.com/dnprelay/dnprelay/internal/jetstream"
	"github.com/dnprelay/dnprelay/internal/telemetry"
	"github.com/dnprelay/dnprelay/sessionlog"
	"github.com/dnprelay/dnprelay/sessionlog/movelog"
	"github.com/dnprelay/dnprelay/sessionlog/natslog"
	"github.com/dnprelay/dnprelay/sessionlog/quorumlog"
	"golang.org/x/sync/errgroup"
)

// A sessionLog is the session log of an edge: replicated streams, and with more than one NATS
// server three copies as well. As long as the copies were never found, only the streams count: they
// tell this edge to leave alone what another edge moved.
type sessionLog struct {
	replicated *natslog.Log
	copies     [natslog.Copies]*natslog.Log // nil with one NATS server
	quorum     *quorumlog.Log
	moving     *movelog.Log
	mode       string
	found      atomic.Bool // at least two copies
	all        atomic.Bool // and the third exists, even if its server is away
	log        *slog.Logger

	refresh atomic.Pointer[func(lost func(string) bool)] // what onForgot set

	appends, reads jetstream.Verdicts
	bytes          atomic.Uint64
}

var _ sessionlog.Log = (*sessionLog)(nil)

// findPause is the time between two looks for copies.
const findPause = 100 * time.Millisecond

// openSessionLog opens the streams. The copies are found later, by maintain. agreed reports whether all
// edges of the cluster know copies.
func openSessionLog(ctx context.Context, c *config.Sessions, cfg natslog.Config, agreed func() bool) (l *sessionLog, err error) {
	l = &sessionLog{mode: c.SessionLogMode, log: cfg.Log}
	cfg.Replicas = c.SessionReplicas
	if l.replicated, err = natslog.Open(ctx, cfg); err != nil || c.SessionReplicas < natslog.Copies {
		return l, err
	}
	var logs [natslog.Copies]sessionlog.Log
	cfg.Forgot = l.forgot
	for i := range l.copies {
		cfg.Copy = i + 1
		if l.copies[i], err = natslog.Open(ctx, cfg); err != nil {
			return nil, err
		}
		logs[i] = l.copies[i]
	}
	l.quorum = quorumlog.New(quorumlog.Config{Copies: logs})
	mode := movelog.Quorum
	if c.SessionLogMode == "replicated" {
		mode = movelog.Replicated
	}
	l.moving = movelog.New(movelog.Config{
		Replicated: l.replicated, Quorum: l.quorum, Mode: mode,
		May: func() bool { return agreed() && (l.all.Load() || c.SessionLogMode == "quorum") },
	})
	return l, nil
}

// Append implements sessionlog.Log.
func (l *sessionLog) Append(w sessionlog.Write, answer func(sessionlog.Answer)) {
	l.bytes.Add(uint64(len(w.Data)))
	l.now().Append(w, func(a sessionlog.Answer) {
		l.appends[a.Verdict].Add(1)
		answer(a)
	})
}

// Read implements sessionlog.Log.
func (l *sessionLog) Read(log string, answer func(sessionlog.Answer)) {
	l.now().Read(log, func(a sessionlog.Answer) {
		l.reads[a.Verdict].Add(1)
		answer(a)
	})
}

func (l *sessionLog) now() sessionlog.Log {
	if l.found.Load() {
		return l.moving
	}
	return l.replicated
}

// onForgot sets the function that is told when a server of a copy lost logs.
func (l *sessionLog) onForgot(handle func(lost func(string) bool)) { l.refresh.Store(&handle) }

// forgot has the sessions write what a copy lost.
func (l *sessionLog) forgot(copy int, lost func(string) bool) {
	l.quorum.Forgot(copy, lost)
	if refresh := l.refresh.Load(); refresh != nil {
		(*refresh)(lost)
	}
}

// streams calls f for the streams and each copy.
func (l *sessionLog) streams(f func(*natslog.Log)) {
	f(l.replicated)
	for _, c := range l.copies {
		if c != nil {
			f(c)
		}
	}
}

func (l *sessionLog) run(ctx context.Context) {
	var running sync.WaitGroup
	l.streams(func(s *natslog.Log) { running.Go(func() { s.Run(ctx) }) })
	if l.moving != nil {
		running.Go(func() { l.find(ctx) })
	}
	running.Wait()
}

// find notes when two copies were found, and when all exist. It ends then.
func (l *sessionLog) find(ctx context.Context) {
	tick := time.NewTicker(findPause)
	defer tick.Stop()
	for {
		found, exist := 0, 0
		for _, c := range l.copies {
			if len(c.Servers()) > 0 {
				found++
			}
			if c.Exists() {
				exist++
			}
		}
		if found >= natslog.Copies-1 {
			l.found.Store(true)
			if exist == natslog.Copies {
				l.all.Store(true)
				l.log.Info("the three copies of the session log were found", "mode", l.mode)
				return
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (l *sessionLog) maintain(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	l.streams(func(s *natslog.Log) { group.Go(func() error { return s.Maintain(ctx) }) })
	return group.Wait()
}

// missing names the streams that are missing. Those of copies count only if sessions use the copies
// and fewer than two answer.
func (l *sessionLog) missing() (list []string) {
	list = l.replicated.Missing()
	found := l.found.Load()
	used := l.mode == "quorum" || l.mode == "auto" && found
	if used && !(found && l.quorum.Ready()) {
		for _, c := range l.copies {
			list = append(list, c.Missing()...)
		}
	}
	return list
}

// replaced returns how many streams were made again.
func (l *sessionLog) replaced() (n uint64) {
	l.streams(func(s *natslog.Log) { n += s.Stats().Replaced })
	return n
}

// metrics returns the metrics of the log; those of copies are absent with one NATS server.
func (l *sessionLog) metrics() []telemetry.Metric {
	all := []telemetry.Metric{
		telemetry.CounterBy("dnp.session.log.appends", "{write}", "Writes to session logs, by answer of the store.", "answer",
			func(observe func(string, uint64)) { l.appends.Counts().Each(observe) }),
		telemetry.CounterBy("dnp.session.log.reads", "{read}", "Reads of session logs, by answer of the store.", "answer",
			func(observe func(string, uint64)) { l.reads.Counts().Each(observe) }),
		telemetry.Counter("dnp.session.log.io", "By", "Bytes of writes to session logs.", l.bytes.Load),
	}
	if l.moving == nil {
		return all
	}
	byCopy := func(value func(s *quorumlog.Stats, i int) float64) func(func(string, float64)) {
		return func(observe func(string, float64)) {
			if !l.found.Load() {
				return
			}
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
		telemetry.CounterBy("dnp.session.log.moves", "{log}", "Session logs that this edge moved to the three copies, or to replicated streams.", "direction",
			func(observe func(string, uint64)) {
				s := l.moving.Stats()
				observe("to_copies", s.ToQuorum)
				observe("to_replicated", s.ToReplicated)
			}),
	)
}
