package fanout

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/bus"
	"github.com/dnprelay/dnprelay/dnp"
	"github.com/dnprelay/dnprelay/dnp/command"
	"github.com/dnprelay/dnprelay/dnp/netstate"
	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/replication"
	"github.com/dnprelay/dnprelay/subject"
)

// An ask is a question to a game server, which a test answers.
type ask struct {
	bus.Msg
	done func(now time.Time, answer bus.Msg, err error)
}

// A commandTest is a session with a state that its client may write, one that it may not write, and one to
// which it has no link.
type commandTest struct {
	*sessionTest
	now    time.Time
	sent   []string // messages to the client, decoded
	number uint64   // of the client's next message
	next   int      // number of the next message to it
	acks   [][]byte // of the client, that the edge does not have yet
}

func newCommandTest(t *testing.T, epoch uint64) *commandTest {
	t.Helper()
	c := &commandTest{sessionTest: newSessionTest(t), now: start}
	c.session.SessionEpoch = epoch
	c.session.commands.SessionEpoch = epoch
	for _, key := range []string{"door", "wall", "far"} {
		op := replication.Op{Kind: replication.OpPut, Key: key, Access: replication.Access{Kind: replication.AccessReadWrite}, HasAccess: true}
		if key == "wall" {
			op.Access.Kind = replication.AccessReadOnly
		}
		if key == "far" {
			op.HasAudience = true
		}
		typ, _ := wire.ParseValueType("uint8")
		op.Values = []replication.PutValue{{ValueDef: replication.ValueDef{Name: "x", Type: typ}, Value: replication.Encoded{Type: typ, Value: []byte{0}}}}
		c.store.Publish(start, replication.Publish{Ops: []replication.Op{op}, Atomic: true})
	}
	c.replicate()
	c.begin()
	c.spaces.Advance(start)
	return c
}

// Datagram and Send implement dnp.Sender.
func (c *commandTest) Datagram(size int) []byte { return make([]byte, 0, size) }

func (c *commandTest) Send(_ netip.AddrPort, p []byte) {
	m, err := wire.ParseReliableMessage(p[1:])
	if cmd := wire.Command(p[0]); err == nil && (cmd == wire.CommandReliableMessage || cmd == wire.CommandReliableLinkState || cmd == wire.CommandReliableMessageLong) {
		c.acks = append(c.acks, wire.ReliableAck{Seq: m.Seq}.Append(nil))
	}
	if wire.Command(p[0]) != wire.CommandReliableMessage || err != nil || int(m.Seq) < c.next { // less: a repetition of the protocol
		return
	}
	text := "raw " + string(m.Data)
	if env, err := command.Parse(m.Data); err == nil && env.Kind == command.KindAnswer {
		text = fmt.Sprintf("answer %d %v %s", env.Answer.ID, env.Answer.Code, env.Answer.Body)
	}
	c.next = int(m.Seq) + 1
	c.sent = append(c.sent, text)
}

// says has the client send a reliable message.
func (c *commandTest) says(data []byte) {
	ev := &dnp.Event{Kind: dnp.EventMessage, Conn: c.conn, Reliable: true, Number: c.number, Data: data}
	c.number++
	c.session.Handle(c.now, ev)
}

func (c *commandTest) asks(id uint16, key, name string) {
	c.Helper()
	data, err := command.Request{ID: id, Key: key, Name: name, Body: []byte("body")}.Append(nil)
	if err != nil {
		c.Fatal(err)
	}
	c.says(data)
}

