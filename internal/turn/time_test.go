package turn

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 3500*time.Millisecond)
		defer cancel()
		start, every, after := time.Now(), 0, 0
		for now := range Every(ctx, time.Second) {
			if now.Sub(start) != time.Duration(every)*time.Second {
				t.Errorf("turn %d of Every comes after %v", every, now.Sub(start))
			}
			every++
		}
		if every != 4 || Pause(ctx, time.Second) {
			t.Errorf("%d turns in 3.5 s, want 4", every)
		}
		start = time.Now()
		for now := range After(t.Context(), time.Second) {
			if after++; now.Sub(start) != time.Duration(after)*time.Second {
				t.Errorf("turn %d of After comes after %v", after, now.Sub(start))
			}
			if after == 3 {
				break
			}
		}
		if !Pause(t.Context(), time.Second) || time.Since(start) != 4*time.Second {
			t.Errorf("a pause of 1 s ended after %v", time.Since(start)-3*time.Second)
		}
	})
}
