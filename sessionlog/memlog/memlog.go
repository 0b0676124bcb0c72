package memlog

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/dnprelay/dnprelay/internal/fence"
	"github.com/dnprelay/dnprelay/sessionlog"
)

// A Config says how the store behaves. Its fields may be changed while it runs.
type Config struct {
	// Schedule calls f after delay of simulated time, never before it returns.
	Schedule func(delay time.Duration, f func())
	Rand     *rand.Rand

	Latency time.Duration // of one way, on average; 0 means 300 µs
	Timeout time.Duration // after which an answer is Unknown; 0 means 500 ms

	Lost       float64 // probability that an answer is lost
	Late       float64 // probability that a write has no answer and is applied up to 6 s later
	Busy       float64 // probability that a write is refused as Busy
	Old        float64 // probability that the answer to a read lacks the newest write
	Leaderless bool    // reads are refused, as by JetStream while it has no leader of its own

	Torn float64 // probability that a read misses a write, as in the middle of a deletion

	First  uint64        // sequence after which those of the store begin; 0 means a time in milliseconds, as with JetStream
	Forget time.Duration // after which a log is forgotten whose last write is final; 0 means never

	Elapsed func() time.Duration // for Starved; nil if that is not used

	// Applied, if set, is called for each write that is stored.
	Applied func(log string, e sessionlog.Entry)
}

// writeMax is the largest write in bytes: the default of max_payload of NATS.
const writeMax = 1 << 20

// A Store has the logs of all sessions.
type Store struct {
	Config
	seq    uint64
	logs   map[string]*record
	silent bool
	held   []func() // writes to apply when the outage ends
	lives  int      // how often the store began, without what was under way

	Appends, Reads, Bytes int
}

// A record is the log of one session.
type record struct {
	entries  []sessionlog.Entry
	before   []sessionlog.Entry // without the newest write
	silences []time.Duration    // when a request got no answer because of Lost or Late
}

// New returns an empty store.
func New(cfg Config) *Store {
	cfg.Latency = cmp.Or(cfg.Latency, 300*time.Microsecond)
	cfg.Timeout = cmp.Or(cfg.Timeout, 500*time.Millisecond)
	return &Store{Config: cfg, seq: cmp.Or(cfg.First, 1_790_000_000_000), logs: make(map[string]*record)}
}

// SetSilent stops the store from answering, as during an election, or lets it answer again. Half of the
// writes meanwhile are applied then, or seconds later.
func (s *Store) SetSilent(silent bool) {
	s.silent = silent
	if silent {
		return
	}
	held := s.held
	s.held = nil
	for _, f := range held {
		s.Schedule(time.Duration(s.Rand.IntN(2000))*time.Millisecond, f)
	}
}

// Entries returns the entries of a log.
func (s *Store) Entries(log string) []sessionlog.Entry {
	if r := s.logs[log]; r != nil {
		return r.entries
	}
	return nil
}

// Wipe loses the newest n writes of a log, as a disaster does.
func (s *Store) Wipe(log string, n int) {
	r := s.logs[log]
	r.entries = r.entries[:max(len(r.entries)-n, 0)]
	r.before = r.entries
}

// Snapshot returns a function that starts the store again with what it has at this moment, as a server
// does whose disk lost the writes since. Writes under way are lost, and sequences are given away again.
func (s *Store) Snapshot() (restore func()) {
	seq, old := s.seq, make(map[string][]sessionlog.Entry, len(s.logs))
	for log, r := range s.logs {
		old[log] = r.entries
	}
	return func() {
		s.seq, s.held, s.lives = seq, nil, s.lives+1
		for log, r := range s.logs {
			r.entries, r.before = old[log], old[log]
		}
	}
}

// Append implements sessionlog.Log.
func (s *Store) Append(w sessionlog.Write, answer func(sessionlog.Answer)) {
	once := s.once(answer)
	s.Schedule(s.latency(), func() { s.append(w, once) })
}