// want checks what the client was sent since the last want.
func (c *commandTest) want(why string, texts ...string) {
	c.Helper()
	c.spaces.Advance(c.now)
	c.now = c.now.Add(20 * time.Millisecond)
	handle := func(events []dnp.Event) {
		for i := range events {
			if events[i].Kind == dnp.EventSent {
				c.session.Handle(c.now, &events[i])
			}
		}
	}
	for handle(c.spaces.Endpoint.Advance(c.now, c)); len(c.acks) > 0; handle(c.spaces.Endpoint.Advance(c.now, c)) {
		ack := c.acks[0]
		c.acks = c.acks[1:]
		handle(c.spaces.Endpoint.Receive(c.now, c.conn.Addr(), ack, c))
	}
	if !slices.Equal(c.sent, texts) {
		c.Fatalf("%s: the client gets %q, want %q", why, c.sent, texts)
	}
	c.sent = nil
}

// asked returns the questions to game servers since the last call.
func (c *commandTest) asked() []ask {
	all := c.host.asks
	c.host.asks = nil
	return all
}

// TestCommand has a command reach a game server, and the answer reach the client.
func TestCommand(t *testing.T) {
	c := newCommandTest(t, 0)
	c.says([]byte(command.Hello))
	c.want("the edge answers the hello", "answer 0 ok ")
	c.asks(1, "door", "open")
	all := c.asked()
	if len(all) != 1 || all[0].Subject != "dnp.v1.command.arena.door" || string(all[0].Data) != "body" {
		t.Fatalf("the game servers are asked %v", all)
	}
	for name, want := range map[string]string{
		subject.HeaderClient: "alice", subject.HeaderSession: "m", subject.HeaderCommand: "open", subject.HeaderRequest: "1", subject.HeaderTimeout: "5000",
	} {
		if got := all[0].Header[name]; got != want {
			t.Errorf("header %s is %q, want %q", name, got, want)
		}
	}
	if !slices.ContainsFunc(c.host.messages, func(m bus.Msg) bool {
		return strings.Contains(string(m.Data), `"type":"command"`) && strings.Contains(string(m.Data), `"command":"open"`)
	}) {
		t.Error("no event tells of the command")
	}
	c.want("the game has not answered")
	all[0].done(c.now, bus.Msg{Data: []byte("opened")}, nil)
	c.want("the game answered", "answer 1 ok opened")
	all[0].done(c.now, bus.Msg{Data: []byte("again")}, nil)
	c.want("a second answer to a request is dropped")
	c.asks(2, "door", "burn")
	c.asked()[0].done(c.now, bus.Msg{Data: []byte("stone"), Header: map[string]string{subject.HeaderCode: "failed"}}, nil)
	c.want("the game refuses", "answer 2 failed stone")
}

// TestCommandErrors checks the answers of the edge itself.
func TestCommandErrors(t *testing.T) {
	c := newCommandTest(t, 0)
	c.says([]byte(command.Hello))
	c.want("", "answer 0 ok ")
	c.asks(1, "nowhere", "open")
	c.want("no such state", "answer 1 unknown_state unknown_state")
	c.asks(2, "far", "open")
	c.want("a state that the client does not see exists for it no more than others", "answer 2 unknown_state unknown_state")
	c.asks(3, "wall", "open")
	c.want("a state that it may not write", "answer 3 not_authorised not_authorised")
	c.asks(4, "door", "open it")
	c.want("a bad name", "answer 4 bad_request bad_request")
	c.says([]byte("\xC5\x01\x05\x00\x00\xff\xff"))
	c.want("a truncated request", "answer 5 bad_request bad_request")
	c.says([]byte("\xC5\x01"))
	c.says([]byte("\xC5\x81\x07\x00\x00"))
	c.says([]byte("\xC5\x07"))
	c.want("what has no id of a request cannot be answered")
	long, _ := command.Request{ID: 6, Key: "door", Name: "x", Body: make([]byte, command.BodyMax)}.Append(nil)
	c.says(append(long, 0))
	c.want("too large", "answer 6 too_large too_large")
	for i, err := range []error{bus.ErrNoResponders, bus.ErrTimeout, bus.ErrDisconnected, bus.ErrBusy, bus.ErrMessageSize} {
		id := uint16(10 + i)
		c.asks(id, "door", "open")
		c.asked()[0].done(c.now, bus.Msg{}, err)
		name := []string{"no_responders", "timeout", "unavailable", "busy", "too_large"}[i]
		c.want(err.Error(), fmt.Sprintf("answer %d %s %s", id, name, name))
	}
	c.session.Claims.Write = false
	c.session.rights.Claims.Write = false
	c.asks(20, "door", "open")
	c.want("a client that may write nothing", "answer 20 not_authorised not_authorised")
	if n := len(c.asked()); n != 0 {
		t.Errorf("game servers hear of %d refused commands", n)
	}
}

