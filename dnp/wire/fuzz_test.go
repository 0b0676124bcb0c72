package wire

import (
	"bytes"
	"testing"
)

// seedCommand adds the bytes behind the command byte of all vectors of cmd.
func seedCommand(f *testing.F, cmd Command) {
	for _, v := range vectors(f) {
		for _, p := range v.Packets {
			if b := unhex(p); v.Group != "half" && Command(b[0]) == cmd {
				f.Add(b[1:])
			}
		}
	}
	f.Add([]byte{})
	f.Add(unhex("ffff ffff ffff ffff ffff"))
}

// fuzzCodec requires that Append restores what Parse parsed, except for ignored bytes.
func fuzzCodec[M interface{ Append([]byte) []byte }](f *testing.F, cmd Command, parse func([]byte) (M, error)) {
	seedCommand(f, cmd)
	f.Fuzz(func(t *testing.T, in []byte) {
		m, err := parse(in)
		if err != nil {
			return
		}
		if out := m.Append(nil); Command(out[0]) != cmd || !bytes.HasPrefix(in, out[1:]) {
			t.Fatalf("% x became % x", in, out)
		}
	})
}

func FuzzConnectionAck(f *testing.F) {
	fuzzCodec(f, CommandConnectionAck, ParseConnectionAck)
}

func FuzzReliableMessage(f *testing.F) {
	fuzzCodec(f, CommandReliableMessage, ParseReliableMessage)
}

func FuzzReliableMessageLong(f *testing.F) {
	fuzzCodec(f, CommandReliableMessageLong, ParseReliableMessageLong)
}

func FuzzReliableAck(f *testing.F) { fuzzCodec(f, CommandReliableAck, ParseReliableAck) }
func FuzzLinkUp(f *testing.F)      { fuzzCodec(f, CommandLinkUp, ParseLinkUp) }
func FuzzLinkDown(f *testing.F)    { fuzzCodec(f, CommandLinkDown, ParseLinkDown) }

func FuzzLinkStateLong(f *testing.F) {
	f.Add(unhex("0100 0200 07 0100 4d 0000"))
	fuzzCodec(f, CommandReliableLinkStateLong, ParseLinkStateLong)
}

func FuzzConnectionRequest(f *testing.F) {
	seedCommand(f, CommandConnectionRequest)
	f.Fuzz(func(t *testing.T, in []byte) {
		m, err := ParseConnectionRequest(in)
		if err == nil && len(m.protocols)+2 > len(in) {
			t.Fatalf("%d bytes of protocols out of % x", len(m.protocols), in)
		}
		m.Offers(ProtocolDNP1)
	})
}

func FuzzLinkState(f *testing.F) {
	seedCommand(f, CommandReliableLinkState)
	f.Fuzz(func(t *testing.T, in []byte) {
		m, err := ParseLinkState(in)
		if err != nil {
			return
		}
		out := m.Append(nil)
		out[5], in = 0, bytes.Clone(in) // any flags but 1 mean 0
		in[4] = 0
		if !bytes.HasPrefix(in, out[1:]) {
			t.Fatalf("% x became % x", in, out)
		}
		n := 0
		for v := m.Values; v.Len() > 0; n++ {
			var typ ValueType
			var value []byte
			if typ, value, v = v.Next(); !CheckValue(typ, value) {
				t.Fatalf("value %d is % x, which is no %v", n, value, typ)
			}
		}
	})
}

func FuzzValues(f *testing.F) {
	f.Add(unhex("0200 03 3930 0b 0300 616263"))
	f.Fuzz(func(t *testing.T, in []byte) {
		v, err := ParseValues(in)
		if err == nil && (len(v.p)+2 > len(in) || v.Len() > len(v.p)) {
			t.Fatalf("%d values in %d bytes out of % x", v.Len(), len(v.p), in)
		}
	})
}

func FuzzValue(f *testing.F) {
	f.Add(uint8(11), unhex("0300 616263"))
	for _, v := range vectors(f) {
		if v.Kind == "link_update" && v.Broken == "" {
			f.Add(uint8(v.TypeCode), unhex(v.Packets[0])[7:])
		}
	}
	f.Fuzz(func(t *testing.T, typ uint8, in []byte) {
		r := NewReader(in)
		v := r.Value(ValueType(typ))
		if r.Err() == nil && len(v)+len(r.Rest()) != len(in) {
			t.Fatalf("read %d and left %d of %d bytes", len(v), len(r.Rest()), len(in))
		}
		if CheckValue(ValueType(typ), in) != (r.Err() == nil && len(r.Rest()) == 0) {
			t.Fatalf("CheckValue and Value disagree about % x", in)
		}
	})
}

// FuzzLinkUpdate reads an update against a layout that the fuzzer chooses.
func FuzzLinkUpdate(f *testing.F) {
	for _, v := range vectors(f) {
		if v.Kind == "link_update" {
			f.Add(false, []byte{byte(v.TypeCode)}, unhex(v.Packets[0])[1:])
		}
	}
	f.Add(true, []byte{3, 11}, unhex("0200 0100 0200 03 0700 0b 0200 7a7a 0200 0100 03 ff00"))
	f.Fuzz(func(t *testing.T, spec bool, layout, in []byte) {
		profile, types := Denetwork, make([]ValueType, len(layout))
		if spec {
			profile = Spec
		}
		for i, b := range layout {
			types[i] = ValueType(b % byte(ValueTypes))
		}
		u := profile.UpdateReader(in)
		for links := 0; ; links++ {
			if _, ok := u.NextLink(); !ok {
				return
			}
			for {
				index, value, ok := u.NextValue(types)
				if !ok {
					break
				}
				if !CheckValue(types[index], value) {
					t.Fatalf("value %d is % x, which is no %v", index, value, types[index])
				}
			}
			if links > len(in) {
				t.Fatalf("%d links out of %d bytes", links, len(in))
			}
		}
	})
}
