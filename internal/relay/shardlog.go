package relay

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dnprelay/dnprelay/internal/turn"
)

// Times of the log lines about shards. Shards come and go many at a time, and after an outage of the store in as many
// steps as it has streams, each of which elects a leader.
const (
	shardsQuiet   = time.Second      // for which nothing must change before a line
	shardsQuieter = 5 * time.Second  // after the store was silent, while the relay has shards
	shardsLate    = 10 * time.Second // the longest wait for more shards that are lost because the store is silent
	shardsAwait   = time.Minute      // for the first shard after the store was silent
	tellInterval  = 250 * time.Millisecond
)

// storeSilent is the reason for which a relay does not serve shards that it holds.
const storeSilent = "store silent"

// A shardLog sums up what happens to the shards of a relay, so that an outage is a few lines and not one for each
// shard. It has a mutex, because every worker and the goroutine of lease events note what happens.
type shardLog struct {
	mu      sync.Mutex
	changed time.Time      // when something happened last; zero once all was told
	serving map[int]bool   // the shards that the relay serves
	lost    map[int]string // and lost since the last line
	silent  bool           // some of them because the store was silent
	first   time.Time      // when the first of them was lost
	again   int            // shards that it holds again, with its own states
	states  int            // the number of those
	old     int            // stored states that later ones with the same keys replace
	oldOne  string         // space and number of the first of them
	lacks   map[int]int    // stored states that the relay does not serve, by shard; those of shards that it does not serve do not count
	lacked  bool           // they changed since the last line
	example string         // one of them
	owned   bool           // the shards that it serves changed since the last line
}

func (l *shardLog) note(now time.Time, change func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.serving == nil {
		l.serving, l.lost = make(map[int]bool), make(map[int]string)
	}
	l.changed = now
	change()
}

// serve notes that the relay serves a shard.
func (l *shardLog) serve(now time.Time, shard int) {
	l.note(now, func() { l.serving[shard], l.owned = true, true })
}

// stop notes that it does not any longer.
func (l *shardLog) stop(now time.Time, shard int) {
	l.note(now, func() {
		if l.serving[shard] {
			delete(l.serving, shard)
			l.owned = true
		}
	})
}

// lose notes that the relay lost a shard for a reason.
func (l *shardLog) lose(now time.Time, shard int, reason string) {
	l.note(now, func() {
		if len(l.lost) == 0 {
			l.first = now
		}
		l.lost[shard] = reason
		l.silent = l.silent || reason == storeSilent
	})
}

// inherit notes that the relay holds a shard again, with so many states that it has.
func (l *shardLog) inherit(now time.Time, states int) {
	l.note(now, func() { l.again++; l.states += states })
}

// replace notes that a stored state is deleted, because a later one has its key.
func (l *shardLog) replace(now time.Time, space string, number uint64) {
	l.note(now, func() {
		if l.old == 0 {
			l.oldOne = fmt.Sprintf("%s/%d", space, number)
		}
		l.old++
	})
}

// compare notes how many stored states of a shard the relay does not serve, and one of them.
func (l *shardLog) compare(now time.Time, shard, n int, example storedKey) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lacks[shard] == n {
		return
	}
	if l.lacks == nil {
		l.lacks = make(map[int]int)
	}
	l.lacks[shard], l.changed, l.lacked = n, now, true
	if n > 0 {
		l.example = example.String()
	}
}

// unserved returns how many stored states of the shards that the relay serves it does not serve, and the shards.
func (l *shardLog) unserved() (states int, shards []int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lacking()
}

func (l *shardLog) lacking() (states int, shards []int) {
	for shard, n := range l.lacks {
		if n > 0 && l.serving[shard] {
			states, shards = states+n, append(shards, shard)
		}
	}
	return states, shards
}

// tell logs what has happened, once that has come to rest. connected reports whether the bus is there: without it,
// the shards and the other relays are not the last word.
func (l *shardLog) tell(now time.Time, connected bool, log *slog.Logger) {
	l.mu.Lock()
	defer l.mu.Unlock()
	quiet := now.Sub(l.changed)
	if l.changed.IsZero() || quiet < shardsQuiet {
		return
	}
	if l.silent && len(l.lost) > 0 && len(l.serving) > 0 && (quiet < shardsQuieter || !connected) && now.Sub(l.first) < shardsLate {
		return // the leases of the other shards end a little later, and without the bus they do end
	}
	for reason, shards := range l.takeLost() {
		log.Warn("shards lost", "count", len(shards), "reason", reason, "shards", ranges(shards))
	}
	if !connected || l.silent && (quiet < shardsQuieter || len(l.serving) == 0 && quiet < shardsAwait) {
		return
	}
	l.changed, l.silent = time.Time{}, false
	if l.owned {
		l.owned = false
		args := []any{"count", len(l.serving), "shards", ranges(slices.Collect(maps.Keys(l.serving)))}
		if l.again > 0 {
			args = append(args, "held_again", l.again, "states_kept", l.states)
		}
		log.Info("serving shards", args...)
	}
	if l.old > 0 {
		log.Warn("deleting stored states that later ones with the same keys replace", "count", l.old, "first", l.oldOne)
	}
	if states, shards := l.lacking(); l.lacked && states > 0 {
		log.Error("the durable store has states that this relay does not serve", "count", states, "shards", ranges(shards), "one", l.example)
	} else if l.lacked {
		log.Info("this relay serves all states that the durable store has of its shards")
	}
	l.again, l.states, l.old, l.lacked = 0, 0, 0, false
}

// takeLost returns the shards that were lost since the last line, by reason.
func (l *shardLog) takeLost() map[string][]int {
	lost := make(map[string][]int)
	for shard, reason := range l.lost {
		lost[reason] = append(lost[reason], shard)
	}
	clear(l.lost)
	return lost
}

// ranges returns numbers as text, in order and with neighbours joined, such as 0-3 7 9-12.
func ranges(numbers []int) string {
	slices.SortFunc(numbers, cmp.Compare)
	var b strings.Builder
	for i := 0; i < len(numbers); {
		end := i
		for end+1 < len(numbers) && numbers[end+1] == numbers[end]+1 {
			end++
		}
		if b.Len() > 0 {
			b.WriteByte(' ')
		}
		fmt.Fprint(&b, numbers[i])
		if end > i {
			fmt.Fprintf(&b, "-%d", numbers[end])
		}
		i = end + 1
	}
	return b.String()
}

// report logs what happens to the shards and the bus, until ctx ends.
func (r *Relay) report(ctx context.Context) {
	for now := range turn.After(ctx, tellInterval) {
		if r.connection.Back(now) {
			r.cfg.Log.Info("bus reached again", "node", r.cfg.Node)
		}
		if r.cfg.Leases != nil {
			r.shards.tell(now, r.connection.Settled(now), r.cfg.Log.With("node", r.cfg.Node))
		}
	}
}
