package quorumlog_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/internal/fence"
	"github.com/dnprelay/dnprelay/internal/simnet"
	"github.com/dnprelay/dnprelay/sessionlog"
	"github.com/dnprelay/dnprelay/sessionlog/memlog"
	"github.com/dnprelay/dnprelay/sessionlog/quorumlog"
)

// A desk has three copies, and edges that write to one log in them.
type desk struct {
	*testing.T
	net    *simnet.Net
	stores [three]*memlog.Store
	asked  [three]int // requests that reached a copy
	config quorumlog.Config
	edges  int
	seq    uint64 // of the last entry
}

func newDesk(t *testing.T) *desk {
	d := &desk{T: t, net: simnet.New(*first)}
	for c := range d.stores {
		d.stores[c] = memlog.New(memlog.Config{Schedule: d.net.Schedule, Rand: rand.New(rand.NewPCG(*first, uint64(c))), Forget: 10 * time.Minute})
	}
	return d
}

// A counted copy counts its requests.
type counted struct {
	d *desk
	c int
}

func (k counted) Append(w sessionlog.Write, answer func(sessionlog.Answer)) {
	k.d.asked[k.c]++
	k.d.stores[k.c].Append(w, answer)
}

func (k counted) Read(log string, answer func(sessionlog.Answer)) {
	k.d.asked[k.c]++
	k.d.stores[k.c].Read(log, answer)
}

// edge returns the log of another edge.
func (d *desk) edge() *quorumlog.Log {
	d.edges++
	cfg := d.config
	cfg.Now, cfg.Seed = d.net.Now, new([32]byte)
	if cfg.After == nil {
		cfg.After = d.net.Schedule
	}
	binary.LittleEndian.PutUint64(cfg.Seed[:], uint64(d.edges))
	for c := range d.stores {
		cfg.Copies[c] = counted{d, c}
	}
	return quorumlog.New(cfg)
}

// wait lets time pass until a request is answered.
func (d *desk) wait(ask func(func(sessionlog.Answer))) (a sessionlog.Answer) {
	d.Helper()
	done := false
	ask(func(r sessionlog.Answer) { a, done = r, true })
	for !done {
		if !d.net.Step() {
			d.Fatal("a request is not answered")
		}
	}
	return a
}

func (d *desk) read(l *quorumlog.Log, log string) sessionlog.Answer {
	d.Helper()
	return d.wait(func(f func(sessionlog.Answer)) { l.Read(log, f) })
}

// append appends behind the last entry of the log "x".
func (d *desk) append(l *quorumlog.Log, data string, rollup, final bool) sessionlog.Answer {
	d.Helper()
	w := sessionlog.Write{Log: "x", Expect: d.seq, Data: []byte(data), Rollup: rollup, Final: final}
	a := d.wait(func(f func(sessionlog.Answer)) { l.Append(w, f) })
	if a.Verdict == fence.OK {
		d.seq = a.Seq
	}
	return a
}

// must appends entries that have to be stored.
func (d *desk) must(l *quorumlog.Log, why string, data ...string) {
	d.Helper()
	for _, text := range data {
		if a := d.append(l, text, false, false); a.Verdict != fence.OK {
			d.Fatalf("%q is answered %v, want ok: %s", text, a.Verdict, why)
		}
	}
}

// want compares the entries of the log "x", and remembers the last one.
func (d *desk) want(l *quorumlog.Log, why string, data ...string) {
	d.Helper()
	a := d.read(l, "x")
	var got []string
	for _, e := range a.Entries {
		got = append(got, string(e.Data))
		d.seq = e.Seq
	}
	if a.Verdict != fence.OK || fmt.Sprint(got) != fmt.Sprint(data) {
		d.Fatalf("a read is answered %v with %q, want %q: %s", a.Verdict, got, data, why)
	}
}

func (d *desk) silent(c int, on bool) { d.stores[c].SetSilent(on) }

