package dnp

import (
	"testing"
	"time"
)

func TestRelink(t *testing.T) {
	s, from := linked(t, quiet(), false, "uint8", "uint8")
	to := s.source("uint8", "uint8")
	set(to, 0, "05")
	set(from, 1, "07") // never sent: the link leaves
	if err := s.c.Relink(from, to); err != nil {
		t.Fatal(err)
	}
	s.pump()
	s.flush()
	s.want("all values of the other, under the same id, and no LinkDown", "09 01 0080 02 0000 05 0100 00")
	if from.Links() != 0 || to.Links() != 1 {
		t.Errorf("%d and %d links, want 0 and 1", from.Links(), to.Links())
	}
	set(to, 1, "08")
	s.flush()
	s.want("the link follows the other", "09 01 0080 01 0100 08")
	from.Remove()
	s.pump()
	s.want("the first one no longer counts")
	s.c.Hold(0x8000, 0, unhex("09"))
	back := s.source("uint8", "uint8")
	if err := s.c.Relink(to, back); err != nil {
		t.Fatal(err)
	}
	s.flush()
	s.want("what the peer wrote stays held", "09 01 0080 01 0100 00")
	s.c.Refuse(0x8000, 0)
	s.flush()
	s.want("until it is settled", "09 01 0080 02 0000 00 0100 00")
}

func TestRelinkBeforeLinkUp(t *testing.T) {
	s := serve(t, quiet())
	from, to := s.source("uint8"), s.source("uint8")
	s.c.Link(from, true)
	to.State().Set(0, unhex("01"))
	if err := s.c.Relink(from, to); err != nil {
		t.Fatal(err)
	}
	s.pump()
	s.want("an offer is made from the newest values", "05 0000 0080 01 0100 4d 0100 01 01")
	to2 := s.source("uint8")
	to2.State().Set(0, unhex("02"))
	if err := s.c.Relink(to, to2); err != nil {
		t.Fatal(err)
	}
	s.wait(600 * time.Millisecond)
	s.want("a repeat, too", "05 0000 0080 01 0100 4d 0100 01 02")
	s.recv("06 0000 00", "07 0080")
	s.flush()
	s.want("the peer may have taken either copy", "09 01 0080 01 0000 02")
}

func TestRelinkErrors(t *testing.T) {
	s, from := linked(t, quiet(), true, "uint8")
	other := s.source("uint8")
	for _, c := range []struct {
		why      string
		from, to *Source
		want     error
	}{
		{"not linked", other, from, ErrNoLink},
		{"another layout", from, s.source("uint16"), ErrNoLink},
		{"linked to it already", from, from, ErrLinked},
	} {
		if err := s.c.Relink(c.from, c.to); err != c.want {
			t.Errorf("%s: %v, want %v", c.why, err, c.want)
		}
	}
	s.c.Close(CloseLocal)
	if err := s.c.Relink(from, other); err != ErrClosed {
		t.Errorf("after Close: %v, want ErrClosed", err)
	}
}
