package config

import (
	"os"
	"syscall"
	"testing"
	"time"
)

func TestRepeats(t *testing.T) {
	for _, c := range []struct {
		reason string
		signal os.Signal
		after  time.Duration
		want   bool
	}{
		{"timeout signals the child and its group", syscall.SIGTERM, 5 * time.Millisecond, true},
		{"somebody has waited, and does not want to any longer", syscall.SIGTERM, time.Second, false},
		{"another signal is another wish", os.Interrupt, 5 * time.Millisecond, false},
	} {
		if got := repeats(c.signal, syscall.SIGTERM, c.after); got != c.want {
			t.Errorf("%s: %v after %v is a repetition: %t", c.reason, c.signal, c.after, got)
		}
	}
}

func TestDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"tick", "tick", 0}, {"tikc", "tick", 1}, {"tic", "tick", 1}, {"tickk", "tick", 1}, {"tock", "tick", 1}, {"", "abc", 3}, {"kitten", "sitting", 3}} {
		if got := distance(c.a, c.b); got != c.want {
			t.Errorf("%q and %q differ by %d, want %d", c.a, c.b, got, c.want)
		}
		if got := distance(c.b, c.a); got != c.want {
			t.Errorf("%q and %q differ by %d, want %d", c.b, c.a, got, c.want)
		}
	}
}
