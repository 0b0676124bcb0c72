package fanout

import (
	"encoding/json"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/bus"
	"github.com/dnprelay/dnprelay/dnp"
	"github.com/dnprelay/dnprelay/dnp/command"
	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/replication"
	"github.com/dnprelay/dnprelay/subject"
)

// A discard is a dnp.Sender that sends nothing.
type discard struct{}

func (discard) Datagram(size int) []byte    { return make([]byte, 0, size) }
func (discard) Send(netip.AddrPort, []byte) {}

// A requestHost is a Host that records requests, so that a test can answer them.
type requestHost struct {
	fakeHost
	requests []request // writes, for the holder
	messages []bus.Msg // published
	asks     []ask     // commands, for game servers
}

func (h *requestHost) Publish(m bus.Msg) error {
	h.messages = append(h.messages, m)
	return nil
}

type request struct {
	bus.Msg
	done func(now time.Time, answer []byte, err error)
}

func (h *requestHost) Request(m bus.Msg, _ time.Duration, done func(time.Time, bus.Msg, error)) {
	if !strings.HasSuffix(m.Subject, ".write") {
		h.asks = append(h.asks, ask{m, done})
		return
	}
	h.requests = append(h.requests, request{m, func(now time.Time, answer []byte, err error) { done(now, bus.Msg{Data: answer}, err) }})
}

// take returns the recorded requests and forgets them.
func (h *requestHost) take() []request {
	all := h.requests
	h.requests = nil
	return all
}

// A sessionTest is a worker with one client, and a holder whose answers the test makes.
type sessionTest struct {
	*testing.T
	host    *requestHost
	spaces  *Spaces
	conn    *dnp.Conn
	session *Session
	store   *replication.Store
}

func newSessionTest(t *testing.T) *sessionTest {
	t.Helper()
	h := &requestHost{}
	endpoint, err := dnp.New(dnp.Config{})
	if err != nil {
		t.Fatal(err)
	}
	s := &sessionTest{T: t, host: h, spaces: New(Config{Host: h, Endpoint: endpoint, Shards: 1, Linger: time.Hour})}
	s.conn = endpoint.LogIn(start, netip.MustParseAddrPort("192.0.2.1:1"), nil, discard{})
	s.session = s.spaces.NewSession(SessionConfig{ID: "m", Claims: newClaims(), Began: start})
	s.holder(1)
	return s
}

// holder begins an epoch, in which the space has no state.
func (s *sessionTest) holder(epoch uint64) {
	s.store = replication.NewStore(replication.StoreConfig{Space: "arena", Epoch: epoch, Volatile: true})
	s.store.Join("alice", "m")
	s.replicate()
}

// replicate brings the replica to the position of the holder.
func (s *sessionTest) replicate() {
	s.Helper()
	replica := s.spaces.Replica("arena")
	s.store.Advance(start)
	epoch, seq := s.store.Position()
	replica.ApplyHead(start, epoch, seq)
	request, ok := replica.Advance(start.Add(time.Minute))
	if !ok {
		s.Fatal("the replica does not ask the holder for its states")
	}
	for _, part := range s.store.Repair(start, request) {
		replica.ApplyReply(start, part)
	}
	if got, _ := replica.Position(); got != epoch {
		s.Fatalf("the replica is in epoch %d, want %d", got, epoch)
	}
}

// begin begins the session, and has the holder accept it.
func (s *sessionTest) begin() {
	s.session.Begin(start, s.conn)
	s.spaces.Advance(start)
	for _, r := range s.host.take() {
		r.done(start, applied, nil)
	}
}

// heard returns what game servers heard: types of events, and messages.
func (s *sessionTest) heard() string {
	var all []string
	for _, m := range s.host.messages {
		var ev struct{ Type, Reason string }
		switch {
		case strings.HasPrefix(m.Subject, "dnp.v1.from."):
			all = append(all, "message "+string(m.Data))
		case strings.HasPrefix(m.Subject, "dnp.v1.event.") && json.Unmarshal(m.Data, &ev) == nil:
			all = append(all, strings.TrimSpace(ev.Type+" "+ev.Reason))
		}
	}
	return strings.Join(all, ", ")
}