// TestCommandOwnState has a client ask for commands about a state that it offers, by its key and by its link, which
// no replica has yet, and after it took the state back.
func TestCommandOwnState(t *testing.T) {
	c := newCommandTest(t, 0)
	c.says([]byte(command.Hello))
	c.want("", "answer 0 ok ")
	typ, _ := wire.ParseValueType("uint8")
	layout, err := netstate.NewLayout([]netstate.Value{{Type: typ}})
	if err != nil {
		t.Fatal(err)
	}
	o := &c.session.ownStates
	own := &ownState{owner: o.peer, link: 3, key: ownKey("alice", 3), message: []byte("own"), readOnly: true}
	o.newSource(own, netstate.NewState(layout))
	o.add(own)
	byLink := func(id uint16, link wire.LinkID) {
		data, _ := command.Request{ID: id, ByLink: true, Link: link, Name: "wave"}.Append(nil)
		c.says(data)
	}
	c.asks(1, "client.alice.3", "wave")
	byLink(2, 3)
	all := c.asked()
	if len(all) != 2 {
		t.Fatalf("the game servers are asked %v, want two questions", all)
	}
	for _, a := range all {
		if key := a.Header[subject.HeaderKey]; key != "client.alice.3" {
			t.Errorf("request %s is about %q", a.Header[subject.HeaderRequest], key)
		}
		a.done(c.now, bus.Msg{Data: []byte("waved")}, nil)
	}
	c.want("the game answered", "answer 1 ok waved", "answer 2 ok waved")
	c.asks(3, "client.bob.3", "wave")
	byLink(4, 4)
	o.drop(c.now, own)
	c.asks(5, "client.alice.3", "wave")
	byLink(6, 3)
	c.want("the client has no such states", "answer 3 unknown_state unknown_state", "answer 4 unknown_state unknown_state",
		"answer 5 unknown_state unknown_state", "answer 6 unknown_state unknown_state")
}

// TestCommandTimeout checks that the edge answers by itself if the bus never says what came of a question.
func TestCommandTimeout(t *testing.T) {
	c := newCommandTest(t, 0)
	c.says([]byte(command.Hello))
	c.want("", "answer 0 ok ")
	c.asks(1, "door", "open")
	late := c.asked()[0]
	if next := c.spaces.Advance(c.now); next.After(c.now.Add(commandWait)) {
		t.Errorf("the worker looks again after %v, want within %v", next.Sub(start), commandWait)
	}
	c.now = c.now.Add(commandWait)
	c.want("the time is over", "answer 1 timeout timeout")
	late.done(c.now, bus.Msg{Data: []byte("opened")}, nil)
	c.want("the answer is late")
}

// TestCommandBounds checks how many commands a client may have without an answer, and that an id is not used
// again.
func TestCommandBounds(t *testing.T) {
	c := newCommandTest(t, 0)
	c.says([]byte(command.Hello))
	c.want("", "answer 0 ok ")
	for id := uint16(1); id <= command.OutstandingMax; id++ {
		c.asks(id, "door", "open")
	}
	c.asks(17, "door", "open")
	c.want("one too many", "answer 17 busy busy")
	c.asks(1+command.Window, "door", "open")
	c.want("an answer to an id so far ahead would make that of the first request too old")
	all := c.asked()
	if len(all) != command.OutstandingMax {
		t.Fatalf("%d questions, want %d", len(all), command.OutstandingMax)
	}
	all[3].done(c.now, bus.Msg{}, nil)
	c.want("", "answer 4 ok ")
	c.asks(18, "door", "open")
	c.asks(18, "door", "open")
	c.asks(4, "door", "open")
	if n := len(c.asked()); n != 1 {
		t.Errorf("%d questions, want the one with a new id", n)
	}
	c.want("ids that were used get no answer, which could be taken for that of the first request")
}