// TestTwoFaults shows what two simultaneous losses cost, and that nothing is lost while two copies
// are merely away.
func TestTwoFaults(t *testing.T) {
	t.Run("Away", func(t *testing.T) {
		d := newDesk(t)
		owner, other := d.edge(), d.edge()
		d.must(owner, "all copies answer", "1", "2")
		d.silent(0, true)
		d.must(owner, "two copies answer", "3", "4")
		d.silent(1, true)
		if a := d.append(owner, "5", false, false); a.Verdict == fence.OK {
			t.Fatal("one copy has an entry, and it counts as stored")
		}
		if a := d.read(other, "x"); a.Verdict == fence.OK {
			t.Fatalf("a log is read from one copy: %d entries", len(a.Entries))
		}
		d.silent(0, false) // which lacks 3 and 4
		d.net.Run(10 * time.Second)
		d.want(other, "the copy that stayed has them", "1", "2", "3", "4", "5")
		d.must(other, "two copies answer", "6")
		d.silent(1, false)
		d.net.Run(10 * time.Second)
		d.want(owner, "all are back", "1", "2", "3", "4", "5", "6")
	})
	t.Run("Lost", func(t *testing.T) {
		d := newDesk(t)
		owner, other := d.edge(), d.edge()
		d.must(owner, "all copies answer", "1", "2")
		d.net.Run(time.Second)
		loses := d.stores[2].Snapshot()
		d.must(owner, "all copies answer", "3")
		d.net.Run(time.Second)
		d.silent(0, true) // the first fault: this copy misses what follows
		d.must(owner, "two copies answer", "4", "5")
		loses() // the second one: this copy forgets what only it and another one have
		d.silent(1, true)
		d.silent(0, false)
		d.net.Run(time.Second)
		d.want(other, "4 and 5 are lost, and nothing else: no copy that answers has them", "1", "2", "3")
		d.must(other, "the log goes on", "6")
		d.silent(1, false)
		d.net.Run(time.Second)
		d.want(d.edge(), "what was lost does not come back: the log went on without it", "1", "2", "3", "6")
	})
}

// TestEmpty checks that a read waits for the third copy where the other two are empty: one may have
// forgotten the log, and the other may have missed its beginning.
func TestEmpty(t *testing.T) {
	d := newDesk(t)
	owner := d.edge()
	forget := d.stores[0].Snapshot()
	d.silent(1, true)
	d.must(owner, "two copies answer", "1")
	d.net.Run(time.Second)
	forget()
	d.silent(1, false)
	d.stores[1].Snapshot()()
	d.stores[2].Latency = 20 * time.Millisecond
	d.want(d.edge(), "the slow copy has it", "1")
}

// TestNoAnswer checks that a write without an answer is not followed by another one under the same lead.
func TestNoAnswer(t *testing.T) {
	d := newDesk(t)
	owner := d.edge()
	d.must(owner, "all copies answer", "1")
	d.net.Run(time.Second)
	for c := 1; c < three; c++ {
		d.stores[c].Latency, d.stores[c].Timeout = 4*quorumlog.Patience, time.Minute
	}
	for _, text := range []string{"2", "another 2"} {
		if a := d.append(owner, text, false, false); a.Verdict == fence.OK {
			t.Fatalf("%q is stored, but two copies are slow", text)
		}
	}
	for _, s := range d.stores {
		s.Latency = time.Millisecond
	}
	d.net.Run(20 * time.Second)
	d.want(owner, "the first write arrived", "1", "2")
	d.must(owner, "all copies answer", "3")
}

// TestStopped checks that a process which was stopped during a write does not believe what arrives then:
// a copy may have started again meanwhile, without what it had.
func TestStopped(t *testing.T) {
	d := newDesk(t)
	d.config.After = func(time.Duration, func()) {} // the answer comes before the timers
	l := d.edge()
	d.must(l, "all copies answer", "1")
	for _, c := range []int{0, 1} {
		d.stores[c].Latency = 2 * quorumlog.Patience
	}
	for _, s := range d.stores {
		s.Timeout = time.Minute
	}
	if a := d.append(l, "2", false, false); a.Verdict != fence.Unknown {
		t.Errorf("a write whose answer takes %v is answered %v, want unknown", 2*quorumlog.Patience, a.Verdict)
	}
}

