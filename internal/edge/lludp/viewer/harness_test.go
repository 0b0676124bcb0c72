package viewer

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	dnp "github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/lludp"
	"github.com/dnprelay/dnprelay/lludp/wire"
)

// A thing is a State for tests.
type thing struct {
	key      string
	readOnly bool
	names    []string
	types    []dnp.ValueType
	floats   [][4]float64
	texts    []string
}

func (s *thing) Key() string              { return s.key }
func (s *thing) ReadOnly() bool           { return s.readOnly }
func (s *thing) Len() int                 { return len(s.types) }
func (s *thing) Type(i int) dnp.ValueType { return s.types[i] }
func (s *thing) Floats(i int) [4]float64  { return s.floats[i] }

func (s *thing) Name(i int) string {
	if i < len(s.names) {
		return s.names[i]
	}
	return ""
}

func (s *thing) Text(i int) string {
	if s.texts[i] != "" {
		return s.texts[i]
	}
	return fmt.Sprint(s.floats[i][:max(1, s.types[i].Components())])
}

// newThing makes a state of fields such as "pos:vector3f32".
func newThing(key string, fields ...string) *thing {
	s := &thing{key: key}
	for _, f := range fields {
		name, typ, _ := strings.Cut(f, ":")
		t, ok := dnp.ParseValueType(typ)
		if !ok {
			panic("no type " + typ)
		}
		s.names, s.types = append(s.names, name), append(s.types, t)
		s.floats, s.texts = append(s.floats, [4]float64{}), append(s.texts, "")
	}
	return s
}

// A viewerTest is a transcript of the input and output of a Viewer. The test is the viewer.
type viewerTest struct {
	testing.TB
	*Viewer
	now     time.Time
	peer    *lludp.Circuit
	deaf    bool // the viewer gets nothing
	holding bool // the network keeps packets for the viewer
	held    [][]byte
	log     []string
	sizes   int
	queue   [][]byte // from the test's circuit
}

var opening = wire.Opening{Code: 4711, Session: session, Agent: ada}

