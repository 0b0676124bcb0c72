package dnp

import (
	"testing"
	"time"
)

// catching is the Config quiet with two repeats of values.
func catching() Config {
	cfg := quiet()
	cfg.Refresh = []time.Duration{100 * time.Millisecond, 300 * time.Millisecond}
	return cfg
}

func TestRelinkIsRepeated(t *testing.T) {
	s, from := linked(t, catching(), false, "uint8", "uint8")
	to := s.source("uint8", "uint8")
	set(to, 0, "05")
	s.flush()
	s.wait(time.Second) // the repeats of the change itself are over
	s.flush()
	s.sent = nil
	if err := s.c.Relink(from, to); err != nil {
		t.Fatal(err)
	}
	s.flush()
	s.want("all values, which may be lost", "09 01 0080 02 0000 05 0100 00")
	s.wait(100 * time.Millisecond)
	s.flush()
	s.want("so they are repeated", "09 01 0080 02 0000 05 0100 00")
	set(to, 0, "06")
	set(to, 1, "07")
	s.flush()
	s.want("all change", "09 01 0080 02 0000 06 0100 07")
	s.wait(90 * time.Millisecond)
	s.flush()
	s.want("and that has repeats of its own")
	s.wait(20 * time.Millisecond)
	s.flush()
	s.want("which come", "09 01 0080 02 0000 06 0100 07")
	s.wait(95 * time.Millisecond)
	s.flush()
	s.want("nothing is left of the older values to repeat")
	s.wait(time.Second)
	s.flush()
	s.want("the last repeat of the change", "09 01 0080 02 0000 06 0100 07")
}

func TestLateLinkUpIsRepeated(t *testing.T) {
	s := serve(t, catching())
	src := s.source("uint8")
	s.c.Link(src, true)
	s.pump()
	s.want("the offer", "05 0000 0080 01 0100 4d 0100 01 00")
	set(src, 0, "05")
	s.flush()
	s.sent = nil
	s.wait(time.Second) // the offer is repeated, and the change's repeats are over
	s.flush()
	s.sent = nil
	s.recv("06 0000 00", "07 0080")
	s.c.loss.share = 0 // otherwise each repeat is sent twice
	s.flush()
	s.want("the change after the offer", "09 01 0080 01 0000 05")
	for _, why := range []string{"once more", "and again"} {
		s.wait(200 * time.Millisecond)
		s.flush()
		s.want(why, "09 01 0080 01 0000 05")
	}
	s.wait(time.Minute)
	s.flush()
	s.want("no more")
}

func TestCatchUpNeedsItsLink(t *testing.T) {
	s, from := linked(t, catching(), false, "uint8")
	to := s.source("uint8")
	if err := s.c.Relink(from, to); err != nil {
		t.Fatal(err)
	}
	s.flush()
	s.c.Unlink(to, false)
	s.pump()
	s.sent = nil
	s.wait(100 * time.Millisecond)
	s.flush()
	for _, d := range s.sent {
		if d[:2] == "09" {
			t.Errorf("values of a link that ended: %s", d)
		}
	}
}

func TestCatchUpsAreBounded(t *testing.T) {
	s, a := linked(t, catching(), false, "uint8")
	b := s.source("uint8")
	for range catchUpsMax + 10 {
		if err := s.c.Relink(a, b); err != nil {
			t.Fatal(err)
		}
		a, b = b, a
	}
	if s.c.links.catchUps.n != catchUpsMax {
		t.Errorf("%d, want %d", s.c.links.catchUps.n, catchUpsMax)
	}
	s.dropped("the rest", DropCatchUpsFull, 10)
}