// TestSequences checks that entries which are written behind the same one have different sequences.
func TestSequences(t *testing.T) {
	t.Run("SameEdge", func(t *testing.T) { sequences(newDesk(t), true) })
	t.Run("AnotherEdge", func(t *testing.T) { sequences(newDesk(t), false) })
}

func sequences(d *desk, same bool) {
	owner, next := d.edge(), d.edge()
	if same {
		next = owner
	}
	d.must(owner, "all copies answer", "1")
	d.net.Run(time.Second)
	d.silent(1, true)
	d.silent(2, true)
	if a := d.append(owner, "2", false, false); a.Verdict != fence.Unknown {
		d.Fatalf("a write that one copy has is answered %v", a.Verdict)
	}
	for c := 1; c < three; c++ {
		d.stores[c].Snapshot()()
		d.silent(c, false)
	}
	d.silent(0, true)
	d.net.Run(time.Second)
	d.must(next, "two copies answer, which have one entry", "another 2")
	if seq := quorumlog.Last(d.stores[0].Entries("x")); seq == d.seq {
		d.Errorf("two entries behind one have the sequence %d", seq)
	}
}

// TestOneForgets checks that one copy may forget everything while the others have it.
func TestOneForgets(t *testing.T) {
	d := newDesk(t)
	owner := d.edge()
	forget := d.stores[1].Snapshot()
	d.must(owner, "all copies answer", "1", "2")
	d.net.Run(time.Second)
	forget()
	d.must(owner, "two copies have it", "3")
	d.want(d.edge(), "two copies have it", "1", "2", "3")
	if b := owner.Stats().Behind; b != [3]int{0, 1, 0} {
		t.Errorf("copies are behind with %v logs, want the second one with one: it does not follow any more", b)
	}
	d.append(owner, "4", true, false)
	d.net.Run(time.Second)
	d.append(owner, "5", true, false)
	d.net.Run(time.Second)
	if b := owner.Stats().Behind; b != [3]int{} {
		t.Errorf("copies are behind with %v logs, want none after two checkpoints", b)
	}
	d.silent(0, true)
	d.want(d.edge(), "the copy that forgot has the checkpoint", "5")
}

// TestForgot checks that one checkpoint is enough to bring a copy back of which the edge knows that it forgot, while the
// others refuse reads.
func TestForgot(t *testing.T) {
	d := newDesk(t)
	owner := d.edge()
	forget := d.stores[1].Snapshot()
	d.must(owner, "all copies answer", "1", "2")
	d.net.Run(time.Second)
	forget()
	owner.Forgot(2, func(log string) bool { return log == "another" })
	if b := owner.Stats().Behind; b != [3]int{} {
		t.Errorf("copies are behind with %v logs, though the copy lacks another log only", b)
	}
	owner.Forgot(2, func(log string) bool { return log == "x" })
	if b := owner.Stats().Behind; b != [3]int{0, 1, 0} {
		t.Errorf("copies are behind with %v logs, want the second one with one", b)
	}
	d.stores[0].Leaderless, d.stores[2].Leaderless = true, true
	d.append(owner, "3", true, false)
	d.net.Run(time.Second)
	d.stores[0].Leaderless, d.stores[2].Leaderless = false, false
	if b := owner.Stats().Behind; b != [3]int{} {
		t.Errorf("copies are behind with %v logs after a checkpoint", b)
	}
	d.silent(0, true)
	d.want(d.edge(), "the copy that forgot has the checkpoint", "3")
}