// put makes or replaces a state with a value of one byte.
func (s *sessionTest) put(op replication.Op) *replication.State {
	s.Helper()
	op.Kind, op.Key = replication.OpPut, "door"
	t, _ := wire.ParseValueType("uint8")
	op.Access, op.HasAccess = replication.Access{Kind: replication.AccessReadWrite}, true
	op.Values = []replication.PutValue{{ValueDef: replication.ValueDef{Name: "open", Type: t}, Value: replication.Encoded{Type: t, Value: []byte{0}}}}
	s.store.Publish(start, replication.Publish{Ops: []replication.Op{op}, Atomic: true})
	s.replicate()
	return s.spaces.Replica("arena").ByKey("door")
}

// TestResumedWrites takes a session over whose client wrote a value that the holder did not
// acknowledge, while the link of the state has to change.
func TestResumedWrites(t *testing.T) {
	for _, c := range []struct {
		why string
		op  replication.Op
		ro  bool // the restored link
	}{
		{"the client sees everything", replication.Op{}, false},
		{"the client sees less detail", replication.Op{Details: []replication.Detail{{Clients: []string{"alice"}, Rate: 1}}, HasDetails: true}, false},
		{"the client sees the state no more", replication.Op{HasAudience: true}, false},
		{"the link is made anew", replication.Op{}, true},
	} {
		s := newSessionTest(t)
		st := s.put(c.op)
		if err := s.conn.Link(source(st), c.ro); err != nil {
			t.Fatal(err)
		}
		link, _ := s.conn.LinkOf(source(st))
		s.conn.Writes().Hold(link.ID, 0, 0, []byte{1})
		s.session.Resume(start, s.conn, 0, command.Progress{})
		if wr, ok := s.session.writes.bySource[source(st)]; !ok || len(s.session.writes.list) != 1 {
			t.Errorf("%s: %d writers, one of the state: %v, want the state to have the only one", c.why, len(s.session.writes.list), ok)
		} else if v, ok := wr.newest(0); !ok || !slices.Equal(v, []byte{1}) {
			t.Errorf("%s: the holder will be sent %v, want what the client wrote", c.why, v)
		}
	}
}

// TestResumedOutdated takes a session over while the replica may have missed changes. What its former
// edge knew better stays as it is until the replica is complete.
func TestResumedOutdated(t *testing.T) {
	s := newSessionTest(t)
	st := s.put(replication.Op{HasAudience: true}) // as far as the replica knows, the client may not see the state
	if err := s.conn.Link(source(st), false); err != nil {
		t.Fatal(err)
	}
	replica := s.spaces.Replica("arena")
	replica.Reconnected(start)
	s.session.Resume(start, s.conn, 0, command.Progress{})
	s.spaces.Advance(start)
	if _, ok := s.conn.LinkOf(source(st)); !ok {
		t.Error("the link is ended because of an audience that may be outdated")
	}
	s.replicate()
	s.spaces.Advance(start)
	if _, ok := s.conn.LinkOf(source(st)); ok {
		t.Error("the link stays, although the replica is complete")
	}
}

// TestKnows: a session may be taken over with a replica that has all to which the client's links are
// bound, and not with one that would end a link.
func TestKnows(t *testing.T) {
	s := newSessionTest(t)
	st := s.put(replication.Op{})
	replica := s.spaces.Replica("arena")
	replica.Reconnected(start)
	want := func(why string, want bool, refs ...uint64) {
		t.Helper()
		if got := s.spaces.Knows("arena", "alice", refs); got != want {
			t.Errorf("%s: known %v, want %v", why, got, want)
		}
	}
	want("no link", true)
	want("a state that the replica has", true, st.Number)
	want("a state that is newer than the replica", false, st.Number, st.Number+1)
	want("a state of the client that the replica lacks", false, ownRef|7)
	if s.spaces.Knows("elsewhere", "alice", nil) {
		t.Error("a space that is not followed is known")
	}
	replica.ApplyHead(start, 2, 1)
	want("another holder has the space, and the replica nothing of that one", false, st.Number)
}

