package quorumlog

import (
	"cmp"
	"crypto/rand"
	"encoding/binary"
	"hash/maphash"
	mathrand "math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dnprelay/dnprelay/internal/fence"
	"github.com/dnprelay/dnprelay/sessionlog"
)

// A Config says where the copies are.
type Config struct {
	// Copies are the three copies. Each answers every request once, after half a second at the
	// latest. What it says it stored it keeps, unless it forgets (see DESIGN.md). What it
	// answers to a read may lack the beginning of the log, but neither the end nor a record
	// between.
	Copies [3]sessionlog.Log

	// Now and After are the clock, and a function that calls f once after a time, never before
	// it returns. nil stands for those of package time.
	Now   func() time.Time
	After func(d time.Duration, f func())

	// Seed makes all random numbers, and lets a simulation repeat. nil stands for a random one.
	Seed *[32]byte

	// Tests make these small.
	stateBytes int // of one part of a state that has several
	ledgersMax int
}

// Bounds of what an edge remembers of logs. Both are arbitrary.
const (
	shards     = 64
	ledgersMax = 1 << 18          // of all shards; beyond, one that is unused for long is dropped for each new one
	sample     = 8                // of which the one is dropped that is unused for the longest time
	unused     = 2 * time.Minute  // after which a lead is dropped: the next write takes it again
	sweepPause = 30 * time.Second // between two looks for those
)

// Stats are counters since New, but for Behind, Up and Ledgers.
type Stats struct {
	Leads      uint64          // taken: sessions that began or were adopted, and those whose lead was lost
	Superseded uint64          // leads that another edge took
	WriteBacks uint64          // reads that found what only one copy had
	EndsKept   uint64          // logs that ended and that the copies keep for as long as others, because one lacks the end
	Refused    uint64          // requests beyond the bounds of what waits
	Records    [3]fence.Counts // writes to each copy, by its answer

	Ledgers int     // logs that this edge remembers
	Behind  [3]int  // of them, those of which a copy lacks the newest writes
	Up      [3]bool // copies that answered the last request
}

// Log is sessionlog.Log over three copies. Its methods may be called from any goroutine.
type Log struct {
	cfg    Config
	seed   maphash.Seed
	shards [shards]shard
	gates  [copies]gate
}

var _ sessionlog.Log = (*Log)(nil)

// A shard has some of the logs. Workers call and copies answer, so no goroutine can own it.
// Nothing is called under the lock: calls wait in out.
type shard struct {
	env
	log     *Log
	mu      sync.Mutex
	ledgers map[string]*held
	swept   time.Time
	out     []func()
	expiry  []deadline // of requests, the oldest first
	armed   bool       // a timer runs for the first of them
}

type deadline struct {
	at time.Time
	l  *ledger
	o  *op
}

type held struct {
	ledger
	used time.Time
}

