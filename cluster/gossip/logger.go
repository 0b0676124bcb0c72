package gossip

import (
	"context"
	"log"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	logInterval = 10 * time.Second // between two lines of one kind above debug level
	logKindsMax = 64
	logLineMax  = 300 // bytes
)

// A logger turns memberlist's lines into records of slog. Of the lines that the network can cause at
// will, it logs one of each kind in logInterval, with the number of those that it left out; lines about
// single packets have debug level.
//
// It also counts the events of Stats, because memberlist has no better source for them: its metrics have
// no refutations and no messages under an unknown key, and their counter of suspicions includes those
// that other members report.
//
// It has a mutex, because memberlist logs from all its goroutines.
type logger struct {
	log    *slog.Logger
	silent atomic.Bool // errors during the shutdown are not logged

	suspicions, refutations, undecipherable atomic.Uint64

	mu    sync.Mutex
	kinds map[string]logKind
}

type logKind struct {
	next   time.Time
	missed int
}

func newLogger(l *slog.Logger) *logger {
	return &logger{log: l, kinds: map[string]logKind{}}
}

// standard returns the logger for memberlist.
func (l *logger) standard() *log.Logger { return log.New(l, "", 0) }

// Write takes one line, such as "[WARN] memberlist: text".
func (l *logger) Write(p []byte) (int, error) {
	level, text := parseLine(string(p))
	l.count(text)
	if !l.silent.Load() {
		l.limited(level, text)
	}
	return len(p), nil
}

// parseLine returns the level and the text of a line of memberlist. Levels are lowered by one, because
// narrate logs the nodes that come and go.
func parseLine(line string) (slog.Level, string) {
	line = strings.TrimSpace(line)
	level := slog.LevelDebug
	if rest, ok := strings.CutPrefix(line, "["); ok {
		name, text, _ := strings.Cut(rest, "] ")
		line = text
		switch name {
		case "WARN":
			level = slog.LevelInfo
		case "ERR", "ERROR":
			level = slog.LevelWarn
		}
	}
	line = strings.TrimPrefix(line, "memberlist: ")
	if strings.HasPrefix(line, "Refuting an alive message") {
		level = slog.LevelDebug // concerns a former process of this node, and is full of bytes
	}
	if len(line) > logLineMax {
		line = strings.ToValidUTF8(line[:logLineMax], "") + "…"
	}
	return level, line
}

func (l *logger) count(text string) {
	switch {
	case strings.HasPrefix(text, "Suspect "):
		l.suspicions.Add(1)
	case strings.HasPrefix(text, "Refuting a suspect"), strings.HasPrefix(text, "Refuting a dead"):
		l.refutations.Add(1)
	case strings.Contains(text, "no installed keys could decrypt"):
		l.undecipherable.Add(1)
	}
}

// limited logs a line, but above debug level at most one of a kind in logInterval.
func (l *logger) limited(level slog.Level, text string) {
	if level <= slog.LevelDebug {
		l.log.Debug("gossip", "event", text)
		return
	}
	if !l.log.Enabled(context.Background(), level) {
		return
	}
	missed, ok := l.allow(text, time.Now())
	if !ok {
		return
	}
	args := []any{"event", text}
	if missed > 0 {
		args = append(args, "alike", missed)
	}
	if strings.Contains(text, "no installed keys could decrypt") {
		args = append(args, "hint", "the sender has another --gossip-key-file, or is not of this cluster")
	}
	l.log.Log(context.Background(), level, "gossip", args...)
}

// allow reports whether a line may be logged, and how many of its kind were left out since the last one.
// The first three words of a line are its kind.
func (l *logger) allow(text string, now time.Time) (missed int, ok bool) {
	words := strings.SplitN(text, " ", 4)
	kind := strings.Join(words[:min(3, len(words))], " ")
	l.mu.Lock()
	defer l.mu.Unlock()
	k, known := l.kinds[kind]
	if now.Before(k.next) {
		l.kinds[kind] = logKind{k.next, k.missed + 1}
		return 0, false
	}
	if !known && len(l.kinds) >= logKindsMax {
		clear(l.kinds) // at the cost of a few more lines
	}
	l.kinds[kind] = logKind{next: now.Add(logInterval)}
	return k.missed, true
}
