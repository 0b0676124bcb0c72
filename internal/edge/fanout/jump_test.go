package fanout

import (
	"testing"
	"time"
)

const secret = `,"interest":{"at":"pos","axes":"xz","bands":[{"within":300}],"beyond":"unlink"}`

// TestJumpUnlinks: a client loses a state that jumps out of its sight before any value of it is sent, if the interest says
// unlink. A worker sends values behind Advance.
func TestJumpUnlinks(t *testing.T) {
	for _, c := range []struct {
		why        string
		say        []string
		alice, bob string
	}{
		{"it stays", []string{`{"op":"set","key":"npc","values":{"hp":9}}`}, "all", "all"},
		{"it walks", []string{`{"op":"set","key":"npc","values":{"pos":[60,0,0]}}`}, "all", "all"},
		{"it jumps out of the sight of both", []string{`{"op":"set","key":"npc","values":{"pos":[5000,0,0],"hp":9}}`}, "-", "-"},
		{"out of that of alice", []string{`{"op":"set","key":"npc","values":{"pos":[480,0,0],"hp":9}}`}, "-", "all"},
		{"a little outside of the border of alice", []string{`{"op":"set","key":"npc","values":{"pos":[325,0,0]}}`}, "all", "all"},
		{"to nowhere", []string{`{"op":"set","key":"npc","values":{"pos":null}}`}, "-", "-"},
		{"and back at once", []string{`{"op":"set","key":"npc","values":{"pos":[5000,0,0]}}`, `{"op":"set","key":"npc","values":{"pos":[50,0,0]}}`}, "all", "all"},
		{"with the eye of alice", []string{`{"op":"set","key":"npc","values":{"pos":[5000,0,0]}}`, `{"op":"set","key":"player","values":{"pos":[5000,0,0]}}`}, "all", "-"},
		{"its interest gets smaller", []string{`{"op":"put","key":"npc","values":[{"name":"hp","type":"uint8","value":1},{"name":"pos","type":"vector3f32","value":[50,0,0],"nullable":true}],"priority":6,"interest":{"at":"pos","axes":"xz","bands":[{"within":10}],"beyond":"unlink"}}`}, "-", "-"},
	} {
		s := newSightTest(t)
		s.put("npc", 50, secret)
		s.put("player", 0, "")
		s.say(sees("alice", `"player#pos"`), sees("bob", `[200,0,0]`))
		s.wait(time.Second)
		s.shows("at first", "npc", "all", "all")
		s.say(c.say...)
		s.spaces.Advance(s.now)
		s.shows(c.why, "npc", c.alice, c.bob)
		s.wait(time.Second)
		s.shows(c.why+", a second later", "npc", c.alice, c.bob)
	}
}

// TestWalkUnlinks: one that walks out of sight is seen no further than a fifth outside of its furthest border, however long the
// worker does not look.
func TestWalkUnlinks(t *testing.T) {
	s := newSightTest(t)
	s.put("npc", 50, secret)
	s.say(sees("alice", `[0,0,0]`), sees("bob", `[0,0,0]`))
	s.wait(time.Second)
	for x := 50.0; x < 1000; x += 7 {
		s.now = s.now.Add(-19 * time.Millisecond) // a step each millisecond
		s.move("npc", x)
		s.spaces.Advance(s.now)
		if got := s.shown(s.session, "npc"); x > 360 && got != "-" || x < 330 && got != "all" {
			t.Fatalf("at %v the client has %s", x, got)
		}
	}
	s.move("npc", 40)
	s.wait(lookTime)
	s.shows("it comes back", "npc", "all", "all")
}

// TestJumpSleeps: with sleep, the client keeps what it was shown last, and nothing costs more than before.
func TestJumpSleeps(t *testing.T) {
	s := newSightTest(t)
	s.put("npc", 50, walker)
	s.say(sees("alice", `[0,0,0]`), sees("bob", `[0,0,0]`))
	s.wait(time.Second)
	s.move("npc", 5000)
	s.spaces.Advance(s.now)
	if n := len(s.session.space.near.jumped); n != 0 {
		t.Errorf("%d states wait to be compared", n)
	}
	s.wait(lookTime)
	s.shows("it sleeps", "npc", "asleep", "asleep")
}