// New returns a log over three copies.
func New(cfg Config) *Log {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.After == nil {
		cfg.After = func(d time.Duration, f func()) { time.AfterFunc(d, f) }
	}
	cfg.stateBytes = cmp.Or(cfg.stateBytes, stateBytes)
	cfg.ledgersMax = cmp.Or(cfg.ledgersMax, ledgersMax)
	l := &Log{cfg: cfg, seed: maphash.MakeSeed()}
	for i := range l.shards {
		s := &l.shards[i]
		var seed [32]byte
		if cfg.Seed == nil {
			rand.Read(seed[:])
		} else {
			seed = *cfg.Seed
			binary.LittleEndian.PutUint64(seed[:], binary.LittleEndian.Uint64(seed[:])+uint64(i))
		}
		s.log, s.ledgers = l, make(map[string]*held)
		s.env = env{
			now: cfg.Now, stateBytes: cfg.stateBytes, rand: mathrand.New(mathrand.NewChaCha8(seed)),
			after:  func(d time.Duration, f func()) { s.later(func() { cfg.After(d, func() { s.run(f) }) }) },
			append: s.append, read: s.read, expire: s.expireLater,
			away: func(i int) bool { return l.gates[i].refuses(cfg.Now()) },
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
	if l.cfg.Seed == nil {
		s = &l.shards[maphash.String(l.seed, log)%shards]
	}
	during := true
	o.answer = func(a sessionlog.Answer) {
		if give := func() { answer(a) }; during {
			s.later(func() { l.cfg.After(0, give) })
		} else {
			s.later(give)
		}
	}
	s.run(func() {
		now := l.cfg.Now()
		s.sweep(now)
		h := s.ledgers[log]
		switch {
		case h != nil:
		case s.makeRoom():
			h = &held{ledger: ledger{env: &s.env, name: log}}
			s.ledgers[log] = h
		default:
			s.counts.Refused++
			o.answer(sessionlog.Answer{Verdict: fence.Busy})
			return
		}
		h.used = now
		h.request(o)
		during = false
	})
}

// Forgot says that a copy, 1 to 3, lost records of logs, and answers again. lost reports whether it lost some of a
// log. The next checkpoint of each such log brings the copy back.
func (l *Log) Forgot(copy int, lost func(log string) bool) {
	for k := range l.shards {
		s := &l.shards[k]
		s.run(func() {
			for _, h := range s.ledgers {
				if h.lead != nil && lost(h.name) {
					h.lead.followers[copy-1].forget()
				}
			}
		})
	}
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

// sweep drops ledgers that are unused.
func (s *shard) sweep(now time.Time) {
	if now.Sub(s.swept) < sweepPause {
		return
	}
	s.swept = now
	for _, h := range s.ledgers {
		if h.idle() && (h.lead == nil || now.Sub(h.used) >= unused) {
			s.drop(h)
		}
	}
}

// makeRoom drops a ledger if there are too many. It reports false if all of some have requests under
// way.
func (s *shard) makeRoom() bool {
	if len(s.ledgers) < s.log.cfg.ledgersMax/shards {
		return true
	}
	var oldest *held
	n := 0
	for _, h := range s.ledgers {
		if h.idle() && (oldest == nil || h.used.Before(oldest.used)) {
			oldest = h
		}
		if n++; n == sample {
			break
		}
	}
	if oldest == nil {
		return false
	}
	s.drop(oldest)
	return true
}

// drop forgets a ledger. Its lead costs nothing but another one.
func (s *shard) drop(h *held) {
	h.lead = nil
	delete(s.ledgers, h.name)
}

// expireLater has a request answered after patience. One timer serves all requests of a shard.
func (s *shard) expireLater(l *ledger, o *op) {
	s.expiry = append(s.expiry, deadline{s.now().Add(patience), l, o})
	s.arm(patience)
}

func (s *shard) arm(d time.Duration) {
	if !s.armed {
		s.armed = true
		s.after(d, s.expireNow)
	}
}

func (s *shard) expireNow() {
	now := s.now()
	s.expireUntil(now)
	if s.armed = false; len(s.expiry) > 0 {
		s.arm(s.expiry[0].at.Sub(now))
	}
}

func (s *shard) expireUntil(now time.Time) {
	for len(s.expiry) > 0 && (s.expiry[0].o.over || !now.Before(s.expiry[0].at)) {
		d := s.expiry[0]
		s.expiry[0] = deadline{}
		s.expiry = s.expiry[1:]
		if !d.o.over {
			d.l.giveUp(d.o)
		}
	}
}

func (s *shard) append(i int, w sessionlog.Write, answer func(sessionlog.Answer)) {
	s.ask(i, func(a sessionlog.Answer) {
		s.counts.Records[i][a.Verdict]++
		answer(a)
	}, func(f func(sessionlog.Answer)) { s.log.cfg.Copies[i].Append(w, f) })
}

func (s *shard) read(i int, log string, answer func(sessionlog.Answer)) {
	s.ask(i, answer, func(f func(sessionlog.Answer)) { s.log.cfg.Copies[i].Read(log, f) })
}

// ask sends a request to a copy, unless the copy is away.
func (s *shard) ask(i int, answer func(sessionlog.Answer), send func(func(sessionlog.Answer))) {
	g := &s.log.gates[i]
	s.later(func() {
		if !g.enter(s.log.cfg.Now()) {
			s.log.cfg.After(0, func() { s.run(func() { answer(sessionlog.Answer{Verdict: fence.Unreachable}) }) })
			return
		}
		send(func(a sessionlog.Answer) {
			now := s.log.cfg.Now()
			g.leave(now, a.Verdict)
			s.run(func() {
				s.expireUntil(now) // first, because this process may have been stopped
				answer(a)
			})
		})
	})
}

// Stats returns the counters.
func (l *Log) Stats() (sum Stats) {
	for k := range l.shards {
		s := &l.shards[k]
		s.mu.Lock()
		sum.Leads += s.counts.Leads
		sum.Superseded += s.counts.Superseded
		sum.WriteBacks += s.counts.WriteBacks
		sum.EndsKept += s.counts.EndsKept
		sum.Refused += s.counts.Refused
		sum.Ledgers += len(s.ledgers)
		for i := range copies {
			for v, n := range s.counts.Records[i] {
				sum.Records[i][v] += n
			}
		}
		for _, h := range s.ledgers {
			for i := range copies {
				if h.lead != nil && h.lead.followers[i].place != member {
					sum.Behind[i]++
				}
			}
		}
		s.mu.Unlock()
	}
	for i := range l.gates {
		sum.Up[i] = l.gates[i].answers()
	}
	return sum
}

// Ready reports whether two copies at least answered lately, as far as that is known.
func (l *Log) Ready() bool {
	n := 0
	for i := range l.gates {
		if l.gates[i].answers() {
			n++
		}
	}
	return n >= quorum
}

// awayAfter is how long a copy may answer nothing while requests are under way. After that, only
// one request in that time is sent to it, and the others are refused at once.
const awayAfter = 250 * time.Millisecond

// A gate keeps requests from a copy that answers nothing.
type gate struct {
	away atomic.Bool
	none atomic.Bool // the last request had no answer

	mu    sync.Mutex
	under int       // requests under way
	since time.Time // of the last answer, or of the first request under way
	probe time.Time // when the next request is sent to a copy that is away
}

// enter reports whether a request may be sent.
func (g *gate) enter(now time.Time) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.under > 0 && now.Sub(g.since) > awayAfter {
		g.away.Store(true)
	}
	if g.away.Load() {
		if now.Before(g.probe) {
			return false
		}
		g.probe = now.Add(awayAfter)
	}
	if g.under == 0 {
		g.since = now
	}
	g.under++
	return true
}

// refuses reports whether a request would not be sent.
func (g *gate) refuses(now time.Time) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.away.Load() && now.Before(g.probe)
}

// leave notes an answer.
func (g *gate) leave(now time.Time, v fence.Verdict) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.under--
	g.none.Store(v == fence.Unknown || v == fence.Unreachable)
	if !g.none.Load() {
		g.since = now
		g.away.Store(false)
	}
}

// answers reports whether the last request was answered.
func (g *gate) answers() bool { return !g.none.Load() && !g.away.Load() }
