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
	dialPause  = 500 * time.Millisecond
	dialReport = time.Minute
)

// Dial connects, and tries again until timeout has passed; 0 means for ever. It
// logs one line when it has to wait, and one a minute. Refused credentials do
// not get better by waiting, so they end it at once.
func Dial(ctx context.Context, cfg Config, timeout time.Duration, log *slog.Logger) (*Bus, error) {
	start, reported := time.Now(), time.Time{}
	for {
		bus, err := Connect(cfg)
		if err == nil || errors.Is(err, ErrCredentials) {
			return bus, err
		}
		if timeout > 0 && time.Since(start) >= timeout {
			return nil, fmt.Errorf("gave up after %v: %w", timeout, err)
		}
		if time.Since(reported) >= dialReport {
			log.Warn("NATS is not there, trying again", "error", err)
			reported = time.Now()
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(dialPause):
		}
	}
}
