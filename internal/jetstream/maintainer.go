package jetstream

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dnprelay/dnprelay/internal/fence"
	"github.com/dnprelay/dnprelay/internal/turn"
	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// Times of a Maintainer.
const (
	lookInterval  = time.Second      // between two looks at a stream that is gone, or is suspected to be
	lookTimeout   = 2 * time.Second  // of one look
	missingAfter  = 5 * time.Second  // after which a stream that does not answer or takes no write counts as missing; arbitrary
	refusalCounts = 2 * missingAfter // for which a write that was not taken counts: longer than a repetition takes
)

// A MaintainerConfig says which streams a Maintainer looks after. All fields but Seen and Forgot are required.
type MaintainerConfig struct {
	Conn    *nats.Conn
	Streams []natsjs.Stream // as they were opened; nil for one that Run opens

	// Want returns the configuration with which the g-th stream is made again, and Check
	// refuses one that another node made.
	Want  func(g int) natsjs.StreamConfig
	Check func(g int, got natsjs.StreamConfig) error

	// Seen, if set, is called from the goroutine of Run with what the g-th stream is.
	Seen func(g int, is *natsjs.StreamInfo)

	// Forgot, if set, is called from the goroutine of Run when the g-th stream lacks messages that it had and that
	// nobody deleted. So it is after the server of a stream without replicas has lost its disk. had and has are the
	// last sequences.
	Forgot func(g int, had, has uint64)

	// Replaced is called, from the goroutine of Run, when the g-th stream certainly is another
	// one than before, whichever node made it.
	Replaced func(g int, made natsjs.StreamConfig)

	// Log gets one line when a stream is gone, and one when it was made again.
	Log *slog.Logger
}

// A Maintainer looks after the streams of an adapter while it runs: it makes a stream again that was
// deleted, and knows which ones are gone or silent. It looks at one stream a second in turn, and
// at all of them when one is suspected.
type Maintainer struct {
	cfg      MaintainerConfig
	refusals []refusals // of writes, by stream
	suspect  atomic.Bool
	replaced atomic.Uint64
	looks    atomic.Int64
	unplaced bool // no server can take a stream; owned by Run

	// Run changes the streams, and requests about health read them.
	mu      sync.Mutex
	streams []maintained
}

// A maintained is a stream as it was seen last.
type maintained struct {
	name   string
	made   string // see [identity]; empty if it was never seen
	state  natsjs.StreamState
	gone   bool
	silent time.Time // since when it does not answer; zero if it does
}

// refusals are the writes that a stream has not taken since it took the last one: a stream
// without a quorum may answer everything else. The times are Unix nanoseconds, the first of which
// is 0 for none. Many goroutines note them.
type refusals struct{ first, last atomic.Int64 }

// NewMaintainer returns a Maintainer that does nothing before Run.
func NewMaintainer(cfg MaintainerConfig) *Maintainer {
	m := &Maintainer{cfg: cfg, refusals: make([]refusals, len(cfg.Streams))}
	for g, s := range cfg.Streams {
		if s == nil {
			m.streams = append(m.streams, maintained{name: cfg.Want(g).Name})
			continue
		}
		i := s.CachedInfo()
		m.streams = append(m.streams, maintained{name: i.Config.Name, made: identity(i)})
	}
	return m
}

// Suspect says that a stream may be gone, from any goroutine.
func (m *Maintainer) Suspect() { m.suspect.Store(true) }

// Wrote notes the answer to a write to the g-th stream, from any goroutine.
func (m *Maintainer) Wrote(g int, v fence.Verdict) {
	r := &m.refusals[g]
	switch v {
	case fence.OK:
		r.first.Store(0)
	case fence.Stale: // the stream works, but may be another one
		r.first.Store(0)
		m.Suspect()
	case fence.Unknown, fence.Unreachable:
		now := time.Now().UnixNano()
		r.last.Store(now)
		r.first.CompareAndSwap(0, now)
		m.Suspect()
	}
}

