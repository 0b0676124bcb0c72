//go:build linux

package clustertest

import (
	"context"
	"fmt"
	"sync"
)

// ledgerPrefix begins the keys of states that are put once and never said again: they
// have to survive every fault. Removed ones have to stay away.
const ledgerPrefix = "ledger"

// A ledger is one such state at a time.
type ledger struct {
	game *game

	mu   sync.Mutex // of what the run changes and measurements read
	n    uint32     // of the newest state, and its value; 0 = none yet
	live bool       // accepted, and not to be removed
}

// put makes another state.
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

// remove removes it.
func (l *ledger) remove(ctx context.Context) error {
	l.mu.Lock()
	l.live = false
	n := l.n
	l.mu.Unlock()
	return l.game.once(ctx, fmt.Sprintf(`{"op":"remove","key":%q}`, l.key(n)))
}

func (l *ledger) key(n uint32) string { return fmt.Sprintf("%s%d", ledgerPrefix, n) }

// differences says what a player sees of states that it should not, and the reverse.
func (l *ledger) differences(p *player) (list []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if got := p.value(l.key(l.n)); l.live && got != l.n {
		list = append(list, fmt.Sprintf("%s has %s=%d, not %d", p.name, l.key(l.n), got, l.n))
	}
	for n := uint32(1); n < l.n; n++ {
		if p.value(l.key(n)) != 0 {
			list = append(list, fmt.Sprintf("%s has %s, which was removed", p.name, l.key(n)))
		}
	}
	return list
}
