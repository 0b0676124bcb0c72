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
	s.c.Writes().Hold(0x8000, 0, 0, unhex("09"))
	back := s.source("uint8", "uint8")
	if err := s.c.Relink(to, back); err != nil {
		t.Fatal(err)
	}
	s.flush()
	s.want("what the peer wrote stays held", "09 01 0080 01 0100 00")
	s.c.Writes().Refuse(0x8000, 0)
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

// TestSilent moves a link to a Silent source and back: nothing is sent in between, by no repeat and no
// scrub either, and everything afterwards.
func TestSilent(t *testing.T) {
	cfg := quiet()
	cfg.ScrubInterval, cfg.Refresh = time.Second, []time.Duration{60 * time.Millisecond, 500 * time.Millisecond}
	s, near := linked(t, cfg, false, "uint8", "uint8")
	silent := s.e.NewSource(SourceConfig{State: near.State(), Message: near.Message(), Silent: true})
	s.flush()
	s.wait(3 * time.Second)
	s.flush()
	s.sent = nil
	set(near, 0, "01") // its flush and repeats are due when the link becomes silent
	s.flush()
	s.want("the change", "09 01 0080 01 0000 01")
	set(near, 0, "02")
	if err := s.c.Relink(near, silent); err != nil {
		t.Fatal(err)
	}
	if got := s.e.stats.Silent; got != 1 {
		t.Errorf("%d silent links, want 1", got)
	}
	for range 40 {
		set(near, 1, "07")
		s.wait(250 * time.Millisecond)
		s.flush()
	}
	s.want("a silent link is sent nothing")
	if v, ok := s.e.SurveyLink(s.now, s.c, silent); !ok || !v.Silent || v.Lacks != 0 {
		t.Errorf("the survey says %+v, %v; want a silent link that lacks nothing", v, ok)
	}
	if err := s.c.Relink(silent, near); err != nil {
		t.Fatal(err)
	}
	s.flush()
	s.want("all values at once", "09 01 0080 02 0000 02 0100 07")
	s.c.Unlink(near, false)
	if s.e.stats.Silent != 0 || s.c.links.silent != 0 {
		t.Errorf("%d and %d silent links are left, want none", s.e.stats.Silent, s.c.links.silent)
	}
}

// TestEndSilent: a peer with as many links as it may have gives up silent ones, and no others.
func TestEndSilent(t *testing.T) {
	cfg := quiet()
	cfg.LinksMax = 4
	s := serve(t, cfg)
	link := func(silent bool) *Source {
		x := s.e.NewSource(SourceConfig{State: newState(t, "uint8"), Message: unhex("4d"), Silent: silent})
		if err := s.c.Link(x, true); err != nil {
			t.Fatal(err)
		}
		return x
	}
	link(false)
	silent := []*Source{link(true), link(true)}
	if s.e.EndSilent(s.c) {
		t.Fatal("a link is given up although there is room for another")
	}
	link(false)
	for i := range silent {
		if !s.e.EndSilent(s.c) {
			t.Fatalf("no link is given up, want one of %d silent ones", len(silent)-i)
		}
		link(false)
	}
	if s.e.EndSilent(s.c) {
		t.Error("a link is given up that is not silent")
	}
	if n := silent[0].Links() + silent[1].Links(); n != 0 || s.e.stats.Silent != 0 {
		t.Errorf("%d silent links are left, %d are counted; want none", n, s.e.stats.Silent)
	}
	s.c.Close(CloseLocal)
}

// TestDivisor: of two sources of one priority the one with a divisor is sent later, and offered later.
func TestDivisor(t *testing.T) {
	s := newTest(t, quiet())
	far := s.e.NewSource(SourceConfig{State: newState(t, "uint8"), Message: unhex("4d"), Priority: 4, Divisor: 3})
	if near := s.source("uint8"); near.weight >= far.weight || far.weight != 4.0/3 {
		t.Errorf("priority 4 by 3 weighs %v, priority 1 weighs %v", far.weight, near.weight)
	}
	if far.SetPriority(2); far.weight != 2.0/3 {
		t.Errorf("priority 2 by 3 weighs %v", far.weight)
	}
}
