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
			l.finish(time.Now())
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

// finish handles what was posted and emits everything, whatever the tick, so that
// a publisher that was answered, or still waits, is not let down.
func (l *Lane) finish(now time.Time) {
	l.Turn(now)
	l.advance(now.Add(l.relay.cfg.Tick))
}
