package protocol

import "time"

// A bucket bounds bytes per second. It holds burst bytes. The zero time begins with a full one.
type bucket struct {
	rate, burst float64
	level       float64
	at          time.Time
}

func newBucket(rate, burst int, now time.Time) bucket {
	return bucket{rate: float64(rate), burst: float64(burst), level: float64(burst), at: now}
}

func (b *bucket) fill(now time.Time) {
	if d := now.Sub(b.at); d > 0 {
		b.level, b.at = min(b.burst, b.level+b.rate*d.Seconds()), now
	}
}

// wait returns how long it takes until something may pass; 0 is at once. What passes may be more than there is, so that no
// size is too large, and the next one waits for longer.
func (b *bucket) wait(now time.Time) time.Duration {
	b.fill(now)
	if b.level > 0 {
		return 0
	}
	return time.Duration((1 - b.level) / b.rate * float64(time.Second))
}

func (b *bucket) take(n int) { b.level -= float64(n) }
