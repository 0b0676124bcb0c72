package replication

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/lludp/zerocode"
	"github.com/x448/float16"
)

// A scene publishes states that look like those of games.
type scene struct {
	name  string
	put   func(r *rand.Rand, i int) Op
	move  func(r *rand.Rand, i int) Op
	count int
}

func encodedValue(name string, v ...float64) Literal {
	t := typ(name)
	var b []byte
	for _, x := range v {
		switch {
		case t.Kind() == wire.KindFloat && t.Width() == 2:
			b = binary.LittleEndian.AppendUint16(b, float16.Fromfloat32(float32(x)).Bits())
		case t.Kind() == wire.KindFloat:
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(x)))
		default:
			b = append(b, binary.LittleEndian.AppendUint64(nil, uint64(int64(x)))[:t.Width()]...)
		}
	}
	return Encoded{t, b}
}

func value(name, typeName string, v ...float64) PutValue {
	p := PutValue{ValueDef: ValueDef{Name: name, Type: typ(typeName)}, Value: encodedValue(typeName, v...)}
	if p.Type.Kind() == wire.KindFloat {
		p.Precision = 0.01
	}
	return p
}

// transform is a position within 512 m and a turn about the upright axis.
func transform(r *rand.Rand) (pos, rot []float64) {
	angle := r.Float64() * math.Pi
	return []float64{r.Float64()*512 - 256, 20 + r.Float64(), r.Float64()*512 - 256}, []float64{0, math.Sin(angle), 0, math.Cos(angle)}
}

func transforms(name, pos, rot string) scene {
	return scene{
		name: name, count: 1000,
		put: func(r *rand.Rand, i int) Op {
			p, q := transform(r)
			return Op{Kind: OpPut, Key: fmt.Sprint("m", i), Values: []PutValue{value("pos", pos, p...), value("rot", rot, q...)}}
		},
		move: func(r *rand.Rand, i int) Op {
			p, q := transform(r)
			return set(fmt.Sprint("m", i), "pos", encodedValue(pos, p...), "rot", encodedValue(rot, q...))
		},
	}
}

// characters have transforms, many counters that are mostly small or zero, and
// some that are null. Half of them stand still, and those that move also change
// their health now and then.
func characters() scene {
	return scene{
		name: "characters", count: 1000,
		put: func(r *rand.Rand, i int) Op {
			p, q := transform(r)
			op := Op{Kind: OpPut, Key: fmt.Sprint("char.", i), Message: []byte("kind=3;skin=17"), Values: []PutValue{
				value("pos", "vector3f32", p...), value("rot", "quaternionf32", q...), value("vel", "vector3f32", 0, 0, 0),
				value("health", "uint32", float64(r.IntN(1000))), value("healthMax", "uint32", 1000), value("mana", "uint32", float64(r.IntN(300))),
				value("level", "uint16", float64(r.IntN(80))), value("flags", "uint32", float64(r.IntN(8))), value("team", "uint8", float64(r.IntN(3))),
				{ValueDef: ValueDef{Name: "name", Type: wire.TypeString}, Value: str(fmt.Sprintf("Wanderer %d", i))},
				{ValueDef: ValueDef{Name: "target", Type: typ("uint64"), Nullable: true, Null: make([]byte, 8)}, Value: Null{}},
			}}
			for n := range 8 {
				op.Values = append(op.Values, value(fmt.Sprint("slot", n), "uint32", float64(r.IntN(2)*r.IntN(5000))))
			}
			for n := range 6 {
				op.Values = append(op.Values, value(fmt.Sprint("timer", n), "float32", float64(r.IntN(4)/3)*r.Float64()))
			}
			return op
		},
		move: func(r *rand.Rand, i int) Op {
			p, q := transform(r)
			op := set(fmt.Sprint("char.", i), "pos", encodedValue("vector3f32", p...), "rot", encodedValue("quaternionf32", q...))
			if r.IntN(4) == 0 {
				op.Sets = append(op.Sets, SetValue{"health", encodedValue("uint32", float64(r.IntN(1000)))})
			}
			if r.IntN(2) == 0 {
				op.Sets = op.Sets[len(op.Sets)-1:] // turns on the spot, or loses health
			}
			return op
		},
	}
}

// scores are counters that change by themselves, one or two at a time.
func scores() scene {
	return scene{
		name: "counters", count: 1000,
		put: func(r *rand.Rand, i int) Op {
			op := Op{Kind: OpPut, Key: fmt.Sprint("score.", i)}
			for n := range 16 {
				op.Values = append(op.Values, value(fmt.Sprint("c", n), "sint32", float64(r.IntN(3)*r.IntN(2000))))
			}
			return op
		},
		move: func(r *rand.Rand, i int) Op {
			return set(fmt.Sprint("score.", i), fmt.Sprint("c", r.IntN(16)), encodedValue("sint32", float64(r.IntN(2000))))
		},
	}
}

func scenes() []scene {
	return []scene{
		transforms("transforms-f32", "vector3f32", "quaternionf32"), transforms("transforms-f16", "vector3f16", "quaternionf16"),
		characters(), scores(),
	}
}