// TestRefusedOffers: a client that offers states in vain costs no memory.
func TestRefusedOffers(t *testing.T) {
	s := newSessionTest(t)
	s.begin()
	message := make([]byte, ownBytesMax/2)
	values, err := wire.ParseValues([]byte{1, 0, 3, 0x39, 0x30})
	if err != nil {
		t.Fatal(err)
	}
	const offers = 1000
	for _, readOnly := range []bool{true, false} {
		s.session.Claims.Write = !readOnly // the connection has no such offer, so Accept fails
		before := heapInUse()
		for i := range offers {
			s.session.ownStates.offered(start, &dnp.Event{Link: wire.LinkID(i + 1), Data: message, Values: values})
		}
		if grown := heapInUse() - before; grown > offers*int64(len(message))/10 {
			t.Errorf("%d refused offers (read-only client: %v) leave %d bytes, want none", offers, readOnly, grown)
		}
	}
	if got := s.spaces.counts.OffersRefused; got != 2*offers {
		t.Errorf("%d offers are refused, want %d", got, 2*offers)
	}
	runtime.KeepAlive(s)
}

// TestDropsKeepNothing: a state that the client took back costs next to no memory, however long the
// holder does not answer.
func TestDropsKeepNothing(t *testing.T) {
	s := newSessionTest(t)
	s.begin()
	o := &s.session.ownStates
	message := make([]byte, ownBytesMax/2)
	values, err := wire.ParseValues([]byte{1, 0, 3, 0x39, 0x30})
	if err != nil {
		t.Fatal(err)
	}
	before := heapInUse()
	for i := range dropsMax {
		state, _ := parseOffer(&dnp.Event{Data: message, Values: values})
		own := &ownState{owner: o.peer, link: wire.LinkID(i + 1), message: slices.Clone(message)}
		o.newSource(own, state)
		o.add(own)
		o.drop(start, own)
	}
	if grown := heapInUse() - before; len(o.drops) != dropsMax || grown > dropsMax*int64(len(message))/10 {
		t.Errorf("%d states that were taken back leave %d bytes, want %d and next to none", len(o.drops), grown, dropsMax)
	}
	runtime.KeepAlive(s)
}

// heapInUse returns the bytes that are in use.
func heapInUse() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestSlowBeginnings: of two sessions of one client that begin at nearly the same time, and
// announce themselves a little later, the one that began later stays.
func TestSlowBeginnings(t *testing.T) {
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	h := &requestHost{}
	first, second := newPeer(h), newPeer(h)
	second.ID = "n"
	for _, p := range []*peer{first, second} {
		p.replica, p.Claims.Expires = replication.NewReplica("arena", nil), start.Add(time.Hour)
	}
	first.Began, second.Began = at(1), at(2)
	a, b := rights{peer: first}, rights{peer: second}
	a.endOthers()
	b.endOthers()
	if !a.replaced(at(5), h.messages[1]) || b.replaced(at(5), h.messages[0]) {
		t.Errorf("ended: the first session %v, the second %v, want only the first", a.replaced(at(5), h.messages[1]), b.replaced(at(5), h.messages[0]))
	}
}

// TestGroupsOfNewHolder: a late answer of the holder before does not keep the groups from
// the holder of the next epoch.
func TestGroupsOfNewHolder(t *testing.T) {
	s := newSessionTest(t)
	s.session.Claims.Groups, s.session.Claims.Expires = []string{"red"}, start.Add(time.Hour)
	s.session.Begin(start, s.conn)
	s.spaces.Advance(start)
	old := s.host.take()
	if len(old) != 1 {
		t.Fatalf("the holder gets %d requests, want one with the groups", len(old))
	}
	s.holder(2)
	s.spaces.Advance(start)
	if got := s.host.take(); len(got) != 1 {
		t.Fatalf("the holder of the next epoch gets %d requests, want one with the groups", len(got))
	}
	old[0].done(start, applied, nil)
	s.spaces.Advance(start.Add(repeatMax))
	repeated := s.host.take()
	if len(repeated) != 1 {
		t.Fatalf("after the answer of the holder before there are %d requests, want the groups once more", len(repeated))
	}
	repeated[0].done(start, applied, nil)
	s.spaces.Advance(start.Add(time.Minute))
	if got := s.host.take(); len(got) != 0 {
		t.Errorf("the holder has answered, and gets %d more requests", len(got))
	}
}

// applied is the answer of a holder to a write that it applied.
var applied = replication.AppendWriteResult(nil, replication.WriteResult{Code: replication.WriteOK})

