package dnp

import (
	"testing"
)

// continued returns a test with another Endpoint, which goes on with the connection of a checkpoint and the changes
// behind it. No Source of its links exists there.
func (s *connTest) continued(cfg Config, checkpoint []byte, changes ...Changes) *connTest {
	s.Helper()
	o := newTest(s.T, cfg)
	o.now = s.now
	none := func(uint64) *Source { return nil }
	var err error
	o.c, err = o.e.Restore(o.now, peerAddr, checkpoint, none)
	for _, ch := range changes {
		if err == nil {
			err = o.c.Replay(o.now, ch, none)
		}
	}
	if err != nil {
		s.Fatal(err)
	}
	return o
}

// TestLoggedFrozenID: an offer that ended before it was stored has used up its LinkId all the same, because the
// peer was sent the offer. A successor gives the id to no other link.
func TestLoggedFrozenID(t *testing.T) {
	for _, farewell := range []bool{false, true} {
		s := logged(t)
		checkpoint := s.c.AppendCheckpoint(nil)
		src := s.e.NewSource(SourceConfig{State: newState(t, "uint8"), Message: []byte("M"), Farewell: []byte("bye")})
		if err := s.c.Link(src, true); err != nil {
			t.Fatal(err)
		}
		s.pump()
		s.c.Unlink(src, farewell)
		s.pump()
		ch := cloneChanges(s.c.Changes(1 << 20))
		if len(ch.Sent) == 0 || ch.Sent[0].Kind != SentFrozen || ch.Sent[0].Link != 0x8000 {
			t.Fatalf("changes %+v, want the frozen offer of 8000 first", ch)
		}
		cfg := quiet()
		cfg.Logged = true
		o := s.continued(cfg, checkpoint, ch)
		other := o.source("uint8")
		if err := o.c.Link(other, true); err != nil {
			t.Fatal(err)
		}
		if l, _ := o.c.LinkOf(other); l.ID != 0x8001 {
			t.Errorf("farewell %v: the successor's first link is %04x, want 8001: the peer has an offer of 8000", farewell, l.ID)
		}
	}
}