// TestNotOptedIn checks that nothing changes for a client that did not say hello, whatever it sends, and for
// unreliable messages.
func TestNotOptedIn(t *testing.T) {
	c := newCommandTest(t, 0)
	request, _ := command.Request{ID: 1, Key: "door", Name: "open"}.Append(nil)
	raw := [][]byte{request, []byte("\xC5"), []byte(command.Hello + "!"), []byte("\xC5\x02x")}
	for _, m := range raw {
		c.says(m)
	}
	c.session.Handle(c.now, &dnp.Event{Kind: dnp.EventMessage, Conn: c.conn, Data: []byte(command.Hello)})
	c.session.told(c.now, bus.Msg{Data: []byte("\xC5game")})
	c.want("a message of the game stays as it is", "raw \xC5game")
	var got []string
	for _, m := range c.host.messages {
		if strings.HasPrefix(m.Subject, "dnp.v1.from.") {
			got = append(got, string(m.Data))
		}
	}
	if want := []string{string(raw[0]), string(raw[1]), string(raw[2]), string(raw[3]), command.Hello}; !slices.Equal(got, want) {
		t.Errorf("the game gets %q, want %q", got, want)
	}
	c.host.messages = nil
	c.says([]byte(command.Hello))
	c.says([]byte("\xC5\x02\xC5x"))
	c.says([]byte("plain"))
	c.session.told(c.now, bus.Msg{Data: []byte("\xC5game")})
	c.want("the client opted in", "answer 0 ok ", "raw \xC5\x02\xC5game")
	got = nil
	for _, m := range c.host.messages {
		if strings.HasPrefix(m.Subject, "dnp.v1.from.") {
			got = append(got, string(m.Data))
		}
	}
	if want := []string{"\xC5x", "plain"}; !slices.Equal(got, want) {
		t.Errorf("the game gets %q, want %q: the envelope is not for the game", got, want)
	}
}

// TestDurableCommands follows commands through the log of a session: what game servers get, and that the first
// answer is the only one.
func TestDurableCommands(t *testing.T) {
	c := newCommandTest(t, 1)
	hello, request := []byte(command.Hello), func(id uint16, key string) []byte {
		b, _ := command.Request{ID: id, Key: key, Name: "open", Body: []byte("body")}.Append(nil)
		return b
	}
	list := [][]byte{request(9, "door"), hello, request(1, "door"), request(2, "wall"), []byte("\xC5\x02\xC5x"), []byte("plain"), []byte("\xC5")}
	for _, m := range list {
		c.says(slices.Clone(m))
	}
	c.want("errors come at once", "answer 0 ok ", "answer 2 not_authorised not_authorised")
	c.session.rights.Claims.Write = false // rights change before the log has the messages; the verdicts stay
	for i, want := range []string{
		string(list[0]) + " map[]", " map[Dnp-Request:0]", "body map[Dnp-Command:open Dnp-Key:door Dnp-Request:1]",
		" map[Dnp-Refused:not_authorised Dnp-Request:2]", "\xC5x map[]", "plain map[]", " map[Dnp-Request:0]",
	} {
		body, header := c.session.Deliver(uint64(i), list[i])
		if got := fmt.Sprintf("%s %v", body, header); got != want {
			t.Errorf("game servers get %q of message %d, want %q", got, i, want)
		}
	}
	if n := len(c.session.commands.judged); n != 0 || len(c.asked()) != 0 {
		t.Errorf("%d messages are remembered that are delivered", n)
	}
	answer := func(id, session, body, reply string) {
		c.session.told(c.now, bus.Msg{Reply: reply, Data: []byte(body), Header: map[string]string{subject.HeaderAnswer: id, subject.HeaderSession: session}})
	}
	c.host.messages = nil
	answer("1", "m", "opened", "first")
	answer("1", "m", "again", "second")
	answer("2", "m", "late", "third")
	answer("1", "another", "opened", "fourth")
	answer("0", "m", "x", "fifth")
	c.want("each request has one answer", "answer 1 ok opened")
	var replies []string
	for _, m := range c.host.messages {
		text, _, _ := strings.Cut(string(m.Data), ",")
		replies = append(replies, m.Subject+" "+text)
	}
	slices.Sort(replies)
	if want := []string{`fifth {"error":{"code":"bad_request"`, `fourth {"error":{"code":"unknown_client"`, `second {"number":1}`, `third {"duplicate":true}`}; !equalButNumber(replies, want) {
		t.Errorf("the game hears %q, want %q", replies, want)
	}
}

