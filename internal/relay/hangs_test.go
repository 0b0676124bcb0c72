package relay

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"
)

// TestHangs makes one of two workers hang for a while.
func TestHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, err := New(Config{Node: "r", Bus: nowhere{}, Epoch: 1, Workers: 2, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- r.Run(ctx) }()
		hangs := func(want bool, why string) {
			t.Helper()
			if r.Hangs() != want {
				t.Errorf("Hangs returns %v, want %v: %s", !want, want, why)
			}
		}
		time.Sleep(time.Hour)
		hangs(false, "both workers have turns")
		release := make(chan struct{})
		r.workers[1].commands.Put(func(time.Time) { <-release })
		time.Sleep(hangsAfter / 2)
		hangs(false, "it may be a long turn")
		time.Sleep(hangsAfter)
		hangs(true, "the turn does not end")
		close(release)
		time.Sleep(2 * time.Second)
		hangs(false, "the worker goes on")
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
