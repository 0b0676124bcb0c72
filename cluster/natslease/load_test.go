package natslease

import (
	"testing"
	"time"
)

// TestLoadSilence: the first try must not cost a takeover much, and the later ones must
// be patient enough for a store that is slow.
func TestLoadSilence(t *testing.T) {
	for n, want := range []time.Duration{200 * time.Millisecond, 400 * time.Millisecond, 800 * time.Millisecond, 1600 * time.Millisecond, 3 * time.Second} {
		if got := loadSilence(n); got != want {
			t.Errorf("try %d waits %v, want %v", n, got, want)
		}
	}
	if got := loadSilence(1000); got != loadSilenceLast {
		t.Errorf("try 1000 waits %v, want %v", got, loadSilenceLast)
	}
	if first := loadSilence(0) + watchPause; first > 500*time.Millisecond {
		t.Errorf("one lost request costs a takeover %v", first)
	}
}
