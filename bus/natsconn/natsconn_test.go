package natsconn

import (
	"testing"
	"time"
)

func TestReconnectDelay(t *testing.T) {
	for n, least := range map[int]time.Duration{0: 50, 1: 50, 2: 100, 3: 200, 5: 800, 6: 1000, 1 << 30: 1000} {
		least *= time.Millisecond
		if d := ReconnectDelay(n); d < least || d >= 2*least {
			t.Errorf("pause %d is %v, want %v to twice that", n, d, least)
		}
	}
}
