package fanout

import (
	"strings"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/dnp"
	"github.com/dnprelay/dnprelay/dnp/command"
	"github.com/dnprelay/dnprelay/dnp/netstate"
	"github.com/dnprelay/dnprelay/dnp/wire"
)

// A recycleTest is a session that uses up LinkIds.
type recycleTest struct {
	*sessionTest
	now    time.Time
	closed []dnp.CloseReason
}

func newRecycleTest(t *testing.T, rule Recycle) *recycleTest {
	t.Helper()
	s := &recycleTest{sessionTest: newSessionTest(t), now: start}
	s.spaces.Recycle = rule
	s.begin()
	s.advance(0)
	s.receive(6, 0, 0, 0) // the probe of a client that logged in
	return s
}

// receive has a datagram of the client handled.
func (s *recycleTest) receive(datagram ...byte) {
	s.handle(s.spaces.Endpoint.Receive(s.now, s.conn.Addr(), datagram, discard{}))
	s.advance(0)
}

// advance turns the worker until d is over.
func (s *recycleTest) advance(d time.Duration) {
	for end := s.now.Add(d); ; s.now = s.now.Add(10 * time.Millisecond) {
		s.spaces.Advance(s.now)
		s.handle(s.spaces.Endpoint.Advance(s.now, discard{}))
		s.handle(s.spaces.Endpoint.Advance(s.now, discard{})) // what the events made due
		if !s.now.Before(end) {
			return
		}
	}
}

func (s *recycleTest) handle(events []dnp.Event) {
	for i := range events {
		if ev := &events[i]; ev.Kind == dnp.EventClosed {
			s.closed = append(s.closed, ev.Reason)
		}
		if session, ok := events[i].Conn.Data().(*Session); ok {
			session.Handle(s.now, &events[i])
		}
	}
}

// use uses LinkIds up until few are left, or none.
func (s *recycleTest) use(all bool) {
	src := s.source()
	for {
		if few, none := s.spaces.Endpoint.LinkIDs(s.conn); none || few && !all {
			break
		}
		s.conn.Link(src, true)
		s.conn.Unlink(src, false)
	}
	s.advance(0)
}

// source makes a source of a state with one value.
func (s *recycleTest) source() *dnp.Source {
	s.Helper()
	typ, _ := wire.ParseValueType("uint8")
	layout, err := netstate.NewLayout([]netstate.Value{{Type: typ}})
	if err != nil {
		s.Fatal(err)
	}
	return s.spaces.Endpoint.NewSource(dnp.SourceConfig{State: netstate.NewState(layout)})
}

// events returns how many recycle events there were, and how many have a reason.
func (s *recycleTest) events(reason string) (all, because int) {
	for _, m := range s.host.messages {
		if text := string(m.Data); strings.Contains(text, `"type":"recycle"`) {
			all++
			if strings.Contains(text, `"reason":"`+reason+`"`) {
				because++
			}
		}
	}
	return all, because
}

func (s *recycleTest) want(why string, closed bool) {
	s.Helper()
	switch {
	case closed != (len(s.closed) > 0):
		s.Fatalf("%s: closed = %v, want %v", why, s.closed, closed)
	case closed && s.closed[0] != dnp.CloseRecycle:
		s.Fatalf("%s: closed because of %v, want recycle", why, s.closed[0])
	}
}

// TestRecycle: the edge closes the connection of a session whose LinkIds are nearly used up when
// nothing gets lost by it.
func TestRecycle(t *testing.T) {
	s := newRecycleTest(t, RecycleClose)
	s.advance(5 * time.Second)
	s.want("a session with LinkIds stays, however quiet it is", false)
	s.use(false)
	s.advance(900 * time.Millisecond)
	s.want("a second has to pass without reliable commands", false)
	s.receive(4, 1, 0, 'a')
	s.advance(900 * time.Millisecond)
	s.want("the client sent a message, and may await the answer", false)
	s.conn.Send([]byte("b"), 0)
	s.advance(2 * time.Second)
	s.want("a message to the client is under way", false)
	wr := s.session.writes.writer(s.source(), nil)
	wr.values = []written{{value: []byte{1}}}
	s.receive(6, 1, 0, 0)
	s.advance(2 * time.Second)
	s.want("the holder does not have what the client wrote", false)
	wr.values = nil
	s.advance(200 * time.Millisecond)
	s.want("nothing is under way", true)
	if all, usedUp := s.events("used_up"); all != 1 || usedUp != 0 {
		t.Errorf("%d events, %d say that no LinkId is left; want the warning", all, usedUp)
	}
}

// TestRecycleUsedUp: without LinkIds the connection ends, whatever is under way.
func TestRecycleUsedUp(t *testing.T) {
	s := newRecycleTest(t, RecycleClose)
	s.conn.Send([]byte("b"), 0)
	s.use(true)
	s.want("no LinkId is left", true)
	if all, usedUp := s.events("used_up"); all != 2 || usedUp != 1 {
		t.Errorf("%d events, %d say that no LinkId is left; want 2, 1", all, usedUp)
	}
	if c := s.spaces.Counts(); c.LinkIDsFew != 1 || c.LinkIDsUsedUp != 1 {
		t.Errorf("counted %d, %d; want 1, 1", c.LinkIDsFew, c.LinkIDsUsedUp)
	}
}

