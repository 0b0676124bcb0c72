package outage

import (
	"testing"
	"time"
)

var start = time.Unix(1e9, 0)

func at(seconds float64) time.Time { return start.Add(time.Duration(seconds * float64(time.Second))) }

func TestOutage(t *testing.T) {
	var o Outage
	for _, step := range []struct {
		second float64
		fails  bool
		told   bool
		why    string
	}{
		{0, false, false, "it works"}, {1, true, true, "an outage begins"}, {2, true, false, "it lasts"}, {5, false, false, "a part of the service works"},
		{6, true, false, "the outage is not over"}, {15.9, false, false, "for almost ten seconds nothing has failed"}, {16, false, true, "it is over"}, {17, false, false, "which is told once"},
	} {
		got := false
		if step.fails {
			got = o.Fails(at(step.second))
		} else {
			got = o.Works(at(step.second))
		}
		if got != step.told {
			t.Errorf("second %v: told is %v: %s", step.second, got, step.why)
		}
	}
}

func TestConnection(t *testing.T) {
	var c Connection
	if !c.Settled(start) || c.Back(start) {
		t.Error("a connection that was never lost is not settled, or is back")
	}
	for _, step := range []struct {
		second              float64
		change              string
		lost, back, settled bool
		why                 string
	}{
		{0, "lost", true, false, false, "the outage begins"},
		{0.1, "restored", false, false, false, "another server of the cluster"},
		{0.2, "lost", false, false, false, "it ends, too, which is the same outage"},
		{10, "", false, false, false, "no server"},
		{11, "restored", false, false, false, "it may be lost again at once"},
		{12, "restored", false, false, false, "a second word of it changes nothing"},
		{20.9, "", false, false, false, "almost"},
		{21, "", false, true, true, "it stays"},
		{22, "", false, false, true, "which is told once"},
		{30, "lost", true, false, false, "another outage"},
		{31, "restored", false, false, false, "it is up"},
		{41, "", false, true, true, "it stays"},
	} {
		lost := false
		switch step.change {
		case "lost":
			lost = c.Lost()
		case "restored":
			c.Restored(at(step.second))
		}
		settled := c.Settled(at(step.second))
		if back := c.Back(at(step.second)); lost != step.lost || back != step.back || settled != step.settled {
			t.Errorf("second %v: lost %v, back %v, settled %v: %s", step.second, lost, back, settled, step.why)
		}
	}
}