// missing reports whether the stream takes no writes.
func (r *refusals) missing(now time.Time) bool {
	first, n := r.first.Load(), now.UnixNano()
	return first != 0 && n-first >= int64(missingAfter) && n-r.last.Load() < int64(refusalCounts)
}

// Replaced returns how many streams were made again, by whichever node.
func (m *Maintainer) Replaced() uint64 { return m.replaced.Load() }

// Looks returns how many times it has looked at a stream, whatever came of it.
func (m *Maintainer) Looks() int { return int(m.looks.Load()) }

// Missing returns the names of the streams that were never seen, are gone, do not answer or take no writes.
func (m *Maintainer) Missing() (names []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	for g, s := range m.streams {
		if s.gone || s.made == "" || !s.silent.IsZero() && now.Sub(s.silent) >= missingAfter || m.refusals[g].missing(now) {
			names = append(names, s.name)
		}
	}
	return names
}

// Run looks after the streams until ctx ends. It returns earlier, with an error that wraps
// ErrDeployment, if a stream was made again that is not one of this deployment.
func (m *Maintainer) Run(ctx context.Context) error {
	n := 0
	for range turn.Every(ctx, lookInterval) {
		all := m.suspect.Swap(false)
		for i := range m.streams { // begins at another one each time, as a look may take its whole timeout
			g := (n + i) % len(m.streams)
			if s := m.stream(g); !all && i > 0 && !s.gone && s.silent.IsZero() && s.made != "" {
				continue
			}
			if err := m.look(ctx, g); err != nil {
				return err
			}
			if !m.stream(g).silent.IsZero() {
				break // the others would not answer either, and get their turns
			}
		}
		n++
	}
	return nil
}

func (m *Maintainer) stream(g int) maintained {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.streams[g]
}

// look looks at one stream, and makes it again if it is gone.
func (m *Maintainer) look(ctx context.Context, g int) error {
	defer m.looks.Add(1)
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	before := m.stream(g)
	stream, err := OpenStream(ctx, m.cfg.Conn, before.name, func() natsjs.StreamConfig {
		if !before.gone && before.made != "" {
			m.cfg.Log.Error("a stream is gone; making it again", "stream", before.name)
		}
		m.update(g, func(s *maintained) { s.gone = s.made != "" })
		return m.cfg.Want(g)
	})
	switch {
	case err == nil:
		m.unplaced = false
	case errors.Is(err, ErrNoServer) && !m.unplaced:
		m.unplaced = true
		m.cfg.Log.Error("cannot make a stream; trying again", "error", err)
	}
	if err != nil {
		m.update(g, func(s *maintained) {
			if s.silent.IsZero() {
				s.silent = time.Now()
			}
		})
		return nil
	}
	info := stream.CachedInfo()
	made := identity(info)
	other := made != before.made
	if other {
		if err := m.cfg.Check(g, info.Config); errors.Is(err, ErrDeployment) {
			return err
		}
	}
	m.update(g, func(s *maintained) { *s = maintained{name: s.name, made: made, state: info.State} })
	if m.cfg.Seen != nil {
		m.cfg.Seen(g, info)
	}
	switch {
	case before.made == "":
	case !other && m.cfg.Forgot != nil && forgot(&before.state, &info.State):
		m.cfg.Forgot(g, before.state.LastSeq, info.State.LastSeq)
	case other:
		m.replaced.Add(1)
		m.cfg.Log.Warn("a stream was made again; its former messages are lost, but nodes store again what they hold", "stream", before.name, "first_sequence", info.Config.FirstSeq)
		m.cfg.Replaced(g, info.Config)
	}
	return nil
}

// forgot reports whether a stream lacks messages that it had and that nobody deleted: its sequences are lower, or its
// first one is that of another message.
func forgot(had, has *natsjs.StreamState) bool {
	return has.LastSeq < had.LastSeq || has.FirstSeq < had.FirstSeq ||
		had.Msgs > 0 && has.FirstSeq == had.FirstSeq && !has.FirstTime.Equal(had.FirstTime)
}

func (m *Maintainer) update(g int, change func(*maintained)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change(&m.streams[g])
}
