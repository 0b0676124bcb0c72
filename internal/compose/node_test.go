package compose

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestWithin ends nodes that hang, and some that do not.
func TestWithin(t *testing.T) {
	for _, c := range []struct {
		name  string
		hangs time.Duration
		left  bool // by a request instead of a signal
		want  string
	}{
		{"it ends in time", 11 * time.Second, false, "its own"},
		{"it hangs", time.Hour, false, "the connection to NATS does not end"},
		{"it hangs after a request to drain", time.Hour, true, "the connection to NATS does not end"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := &node{leaving: make(chan struct{})}
				n.step.Store("the connection to NATS")
				ctx, signal := context.WithCancel(t.Context())
				defer signal()
				release := make(chan struct{})
				start := time.Now()
				end := make(chan error)
				go func() {
					end <- n.within(ctx, 10*time.Second, func() error {
						time.Sleep(time.Minute)
						select {
						case <-time.After(c.hangs):
						case <-release:
						}
						return errors.New("its own")
					})
				}()
				time.Sleep(time.Minute)
				if c.left {
					close(n.leaving)
				} else {
					signal()
				}
				err := <-end
				if err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("ends with %v, want %q", err, c.want)
				}
				if took := time.Since(start) - time.Minute; took > 10*time.Second+endWait {
					t.Errorf("ends after %v", took)
				}
				close(release)
			})
		})
	}
}
