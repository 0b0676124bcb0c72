package dnp

import (
	"encoding/hex"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/dnp/netstate"
	"github.com/dnprelay/dnprelay/dnp/wire"
)

var seed = flag.Uint64("seed", uint64(time.Now().UnixNano()), "seed of random tests")

func newRand(t testing.TB) *rand.Rand {
	t.Logf("repeat with -seed=%d", *seed)
	return rand.New(rand.NewPCG(*seed, 0))
}

var (
	epoch    = time.Unix(1_700_000_000, 0)
	peerAddr = netip.MustParseAddrPort("192.0.2.1:40000")
	servAddr = netip.MustParseAddrPort("198.51.100.1:3413")
)

func unhex(s string) []byte {
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		panic(err)
	}
	return b
}

// A recorder is a Sender that records datagrams as hex.
type recorder struct {
	buf  []byte
	sent []string
}

func (r *recorder) Datagram(size int) []byte {
	r.buf = make([]byte, 0, size)
	return r.buf
}

func (r *recorder) Send(_ netip.AddrPort, b []byte) {
	if len(b) > cap(r.buf) {
		panic("a datagram outgrew its buffer")
	}
	r.sent = append(r.sent, hex.EncodeToString(b))
}

// A connTest is a transcript of one peer against an Endpoint. Only wait lets time pass.
type connTest struct {
	*testing.T
	recorder
	e      *Endpoint
	now    time.Time
	happen []string // events
	c      *Conn    // of the last event
}

func newTest(t *testing.T, cfg Config) *connTest {
	t.Helper()
	cfg.Rand = rand.New(rand.NewPCG(1, 2))
	e, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return &connTest{T: t, e: e, now: epoch}
}

// quiet is a Config of an Endpoint that sends nothing unprompted.
func quiet() Config {
	return Config{Listen: true, Probe: ProbeNone, LivenessInterval: -1, ScrubInterval: -1, Refresh: []time.Duration{}}
}

// serve returns a test with a server to which the peer is connected.
func serve(t *testing.T, cfg Config) *connTest {
	t.Helper()
	s := newTest(t, cfg)
	s.recv("00 0100 0000")
	s.want("the request is accepted", "01 00 0000")
	s.events("without a probe the request is believed", "connected")
	s.c.life.hear(s.e.clock.now)
	s.c.loss = lossEstimate{weight: lossMemory} // known as a good path
	return s
}

// recv passes datagrams to the Endpoint, and lets it answer.
func (s *connTest) recv(datagrams ...string) {
	s.Helper()
	for _, d := range datagrams {
		s.note(s.e.Receive(s.now, peerAddr, unhex(d), &s.recorder))
	}
	s.pump()
}

// pump lets the Endpoint do what is due.
func (s *connTest) pump() {
	for range 100 {
		at, ok := s.e.NextTimeout()
		if !ok || at.After(s.now) {
			return
		}
		s.note(s.e.Advance(s.now, &s.recorder))
	}
	s.Helper()
	s.Fatal("NextTimeout stays in the past")
}

// wait lets time pass, and the Endpoint do what becomes due.
func (s *connTest) wait(d time.Duration) {
	s.Helper()
	end := s.now.Add(d)
	for {
		s.pump()
		at, ok := s.e.NextTimeout()
		if !ok || at.After(end) {
			break
		}
		s.now = at
	}
	s.now = end
	s.pump()
}

func (s *connTest) flush() { s.e.Flush(s.now, &s.recorder) }

func (s *connTest) note(events []Event) {
	for _, v := range events {
		s.c = v.Conn
		s.happen = append(s.happen, eventText(v))
	}
}

var eventNames = [...]string{
	EventConnected: "connected", EventClosed: "closed", EventMessage: "message",
	EventLinkOffered: "link offered", EventLinkUp: "link up", EventLinkPresumed: "link presumed", EventLinkDown: "link down",
	EventUpdate: "update", EventSent: "sent", EventRecycle: "recycle", EventUsedUp: "used up", EventSuspect: "suspect",
	EventUnstored: "unstored", EventAnswered: "answered", EventUnanswered: "unanswered", EventTooLarge: "too large",
}

