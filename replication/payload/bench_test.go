package payload

import (
	"fmt"
	"strings"
	"testing"

	"github.com/dnprelay/dnprelay/replication"
)

// BenchmarkParseSet parses one of the 2,000 messages a second of a game with 100 states at 20 Hz.
func BenchmarkParseSet(b *testing.B) {
	body := []byte(`{"op":"set","values":{"pos":[123.456,-7.25,1024.125],"rot":[0,0.7071068,0,0.7071068]}}`)
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	var enc []byte
	for b.Loop() {
		p, err := JSON.Parse(body, "npc.17")
		if err != nil {
			b.Fatal(err)
		}
		enc = encodeSets(b, enc[:0], &p.Ops[0])
	}
}

// BenchmarkParseSet100 parses the same 100 states in one message.
func BenchmarkParseSet100(b *testing.B) {
	var ops []string
	for i := range 100 {
		ops = append(ops, fmt.Sprintf(`{"op":"set","key":"npc.%d","values":{"pos":[%d.456,-7.25,1024.125],"rot":[0,0.7071068,0,0.7071068]}}`, i, i))
	}
	body := []byte(`{"ops":[` + strings.Join(ops, ",") + `]}`)
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	var enc []byte
	for b.Loop() {
		p, err := JSON.Parse(body, "")
		if err != nil {
			b.Fatal(err)
		}
		for i := range p.Ops {
			enc = encodeSets(b, enc[:0], &p.Ops[i])
		}
	}
}

func encodeSets(b *testing.B, enc []byte, op *replication.Op) []byte {
	const vector3f32, quaternionf32 = 33, 36
	enc, _, err1 := op.Sets[0].Value.AppendValue(enc, vector3f32)
	enc, _, err2 := op.Sets[1].Value.AppendValue(enc, quaternionf32)
	if err1 != nil || err2 != nil {
		b.Fatal(err1, err2)
	}
	return enc
}

func BenchmarkParsePut(b *testing.B) {
	body := []byte(tower)
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := JSON.Parse(body, ""); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkAppendPut(b *testing.B) {
	p, _ := JSON.Parse([]byte(tower), "")
	l := listed(b, &p.Ops[0])
	var out []byte
	b.ReportAllocs()
	for b.Loop() {
		e := newEmitter(JSON, out[:0])
		e.put(l, nil)
		out = e.done()
	}
}