// TestSequenceGivenAway checks that a copy comes back which took a record from an edge that had been replaced: the copy
// had forgotten its newest records, and gave their sequences to others.
func TestSequenceGivenAway(t *testing.T) {
	d := newDesk(t)
	owner, next := d.edge(), d.edge()
	d.must(owner, "all copies answer", "1")
	d.net.Run(time.Second)
	forget := d.stores[0].Snapshot()
	d.must(owner, "all copies answer", "2", "3")
	d.net.Run(time.Second)
	forget()
	end := d.seq
	d.must(next, "it takes the lead, with as many records", "4")
	d.net.Run(time.Second)
	newEnd, records := d.seq, len(d.stores[0].Entries("x"))
	d.seq = end
	if a := d.append(owner, "x", false, false); a.Verdict != fence.Stale {
		t.Fatalf("an edge that was replaced writes: %v", a.Verdict)
	}
	if n := len(d.stores[0].Entries("x")); n != records+1 {
		t.Fatalf("the copy has %d records, want %d: it took that of the edge that was replaced", n, records+1)
	}
	d.seq = newEnd
	for _, entry := range []string{"5", "6", "7"} {
		d.append(next, entry, true, false)
		d.net.Run(2 * time.Second)
	}
	if b := next.Stats().Behind; b != [3]int{} {
		t.Errorf("copies are behind with %v logs after three checkpoints", b)
	}
	d.silent(1, true)
	d.want(d.edge(), "the copy has the checkpoint", "7")
	d.silent(1, false)
}

// TestLeaderless checks that an edge which leads a log needs no read: servers refuse them while
// JetStream has no leader. It looks at a copy that left now and then, and brings it back as soon as
// reads are answered.
func TestLeaderless(t *testing.T) {
	d := newDesk(t)
	owner := d.edge()
	d.must(owner, "all copies answer", "1")
	d.silent(2, true)
	d.must(owner, "two copies answer", "2")
	d.net.Run(time.Second)
	for _, s := range d.stores {
		s.Leaderless = true
	}
	d.silent(2, false)
	before, leads := d.asked[2], owner.Stats().Leads
	const writes = 100
	for k := range writes {
		if a := d.append(owner, fmt.Sprint("next ", k), k%5 == 4, false); a.Verdict != fence.OK {
			t.Fatalf("write %d is answered %v although two copies follow", k, a.Verdict)
		}
		d.net.Run(100 * time.Millisecond)
	}
	if n := d.asked[2] - before; n < 5 || n > writes/5 {
		t.Errorf("a copy that refuses reads is asked %d times in %d writes and 10 s, want once a second", n, writes)
	}
	if n := owner.Stats().Leads; n != leads {
		t.Errorf("the lead was taken %d times more although no copy can be read", n-leads)
	}
	for _, s := range d.stores {
		s.Leaderless = false
	}
	for range 2 {
		d.net.Run(time.Second)
		d.append(owner, "checkpoint", true, false)
	}
	d.net.Run(time.Second)
	if b := owner.Stats().Behind; b != [3]int{} {
		t.Errorf("copies are behind with %v logs after two checkpoints", b)
	}
	d.silent(0, true)
	d.want(d.edge(), "the copy that was away has the checkpoint", "checkpoint")
}

// TestEnd checks when the copies forget a log that ended.
func TestEnd(t *testing.T) {
	for _, c := range []struct {
		name   string
		away   time.Duration // of a copy
		forget bool
		why    string
	}{
		{"All", 0, true, "all copies have the end"},
		{"Later", quorumlog.EndWait / 2, true, "the last copy has the end in time"},
		{"Kept", quorumlog.EndWait + 10*time.Second, false, "one copy lacks the end, so the others keep it for as long as that one keeps what it has"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := newDesk(t)
			owner := d.edge()
			d.must(owner, "all copies answer", "1")
			d.net.Run(time.Second)
			d.silent(2, c.away > 0)
			if a := d.append(owner, "end", true, true); a.Verdict != fence.OK {
				t.Fatalf("the end is answered %v", a.Verdict)
			}
			d.net.Run(c.away)
			d.silent(2, false)
			d.net.Run(11 * time.Minute)
			for i, s := range d.stores {
				if n := len(s.Entries("x")); c.forget != (n == 0) {
					t.Errorf("copy %d has %d records: %s", i, n, c.why)
				}
			}
			if n := owner.Stats().EndsKept; c.forget != (n == 0) {
				t.Errorf("%d ends are kept: %s", n, c.why)
			}
			if c.forget {
				d.seq = 0
			}
			d.append(d.edge(), "new", true, false)
			d.want(d.edge(), "a log may begin again", "new")
		})
	}
}

