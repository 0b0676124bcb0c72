//go:build linux

package clustertest

import (
	"context"
	"encoding/binary"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/dnprelay/dnprelay/dnp/dnptest"
	"github.com/dnprelay/dnprelay/internal/proc"
	"github.com/dnprelay/dnprelay/testbed/play"
)

// lampPace is the time between two writes of a client.
const lampPace = 200 * time.Millisecond

// A lamp is a state into which a player counts.
type lamp struct {
	player *play.Player

	mu     sync.Mutex // the writer adds, measurements read
	writes []time.Time
}

func (l *lamp) write() {
	_ = l.player.Do(func(now time.Time, c *dnptest.Client) { // fails while the player has no connection
		link := c.LinkNamed(lampKey)
		if link == nil || link.Phase != dnptest.LinkIsUp || c.Phase() != dnptest.Connected {
			return
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		l.writes = append(l.writes, now)
		c.Set(link, 0, binary.LittleEndian.AppendUint32(nil, uint32(len(l.writes))))
	})
}

// before returns the number of the newest write before a moment.
func (l *lamp) before(t time.Time) uint32 {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := len(l.writes)
	for n > 0 && !l.writes[n-1].Before(t) {
		n--
	}
	return uint32(n)
}

// ledgerPrefix begins the keys of states that are put once and never published again. They
// must survive every fault; removed ones must stay away.
const ledgerPrefix = "ledger"

// A ledger is one such state at a time.
type ledger struct {
	game *game

	mu   sync.Mutex // the run writes, measurements read
	n    uint32     // of the newest state, and its value; 0 = none yet
	live bool       // accepted, and not to be removed
}

func (l *ledger) put(ctx context.Context) error {
	l.mu.Lock()
	n := l.n + 1
	l.mu.Unlock()
	if err := l.game.once(ctx, putOp(l.key(n), n, "read-only")); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.n, l.live = n, true
	return nil
}

func (l *ledger) remove(ctx context.Context) error {
	l.mu.Lock()
	l.live = false
	n := l.n
	l.mu.Unlock()
	return l.game.once(ctx, fmt.Sprintf(`{"op":"remove","key":%q}`, l.key(n)))
}

func (l *ledger) key(n uint32) string { return fmt.Sprintf("%s%d", ledgerPrefix, n) }

// differences lists the states that a player misses, and those that it should not see.
func (l *ledger) differences(p *play.Player) (list []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if got := p.Value(l.key(l.n)); l.live && got != l.n {
		list = append(list, fmt.Sprintf("%s has %s=%d, not %d", p.Name, l.key(l.n), got, l.n))
	}
	for n := uint32(1); n < l.n; n++ {
		if p.Value(l.key(n)) != 0 {
			list = append(list, fmt.Sprintf("%s has %s, which was removed", p.Name, l.key(n)))
		}
	}
	return list
}

// The age of an accepted publish and of a client's write from which on every client must
// have them. Both are far above what delivery takes on an idle machine, and far below the
// bars.
const (
	busySlack = 150 * time.Millisecond
	lampSlack = 500 * time.Millisecond
)

// How long clients must have everything until that counts, how often that is checked, and
// after what time the check gives up.
const (
	equalHold = 500 * time.Millisecond
	equalLook = 10 * time.Millisecond
	equalMost = 20 * time.Second
)

// differences says where players differ from the game server: the players of the clean
// path, or all.
func (r *run) differences(now time.Time, all bool) string {
	quiet, busy := r.game.wanted(now.Add(-busySlack))
	lamp := r.lamp.before(now.Add(-lampSlack))
	var b strings.Builder
	for _, p := range r.players {
		if !p.clean && !all {
			continue
		}
		for key, v := range quiet {
			if got := p.Value(key); got != v {
				fmt.Fprintf(&b, "%s has %s=%d, not %d; ", p.Name, key, got, v)
			}
		}
		for _, key := range busyKeys {
			if got := p.Value(key); got < busy {
				fmt.Fprintf(&b, "%s has %s=%d, not %d; ", p.Name, key, got, busy)
			}
		}
		if got := p.Value(lampKey); p.Player != r.lamp.player && got < lamp {
			fmt.Fprintf(&b, "%s has %s=%d, not %d; ", p.Name, lampKey, got, lamp)
		}
		for _, d := range r.ledger.differences(p.Player) {
			b.WriteString(d + "; ")
		}
	}
	return strings.TrimSuffix(b.String(), "; ")
}

// equalSince waits until players have had everything for equalHold, and returns when that
// began. The error lists the differences.
func (r *run) equalSince(ctx context.Context, all bool) (since time.Time, err error) {
	end := time.Now().Add(equalMost)
	for ; ctx.Err() == nil; proc.Sleep(ctx, equalLook) {
		now := time.Now()
		different := r.differences(now, all)
		switch {
		case different != "" && now.After(end):
			return now, fmt.Errorf("not equal after %v: %s", equalMost, different)
		case different != "":
			since = time.Time{}
		case since.IsZero():
			since = now
		case now.Sub(since) >= equalHold:
			return since, nil
		}
	}
	return time.Now(), ctx.Err()
}
