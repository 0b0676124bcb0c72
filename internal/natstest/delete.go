package natstest

import (
	"context"
	"errors"
	"testing"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"
)

// DeleteStream deletes a stream once, however slow the machine is: a request that is repeated because its answer did not come in time deletes the
// stream that the nodes have made again. A stream that does not exist is awaited.
func DeleteStream(t testing.TB, js natsjs.JetStream, name string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), readyTimeout)
	defer cancel()
	var made time.Time
	gone := func() bool {
		s, err := js.Stream(ctx, name)
		return errors.Is(err, natsjs.ErrStreamNotFound) || err == nil && !s.CachedInfo().Created.Equal(made)
	}
	for ; made.IsZero() && ctx.Err() == nil; time.Sleep(10 * time.Millisecond) {
		if s, err := js.Stream(ctx, name); err == nil {
			made = s.CachedInfo().Created
		}
	}
	for ctx.Err() == nil {
		request, cancel := context.WithTimeout(ctx, readyTimeout/4)
		err := js.DeleteStream(request, name)
		cancel()
		for ok := gone(); ; ok = gone() { // its server may hear of it later
			if ok {
				return
			}
			if err != nil || ctx.Err() != nil {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("stream %s is not deleted within %v", name, readyTimeout)
}