// TestEndIsOutvoted brings a copy back that has the end of a log and was not told to forget it, after the
// others forgot it and another log of that name began.
func TestEndIsOutvoted(t *testing.T) {
	d := newDesk(t)
	for range 50 { // the more edges led a log, the higher its last ballot
		d.want(d.edge(), "any edge may", d.all()...)
		d.must(d.edge(), "any edge may", "x")
	}
	owner := d.edge()
	d.append(owner, "1", true, false)
	for _, name := range []string{"end", "end"} {
		d.net.Run(time.Second)
		d.append(owner, name, true, true)
	}
	d.net.Run(time.Second)
	keep := d.stores[2].Snapshot()
	d.net.Run(11 * time.Minute)
	keep() // it came back from an outage with what it had
	d.silent(2, true)
	d.seq = 0
	d.append(d.edge(), "new", true, false)
	d.silent(2, false)
	d.silent(0, true)
	d.net.Run(time.Second)
	d.want(d.edge(), "the new log is younger than the end of the old one", "new")
}

// all returns the data of the log "x".
func (d *desk) all() (list []string) {
	for _, e := range d.read(d.edge(), "x").Entries {
		list = append(list, string(e.Data))
	}
	return list
}

// TestSlowCopy checks that a slow copy is left behind when its queue is full, holds nothing up, and
// follows again after a checkpoint.
func TestSlowCopy(t *testing.T) {
	d := newDesk(t)
	owner := d.edge()
	d.must(owner, "all copies answer", "first")
	d.net.Run(time.Second)
	d.stores[2].Latency = 100 * time.Millisecond
	for k := range 2 * quorumlog.QueueRecords {
		d.must(owner, "two copies are fast", fmt.Sprint(k))
	}
	if b := owner.Stats().Behind; b != [3]int{0, 0, 1} {
		t.Errorf("copies are behind with %v logs, want the last one with one", b)
	}
	d.stores[2].Latency = time.Millisecond
	for range 2 {
		d.net.Run(time.Second)
		d.append(owner, "checkpoint", true, false)
	}
	d.net.Run(time.Second)
	if b := owner.Stats().Behind; b != [3]int{} {
		t.Errorf("copies are behind with %v logs after a checkpoint", b)
	}
	d.silent(0, true)
	d.want(d.edge(), "the slow copy has the checkpoint", "checkpoint")
}

// TestCheckpointReplaces checks that a slow copy takes a checkpoint in place of the entries before it.
func TestCheckpointReplaces(t *testing.T) {
	d := newDesk(t)
	owner := d.edge()
	d.must(owner, "all copies answer", "first")
	d.net.Run(time.Second)
	d.stores[2].Latency = 100 * time.Millisecond
	before := d.asked[2]
	for k := range quorumlog.QueueRecords / 2 {
		d.must(owner, "two copies are fast", fmt.Sprint(k))
	}
	d.append(owner, "checkpoint", true, false)
	d.net.Run(10 * time.Second)
	if n := d.asked[2] - before; n != 2 {
		t.Errorf("a slow copy is asked %d times, want 2: for the entry that was under way, and the checkpoint", n)
	}
}

// TestLargeQueue checks that few large entries fill the queue of a slow copy, too.
func TestLargeQueue(t *testing.T) {
	d := newDesk(t)
	owner := d.edge()
	d.must(owner, "all copies answer", "first")
	d.net.Run(time.Second)
	d.stores[2].Latency = 100 * time.Millisecond
	for range 4 {
		d.must(owner, "two copies are fast", string(make([]byte, 60<<10)))
	}
	if b := owner.Stats().Behind; b != [3]int{0, 0, 1} {
		t.Errorf("copies are behind with %v logs, want the last one with one", b)
	}
}

