package natsbus

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// How often Dial tries, and says that it still tries.
const (
	dialPause    = 500 * time.Millisecond
	dialPauseBad = 5 * time.Second // after credentials that the server refused, which it may log
	dialReport   = time.Minute
)

// Dial connects, and tries again until timeout has passed; 0 means for ever. It
// logs one line when it has to wait, and one a minute. Refused credentials end it
// at once, unless it is to wait for ever: then somebody may change what the server
// takes, and ending would only have it started again.
func Dial(ctx context.Context, cfg Config, timeout time.Duration, log *slog.Logger) (*Bus, error) {
	start, reported := time.Now(), time.Time{}
	for {
		bus, err := Connect(cfg)
		bad := errors.Is(err, ErrCredentials)
		if err == nil || bad && timeout > 0 {
			return bus, err
		}
		if timeout > 0 && time.Since(start) >= timeout {
			return nil, fmt.Errorf("gave up after %v: %w", timeout, err)
		}
		if time.Since(reported) >= dialReport {
			log.Warn("NATS is not there, trying again", "error", err)
			reported = time.Now()
		}
		pause := dialPause
		if bad {
			pause = dialPauseBad
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(pause):
		}
	}
}
