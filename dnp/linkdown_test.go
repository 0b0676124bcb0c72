package dnp

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/dnp/wire"
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

// carriedConfig is a Config of an Endpoint whose peers do not come by UDP.
func carriedConfig() Config {
	cfg := quiet()
	cfg.Proven = func(netip.AddrPort) bool { return true }
	return cfg
}

// missing returns a test with a peer that was silent while its link 8000 was taken down.
func missing(t *testing.T, cfg Config) *connTest {
	t.Helper()
	s, src := linked(t, cfg, true, "uint8")
	s.wait(time.Second)
	src.Remove()
	s.wait(10 * time.Second)
	s.want("the LinkDown is repeated for 5 s", slices.Repeat([]string{"08 0080"}, len(linkDownSteps))...)
	return s
}

const keepAlive = "09 00"

// TestLinkDownMissed: a peer that was without a connection for as long as a LinkDown was repeated hears of it when it is
// back, and not for ever: it never answers.
func TestLinkDownMissed(t *testing.T) {
	s := missing(t, carriedConfig())
	for range missedRounds {
		s.wait(time.Minute)
		s.want("a peer that is silent is not told")
		s.recv(keepAlive)
		s.want("one that is heard is told at once", "08 0080")
		s.recv(keepAlive)
		s.wait(10 * time.Second)
		s.want("and twice more, however often it is heard", "08 0080", "08 0080")
	}
	s.recv(keepAlive)
	s.wait(10 * time.Second)
	s.want("but not for ever")
}

// TestLinkDownHeard: a peer that was heard when the last copies of a LinkDown were sent had a connection when the first ones
// were.
func TestLinkDownHeard(t *testing.T) {
	s, src := linked(t, carriedConfig(), true, "uint8")
	src.Remove()
	s.wait(linkDownSteps[len(linkDownSteps)-1] - missedSilence + time.Second)
	s.recv(keepAlive)
	s.wait(10 * time.Second)
	s.want("it is told as often as any", slices.Repeat([]string{"08 0080"}, len(linkDownSteps))...)
	s.recv(keepAlive)
	s.wait(10 * time.Second)
	s.want("and no more")
}

// TestLinkDownByUDP: a peer that comes by UDP gets not one copy more.
func TestLinkDownByUDP(t *testing.T) {
	s := missing(t, quiet())
	s.recv(keepAlive)
	s.wait(10 * time.Second)
	s.want("no copy")
}

// TestLinkDownMissedElsewhere: the next owner of a connection tells the peer, too.
func TestLinkDownMissedElsewhere(t *testing.T) {
	cfg := carriedConfig()
	cfg.Logged = true
	s, src := linkedLogged(t, cfg)
	src.Remove()
	s.store()
	s.wait(10 * time.Second)
	o := s.continued(cfg, s.c.AppendCheckpoint(nil))
	o.wait(10 * time.Second)
	if n := len(o.sent); n < len(linkDownSteps) || slices.ContainsFunc(o.sent, func(d string) bool { return d != "080080" }) {
		t.Errorf("the next owner sends %q, want LinkDowns of 8000", o.sent)
	}
}

// resting returns the links that rest.
func (l *retrySchedule) resting() []retry {
	if l.queues == nil {
		return nil
	}
	return l.queues[len(*l.steps)]
}

// linkedLogged returns a test with a logged connection whose link 8000 is up.
func linkedLogged(t *testing.T, cfg Config) (*connTest, *Source) {
	t.Helper()
	s := serve(t, cfg)
	src := s.source("uint8")
	if err := s.c.Link(src, true); err != nil {
		t.Fatal(err)
	}
	s.pump()
	s.store()
	s.recv("06 0000 00", "07 0080")
	s.store()
	s.sent, s.happen = nil, nil
	return s, src
}

// TestLinkDownMissedCancelled: an id that the peer links again is not taken down.
func TestLinkDownMissedCancelled(t *testing.T) {
	s := serve(t, carriedConfig())
	s.recv("05 0000 0100 00 0100 6d 0100 01 00")
	s.c.Reject(1)
	s.wait(10 * time.Second)
	s.sent = nil
	if n := len(s.c.links.downs.resting()); n != 1 {
		t.Fatalf("%d LinkDowns are remembered, want that of link 1", n)
	}
	s.recv("05 0100 0100 00 0100 6d 0100 01 00")
	s.wait(10 * time.Second)
	s.want("only the acknowledgement", "06 0100 00")
}

// TestLinkDownsBounded: LinkDowns that a peer may have missed count with those that are being repeated.
func TestLinkDownsBounded(t *testing.T) {
	s := serve(t, carriedConfig())
	for i := range downsMax / 2 {
		s.c.links.startDown(0x8000 + wire.LinkID(i))
	}
	s.c.wake()
	s.wait(10 * time.Second)
	if n := len(s.c.links.downs.resting()); n != downsMax/2 {
		t.Fatalf("%d LinkDowns are remembered, want %d", n, downsMax/2)
	}
	for i := range downsMax {
		s.c.links.startDown(0x1000 + wire.LinkID(i))
	}
	s.dropped("half of them have no room", DropDownsFull, downsMax/2)
	if n := s.c.links.downs.n; n != downsMax {
		t.Errorf("%d LinkDowns are remembered, want %d", n, downsMax)
	}
}
