package natslease

import (
	"testing"
	"time"
)

// TestLoadSilence checks that the first attempt costs a takeover little, and that later ones
// wait long enough for a slow store.
func TestLoadSilence(t *testing.T) {
	for n, want := range []time.Duration{50, 100, 200, 400, 800, 1600, 3000, 3000} {
		if got := loadSilence(n); got != want*time.Millisecond {
			t.Errorf("attempt %d waits %v, want %d ms", n, got, want)
		}
	}
	if got := loadSilence(1000); got != loadSilenceLast {
		t.Errorf("attempt 1000 waits %v, want %v", got, loadSilenceLast)
	}
	if two := loadSilence(0) + loadSilence(1); two > 150*time.Millisecond {
		t.Errorf("two lost requests cost a hand-over %v, which may take 200 ms", two)
	}
}
