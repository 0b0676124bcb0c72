package compose

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// TestPulse makes one of two connections fall silent, fail and answer again.
func TestPulse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		alive := make(chan bool)
		start := time.Now()
		silent := func(from, to time.Duration) bool {
			since := time.Since(start)
			return since >= from && since < to
		}
		well := func(context.Context) error { return nil }
		ill := func(ctx context.Context) error {
			switch {
			case silent(10*time.Second, 20*time.Second): // a black hole
				<-ctx.Done()
				return ctx.Err()
			case silent(30*time.Second, 31*time.Second): // the connection moves to another server soon
				return errors.New("reconnecting")
			}
			return nil
		}
		ended := make(chan struct{})
		go func() { pulse(ctx, alive, well, ill); close(ended) }()
		for _, want := range []struct {
			alive       bool
			from, until time.Duration
			why         string
		}{
			{false, 11 * time.Second, 13 * time.Second, "silent since second 10, before others take the shards"},
			{true, 20 * time.Second, 21 * time.Second, "NATS answers again"},
		} {
			got := <-alive
			if at := time.Since(start); got != want.alive || at < want.from || at > want.until {
				t.Errorf("alive = %v after %v, want %v after %v to %v: %s", got, at, want.alive, want.from, want.until, want.why)
			}
		}
		select {
		case got := <-alive:
			t.Errorf("alive = %v after %v: a second without a connection is the normal cost of a dead server", got, time.Since(start))
		case <-time.After(time.Minute):
		}
		stop()
		<-ended
	})
}