func equalButNumber(got, want []string) bool {
	return slices.EqualFunc(got, want, func(a, b string) bool {
		if i := strings.Index(b, `{"number"`); i >= 0 {
			return strings.HasPrefix(a, b[:i]+`{"number"`)
		}
		return a == b
	})
}

// TestResumedCommands takes a session over whose former edge answered some requests and passed others on. The
// new edge decides about what it delivers itself, and answers nothing: the former one may have.
func TestResumedCommands(t *testing.T) {
	c := newCommandTest(t, 2)
	c.session.commands.progress.Hello = 1
	progress := command.Progress{Hello: 1}
	progress.Note(1)
	c.session.commands.resume(progress, 10)
	c.want("the former edge did not answer the hello", "answer 0 ok ")
	for i, key := range []string{"door", "door", "wall"} { // 1 was answered
		c.number = uint64(i + 1)
		c.asks(uint16(i+1), key, "open")
		data, _ := command.Request{ID: uint16(i + 1), Key: key, Name: "open", Body: []byte("body")}.Append(nil)
		body, header := c.session.Deliver(uint64(i+1), data)
		want := []string{" map[Dnp-Request:0]", "body map[Dnp-Command:open Dnp-Key:door Dnp-Request:2]", " map[Dnp-Refused:not_authorised Dnp-Request:3]"}[i]
		if got := fmt.Sprintf("%s %v", body, header); got != want {
			t.Errorf("game servers get %q of request %d, want %q", got, i+1, want)
		}
	}
	c.want("the edge answers no request that came to the former one")
	c.number = 10
	c.asks(4, "wall", "open")
	c.want("it answers those that come to it", "answer 4 not_authorised not_authorised")
}

// TestHostileCommands gives a session random and damaged envelopes. It must stay within its bounds.
func TestHostileCommands(t *testing.T) {
	c := newCommandTest(t, 0)
	c.says([]byte(command.Hello))
	rng := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		data, _ := command.Request{ID: uint16(rng.IntN(70)), Key: []string{"door", "wall", "x"}[rng.IntN(3)], Name: "n", Body: make([]byte, rng.IntN(20))}.Append(nil)
		for range rng.IntN(3) {
			data[rng.IntN(len(data))] = byte(rng.IntN(256))
		}
		c.says(data[:rng.IntN(len(data)+1)])
		if n := len(c.session.commands.open); n > command.OutstandingMax {
			t.Fatalf("%d requests without an answer", n)
		}
		if rng.IntN(50) == 0 {
			c.now = c.now.Add(time.Second)
			c.session.commands.advance(c.now, c.now)
			c.conn.DropQueue()
		}
	}
}