func eventText(v Event) string {
	switch v.Kind {
	case EventClosed:
		return "closed " + v.Reason.String()
	case EventMessage:
		if v.Reliable {
			return fmt.Sprintf("message %d %s", v.Number, v.Data)
		}
		return fmt.Sprintf("message %s", v.Data)
	case EventLinkOffered:
		return fmt.Sprintf("link offered %04x %s values=%d readonly=%v", v.Link, v.Data, v.Values.Len(), v.ReadOnly)
	case EventLinkUp, EventLinkPresumed, EventLinkDown:
		return fmt.Sprintf("%s %04x", eventNames[v.Kind], v.Link)
	case EventUpdate:
		text := fmt.Sprintf("update %04x", v.Link)
		if v.Number != 0 {
			text += fmt.Sprintf(" write %d", v.Number)
		}
		if v.Order != 0 {
			text += fmt.Sprintf(" order %d", v.Order)
		}
		for i, b, ok := v.Update.Next(); ok; i, b, ok = v.Update.Next() {
			text += fmt.Sprintf(" %d=%x", i, b)
		}
		return text
	case EventWriteEnded:
		return fmt.Sprintf("write %d ended order %d refused %v", v.Number, v.Order, v.Refused)
	case EventTooLarge:
		return fmt.Sprintf("too large %d", v.Token)
	case EventSent:
		return fmt.Sprintf("sent %d number=%d", v.Token, v.Number)
	}
	return eventNames[v.Kind]
}

// want requires the datagrams that were sent since the last want, and says why.
func (s *connTest) want(why string, datagrams ...string) {
	s.Helper()
	got := s.sent
	s.sent = nil
	ok := len(got) == len(datagrams)
	for i := range min(len(got), len(datagrams)) {
		ok = ok && got[i] == strings.ReplaceAll(datagrams[i], " ", "")
	}
	if !ok {
		s.Fatalf("%s:\nsent %s\nwant %s", why, strings.Join(got, "\n     "), strings.Join(datagrams, "\n     "))
	}
}

// asks requires a question with this number since the last want, besides LinkDowns that take
// earlier ones down, and says why. It returns the id.
func (s *connTest) asks(why string, number byte) (id string) {
	s.Helper()
	got := slices.DeleteFunc(s.sent, func(d string) bool { return strings.HasPrefix(d, "08") })
	s.sent = nil
	if prefix := hex.EncodeToString([]byte{5, number, 0}); len(got) != 1 || len(got[0]) != 22 || got[0][:6] != prefix || got[0][10:] != "010100680000" {
		s.Fatalf("%s:\nsent %s\nwant question %d", why, strings.Join(got, "\n     "), number)
	}
	return got[0][6:10]
}

// silent requires that nothing was sent since the last want but LinkDowns, and says why.
func (s *connTest) silent(why string) {
	s.Helper()
	s.sent = slices.DeleteFunc(s.sent, func(d string) bool { return strings.HasPrefix(d, "08") })
	s.want(why)
}

// events requires the events since the last call of events, and says why.
func (s *connTest) events(why string, want ...string) {
	s.Helper()
	got := s.happen
	s.happen = nil
	if strings.Join(got, "; ") != strings.Join(want, "; ") {
		s.Fatalf("%s:\nevents %q\nwant   %q", why, got, want)
	}
}

// dropped requires a count of drops for a reason.
func (s *connTest) dropped(why string, r DropReason, n uint64) {
	s.Helper()
	if got := s.e.stats.Drops[r]; got != n {
		s.Fatalf("%s: %d drops as %v, want %d", why, got, r, n)
	}
}

// source makes a state with these value types, all values zero, and link message "M".
func (s *connTest) source(types ...string) *Source {
	s.Helper()
	return s.e.NewSource(SourceConfig{State: newState(s, types...), Message: []byte("M")})
}

func newState(t testing.TB, types ...string) *netstate.State {
	t.Helper()
	var values []netstate.Value
	for _, name := range types {
		typ, ok := wire.ParseValueType(name)
		if !ok {
			t.Fatalf("no type %q", name)
		}
		values = append(values, netstate.Value{Type: typ})
	}
	l, err := netstate.NewLayout(values)
	if err != nil {
		t.Fatal(err)
	}
	return netstate.NewState(l)
}

// set changes a value.
func set(s *Source, i int, value string) {
	s.State().Set(i, unhex(value))
	s.Changed(i)
}

// linked returns a test with a server whose link 8000 to a source is up.
func linked(t *testing.T, cfg Config, readOnly bool, types ...string) (*connTest, *Source) {
	t.Helper()
	s := serve(t, cfg)
	src := s.source(types...)
	if err := s.c.Link(src, readOnly); err != nil {
		t.Fatal(err)
	}
	s.pump()
	s.recv("06 0000 00", "07 0080")
	s.sent, s.happen = nil, nil
	return s, src
}