// TestJoin follows how the edge tells the holder of a session, with the groups of its login: until the holder answers, also when
// there is none, when it has no room, and when another one comes. Game servers hear nothing of the session before.
func TestJoin(t *testing.T) {
	s := newSessionTest(t)
	s.session.Claims.Groups, s.session.Claims.Expires = []string{"red"}, start.Add(time.Hour)
	s.session.Begin(start, s.conn)
	now := start
	next := func(why string) request {
		t.Helper()
		s.spaces.Advance(now)
		now = now.Add(repeatMax)
		got := s.host.take()
		if len(got) != 1 || got[0].Subject != "dnp.v1.shard.0.write" {
			t.Fatalf("%s: the edge sends %+v, want one write", why, got)
		}
		if strings.Contains(s.heard(), "joined") {
			t.Fatalf("%s: game servers heard %s, before the holder answered", why, s.heard())
		}
		return got[0]
	}
	first := next("a login")
	w, err := replication.ParseWrite(first.Data)
	if err != nil || w.Kind != replication.WriteJoin || w.Client != "alice" || w.Session != "m" || w.Space != "arena" || !slices.Equal(w.Join, []string{"red"}) {
		t.Fatalf("the holder is told %+v, %v, want that alice is there, and joins red", w, err)
	}
	first.done(now, nil, bus.ErrNoResponders)
	next("the shard has no holder").done(now, replication.AppendWriteResult(nil, replication.WriteResult{Code: replication.WriteBusy}), nil)
	next("the holder has no room").done(now, nil, bus.ErrTimeout)
	late := next("the holder does not answer")
	s.holder(2)
	third := next("another holder")
	late.done(now, applied, nil)
	next("the answer of the holder before means nothing")
	third.done(now, applied, nil)
	if s.spaces.Advance(now.Add(time.Minute)); len(s.host.take()) != 0 {
		t.Error("the holder has answered, and gets more requests")
	}
	if s.heard() != "joined" {
		t.Errorf("game servers heard %q, want joined", s.heard())
	}
}

// TestLimited: the senders of long messages learn that the client does not take them, and game servers
// learn it once.
func TestLimited(t *testing.T) {
	s := newSessionTest(t)
	s.begin()
	long := make([]byte, dnp.WholeMax+1)
	send := func(reply, token string, data []byte, reliable bool) {
		header := map[string]string{subject.HeaderToken: token}
		if !reliable {
			header[subject.HeaderReliable] = "false"
		}
		s.session.messages.send(bus.Msg{Reply: reply, Header: header, Data: data})
	}
	answers := func(why string, want ...string) {
		t.Helper()
		var got []string
		for _, m := range s.host.messages {
			switch text := string(m.Data); {
			case strings.Contains(text, `"type":"limited"`):
				got = append(got, "limited")
			case strings.Contains(text, `"too_large"`):
				got = append(got, m.Subject+" too_large")
			case strings.HasPrefix(m.Subject, "reply"):
				got = append(got, m.Subject+" "+text)
			}
		}
		if s.host.messages = nil; !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", why, got, want)
		}
	}
	refuse := func(token uint64) {
		s.session.Handle(start, &dnp.Event{Kind: dnp.EventTooLarge, Conn: s.conn, Token: token})
	}
	send("reply.1", "5", long, true)
	first := s.session.messages.lastToken
	send("reply.2", "5", long, true)
	send("reply.3", "6", long, true)
	answers("the messages wait for their numbers")
	refuse(first)
	answers("the sender asked again meanwhile", "reply.2 too_large", "limited")
	refuse(s.session.messages.lastToken)
	answers("the others are answered, too", "reply.3 too_large")
	refuse(0)
	answers("a message without token has no sender to answer")
	send("reply.4", "5", long, true)
	answers("the answer to the first was lost: it is no duplicate, because it was not sent", "reply.4 too_large")
	send("reply.5", "7", long[1:], true)
	answers("a message that the client takes waits for its number")
	if counts := s.spaces.counts; counts.ClientsLimited != 1 || counts.MessagesRefused != 4 {
		t.Errorf("%d clients limited, %d messages refused; want 1 and 4", counts.ClientsLimited, counts.MessagesRefused)
	}
	send("reply.6", "", long, false)
	answers("unreliable messages are not split", "reply.6 {}")
}
