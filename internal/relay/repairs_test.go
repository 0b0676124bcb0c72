package relay

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/bus"
	"github.com/dnprelay/dnprelay/replication"
	"github.com/dnprelay/dnprelay/replication/view"
	"github.com/dnprelay/dnprelay/subject"
)

// A repairTest is a worker with a space of large states, and the answers that it sends.
type repairTest struct {
	*testing.T
	*Worker
	shard int
	now   time.Time
	sent  map[string]int // bytes by subject
	last  []byte         // of the answers
}

func newRepairTest(t *testing.T, states, bytes int) *repairTest {
	r := &repairTest{T: t, now: time.Unix(1000, 0), sent: make(map[string]int)}
	r.Worker, r.shard = benchWorker(t, nil)
	r.relay.cfg.Bus = recording{r}
	for i := range states {
		r.put(i, strings.Repeat("x", bytes))
	}
	return r
}

// A recording bus notes answers to repair requests.
type recording struct{ *repairTest }

func (b recording) Publish(m bus.Msg) error {
	if strings.HasPrefix(m.Subject, subject.Inbox("edge")) {
		b.sent[m.Subject] += len(m.Data)
		b.last = m.Data
	}
	return nil
}
func (recording) Request(bus.Msg, time.Duration, func(bus.Msg, error)) {}
func (recording) Subscribe(string, func(bus.Msg)) (func(), error)      { return func() {}, nil }
func (recording) SubscribeShared(string, func(bus.Msg)) (func(), error) {
	return func() {}, nil
}
func (recording) OnChange(func(bool)) {}
func (recording) Connected() bool     { return true }

func (r *repairTest) put(i int, text string) {
	r.post(r.shard, (*Worker).publish, bus.Msg{
		Subject: "dnp.v1.shard.0.publish.s",
		Data:    fmt.Appendf(nil, `{"op":"put","key":"k%d","values":[{"name":"n","type":"string","value":%q}]}`, i, text),
	})
	r.Turn(r.now)
	r.now = r.now.Add(time.Second)
	r.Turn(r.now)
}

// ask asks as an edge with this name, and returns the bytes of what it gets at once.
func (r *repairTest) ask(edge string, request []byte) int {
	reply := subject.Inbox("edge") + "." + edge + ".all.s"
	before := r.sent[reply]
	r.post(r.shard, (*Worker).repair, bus.Msg{Subject: "dnp.v1.shard.0.repair", Reply: reply, Data: request})
	r.Turn(r.now)
	return r.sent[reply] - before
}

// everything is a request of a replica that has nothing.
func everything() []byte {
	q, _ := replication.NewReplica("s", nil).Advance(time.Unix(1, 0))
	return q
}

// The first answer leaves at once, and a repetition at the end of the window, with the newest states. Other edges do
// not wait for that.
func TestRepairWindow(t *testing.T) {
	r := newRepairTest(t, 130, 1000)
	whole := r.ask("e1", everything())
	if whole < 120_000 {
		t.Fatalf("the first answer has %d bytes", whole)
	}
	for range 5 {
		if n := r.ask("e1", everything()); n != 0 {
			t.Fatalf("a repetition is answered with %d bytes within the window", n)
		}
	}
	if n := r.ask("e2", everything()); n != whole {
		t.Errorf("another edge gets %d bytes at once, want %d", n, whole)
	}
	reply := subject.Inbox("edge") + ".e1.all.s"
	r.put(0, strings.Repeat("y", 1000))
	r.now = r.now.Add(repairWindow - time.Second - 1)
	r.Turn(r.now)
	if r.sent[reply] != whole {
		t.Fatal("the window ended too early")
	}
	r.now = r.now.Add(1)
	r.Turn(r.now)
	if r.sent[reply] != 2*whole {
		t.Errorf("after the window the edge has %d bytes, want one more answer of %d", r.sent[reply], whole)
	}
	_, seq := r.Store("s").Position()
	if h, _, err := view.Parse(r.last); err != nil || h.Seq != seq {
		t.Errorf("the answer is true at %d, want %d: it has the newest states", h.Seq, seq)
	}
	s := r.Stats(r.now)
	if s.Repairs != 3 || s.RepairsCoalesced != 5 || s.RepairBytes != uint64(3*whole) || s.CoalescedBytes != 5*s.RepairAsked/7 || s.Store.RepairWhole < 390 {
		t.Errorf("the counters are %+v, %d states in whole", s.Counts, s.Store.RepairWhole)
	}
	r.now = r.now.Add(time.Hour)
	r.Turn(r.now)
	if r.sent[reply] != 2*whole {
		t.Error("one request was answered twice")
	}
}

// Small answers do not wait, because they may repeat what was lost.
func TestSmallRepairs(t *testing.T) {
	r := newRepairTest(t, 3, 1000)
	for i := range 10 {
		if r.ask("e1", everything()) == 0 {
			t.Errorf("answer %d of 3 kB waits", i)
		}
	}
	r = newRepairTest(t, 1, 10)
	answers := 0
	for range 200 {
		if r.ask("e1", everything()) != 0 {
			answers++
		}
	}
	if answers != 64 {
		t.Errorf("%d tiny answers in one window; SECURITY.md says 64", answers)
	}
}

// A hostile edge has many subjects and many requests. What it gets, and what is kept of it, is bounded.
func TestHostileRequester(t *testing.T) {
	const requesters = 256 // as SECURITY.md says
	r := newRepairTest(t, 130, 1000)
	whole := r.ask("e0", everything())
	for i := range 2 * requesters {
		r.ask(fmt.Sprint("hostile", i), everything())
	}
	p := &r.spaces["s"].repairs
	if len(p.requesters) > requesters+1 {
		t.Errorf("%d requesters are known", len(p.requesters))
	}
	total := 0
	for _, n := range r.sent {
		total += n
	}
	if total > (requesters+2)*whole {
		t.Errorf("%d answers to one hostile edge", total/whole)
	}
	q := everything()
	for i := range 1000 {
		q[7] = byte(i) // of the position, so that no request is like another
		q[8] = byte(i >> 8)
		r.ask("e0", q)
	}
	x := p.requesters[subject.Inbox("edge")+".e0.all.s"]
	if len(x.waiting) > repairWaits || x.answers > 64 {
		t.Errorf("%d requests wait, %d answers were made", len(x.waiting), x.answers)
	}
	for range 5 {
		r.now = r.now.Add(repairWindow)
		before := r.sent[subject.Inbox("edge")+".e0.all.s"]
		r.Turn(r.now)
		if n := r.sent[subject.Inbox("edge")+".e0.all.s"] - before; n > 2*whole {
			t.Errorf("%d bytes in one window, want at most %d", n, whole+whole/2)
		}
	}
}
