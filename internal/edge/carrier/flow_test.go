package carrier

import (
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
	chunk int           // bytes of a flush at most, which the worker cannot cut

	now   time.Time
	flow  flow
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
		n := min(int(float64(w.offer)*flushPause.Seconds()), w.chunk)
		if room := w.flow.room(); room >= 0 {
			n = min(n, room)
		}
		if !w.flow.full(w.now) && n > 0 {
			w.flow.sent(n)
			w.took += n
			if w.free.Before(w.now) {
				w.free = w.now
			}
			w.free = w.free.Add(time.Duration(n) * time.Second / time.Duration(w.rate))
			w.late = max(w.late, w.free.Sub(w.now)+w.delay)
		}
		if w.flow.due() {
			w.marks = append(w.marks, sighting{w.free.Add(w.delay), w.flow.set(w.now)})
		}
	}
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
	if f.sent(1 << 20); f.full(now) || f.due() || f.room() >= 0 {
		t.Error("a client that confirms nothing is bounded by what it confirms")
	}
	f = flow{window: windowFirst}
	f.sent(100)
	if !f.due() {
		t.Fatal("no mark after the first bytes")
	}
	mark := f.set(now)
	if f.due() {
		t.Error("two marks are under way")
	}
	if f.confirmed(mark+1, now) || f.confirmed(0, now) || !f.confirmed(mark, now.Add(time.Millisecond)) || f.confirmed(mark, now) {
		t.Error("a mark counts more than once, or another one does")
	}
	if f.way != 0 {
		t.Errorf("%d bytes are on their way, want none", f.way)
	}
}
