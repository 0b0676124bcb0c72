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
	created := func() (at time.Time, err error) { // of the stream that there is
		request, cancel := context.WithTimeout(ctx, 2*time.Second) // one may get lost
		defer cancel()
		s, err := js.Stream(request, name)
		if err == nil {
			at = s.CachedInfo().Created
		}
		return at, err
	}
	gone := func() bool {
		at, err := created()
		return errors.Is(err, natsjs.ErrStreamNotFound) || err == nil && !at.Equal(made)
	}
	for ; made.IsZero() && ctx.Err() == nil; time.Sleep(10 * time.Millisecond) {
		made, _ = created()
	}
	for ctx.Err() == nil {
		request, cancel := context.WithTimeout(ctx, 10*time.Second)
		err := js.DeleteStream(request, name)
		cancel()
		// Its server may hear of it later, or carry out a request that seemed to be lost.
		for end := time.Now().Add(10 * time.Second); ctx.Err() == nil && (err == nil || time.Now().Before(end)); time.Sleep(10 * time.Millisecond) {
			if gone() {
				return
			}
		}
	}
	t.Fatalf("stream %s is not deleted within %v", name, readyTimeout)
}
