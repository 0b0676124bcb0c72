package wire

import (
	"bytes"
	"encoding/hex"
	"strings"
	"testing"
)

func unhex(s string) []byte {
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		panic(err)
	}
	return b
}

func TestReliableAck(t *testing.T) {
	tests := []struct {
		name string
		m    ReliableAck
		want string
	}{
		{"first", ReliableAck{Seq: 0, Code: AckSuccess}, "06 0000 00"},
		{"little endian", ReliableAck{Seq: 0x0102, Code: AckFailed}, "06 0201 01"},
		{"last before wrap", ReliableAck{Seq: 65534}, "06 feff 00"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := tt.m.Append([]byte("x"))[1:] // Append must keep what was there
			if want := unhex(tt.want); !bytes.Equal(got, want) {
				t.Fatalf("Append = % x, want % x", got, want)
			}
			back, err := ParseReliableAck(got[1:])
			if err != nil || back != tt.m {
				t.Fatalf("Parse = %+v, %v, want %+v", back, err, tt.m)
			}
			for i := range got[1:] {
				if _, err := ParseReliableAck(got[1 : 1+i]); err != ErrTruncated {
					t.Errorf("Parse of %d bytes: err = %v, want ErrTruncated", i, err)
				}
			}
		})
	}
}

func TestReliableAckAllocs(t *testing.T) {
	buf := make([]byte, 0, 64)
	if n := testing.AllocsPerRun(100, func() {
		b := ReliableAck{Seq: 9}.Append(buf)
		if _, err := ParseReliableAck(b[1:]); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}

func FuzzValue(f *testing.F) {
	f.Add(uint8(11), unhex("0300 616263"))
	f.Fuzz(func(t *testing.T, typ uint8, in []byte) {
		r := NewReader(in)
		v := r.Value(ValueType(typ))
		if r.Err() == nil && len(v)+len(r.Rest()) != len(in) {
			t.Fatalf("read %d and left %d of %d bytes", len(v), len(r.Rest()), len(in))
		}
	})
}
