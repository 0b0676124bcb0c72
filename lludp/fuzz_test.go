package lludp

import (
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/lludp/wire"
)

// FuzzCircuit plays a script: one byte is an action, the next its size. Whatever a peer sends,
// the bounds hold, sent packets can be parsed, and no packet is passed up twice under one
// number.
func FuzzCircuit(f *testing.F) {
	f.Add(unhex(f, "0009 40 00000001 00 04 0102 02ff 0107 000b 10 00000002 00 04 00000001 01 03ff 03ff"))
	f.Add(unhex(f, "0101 0202 03ff 000e 00 00000001 00 fffffffb 01 01000000 000c 00 00000003 00 01 07 00000000 03ff 03ff 03ff 03ff"))
	f.Add(unhex(f, "000a 00 00000001 00 fffffffd 0101 03ff"))
	f.Add(unhex(f, "03ff 03ff 0008 00 00000001 00 02 01 0140 03ff"))
	var scratch, second wire.Scratch
	f.Fuzz(func(t *testing.T, script []byte) {
		c := newCircuitTest(t, Config{Window: 16, WindowBytes: 2048, Scratch: &scratch})
		passed := map[wire.Seq]bool{}
		for len(script) >= 2 {
			op, n := script[0]%4, int(script[1])
			script = script[2:]
			c.out, c.log = c.out[:0], nil
			bytesIn := 0
			switch op {
			case 0:
				n = min(n, len(script))
				bytesIn = n
				c.check(passed, c.Receive(c.now, script[:n], c))
				script = script[n:]
			case 1:
				c.Circuit.Send(c.now, Message{Number: wire.AgentUpdate, Body: make([]byte, n), Reliable: true, Token: uint64(n + 1)}, c)
			case 2:
				c.Circuit.Send(c.now, Message{Number: wire.AgentUpdate, Body: make([]byte, n), ZeroCode: true}, c)
			case 3:
				c.now = c.now.Add(time.Duration(n) * 20 * time.Millisecond)
				c.check(passed, c.Advance(c.now, c))
			}
			bytesOut := 0
			for _, b := range c.out {
				bytesOut += len(b)
				if _, err := wire.Parse(b, &second); err != nil || len(b) > wire.PacketMax {
					t.Fatalf("%x was sent: %v", b, err)
				}
			}
			if op == 0 && bytesIn > 0 && bytesOut > 6+4+1+4*wire.AppendedMax+8+1+4*wire.AppendedMax {
				t.Fatalf("%d bytes made %d", bytesIn, bytesOut)
			}
		}
	})
}

// check compares a circuit with its bounds.
func (t *circuitTest) check(passed map[wire.Seq]bool, events []Event) {
	t.Helper()
	for _, e := range events {
		if e.Kind != EventPacket {
			continue
		}
		if passed[e.Packet.Seq] && len(passed) < dedupeUnreliable && e.Packet.Flags&wire.FlagReliable != 0 {
			t.Fatalf("number %d was passed up again", e.Packet.Seq)
		}
		if e.Packet.Flags&wire.FlagReliable != 0 {
			passed[e.Packet.Seq] = true
		}
	}
	packets, bytes := t.InFlight()
	if packets > t.cfg.Window || bytes > t.cfg.WindowBytes || bytes < 0 || (packets == 0) != (bytes == 0) || len(t.acks.l) >= wire.AppendedMax {
		t.Fatalf("%d packets, %d bytes in flight, %d acknowledgements wait", packets, bytes, len(t.acks.l))
	}
	if at, ok := t.NextTimeout(); ok == t.Closed() || ok && at.IsZero() || t.flight.due.IsZero() != (packets == 0) {
		t.Fatalf("deadline %v, %v", at, ok)
	}
}
