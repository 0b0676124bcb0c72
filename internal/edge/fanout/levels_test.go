package fanout

import (
	"testing"
	"time"
)

// TestRepeatsOfLevelsWait lets an object walk in a band of 5 Hz. The next change makes up for a loss, so nothing is repeated until the
// object stands.
func TestRepeatsOfLevelsWait(t *testing.T) {
	s := newSightTest(t)
	s.say(sees("alice", "[0,0,0]"), sees("bob", "[0,0,0]"))
	s.put("wolf", 200, walker)
	e := s.spaces.Endpoint
	turn := func() {
		s.wait(10 * time.Millisecond)
		e.Advance(s.now, discard{})
		e.Flush(s.now, discard{})
	}
	repeats := func() uint64 { return e.Stats().Refreshes }
	walk := func(steps int) {
		for i := range steps {
			s.move("wolf", 200+float64(i%40)/10)
			for range 3 { // 50 ms with the tick of the holder
				turn()
			}
		}
	}
	walk(40)
	s.shows("the wolf is in the second band", "wolf", "4/5/2", "4/5/2")
	before := repeats()
	walk(100)
	if n := repeats() - before; n > 1 {
		t.Errorf("%d repeats of 25 changes of an object that walks, want none", n)
	}
	before = repeats()
	for range 400 {
		turn()
	}
	if n := repeats() - before; n < 3 {
		t.Errorf("%d repeats after the object stands, want those of the schedule", n)
	}
}

// TestRates wants a state that changes all the time to be brought up to date once in each period of its levels, and soon after
// it stands.
func TestRates(t *testing.T) {
	s := newSightTest(t)
	s.say(sees("alice", "[0,0,0]"))
	s.put("wolf", 200, walker)
	s.wait(lookTime)
	s.shows("the wolf is in the second band", "wolf", "4/5/2", "-")
	st := s.session.space.replica.ByKey("wolf")
	l := sourcesOf(st).levels[0]
	const pos = 1
	copies, shown := 0, string(l.values.Value(pos))
	for i := range 100 { // 6 s of 20 ms for the holder, and 40
		s.move("wolf", 200+float64(i))
		for range 2 {
			s.wait(20 * time.Millisecond)
			if now := string(l.values.Value(pos)); now != shown {
				copies, shown = copies+1, now
			}
		}
	}
	if copies < 28 || copies > 31 {
		t.Errorf("in 6 s, the level of 5 Hz was brought up to date %d times, want 30", copies)
	}
	s.wait(200*time.Millisecond + 2*time.Duration(calendarStep))
	if string(l.values.Value(pos)) != string(st.Values.Value(pos)) {
		t.Error("the state stands, and its level has another value")
	}
}
