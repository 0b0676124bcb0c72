package carrier

import (
	"math/rand/v2"
	"testing"
	"time"
)

// A way is a path in virtual time: a place that takes so many bytes per second, with any number of bytes before it, and a
// delay. The edge offers bytes as the worker of a client that always lacks something: each flush sends what was offered since the
// last one, unless it has to wait, and then only the newest is left to send.
type way struct {
	rate  int           // bytes per second
	delay time.Duration // there and back
	offer int           // bytes per second
	chunk int           // bytes of a datagram at most, which the worker cannot cut
	pause time.Duration // between two flushes; 0 is flushPause

	jitter func() time.Duration // by how much a mark is late; may be nil

	now   time.Time
	flow  flow
	next  time.Time // when the next flush is
	left  int       // bytes that are left to send
	free  time.Time // when the narrow place has taken what was sent
	marks []sighting
	late  time.Duration // the longest that bytes took since the last reset
	took  int           // bytes since then
}

// A sighting is a mark that comes back.
type sighting struct {
	at   time.Time
	mark uint32
}

const flushPause = 5 * time.Millisecond

// run lets time pass.
func (w *way) run(d time.Duration) {
	for end := w.now.Add(d); w.now.Before(end); w.now = w.now.Add(flushPause) {
		for len(w.marks) > 0 && !w.now.Before(w.marks[0].at) {
			w.flow.confirmed(w.marks[0].mark, w.now)
			w.marks = w.marks[1:]
		}
		w.flush()
		if w.flow.due(w.now) {
			at := w.narrow().Add(w.delay)
			if w.jitter != nil {
				at = at.Add(w.jitter())
			}
			w.marks = append(w.marks, sighting{at, w.flow.set(w.now)})
		}
	}
}

// flush sends what the flow allows. What was offered and not sent is replaced by newer values.
func (w *way) flush() {
	if !w.now.Before(w.next) {
		pause := max(w.pause, flushPause)
		w.left = int(float64(w.offer) * pause.Seconds())
		if w.pause == 0 {
			w.left = min(w.left, w.chunk)
		}
		w.next = w.now.Add(pause)
	}
	for w.left > 0 && !w.flow.full(w.now) {
		n := min(w.left, w.chunk)
		if room := w.flow.room(); room >= 0 {
			n = min(n, room)
		}
		if n == 0 {
			return
		}
		w.flow.sent(n)
		w.left -= n
		w.took += n
		w.free = w.narrow().Add(time.Duration(n) * time.Second / time.Duration(w.rate))
		w.late = max(w.late, w.free.Sub(w.now)+w.delay)
	}
}

// narrow returns when the narrow place has taken what was sent.
func (w *way) narrow() time.Time {
	if w.free.Before(w.now) {
		return w.now
	}
	return w.free
}

func TestFlow(t *testing.T) {
	for _, c := range []struct {
		name  string
		rate  int
		delay time.Duration
		offer int
		late  time.Duration // at most, after a while
	}{
		{"a little less than is offered", 8 << 10, time.Millisecond, 10_000, 600 * time.Millisecond},
		{"a hundredth of what is offered", 8 << 10, time.Millisecond, 1 << 20, 600 * time.Millisecond},
		{"far away", 8 << 10, 300 * time.Millisecond, 20_000, time.Second},
		{"very slow", 4 << 10, 20 * time.Millisecond, 10_000, time.Second},
		{"ten times as fast", 80 << 10, 50 * time.Millisecond, 1 << 20, 400 * time.Millisecond},
	} {
		w := way{rate: c.rate, delay: c.delay, offer: c.offer, chunk: 600, now: time.Unix(1000, 0)}
		w.flow.window = windowFirst
		w.run(10 * time.Second)
		w.late, w.took = 0, 0
		const measured = 2 * time.Minute
		w.run(measured)
		used := float64(w.took) / measured.Seconds() / float64(c.rate)
		if w.late > c.late || used < 0.5 {
			t.Errorf("%s: what is sent takes up to %v, want %v; %.0f %% of the path are used", c.name, w.late, c.late, 100*used)
		}
	}
}

// TestFlowSlower has a path become slow, while each flush has the changes of 50 ms: nothing that is sent takes a second, neither
// before the edge knows nor later, whatever marks are late for other reasons.
func TestFlowSlower(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 0))
		w := way{rate: 10 << 20, delay: time.Millisecond, offer: 18_000, chunk: 600, pause: 50 * time.Millisecond, now: time.Unix(1000, 0)}
		w.jitter = func() time.Duration { return time.Duration(r.Int64N(int64(wayTarget / 2))) }
		w.flow.window = windowFirst
		w.run(10*time.Second + time.Duration(r.Int64N(int64(time.Second))))
		w.rate, w.late, w.took = 8<<10, 0, 0
		w.run(2 * time.Second)
		first := w.late
		w.late = 0
		w.run(2 * time.Minute)
		used := float64(w.took) / (122 * time.Second).Seconds() / float64(w.rate)
		if first > 450*time.Millisecond || w.late > 600*time.Millisecond || used < 0.8 {
			t.Errorf("seed %d: what is sent takes up to %v in the first two seconds, want 450 ms, then up to %v, want 600 ms; %.0f %% of the path are used",
				seed, first, w.late, 100*used)
		}
	}
}

// TestFlowWide has a path that takes more than is offered: nothing waits for long, whatever the way is like.
func TestFlowWide(t *testing.T) {
	for _, delay := range []time.Duration{time.Millisecond, 50 * time.Millisecond, 600 * time.Millisecond} {
		w := way{rate: 10 << 20, delay: delay, offer: 200_000, chunk: 60_000, now: time.Unix(1000, 0)}
		w.flow.window = windowFirst
		w.run(10 * time.Second)
		w.took = 0
		w.run(10 * time.Second)
		if w.took < 9*200_000 {
			t.Errorf("with %v there and back, %d bytes were sent of %d", delay, w.took, 10*200_000)
		}
	}
}

// TestFlowLonger has a way become longer, which looks like a queue at first.
func TestFlowLonger(t *testing.T) {
	w := way{rate: 10 << 20, delay: 10 * time.Millisecond, offer: 100_000, chunk: 60_000, now: time.Unix(1000, 0)}
	w.flow.window = windowFirst
	w.run(10 * time.Second)
	w.delay = 400 * time.Millisecond
	w.run(30 * time.Second)
	w.took = 0
	w.run(10 * time.Second)
	if w.took < 9*100_000 {
		t.Errorf("on a way that has become longer %d bytes were sent of %d", w.took, 10*100_000)
	}
}

// TestFlowMarks has pongs come that no mark asked for.
func TestFlowMarks(t *testing.T) {
	now := time.Unix(1000, 0)
	var f flow
	if f.sent(1 << 20); f.full(now) || f.due(now) || f.room() >= 0 {
		t.Error("a client that confirms nothing is bounded by what it confirms")
	}
	f = flow{window: windowFirst}
	f.sent(100)
	if !f.due(now) {
		t.Fatal("no mark after the first bytes")
	}
	mark := f.set(now)
	if f.due(now) {
		t.Error("two marks are under way")
	}
	if f.confirmed(mark+1, now) || f.confirmed(0, now) || !f.confirmed(mark, now.Add(time.Millisecond)) || f.confirmed(mark, now) {
		t.Error("a mark counts more than once, or another one does")
	}
	if f.way != 0 {
		t.Errorf("%d bytes are on their way, want none", f.way)
	}
}