// Read implements sessionlog.Log.
func (s *Store) Read(log string, answer func(sessionlog.Answer)) {
	once := s.once(answer)
	s.Schedule(s.latency(), func() {
		s.Reads++
		if s.silent {
			return
		}
		if s.Leaderless {
			s.reply(log, once, sessionlog.Answer{Verdict: fence.Unreachable})
			return
		}
		var entries []sessionlog.Entry
		if r := s.logs[log]; r != nil {
			entries = r.entries
			if s.chance(s.Old) {
				entries = r.before
			}
			if len(entries) > 1 && s.chance(s.Torn) {
				i := s.Rand.IntN(len(entries) - 1)
				entries = slices.Delete(slices.Clone(entries), i, i+1)
			}
		}
		s.reply(log, once, sessionlog.Answer{Verdict: fence.OK, Entries: entries})
	})
}

// once passes on the first of two answers: the store's, and Unknown after the timeout.
func (s *Store) once(answer func(sessionlog.Answer)) func(sessionlog.Answer) {
	done := false
	f := func(a sessionlog.Answer) {
		if !done {
			done = true
			answer(a)
		}
	}
	s.Schedule(s.Timeout, func() { f(sessionlog.Answer{Verdict: fence.Unknown}) })
	return f
}

func (s *Store) append(w sessionlog.Write, answer func(sessionlog.Answer)) {
	life := s.lives
	late := func() {
		if s.lives == life {
			s.apply(w)
		}
	}
	switch {
	case len(w.Data) > writeMax:
		s.reply(w.Log, answer, sessionlog.Answer{Verdict: fence.TooLarge})
	case s.silent:
		if s.chance(0.5) {
			s.held = append(s.held, late)
		}
	case s.chance(s.Busy):
		s.reply(w.Log, answer, sessionlog.Answer{Verdict: fence.Busy})
	case s.chance(s.Late):
		s.unanswered(w.Log)
		s.Schedule(time.Duration(s.Rand.IntN(6000))*time.Millisecond, late)
	default:
		s.reply(w.Log, answer, s.apply(w))
	}
}

func (s *Store) reply(log string, answer func(sessionlog.Answer), a sessionlog.Answer) {
	if s.chance(s.Lost) {
		s.unanswered(log)
		return
	}
	s.Schedule(s.latency(), func() { answer(a) })
}

func (s *Store) unanswered(log string) {
	if s.Elapsed != nil {
		r := s.of(log)
		r.silences = append(r.silences, s.Elapsed())
	}
}

// Starved reports whether so many requests about a session had no answer lately that the three seconds of
// its client could not be met: each costs half a second, as does a lost datagram of the client, or the
// death of an owner.
func (s *Store) Starved(log string) bool {
	n := 0
	for _, at := range s.of(log).silences {
		if s.Elapsed()-at < 4*time.Second {
			n++
		}
	}
	return n >= 3
}

func (s *Store) of(log string) *record {
	r := s.logs[log]
	if r == nil {
		r = &record{}
		s.logs[log] = r
	}
	return r
}

// apply carries out writes in one order.
func (s *Store) apply(w sessionlog.Write) sessionlog.Answer {
	r := s.of(w.Log)
	last := uint64(0)
	if n := len(r.entries); n > 0 {
		last = r.entries[n-1].Seq
	}
	if last != w.Expect {
		return sessionlog.Answer{Verdict: fence.Stale}
	}
	s.seq++
	s.Appends++
	s.Bytes += len(w.Data)
	e := sessionlog.Entry{Seq: s.seq, Data: w.Data}
	r.before = r.entries
	if w.Rollup {
		r.entries = []sessionlog.Entry{e}
	} else {
		r.entries = append(r.entries[:len(r.entries):len(r.entries)], e)
	}
	if s.Applied != nil {
		s.Applied(w.Log, e)
	}
	if w.Final && s.Forget > 0 {
		s.Schedule(s.Forget, func() {
			if n := len(r.entries); n > 0 && r.entries[n-1].Seq == e.Seq {
				r.entries, r.before = nil, nil
			}
		})
	}
	return sessionlog.Answer{Verdict: fence.OK, Seq: e.Seq}
}

func (s *Store) latency() time.Duration {
	d := s.Latency/2 + time.Duration(s.Rand.Int64N(int64(s.Latency)))
	if s.chance(0.01) {
		d += time.Duration(s.Rand.IntN(20)) * time.Millisecond
	}
	return d
}

func (s *Store) chance(p float64) bool { return p > 0 && s.Rand.Float64() < p }
