package lludp

import (
	"encoding/hex"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/lludp/wire"
)

var seed = flag.Uint64("seed", uint64(time.Now().UnixNano()), "seed of random tests")

func random(t testing.TB) *rand.Rand {
	t.Logf("repeat with -seed=%d", *seed)
	return rand.New(rand.NewPCG(*seed, 0))
}

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// A circuitTest is a transcript of the input and output of a circuit.
type circuitTest struct {
	testing.TB
	*Circuit
	now time.Time
	log []string
	out [][]byte
}

func newCircuitTest(t testing.TB, cfg Config) *circuitTest {
	now := time.Unix(1000, 0)
	c, err := New(now, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return &circuitTest{TB: t, Circuit: c, now: now}
}

func (t *circuitTest) Datagram(size int) []byte { return make([]byte, 0, size) }

func (t *circuitTest) Send(b []byte) {
	t.out = append(t.out, b)
	t.log = append(t.log, describe(t, b))
}

// describe formats a packet as "number flags message body acks".
func describe(t testing.TB, b []byte) string {
	t.Helper()
	var scratch wire.Scratch
	m, err := wire.Parse(b, &scratch)
	if err != nil {
		t.Fatalf("%x was sent, which is %v", b, err)
	}
	s := fmt.Sprintf("#%d ", m.Seq)
	for _, f := range []struct {
		flag wire.Flags
		name string
	}{{wire.FlagZeroCoded, "coded "}, {wire.FlagReliable, "reliable "}, {wire.FlagResent, "again "}} {
		if m.Flags&f.flag != 0 {
			s += f.name
		}
	}
	s += fmt.Sprintf("%x", m.Number.Append(nil))
	if len(m.Body) > 0 {
		s += fmt.Sprintf(" %.40x", m.Body)
	}
	for i := range m.Acks.Len() {
		s += fmt.Sprintf(" +%d", m.Acks.At(i))
	}
	return s
}

func (t *circuitTest) events(events []Event) {
	for _, e := range events {
		switch e.Kind {
		case EventPacket:
			t.log = append(t.log, fmt.Sprintf("packet %x %.40x", e.Packet.Number, e.Packet.Body))
		case EventDelivered:
			t.log = append(t.log, fmt.Sprintf("delivered %d", e.Token))
		case EventLost:
			t.log = append(t.log, fmt.Sprintf("lost %d", e.Token))
		case EventClosed:
			t.log = append(t.log, fmt.Sprintf("closed %d", e.Reason))
		}
	}
}

// want compares all events and packets since the last want.
func (t *circuitTest) want(why string, want ...string) {
	t.Helper()
	if g, w := strings.Join(t.log, "\n"), strings.Join(want, "\n"); g != w {
		t.Fatalf("%s:\n%s\nwant\n%s", why, g, w)
	}
	t.log = nil
}

// receives gives a datagram to the circuit.
func (t *circuitTest) receives(why, datagram string, want ...string) {
	t.Helper()
	t.events(t.Receive(t.now, unhex(t, datagram), t))
	t.want(why, want...)
}

// sends sends a message, which the circuit must accept.
func (t *circuitTest) sends(why string, m Message, want ...string) {
	t.Helper()
	if err := t.Circuit.Send(t.now, m, t); err != nil {
		t.Fatalf("%s: %v", why, err)
	}
	t.want(why, want...)
}

// waits advances time, and calls Advance at the deadlines of the circuit.
func (t *circuitTest) waits(why string, d time.Duration, want ...string) {
	t.Helper()
	for end := t.now.Add(d); ; {
		at, ok := t.NextTimeout()
		if !ok || at.After(end) {
			t.now = end
			break
		}
		if at.After(t.now) {
			t.now = at
		}
		before := at
		t.events(t.Advance(t.now, t))
		if at, ok = t.NextTimeout(); ok && !at.After(before) && !at.After(t.now) {
			t.Fatalf("%s: Advance at %v left a deadline at %v", why, t.now, at)
		}
	}
	t.want(why, want...)
}

// dropped fails unless exactly these drops have been counted.
func (t *circuitTest) dropped(why string, want map[DropReason]uint64) {
	t.Helper()
	for r, n := range t.Stats().Drops {
		if n != want[DropReason(r)] {
			t.Fatalf("%s: %d drops of %v, want %d", why, n, DropReason(r), want[DropReason(r)])
		}
	}
}

func reliable(token uint64, body ...byte) Message {
	return Message{Number: wire.AgentUpdate, Body: body, Reliable: true, Token: token}
}