// TestAway checks that few requests are sent to a copy that answers nothing, and that the first
// answer ends that.
func TestAway(t *testing.T) {
	d := newDesk(t)
	l := d.edge()
	d.must(l, "all copies answer", "1")
	d.net.Run(time.Second)
	d.silent(2, true)
	const reads = 1000
	before := d.asked
	for k := range reads {
		began := d.net.Elapsed()
		d.want(l, "two copies answer", "1")
		if took := d.net.Elapsed() - began; took > 50*time.Millisecond {
			t.Fatalf("read %d takes %v", k, took)
		}
		d.net.Run(2 * time.Millisecond)
	}
	if l.Stats().Up[2] || !l.Stats().Up[0] {
		t.Errorf("copies that answer: %v, want all but the last one", l.Stats().Up)
	}
	if n := d.asked[2] - before[2]; n > reads/4 || d.asked[0]-before[0] != reads {
		t.Errorf("%d of %d requests are sent to a copy that answers nothing", n, reads)
	}
	d.silent(2, false)
	for range 400 {
		d.want(l, "all copies answer", "1")
		d.net.Run(2 * time.Millisecond)
	}
	if !l.Stats().Up[2] {
		t.Error("a copy counts as away although it answers")
	}
}

// TestBounds checks that requests beyond a bound are busy, and that each one is answered.
func TestBounds(t *testing.T) {
	d := newDesk(t)
	d.config.SetLedgersMax(2)
	l := d.edge()
	counts := map[fence.Verdict]int{}
	during := true
	for range 2 * quorumlog.OpsMax {
		l.Read("x", func(a sessionlog.Answer) {
			if counts[a.Verdict]++; during {
				t.Error("a request is answered within the call")
			}
		})
	}
	during = false
	d.net.Run(time.Second)
	if counts[fence.OK] != quorumlog.OpsMax || counts[fence.Busy] != quorumlog.OpsMax {
		t.Errorf("requests for one log are answered %v, want %d ok and the others busy", counts, quorumlog.OpsMax)
	}
	clear(counts)
	for k := range 5 {
		l.Read(fmt.Sprint("under way ", k), func(a sessionlog.Answer) { counts[a.Verdict]++ })
	}
	d.net.Run(time.Second)
	if counts[fence.OK] != 2 || counts[fence.Busy] != 3 {
		t.Errorf("requests for more logs than fit are answered %v, want 2 ok and the others busy", counts)
	}
	for k := range 5 {
		w := sessionlog.Write{Log: fmt.Sprint(k), Data: []byte("data")}
		if a := d.wait(func(f func(sessionlog.Answer)) { l.Append(w, f) }); a.Verdict != fence.OK {
			t.Errorf("log %d is answered %v although others are unused", k, a.Verdict)
		}
	}
	if s := l.Stats(); s.Ledgers > 2 || s.Refused != quorumlog.OpsMax+3 {
		t.Errorf("%d logs are remembered and %d requests refused", s.Ledgers, s.Refused)
	}
	d.net.Run(quorumlog.Unused)
	d.read(l, "x")
	if n := l.Stats().Ledgers; n != 1 {
		t.Errorf("%d logs are remembered, want that of the last request: the others are unused", n)
	}
}

// A live copy answers from a goroutine of its own.
type live struct {
	mu   sync.Mutex
	seq  uint64
	logs map[string][]sessionlog.Entry
}

func (c *live) Append(w sessionlog.Write, answer func(sessionlog.Answer)) {
	go func() {
		c.mu.Lock()
		var last uint64
		if list := c.logs[w.Log]; len(list) > 0 {
			last = list[len(list)-1].Seq
		}
		a := sessionlog.Answer{Verdict: fence.Stale}
		if last == w.Expect {
			c.seq++
			a = sessionlog.Answer{Verdict: fence.OK, Seq: c.seq}
			c.logs[w.Log] = append(c.logs[w.Log], sessionlog.Entry{Seq: c.seq, Data: w.Data})
		}
		c.mu.Unlock()
		answer(a)
	}()
}

func (c *live) Read(log string, answer func(sessionlog.Answer)) {
	go func() {
		c.mu.Lock()
		list := slices.Clone(c.logs[log])
		c.mu.Unlock()
		answer(sessionlog.Answer{Verdict: fence.OK, Entries: list})
	}()
}