// TestRecycleTell: what to do is left to the game servers.
func TestRecycleTell(t *testing.T) {
	s := newRecycleTest(t, RecycleTell)
	s.use(true)
	s.advance(5 * time.Second)
	s.want("the rule is tell", false)
	if all, usedUp := s.events("used_up"); all != 2 || usedUp != 1 {
		t.Errorf("%d events, %d say that no LinkId is left; want 2, 1", all, usedUp)
	}
}

// TestRecycleResumed: the edge that takes a session over knows that its LinkIds are nearly used up.
func TestRecycleResumed(t *testing.T) {
	s := newRecycleTest(t, RecycleTell)
	s.use(false)
	s.spaces.Recycle = RecycleClose
	s.session.Resume(s.now, s.conn, 0, command.Progress{})
	s.advance(2 * time.Second)
	s.want("nothing is under way", true)
}

// say sends the client messages, which it acknowledges, until the next one of the edge has number n.
func (s *recycleTest) say(n uint64) {
	for sent := s.sent(); sent < n && len(s.closed) == 0; s.now = s.now.Add(time.Millisecond) {
		s.conn.Send([]byte("m"), 0)
		s.handle(s.spaces.Endpoint.Advance(s.now, discard{}))
		for ; sent < s.sent(); sent++ {
			s.acknowledge(sent)
		}
	}
	s.advance(0)
}

// sent returns how many reliable commands the client was sent.
func (s *recycleTest) sent() uint64 {
	traffic, _ := s.spaces.Endpoint.Traffic(s.conn)
	return traffic.Sent
}

func (s *recycleTest) acknowledge(n uint64) {
	p := wire.ReliableAck{Seq: wire.Denetwork.Seq(n)}.Append(nil)
	s.handle(s.spaces.Endpoint.Receive(s.now, s.conn.Addr(), p, discard{}))
}

// newLapTest returns a test with a session whose client may keep number 100.
func newLapTest(t *testing.T, rule Recycle) *recycleTest {
	t.Helper()
	s := newRecycleTest(t, rule)
	s.say(101)
	s.acknowledge(100)
	return s
}

// TestLap: the edge closes the connection of a client that may keep a command when three quarters of a lap are over,
// and nothing is under way.
func TestLap(t *testing.T) {
	s := newLapTest(t, RecycleClose)
	s.say(100 + 49_150)
	s.advance(5 * time.Second)
	s.want("a quarter of a lap and one number are left, and the moment is quiet", false)
	s.session.commands.open[1] = s.now.Add(time.Minute)
	s.say(100 + 49_151)
	s.advance(300 * time.Millisecond)
	s.want("a command of the client has no answer", false)
	delete(s.session.commands.open, 1)
	s.conn.Send([]byte("b"), 0)
	s.advance(300 * time.Millisecond)
	s.want("a message to the client is under way", false)
	wr := s.session.writes.writer(s.source(), nil)
	wr.values = []written{{value: []byte{1}}}
	s.acknowledge(100 + 49_151)
	s.advance(300 * time.Millisecond)
	s.want("the holder does not have what the client wrote", false)
	wr.values = nil
	s.say(100 + 49_153)
	s.advance(200 * time.Millisecond)
	s.want("nothing is under way, for less than a second", true)
	if all, lap := s.events("lap"); all != 1 || lap != 1 {
		t.Errorf("%d events, %d say that the lap ends; want 1, 1", all, lap)
	}
	if c := s.spaces.Counts(); c.Laps != 1 {
		t.Errorf("counted %d, want 1", c.Laps)
	}
}

// TestLapOver: at the end of the lap the connection ends, whatever the rule is, and not before.
func TestLapOver(t *testing.T) {
	s := newLapTest(t, RecycleTell)
	s.say(100 + 65_533)
	s.advance(5 * time.Second)
	s.want("the rule is tell", false)
	s.say(100 + 65_534)
	s.want("after one more number the client would look for the command that it keeps", true)
}

// TestNoLap: a client that keeps nothing keeps its connection.
func TestNoLap(t *testing.T) {
	for _, forgets := range []bool{false, true} {
		s := newRecycleTest(t, RecycleClose)
		if s.say(101); forgets {
			dnp.PeerForgets(s.conn)
			s.acknowledge(100)
		}
		s.say(140_000)
		s.advance(5 * time.Second)
		s.want("nothing was repeated, or the client says that it keeps nothing", false)
		if all, _ := s.events("lap"); all > 0 {
			t.Errorf("%d events, want none", all)
		}
	}
}

// TestLapResumed: the edge that takes the session over knows that the lap ends.
func TestLapResumed(t *testing.T) {
	s := newLapTest(t, RecycleTell)
	s.say(100 + 49_151)
	s.spaces.Recycle = RecycleClose
	s.session.Resume(s.now, s.conn, 0, command.Progress{})
	s.advance(200 * time.Millisecond)
	s.want("nothing is under way", true)
}
