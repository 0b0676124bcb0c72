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