// traffic is what a store sends and stores of a scene.
func (w scene) traffic(t testing.TB, zeroCode bool) map[string][][]byte {
	r := rand.New(rand.NewPCG(1, 2))
	s := newStoreTest(t, Limits{})
	s.cfg.ZeroCode = zeroCode
	for i := range w.count {
		s.ok(w.put(r, i))
	}
	s.Advance(s.now)
	all := map[string][][]byte{"keyframes": s.Repair(s.now, (&RepairRequest{Kind: RepairKeyframes, Space: "s"}).append(nil))}
	for _, d := range s.TakeDirty(nil, w.count) {
		all["durable"] = append(all["durable"], d.Data)
	}
	for range 10 {
		for i := range w.count / 10 {
			s.ok(w.move(r, i*10))
		}
		s.now = s.now.Add(50 * time.Millisecond)
		for _, o := range s.Advance(s.now) {
			if o.Kind == OutputBatch {
				all["updates"] = append(all["updates"], o.Data)
			}
		}
	}
	return all
}

func BenchmarkZeroCode(b *testing.B) {
	for _, w := range scenes() {
		all := w.traffic(b, false)
		for _, kind := range []string{"updates", "keyframes", "durable"} {
			b.Run(w.name+"/"+kind, func(b *testing.B) { benchZeroCode(b, all[kind]) })
		}
	}
}

func benchZeroCode(b *testing.B, messages [][]byte) {
	plain, coded := 0, 0
	var forms [][]byte
	for _, m := range messages {
		c, ok := zerocode.AppendShorter(nil, m)
		plain += len(m)
		if ok {
			coded += len(c)
			forms = append(forms, c)
		} else {
			coded += len(m)
		}
	}
	var buf []byte
	code, expand := time.Hour, time.Hour // the shortest of all rounds
	for b.Loop() {
		start := time.Now()
		for _, m := range messages {
			buf, _ = zerocode.AppendShorter(buf[:0], m)
		}
		between := time.Now()
		for _, c := range forms {
			buf, _ = zerocode.AppendExpanded(buf[:0], c, 1<<20)
		}
		expand = min(expand, time.Since(between))
		code = min(code, between.Sub(start))
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(plain)/float64(len(messages)), "B/message")
	b.ReportMetric(100*float64(coded)/float64(plain), "%size")
	b.ReportMetric(float64(code.Nanoseconds())/float64(plain)*1000, "ps/B-code")
	b.ReportMetric(float64(expand.Nanoseconds())/float64(plain)*1000, "ps/B-expand")
}

// BenchmarkZeroCodedFeed is position and rotation of 100 states per batch, emitted
// and applied, plain and zero-coded in turns. The shortest time of all batches
// counts, which holds on a machine with other work.
func BenchmarkZeroCodedFeed(b *testing.B) {
	for _, sc := range scenes()[:3] {
		b.Run(sc.name, func(b *testing.B) {
			var forms [2]struct {
				*storeTest
				replica     *Replica
				emit, apply time.Duration
			}
			for i := range forms {
				f, r := &forms[i], rand.New(rand.NewPCG(1, 2))
				f.emit, f.apply = time.Hour, time.Hour
				f.storeTest, f.replica = newStoreTest(b, Limits{}), NewReplica("s", ReplicaConfig{}, quiet{})
				f.cfg.ZeroCode = i == 1
				for n := range 100 {
					f.ok(sc.put(r, n))
				}
				f.Advance(f.now)
				q, _ := f.replica.Advance(f.now)
				for _, p := range f.Repair(f.now, q) {
					f.replica.ApplyReply(f.now, p)
				}
			}
			for b.Loop() {
				for i := range forms {
					f := &forms[i]
					f.now = f.now.Add(10 * time.Millisecond)
					for _, st := range f.all {
						st.dirty.Fill(2)
						f.mark(st)
					}
					start := time.Now()
					out := f.Advance(f.now)
					emitted := time.Now()
					for _, o := range out {
						f.replica.Apply(f.now, o.Data)
					}
					f.apply = min(f.apply, time.Since(emitted))
					f.emit = min(f.emit, emitted.Sub(start))
				}
			}
			b.ReportMetric(float64(forms[0].emit.Nanoseconds())/100, "ns/emit")
			b.ReportMetric(float64(forms[1].emit)/float64(forms[0].emit), "×emit-coded")
			b.ReportMetric(float64(forms[0].apply.Nanoseconds())/100, "ns/apply")
			b.ReportMetric(float64(forms[1].apply)/float64(forms[0].apply), "×apply-coded")
			b.ReportMetric(float64(forms[1].stats.BatchBytes)/float64(forms[0].stats.BatchBytes), "×bytes")
			b.ReportMetric(0, "ns/op")
			if forms[1].replica.stats.Malformed+forms[1].replica.stats.Gaps > 0 {
				b.Fatal("coded batches were not applied")
			}
		})
	}
}
