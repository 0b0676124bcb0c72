//go:build linux

package clustertest

import (
	"context"
	"encoding/binary"
	"sync"
	"time"

	"github.com/dnprelay/dnprelay/dnp/dnptest"
)

// lampPace is the time between two writes of a client.
const lampPace = 200 * time.Millisecond

// A lamp is a state into which a player counts.
type lamp struct {
	player *player

	mu     sync.Mutex // of what the writer adds and measurements read
	writes []time.Time
}

// run writes at its pace until ctx ends.
func (l *lamp) run(ctx context.Context) {
	ticker := time.NewTicker(lampPace)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		err := l.player.peer.Do(func(now time.Time, c *dnptest.Client) {
			link := c.LinkNamed(lampKey)
			if link == nil || link.Phase != dnptest.LinkIsUp || c.Phase() != dnptest.Connected {
				return
			}
			l.mu.Lock()
			defer l.mu.Unlock()
			l.writes = append(l.writes, now)
			c.Set(link, 0, binary.LittleEndian.AppendUint32(nil, uint32(len(l.writes))))
		})
		if err != nil {
			return
		}
	}
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
