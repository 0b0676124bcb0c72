package relay

import (
	"context"
	"time"
)

// loop turns a lane until ctx ends. It reads the clock once per turn.
func (l *Lane) loop(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.control.wake:
		case m := <-l.inbox:
			l.take(time.Now(), m)
		case <-timer.C:
		}
		now := time.Now()
		timer.Reset(l.Turn(now).Sub(now))
	}
}