func newViewerTest(t testing.TB) *viewerTest {
	now := time.Unix(1000, 0)
	peer, err := lludp.New(now, lludp.Config{PingInterval: time.Hour, Timeout: time.Hour, AckDelay: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	return &viewerTest{TB: t, now: now, peer: peer, Viewer: New(Config{Region: "Lobby", Opening: opening, First: "Ada", Last: "Byron"})}
}

// fromEdge is what the Viewer sends with.
type fromEdge struct{ t *viewerTest }

func (f fromEdge) Datagram(size int) []byte { return make([]byte, 0, size) }

func (f fromEdge) Send(b []byte) {
	t := f.t
	t.sizes += len(b)
	if len(b) > wire.PacketMax {
		t.Errorf("a packet has %d bytes", len(b))
	}
	switch {
	case t.deaf:
	case t.holding:
		t.held = append(t.held, bytes.Clone(b))
	default:
		t.arrive(b)
	}
}

// arrive brings a packet to the viewer.
func (t *viewerTest) arrive(b []byte) {
	for _, e := range t.peer.Receive(t.now, bytes.Clone(b), toEdge{t}) {
		if e.Kind == lludp.EventPacket {
			t.note(e.Packet)
		}
	}
}

// release brings the packets that the network kept.
func (t *viewerTest) release() {
	t.holding = false
	for _, b := range t.held {
		t.arrive(b)
	}
	t.held = nil
}

// toEdge is what the test sends with. Acknowledgements must not get into the Viewer while it sends, so they leave in settle.
type toEdge struct{ t *viewerTest }

func (f toEdge) Datagram(size int) []byte { return make([]byte, 0, size) }
func (f toEdge) Send(b []byte)            { f.t.queue = append(f.t.queue, bytes.Clone(b)) }

// messageNames are the names of messages in the template.
var messageNames = sync.OnceValue(func() map[wire.Number]string {
	text, err := os.ReadFile("../../../../lludp/wire/testdata/template.txt")
	if err != nil {
		panic(err)
	}
	names := make(map[wire.Number]string)
	for line := range strings.Lines(string(text)) {
		var n wire.Number
		var name string
		if _, err := fmt.Sscanf(line, "%x %s", &n, &name); err != nil {
			panic(err)
		}
		names[n] = name
	}
	return names
})

// settle brings what the test's circuit wants to say to the Viewer.
func (t *viewerTest) settle() {
	for len(t.queue) > 0 {
		b := t.queue[0]
		t.queue = t.queue[1:]
		t.Viewer.Receive(t.now, b, fromEdge{t})
	}
}

// note logs a packet of the Viewer.
func (t *viewerTest) note(p wire.Packet) {
	s := messageNames()[p.Number]
	r := reader{p: p.Body}
	switch p.Number {
	case wire.ObjectUpdate:
		r.take(10)
		for range r.u8() {
			s += " " + noteObject(&r)
		}
	case wire.ImprovedTerseObjectUpdate:
		r.take(10)
		for range r.u8() {
			r.u8()
			id := r.u32()
			r.take(2)
			pos := r.vector()
			r.take(44 - 4 - 2 - 12 + 2)
			s += fmt.Sprintf(" %d@%v", id, pos)
		}
	case wire.KillObject:
		for range r.u8() {
			s += fmt.Sprintf(" %d", r.u32())
		}
	case wire.ChatFromSimulator:
		r.data1()
		r.take(32 + 3 + 12)
		s += " " + text(r.data2())
	case kickUser:
		r.take(6 + 32)
		s += " " + text(r.data2())
	case wire.GenericMessage:
		_, r, _ = identify(p.Body)
		method, list, _ := parseGeneric(r)
		s += " " + method
		for _, p := range list {
			s += fmt.Sprintf(" %.20q", p)
		}
	}
	t.log = append(t.log, s)
}

func noteObject(r *reader) string {
	id := r.u32()
	r.take(1 + 16 + 4 + 3 + 12 + 1)
	pos := r.vector()
	r.take(24)
	rot := r.vector()
	r.take(12 + 4)
	flags := r.u32()
	r.take(2 + 4 + 2 + 9 + 6)
	r.data2()
	r.data1()
	r.data2()
	r.data2()
	label := text(r.data1())
	r.take(4)
	r.data1()
	r.data1()
	r.data1()
	r.take(32 + 34)
	s := fmt.Sprintf("%d@%v", id, pos)
	if rot != [3]float32{} {
		s += fmt.Sprintf("/%v", rot)
	}
	if flags != 0 {
		s += "*"
	}
	return s + fmt.Sprintf(" %q", label)
}

// want compares all packets and calls since the last want.
func (t *viewerTest) want(why string, want ...string) {
	t.Helper()
	for _, c := range t.Viewer.Calls() {
		s := map[CallKind]string{Set: "set", Send: "send", Own: "own", Leave: "leave"}[c.Kind]
		switch c.Kind {
		case Set:
			s += fmt.Sprintf(" %s %d %v", c.Object.State().Key(), c.Index, c.Value)
		case Send:
			s += " " + string(c.Data)
		case Own:
			s += fmt.Sprintf(" %v %v %d", c.Agent.Position, rounded(c.Agent.Rotation), c.Agent.Keys)
		}
		t.log = append(t.log, s)
	}
	if g, w := strings.Join(t.log, "\n"), strings.Join(want, "\n"); g != w {
		t.Fatalf("%s:\n%s\nwant\n%s", why, g, w)
	}
	t.log = nil
}

func rounded(list []float64) []float64 {
	for i := range list {
		list[i] = math.Round(list[i]*100) / 100
	}
	return list
}

// says sends a message of the test to the Viewer.
func (t *viewerTest) says(why string, n wire.Number, body []byte, want ...string) {
	t.Helper()
	if err := t.peer.Send(t.now, lludp.Message{Number: n, Body: body, Reliable: true}, toEdge{t}); err != nil {
		t.Fatal(err)
	}
	t.settle()
	t.want(why, want...)
}

// waits advances time, and calls the Viewer and the test's circuit when they want.
func (t *viewerTest) waits(why string, d time.Duration, want ...string) {
	t.Helper()
	t.pass(d)
	t.want(why, want...)
}

func (t *viewerTest) pass(d time.Duration) {
	t.Helper()
	for end := t.now.Add(d); ; {
		at := end
		mine, ok := t.Viewer.NextTimeout()
		if ok && mine.Before(at) {
			at = mine
		}
		if theirs, ok := t.peer.NextTimeout(); ok && theirs.Before(at) {
			at = theirs
		}
		if at.After(t.now) {
			t.now = at
		}
		t.peer.Advance(t.now, toEdge{t})
		t.settle()
		t.Viewer.Advance(t.now, fromEdge{t})
		if again, ok := t.Viewer.NextTimeout(); ok && !again.After(t.now) {
			t.Fatalf("Advance at %v left a deadline at %v", t.now, again)
		}
		if !t.now.Before(end) {
			return
		}
	}
}

// identified begins the body of a message of the test.
func (t *viewerTest) identified(rest ...byte) []byte {
	return append(identity{ada, session}.append(nil), rest...)
}

func (id identity) append(b []byte) []byte {
	return append(append(b, id.agent[:]...), id.session[:]...)
}

// arrives opens the circuit, and confirms the region.
func (t *viewerTest) arrives() {
	t.Helper()
	bodies := golden(t)
	t.says("the circuit opens", wire.UseCircuitCode, opening.Append(nil))
	t.says("the agent arrives", wire.CompleteAgentMovement, bodies["CompleteAgentMovement"], "AgentMovementComplete", "RegionHandshake")
	if err := t.peer.Send(t.now, lludp.Message{Number: regionHandshakeReply, Body: t.identified(0, 0, 0, 0), Reliable: true}, toEdge{t}); err != nil {
		t.Fatal(err)
	}
	t.settle()
}

// dropped fails unless exactly these drops have been counted.
func (t *viewerTest) dropped(why string, want map[DropReason]uint64) {
	t.Helper()
	for r, n := range t.Stats().Drops {
		if n != want[DropReason(r)] {
			t.Fatalf("%s: %d drops of %v, want %d", why, n, DropReason(r), want[DropReason(r)])
		}
	}
}
