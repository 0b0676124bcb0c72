package inspect

import "time"

// How many requests a node answers in a second, and how many at once. The numbers are
// arbitrary: several people look once a second each, and a flood costs a node less than a
// hundredth of a core.
const (
	answersPerSecond = 50
	answersBurst     = 100
	busyPerSecond    = 10 // answers that say busy
)

// A Limiter says what becomes of a request: the node answers it, says that it is busy, or
// drops it, because a flood of requests must not become a flood of answers. The zero value
// is ready to use. Its owner serialises the calls.
type Limiter struct {
	answers, busy bucket
	Counts        LimiterCounts
}

// LimiterCounts are the requests so far. A malformed one counts as answered, too.
type LimiterCounts struct{ Answered, Busy, Dropped, Malformed uint64 }

// A Verdict is what becomes of a request.
type Verdict uint8

// The verdicts.
const (
	Answer Verdict = iota
	SayBusy
	Drop
)

// Take counts a request.
func (l *Limiter) Take(now time.Time) Verdict {
	switch {
	case l.answers.take(now, answersPerSecond, answersBurst):
		l.Counts.Answered++
		return Answer
	case l.busy.take(now, busyPerSecond, busyPerSecond):
		l.Counts.Busy++
		return SayBusy
	}
	l.Counts.Dropped++
	return Drop
}

// A bucket has tokens that come back at a rate.
type bucket struct {
	tokens float64
	at     time.Time // when tokens was right; zero for a full bucket
}

func (b *bucket) take(now time.Time, perSecond, burst float64) bool {
	if b.at.IsZero() {
		b.tokens = burst
	} else {
		b.tokens = min(burst, b.tokens+max(0, now.Sub(b.at).Seconds())*perSecond)
	}
	b.at = now
	if b.tokens < 1 {
		return false
	}
	b.tokens--
	return true
}
