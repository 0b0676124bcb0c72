package payload

import (
	"fmt"
	"strings"
	"testing"
	"time"

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

// ingestStates states of a large world change in messages of ingestOps, as with many game servers that publish a part each.
const (
	ingestStates = 10_000
	ingestOps    = 500
)

// BenchmarkIngest measures what a relay does with changes: it parses messages, applies them, and makes batches.
func BenchmarkIngest(b *testing.B) {
	now := time.Unix(1000, 0)
	s := replication.NewStore(replication.StoreConfig{Space: "s", Epoch: 1, Tick: 10 * time.Millisecond})
	var in Parser
	publish := func(body []byte) {
		p, err := in.Parse(JSON, body, "")
		if err == nil {
			err = s.Publish(now, p)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
	list := func(first int, op func(i int) string) []byte {
		var ops []string
		for i := first; i < first+ingestOps; i++ {
			ops = append(ops, op(i))
		}
		return []byte(`{"ops":[` + strings.Join(ops, ",") + `]}`)
	}
	var bodies [2][][]byte
	for first := 0; first < ingestStates; first += ingestOps {
		publish(list(first, func(i int) string {
			return fmt.Sprintf(`{"op":"put","key":"s%d","values":[{"name":"pos","type":"vector3f16","precision":0.1,"value":[1,0,2]},{"name":"rot","type":"quaternionf16","value":[0,0,0,1]}]}`, i)
		}))
		for j := range bodies {
			bodies[j] = append(bodies[j], list(first, func(i int) string {
				return fmt.Sprintf(`{"op":"set","key":"s%d","values":{"0":[%d.5,0,-1234.5],"1":[%d,0.707,0,-0.707]}}`, i, i%1000+j, j)
			}))
		}
	}
	s.Advance(now.Add(time.Second))
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		now = now.Add(10 * time.Millisecond)
		part := n % len(bodies[0])
		publish(bodies[n/len(bodies[0])%2][part])
		s.Advance(now)
		n++
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*ingestOps), "ns/update")
}
