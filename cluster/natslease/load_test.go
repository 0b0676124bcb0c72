package natslease

import (
	"testing"
	"time"
)

// TestLoadSilence: the first try must not cost a takeover much, and the later ones must
// be patient enough for a store that is slow.
func TestLoadSilence(t *testing.T) {
	for n, want := range []time.Duration{50, 100, 200, 400, 800, 1600, 3000, 3000} {
		if got := loadSilence(n); got != want*time.Millisecond {
			t.Errorf("try %d waits %v, want %d ms", n, got, want)
		}
	}
	if got := loadSilence(1000); got != loadSilenceLast {
		t.Errorf("try 1000 waits %v, want %v", got, loadSilenceLast)
	}
	if two := loadSilence(0) + loadSilence(1); two > 150*time.Millisecond {
		t.Errorf("two lost requests cost a hand-over %v, which is to take 200 ms at most", two)
	}
}
