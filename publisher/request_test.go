package publisher

import (
	"context"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/replication"
	"github.com/dnprelay/dnprelay/replication/payload"
	"github.com/dnprelay/dnprelay/subject"
)

// TestOutboxPop counts the entries that the outbox moves to pop 65,536 of them. A pop
// that shifts the entries behind it moves them about two billion times.
func TestOutboxPop(t *testing.T) {
	const entries = 65_536
	o := outbox{ops: map[topic]*pendingOp{}}
	for i := range entries {
		o.push(&pendingOp{topic: topic{topicState, strconv.Itoa(i)}})
	}
	moved := 0
	for i := range entries {
		last := &o.order[len(o.order)-1]
		if p := o.pop(); p.topic.name != strconv.Itoa(i) {
			t.Fatalf("pop %d returns %q, want the entries in the order of their pushes", i, p.topic.name)
		}
		if n := len(o.order); n > 0 && &o.order[n-1] != last {
			moved += n
		}
	}
	if moved > entries || !o.empty() {
		t.Errorf("%d pops moved %d entries, want at most one each; empty: %v", entries, moved, o.empty())
	}
}

// TestPutAgain has a relay refuse a removal that came twice, while the state was put again: the new state is sent.
func TestPutAgain(t *testing.T) {
	var refused []error
	s := &Space{
		p: &Publisher{cfg: Config{Refused: func(_ string, err error) { refused = append(refused, err) }}}, out: outbox{ops: map[topic]*pendingOp{}},
		copied: copied{states: map[string]*state{"k": {put: &putJSON{}}}}, // put, removed, and put again
	}
	removal := &pendingOp{topic: topic{topicState, "k"}, verb: "remove", put: true} // the first put and the removal were one op
	s.results(time.Now(), &request{ops: []*pendingOp{removal}}, payload.Answer{
		Results: []struct{ Error *payload.AnswerError }{{&payload.AnswerError{Code: replication.CodeUnknownState}}},
	})
	for _, tell := range s.untold {
		tell()
	}
	if len(refused) > 0 || s.out.ops[topic{topicState, "k"}] == nil {
		t.Errorf("refused %v; to be sent: %v, want the state", refused, s.out.ops)
	}
}

// TestSetAllocs requires that typed values cost no allocation in the caller: 50 states of position and rotation.
func TestSetAllocs(t *testing.T) {
	all := npcs(t, 50)
	n := float32(0)
	if got := testing.AllocsPerRun(100, func() {
		n++
		for _, b := range all {
			if err := b.Set(npc{Pos: [3]float32{n, 2 * n, n / 3}, Turn: [4]float32{0, n / 7, 0, 1}, HP: uint8(n)}); err != nil {
				t.Fatal(err)
			}
		}
	}); got != 0 {
		t.Errorf("%v allocations for 50 sets", got)
	}
}

func BenchmarkSet(b *testing.B) {
	all := npcs(b, 50)
	b.ReportAllocs()
	n := float32(0)
	for b.Loop() {
		n++
		for _, npc_ := range all {
			_ = npc_.Set(npc{Pos: [3]float32{n, 2 * n, n / 3}, Turn: [4]float32{0, n / 7, 0, 1}, HP: uint8(n)})
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/50/3, "ns/value")
}

type npc struct {
	Pos  [3]float32 `dnp:"pos,precision=0.01"`
	Turn [4]float32 `dnp:"turn,type=quaternionf16"`
	HP   uint8      `dnp:"hp"`
}

// npcs binds states in a Space for which no goroutine works.
func npcs(t testing.TB, n int) (all []*Bound[npc]) {
	s := quietSpace()
	for i := range n {
		b, err := Bind(s, Put{Key: "npc" + strconv.Itoa(i)}, npc{})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, b)
	}
	return all
}

func quietSpace() *Space {
	p := &Publisher{cfg: Config{}.withDefaults(), subjects: subject.Names{}, ctx: context.Background(), spaces: map[string]*Space{}}
	s := newSpace(p, "demo")
	s.started = true
	return s
}

// BenchmarkReassert makes the copy of 65,536 states pending and writes all publishes, as for a relay that took the
// space over.
func BenchmarkReassert(b *testing.B) {
	s := quietSpace()
	for i := range 65_536 {
		if _, err := Bind(s, Put{Key: "npc" + strconv.Itoa(i)}, npc{}); err != nil {
			b.Fatal(err)
		}
	}
	s.out = outbox{ops: map[topic]*pendingOp{}}
	b.ReportAllocs()
	before := cpuTime(b)
	defer func() { b.ReportMetric((cpuTime(b)-before).Seconds()*1000/float64(b.N), "cpu-ms/op") }()
	for b.Loop() {
		s.reassert()
		for len(s.asserting) > 0 || !s.out.empty() {
			if s.assertable() {
				s.assertSome(assertMax)
			}
			s.compose(&request{})
		}
	}
}

// cpuTime returns the processor time of this process, which a busy machine does not change much.
func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
