package wire

import (
	"bytes"
	"testing"
)

// FuzzPacket requires that a parsed packet is within the bounds and means the same when it is
// written and read again.
func FuzzPacket(f *testing.F) {
	for _, v := range vectors(f) {
		f.Add(unhex(f, v.Hex))
	}
	f.Add(unhex(f, "80 00000001 03 0003 02 07"))
	f.Add(unhex(f, "90 00000001 00 61 0000 00000009 01"))
	f.Add(append(unhex(f, "80 00000001 00"), make([]byte, 1194)...))
	var scratch, second Scratch
	f.Fuzz(func(t *testing.T, p []byte) {
		in := bytes.Clone(p)
		m, err := Parse(p, &scratch)
		if !bytes.Equal(p, in) {
			t.Fatalf("%x was changed to %x", in, p)
		}
		if err != nil {
			return
		}
		size := HeaderSize + len(m.Extra) + len(m.Body)
		if len(p) > ReceiveMax || size > ExpandedMax || m.Flags&FlagZeroCoded == 0 && size+4*m.Acks.Len() >= len(p) {
			t.Fatalf("%d bytes of %x", size, p)
		}
		out := m.Append(nil)
		if len(out) > ReceiveMax {
			return // an unusual form was shorter than the written one
		}
		again, err := Parse(out, &second)
		if err != nil || again.Seq != m.Seq || again.Number != m.Number || !bytes.Equal(again.Body, m.Body) || !bytes.Equal(again.Acks.p, m.Acks.p) {
			t.Fatalf("%x was written as %x, read as %+v, %v", p, out, again, err)
		}
		if d := (again.Flags ^ m.Flags) &^ (FlagZeroCoded | FlagAcks); d != 0 {
			t.Fatalf("%x was written as %x, which lost flags %x", p, out, d)
		}
	})
}

// FuzzBodies feeds bytes to the parsers of all bodies.
func FuzzBodies(f *testing.F) {
	f.Add(unhex(f, "03 01000000 02000000 efcdab00"))
	f.Add(unhex(f, "07 10000000"))
	f.Add(make([]byte, 36))
	f.Add([]byte{255})
	f.Fuzz(func(t *testing.T, p []byte) {
		if m, err := ParseAckList(p); err == nil {
			seqs := make([]Seq, m.Len())
			for i := range seqs {
				seqs[i] = m.At(i)
			}
			if out := AppendAckList(nil, seqs); !bytes.HasPrefix(p, out) {
				t.Fatalf("%x became %x", p, out)
			}
		}
		if m, err := ParseStartPing(p); err == nil && !bytes.HasPrefix(p, m.Append(nil)) {
			t.Fatalf("%x became %+v", p, m)
		}
		if m, err := ParseCompletePing(p); err == nil && !bytes.HasPrefix(p, m.Append(nil)) {
			t.Fatalf("%x became %+v", p, m)
		}
		if m, err := ParseOpening(p); err == nil && !bytes.HasPrefix(p, m.Append(nil)) {
			t.Fatalf("%x became %+v", p, m)
		}
	})
}
