package movelog

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dnprelay/dnprelay/internal/fence"
	"github.com/dnprelay/dnprelay/sessionlog"
)

// A Mode is where an edge wants logs to be.
type Mode uint8

// The modes.
const (
	Replicated Mode = iota
	Quorum
)

// A Config says what the stores are, and where logs are to be.
type Config struct {
	// Replicated and Quorum are the stores. Each answers every request once. The replicated one
	// is also that of edges that do not know this package.
	Replicated, Quorum sessionlog.Log

	// Mode is where this edge wants logs to be.
	Mode Mode

	// May reports whether every edge of the cluster knows this package and has both stores. While
	// it does not, logs are moved to the replicated store whatever Mode is. nil means that it is
	// so. May must not call the Log.
	May func() bool

	// Now and After are the clock, and a function that calls f once after a time, never before
	// it returns. nil stands for those of package time.
	Now   func() time.Time
	After func(d time.Duration, f func())

	// Single makes one lock of all, so that everything happens in the order of calls, as
	// simulations need it.
	Single bool
}

// Stats are counters since New, but for Logs.
type Stats struct {
	ToReplicated, ToQuorum uint64 // logs that this edge moved
	Copies                 uint64 // writes of logs that moved to the store that they moved to
	Conflicts              uint64 // records of a move that were refused, because another edge was faster
	Remained               uint64 // moves that did not begin, because the other store did not take part
	Both                   uint64 // logs that did not move, because the other store has one of that name
	Refused                uint64 // requests to a log of which too many wait

	Logs int // that this edge remembers
}

type counters struct {
	moves                                      [stores]atomic.Uint64
	copies, conflicts, remained, both, refused atomic.Uint64
}

// Bounds of what an edge remembers of logs. All are arbitrary. What is forgotten costs the next
// request to the log that it reads the stores first.
const (
	shards     = 64
	logsMax    = 1 << 18          // of all shards; beyond, those of which no request is under way are forgotten
	unused     = 2 * time.Minute  // after which a log is forgotten
	sweepPause = 30 * time.Second // between two looks for those
)

// vacantAfter is how long all edges of the cluster must have known this package until a log that
// the quorum store does not have may begin without a look at the replicated one. Until then the
// sessions of edges that did not know it are adopted, by which the quorum store hears of them.
const vacantAfter = 30 * time.Second

// Log is sessionlog.Log over two stores. Its methods may be called from any goroutine.
type Log struct {
	cfg    Config
	stores [stores]sessionlog.Log
	seed   maphash.Seed
	shards [shards]shard
	counts counters
	vacant time.Duration // vacantAfter
	may    atomic.Int64  // since when May is true, in nanoseconds of Unix time; 0 if it is not
}

var _ sessionlog.Log = (*Log)(nil)

// A shard has some of the logs. Workers call and stores answer, so no goroutine can own it.
// Nothing is called under the lock: calls wait in out.
type shard struct {
	env
	mu    sync.Mutex
	logs  map[string]*held
	swept time.Time
	out   []func()
}

type held struct {
	mover
	used time.Time
}

// New returns a log over two stores.
func New(cfg Config) *Log {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.After == nil {
		cfg.After = func(d time.Duration, f func()) { time.AfterFunc(d, f) }
	}
	if cfg.May == nil {
		cfg.May = func() bool { return true }
	}
	l := &Log{cfg: cfg, vacant: vacantAfter, seed: maphash.MakeSeed(), stores: [...]sessionlog.Log{inReplicated: cfg.Replicated, inQuorum: cfg.Quorum}}
	for i := range l.shards {
		s := &l.shards[i]
		s.logs = make(map[string]*held)
		back := func(answer func(sessionlog.Answer)) func(sessionlog.Answer) {
			return func(a sessionlog.Answer) { s.run(func() { answer(a) }) }
		}
		s.env = env{
			now: cfg.Now, counts: &l.counts,
			append: func(i store, w sessionlog.Write, answer func(sessionlog.Answer)) {
				s.later(func() { l.stores[i].Append(w, back(answer)) })
			},
			read: func(i store, log string, answer func(sessionlog.Answer)) {
				s.later(func() { l.stores[i].Read(log, back(answer)) })
			},
		}
	}
	return l
}

// Append implements sessionlog.Log.
func (l *Log) Append(w sessionlog.Write, answer func(sessionlog.Answer)) {
	l.request(w.Log, &op{write: &w}, answer)
}

// Read implements sessionlog.Log.
func (l *Log) Read(log string, answer func(sessionlog.Answer)) { l.request(log, &op{}, answer) }

func (l *Log) request(log string, o *op, answer func(sessionlog.Answer)) {
	s := &l.shards[0]
	if !l.cfg.Single {
		s = &l.shards[maphash.String(l.seed, log)%shards]
	}
	now := l.cfg.Now()
	o.blind = true
	if may := l.mayFor(now); may >= 0 && l.cfg.Mode == Quorum {
		o.want, o.blind = inQuorum, may >= l.vacant
	}
	o.answer = func(a sessionlog.Answer) { s.later(func() { answer(a) }) }
	s.run(func() {
		h := s.logs[log]
		if h != nil && len(h.queue) >= queueMax {
			l.counts.refused.Add(1)
			s.later(func() { l.cfg.After(0, func() { answer(sessionlog.Answer{Verdict: fence.Busy}) }) })
			return
		}
		if h == nil {
			h = &held{mover: mover{env: &s.env, name: log}}
			s.logs[log] = h
		}
		h.used = now
		s.sweep(now)
		h.request(o)
	})
}

// mayFor returns for how long May has been true; -1 if it is not.
func (l *Log) mayFor(now time.Time) time.Duration {
	if !l.cfg.May() {
		l.may.Store(0)
		return -1
	}
	l.may.CompareAndSwap(0, now.UnixNano())
	return now.Sub(time.Unix(0, l.may.Load()))
}

func (s *shard) later(f func()) { s.out = append(s.out, f) }

// run does something under the lock, and then what it wants done.
func (s *shard) run(f func()) {
	s.mu.Lock()
	f()
	out := s.out
	s.out = nil
	s.mu.Unlock()
	for _, f := range out {
		f()
	}
}

// sweep forgets what was not used for long.
func (s *shard) sweep(now time.Time) {
	full := len(s.logs) > logsMax/shards
	if now.Sub(s.swept) < sweepPause && !full {
		return
	}
	s.swept = now
	for name, h := range s.logs {
		if len(h.queue) == 0 && (now.Sub(h.used) >= unused || full && now.Sub(h.used) >= time.Second) {
			delete(s.logs, name)
		}
	}
}

// Stats returns the counters.
func (l *Log) Stats() Stats {
	c := &l.counts
	sum := Stats{
		ToReplicated: c.moves[inReplicated].Load(), ToQuorum: c.moves[inQuorum].Load(), Copies: c.copies.Load(),
		Conflicts: c.conflicts.Load(), Remained: c.remained.Load(), Both: c.both.Load(), Refused: c.refused.Load(),
	}
	for i := range l.shards {
		s := &l.shards[i]
		s.mu.Lock()
		sum.Logs += len(s.logs)
		s.mu.Unlock()
	}
	return sum
}