// TestGoroutines lets many goroutines write to logs over copies that answer at any time. Two edges share
// each log, and every entry is stored once.
func TestGoroutines(t *testing.T) {
	var cfg quorumlog.Config
	for c := range cfg.Copies {
		cfg.Copies[c] = &live{logs: map[string][]sessionlog.Entry{}}
	}
	two := []*quorumlog.Log{quorumlog.New(cfg), quorumlog.New(cfg)}
	const writers, logs, entries = 8, 4, 20
	var running sync.WaitGroup
	for k := range writers {
		running.Go(func() {
			for n := range entries {
				insist(two[k%2], fmt.Sprint(k%logs), fmt.Sprintf("%d of %d", n, k))
			}
		})
	}
	running.Wait()
	for k := range logs {
		seen := map[string]bool{}
		list := ask(func(f func(sessionlog.Answer)) { two[0].Read(fmt.Sprint(k), f) }).Entries
		for _, e := range list {
			seen[string(e.Data)] = true
		}
		if want := entries * writers / logs; len(list) != want || len(seen) != want {
			t.Errorf("log %d has %d entries, %d different ones; want %d", k, len(list), len(seen), want)
		}
	}
	if s := two[0].Stats(); s.Leads == 0 || s.Records[0][fence.OK] == 0 {
		t.Errorf("an edge that wrote has the counters %+v", s)
	}
}

func ask(f func(func(sessionlog.Answer))) sessionlog.Answer {
	done := make(chan sessionlog.Answer, 1)
	f(func(a sessionlog.Answer) { done <- a })
	return <-done
}

// insist appends data behind whatever the log has, until the log has it.
func insist(l *quorumlog.Log, log, data string) {
	for {
		r := ask(func(f func(sessionlog.Answer)) { l.Read(log, f) })
		w := sessionlog.Write{Log: log, Data: []byte(data)}
		for _, e := range r.Entries {
			if w.Expect = e.Seq; string(e.Data) == data {
				return
			}
		}
		if r.Verdict == fence.OK && ask(func(f func(sessionlog.Answer)) { l.Append(w, f) }).Verdict == fence.OK {
			return
		}
	}
}

// TestSize checks what a log has room for: any entry that a copy takes, and a history of any size.
func TestSize(t *testing.T) {
	d := newDesk(t)
	owner := d.edge()
	large := string(make([]byte, 600<<10))
	d.must(owner, "a copy takes it", large, large, large)
	other := d.edge()
	d.want(other, "all of it", large, large, large)
	d.must(other, "it takes the lead with a state in parts", "next")
	d.net.Run(time.Second)
	d.silent(0, true)
	d.want(d.edge(), "all of it", large, large, large, "next")
}

// TestCost checks how many requests a write and a read take.
func TestCost(t *testing.T) {
	d := newDesk(t)
	l := d.edge()
	cost := func(what string, want int, f func()) {
		t.Helper()
		d.net.Run(time.Second)
		before := d.asked
		f()
		d.net.Run(time.Second)
		for c := range three {
			if n := d.asked[c] - before[c]; n != want {
				t.Errorf("%s takes %d requests to copy %d, want %d", what, n, c, want)
			}
		}
	}
	cost("the first write of a session", 2, func() { d.must(l, "all answer", "1") })
	cost("a write", 1, func() { d.must(l, "all answer", "2") })
	cost("a checkpoint", 1, func() { d.append(l, "3", true, false) })
	cost("a read", 1, func() { d.want(l, "all answer", "3") })
	cost("a write after a read", 1, func() { d.must(l, "all answer", "4") })
	d.silent(2, true)
	d.must(l, "two copies answer", "5")
	d.net.Run(time.Second)
	d.silent(2, false)
	d.must(l, "the copy that left is read", "6")
	cost("a checkpoint that brings a copy back", 2, func() { d.append(l, "7", true, false) })
	other := d.edge()
	cost("a takeover", 3, func() { d.must(other, "all answer", "8") })
	cost("a write of an edge that was replaced", 1, func() {
		d.seq--
		if a := d.append(l, "9", false, false); a.Verdict != fence.Stale {
			t.Errorf("an edge that was replaced is answered %v", a.Verdict)
		}
	})
}
