package movelog

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/internal/fence"
	"github.com/dnprelay/dnprelay/internal/simnet"
	"github.com/dnprelay/dnprelay/sessionlog"
	"github.com/dnprelay/dnprelay/sessionlog/memlog"
)

// A fixture has two stores in memory, and logs of edges over them.
type fixture struct {
	t      *testing.T
	net    *simnet.Net
	stores [stores]*memlog.Store
	later  time.Duration // what the clock of the edges is ahead of the network's
	hasty  bool          // requests do not wait for what follows an answer
}

func newFixture(t *testing.T) *fixture {
	f := &fixture{t: t, net: simnet.New(1)}
	for s := range f.stores {
		f.stores[s] = memlog.New(memlog.Config{Schedule: f.net.Schedule, Rand: rand.New(rand.NewPCG(1, uint64(s)))})
	}
	return f
}

func (f *fixture) edge(mode Mode) *Log {
	l := New(Config{
		Replicated: f.stores[inReplicated], Quorum: f.stores[inQuorum], Mode: mode, Single: true,
		Now: func() time.Time { return f.net.Now().Add(f.later) }, After: f.net.Schedule,
	})
	l.vacant = 0
	return l
}

// wait returns the answer to a request, which must not come before the call returns.
func (f *fixture) wait(ask func(func(sessionlog.Answer))) sessionlog.Answer {
	f.t.Helper()
	var answers []sessionlog.Answer
	ask(func(a sessionlog.Answer) { answers = append(answers, a) })
	if len(answers) > 0 {
		f.t.Fatal("the log answers before the call returns")
	}
	for len(answers) == 0 && f.net.Step() {
	}
	if !f.hasty {
		f.net.Run(2 * time.Second) // also what an answer does not wait for, and timeouts
	}
	if len(answers) != 1 {
		f.t.Fatalf("%d answers, want one", len(answers))
	}
	return answers[0]
}

func (f *fixture) append(l *Log, expect uint64, what string) sessionlog.Answer {
	f.t.Helper()
	return f.wait(func(answer func(sessionlog.Answer)) { l.Append(write(expect, what), answer) })
}

// write makes a write of a session: "ckpt" is a checkpoint, "close" the end.
func write(expect uint64, what string) sessionlog.Write {
	k := sessionlog.Block{Epoch: 1, Number: 1, Previous: expect, Adopt: &what}
	final := what == "close"
	return sessionlog.Write{Log: "A", Expect: expect, Data: k.Append(nil), Rollup: what == "ckpt" || final, Final: final}
}

func (f *fixture) must(l *Log, expect uint64, what, why string) uint64 {
	f.t.Helper()
	a := f.append(l, expect, what)
	if a.Verdict != fence.OK || a.Seq <= expect {
		f.t.Fatalf("%s behind %d is answered %v, %d: %s", what, expect, a.Verdict, a.Seq, why)
	}
	return a.Seq
}

func (f *fixture) read(l *Log) sessionlog.Answer {
	f.t.Helper()
	return f.wait(func(answer func(sessionlog.Answer)) { l.Read("A", answer) })
}

// want checks what a log has, and returns the last sequence.
func (f *fixture) want(l *Log, why, list string) (last uint64) {
	f.t.Helper()
	a := f.read(l)
	var got []string
	for _, e := range a.Entries {
		k, err := sessionlog.ParseBlock(e.Data)
		if err != nil {
			f.t.Fatalf("%s: %v", why, err)
		}
		if e.Seq <= last || last > 0 && k.Previous != last {
			f.t.Errorf("%s: sequence %d with the one before %d, behind %d", why, e.Seq, k.Previous, last)
		}
		got, last = append(got, *k.Adopt), e.Seq
	}
	if s := strings.Join(got, " "); a.Verdict != fence.OK || s != list {
		f.t.Fatalf("the log has %q (%v), want %q: %s", s, a.Verdict, list, why)
	}
	return last
}

// kinds describes what the stores have: the replicated one, the quorum one.
func (f *fixture) kinds() string {
	var list []string
	for s := range stores {
		p := placeOf(s, f.stores[s].Entries("A"))
		list = append(list, [...]string{"none", "data", "moved", "gone", "other"}[p.kind])
	}
	return strings.Join(list, " ")
}

func (f *fixture) wantKinds(want, why string) {
	f.t.Helper()
	if got := f.kinds(); got != want {
		f.t.Errorf("the stores have %q, want %q: %s", got, want, why)
	}
}

// counts returns how many requests the stores had: writes and reads of the replicated one, writes and
// reads of the quorum one.
func (f *fixture) counts() [4]int {
	r, q := f.stores[inReplicated], f.stores[inQuorum]
	return [...]int{r.Appends, r.Reads, q.Appends, q.Reads}
}

func (f *fixture) wantCounts(before, want [4]int, why string) {
	f.t.Helper()
	got := f.counts()
	for i := range got {
		got[i] -= before[i]
	}
	if got != want {
		f.t.Errorf("writes and reads of the replicated store, and of the quorum store: %v, want %v: %s", got, want, why)
	}
}

// TestQuorumAlone checks that a log in the quorum store needs nothing else from its beginning to its
// end: one request for each write, and one for the read of an adoption.
func TestQuorumAlone(t *testing.T) {
	f := newFixture(t)
	f.stores[inReplicated].SetSilent(true)
	a, b := f.edge(Quorum), f.edge(Quorum)
	before := f.counts()
	seq := f.must(a, 0, "ckpt", "the log begins")
	seq = f.must(a, seq, "one", "it goes on")
	seq = f.must(a, seq, "ckpt", "a checkpoint")
	f.wantCounts(before, [4]int{0, 0, 3, 0}, "the owner knows where its log is")
	before = f.counts()
	if got := f.want(b, "another edge reads it", "ckpt"); got != seq {
		t.Errorf("the last sequence is %d, want %d, which the owner was told", got, seq)
	}
	seq = f.must(b, seq, "adopt", "it is the last sequence")
	seq = f.must(b, seq, "ckpt", "a checkpoint follows an adoption")
	f.must(b, seq, "close", "the end")
	f.wantCounts(before, [4]int{0, 0, 3, 1}, "a log leaves a store by a record in that store")
	if v := f.append(a, seq, "one").Verdict; v != fence.Stale {
		t.Errorf("the former owner is answered %v, want stale", v)
	}
}

// TestReplicatedAlone checks what a log in the replicated store needs: one request for each write, and
// the quorum store when it begins and is adopted.
func TestReplicatedAlone(t *testing.T) {
	f := newFixture(t)
	a, b := f.edge(Replicated), f.edge(Replicated)
	before := f.counts()
	seq := f.must(a, 0, "ckpt", "the log begins")
	f.wantCounts(before, [4]int{1, 0, 1, 0}, "the quorum store says that it begins elsewhere")
	f.wantKinds("data gone", "it is in the replicated store")
	f.stores[inQuorum].SetSilent(true)
	seq = f.must(a, seq, "one", "the owner knows where its log is")
	if v := f.read(b).Verdict; v != fence.Unknown {
		t.Errorf("a read without the quorum store is answered %v, want unknown: it does not know where the log is", v)
	}
	f.stores[inQuorum].SetSilent(false)
	before = f.counts()
	f.want(b, "another edge reads it", "ckpt one")
	f.must(b, seq, "adopt", "it is the last sequence")
	f.wantCounts(before, [4]int{1, 1, 0, 2}, "the quorum store is read before and after the other one")
}

// TestThereAndBack moves a log in both directions, and checks what is where, and that a program of the
// last release can go on with it.
func TestThereAndBack(t *testing.T) {
	f := newFixture(t)
	r, q := f.edge(Replicated), f.edge(Quorum)
	seq := f.must(r, 0, "ckpt", "the log begins")
	seq = f.must(r, seq, "one", "it goes on")
	f.want(q, "an edge of the other mode reads it", "ckpt one")
	seq = f.must(q, seq, "adopt", "it is the last sequence")
	f.wantKinds("data gone", "a log moves with a checkpoint only")
	seq = f.must(q, seq, "ckpt", "a checkpoint")
	f.wantKinds("gone data", "it moved")
	seq = f.must(q, seq, "two", "it goes on")
	if v := f.append(r, seq, "late").Verdict; v != fence.OK {
		t.Errorf("an edge that knows an old place is answered %v, want ok: it looks again, and the sequence is the last one", v)
	}
	seq = f.want(r, "it reads it", "ckpt two late")
	seq = f.must(r, seq, "ckpt", "a checkpoint of the replicated mode")
	f.wantKinds("data gone", "it moved back")
	seq = f.must(r, seq, "three", "it goes on")
	f.want(q, "both modes see the same", "ckpt three")

	last := uint64(0)
	for i, e := range f.stores[inReplicated].Entries("A") {
		k, err := sessionlog.ParseBlock(e.Data)
		if err != nil || i > 0 && k.Previous != last {
			t.Errorf("entry %d: the last release sees %v, and %d before it; it follows %d", i, err, k.Previous, last)
		}
		last = e.Seq
	}
	what := "old"
	k := sessionlog.Block{Epoch: 2, Previous: last, Adopt: &what} // what the last release writes
	old := f.wait(func(answer func(sessionlog.Answer)) {
		f.stores[inReplicated].Append(sessionlog.Write{Log: "A", Expect: last, Data: k.Append(nil)}, answer)
	})
	if old.Verdict != fence.OK {
		t.Fatalf("the last release is answered %v", old.Verdict)
	}
	if f.append(r, seq, "four").Verdict != fence.Stale {
		t.Error("the owner writes behind another one")
	}
	if next := f.want(r, "the last release went on", "ckpt three old"); next <= seq {
		t.Errorf("sequence %d behind %d", next, seq)
	}
	if s := q.Stats(); s.ToQuorum != 1 || s.ToReplicated != 0 || s.Copies != 1 {
		t.Errorf("the edge of the quorum mode counted %+v", s)
	}
	if s := r.Stats(); s.ToQuorum != 0 || s.ToReplicated != 1 || s.Copies != 1 {
		t.Errorf("the edge of the replicated mode counted %+v", s)
	}
}

// TestEnds checks that a log which moved and ended stays ended when the stores forget it, and that the
// next one begins.
func TestEnds(t *testing.T) {
	for _, mode := range []Mode{Replicated, Quorum} {
		f := newFixture(t)
		other := f.edge(1 - mode)
		seq := f.must(other, 0, "ckpt", "the log begins")
		l := f.edge(mode)
		f.want(l, "another edge adopts it", "ckpt")
		seq = f.must(l, seq, "ckpt", "it moves")
		f.want(other, "an edge of the other mode adopts it", "ckpt")
		before := f.kinds()
		seq = f.must(other, seq, "close", "the log is over")
		f.wantKinds(before, "the end does not move it")
		f.want(l, "the end is in the log", "close")
		home := store(mode)
		f.stores[home].Wipe("A", 1) // as the stores do after ten minutes
		f.want(l, "the other store has nothing that counts", "")
		f.want(other, "the other store has nothing that counts", "")
		if v := f.append(l, seq, "one").Verdict; v != fence.Stale {
			t.Errorf("a write behind the end is answered %v, want stale", v)
		}
		f.must(l, 0, "ckpt", "the next log of this name begins")
	}
}

// TestInterrupted ends an edge after each write of a move, and checks that another edge of either mode
// finishes the move, and that the former owner finds out.
func TestInterrupted(t *testing.T) {
	for _, from := range []Mode{Replicated, Quorum} {
		for steps := range 5 {
			for _, finisher := range []Mode{Replicated, Quorum} {
				f := newFixture(t)
				seq := f.must(f.edge(from), 0, "ckpt", "the log begins")
				mover := f.edge(1 - from)
				f.want(mover, "the edge adopts it", "ckpt")
				left := steps
				for s := range mover.stores {
					mover.stores[s] = limited{mover.stores[s], &left}
				}
				mover.Append(write(seq, "ckpt"), func(sessionlog.Answer) {})
				f.net.Run(2 * time.Second)
				at := fmt.Sprintf("after %d writes of a move from mode %d: %s", steps, from, f.kinds())
				next := f.want(f.edge(finisher), at, "ckpt")
				if kinds := f.kinds(); strings.Contains(kinds, "moved") && kinds != "moved data" {
					t.Errorf("%s: a read leaves %q", at, kinds)
				}
				next = f.must(f.edge(finisher), next, "one", at)
				f.want(f.edge(from), at, "ckpt one")
				if v := f.append(f.edge(1-from), seq, "two").Verdict; v != fence.Stale {
					t.Errorf("%s: a write behind the one before is answered %v, want stale", at, v)
				}
				f.must(f.edge(finisher), next, "ckpt", at)
			}
		}
	}
}

// TestForgotten has a log end in the replicated store by an edge of the last release, which adopted it
// before the quorum store said that it is there.
func TestForgotten(t *testing.T) {
	f := newFixture(t)
	seq := f.must(f.edge(Quorum), 0, "ckpt", "the log begins")
	mover := f.edge(Replicated)
	f.want(mover, "the edge adopts it", "ckpt")
	left := 3
	for s := range mover.stores {
		mover.stores[s] = limited{mover.stores[s], &left}
	}
	mover.Append(write(seq, "ckpt"), func(sessionlog.Answer) {})
	f.net.Run(2 * time.Second)
	f.wantKinds("data moved", "the edge ends before it writes gone")

	f.stores[inReplicated].Wipe("A", 1) // ten minutes after the end
	reader := f.edge(Quorum)
	f.want(reader, "the store has forgotten it", "")
	f.wantKinds("gone gone", "it does not come back")
	f.must(reader, 0, "ckpt", "the next log begins")
	f.wantKinds("gone data", "it is where the mode wants it")
}

// TestOutdated has a move finished by an edge which is shown that the replicated store has nothing, or
// what it had before.
func TestOutdated(t *testing.T) {
	for _, before := range []int{0, 1} { // writes of the replicated store
		f := newFixture(t)
		var old []sessionlog.Entry
		r, q := f.edge(Replicated), f.edge(Quorum)
		seq := f.must(r, 0, "ckpt", "the log begins")
		if before == 1 {
			old = f.stores[inReplicated].Entries("A")
		}
		f.want(q, "it is adopted", "ckpt")
		seq = f.must(q, seq, "ckpt", "it moves")
		f.want(r, "it is adopted", "ckpt")
		left := 2
		for s := range r.stores {
			r.stores[s] = limited{r.stores[s], &left}
		}
		r.Append(write(seq, "ckpt"), func(sessionlog.Answer) {})
		f.net.Run(2 * time.Second)
		f.wantKinds("gone moved", "the edge ends before it writes the copy")
		reader := f.edge(Quorum)
		reader.stores[inReplicated] = answered{f.stores[inReplicated], func() []sessionlog.Entry { return old }}
		f.read(reader)
		f.want(f.edge(Quorum), "an outdated answer does no harm", "ckpt")
	}
}

// TestRefusedCopy has a store refuse the copy of a write that moved its log.
func TestRefusedCopy(t *testing.T) {
	f := newFixture(t)
	seq := f.must(f.edge(Replicated), 0, "ckpt", "the log begins")
	l := f.edge(Quorum)
	f.want(l, "it is adopted", "ckpt")
	l.stores[inQuorum] = refusing{f.stores[inQuorum], f.net}
	if v := f.append(l, seq, "ckpt").Verdict; v != fence.Unknown {
		t.Errorf("the checkpoint is answered %v, want unknown: it is stored", v)
	}
	l.stores[inQuorum] = f.stores[inQuorum]
	if next := f.want(l, "it is stored", "ckpt"); next <= seq {
		t.Errorf("the last sequence is %d, want that of the checkpoint behind %d", next, seq)
	}
}

// refusing is a store that is busy for all writes.
type refusing struct {
	*memlog.Store
	net *simnet.Net
}

func (y refusing) Append(_ sessionlog.Write, answer func(sessionlog.Answer)) {
	y.net.Schedule(0, func() { answer(sessionlog.Answer{Verdict: fence.Busy}) })
}

// TestBetweenReads moves a log while an edge reads first one store and then the other.
func TestBetweenReads(t *testing.T) {
	f := newFixture(t)
	f.hasty = true
	r, q := f.edge(Replicated), f.edge(Quorum)
	adopt := func(l *Log) { f.must(l, f.want(l, "it is adopted", "ckpt"), "ckpt", "it moves") }

	reader := f.edge(Quorum)
	reader.stores[inReplicated] = &hooked{Store: f.stores[inReplicated],
		before: func() { f.must(q, 0, "ckpt", "the log begins in the quorum store, which had nothing") },
		after:  func() { adopt(r) },
	}
	f.want(reader, "the other store had nothing either, but at another time", "ckpt")

	reader.stores[inReplicated] = &hooked{Store: f.stores[inReplicated],
		before: func() { adopt(q); adopt(r) },
		after:  func() {},
	}
	seq := f.want(reader, "it was in the replicated store both times", "ckpt")
	if want := f.want(f.edge(Quorum), "it is where it was", "ckpt"); seq != want {
		t.Errorf("the last sequence is %d, want %d: the one before the move does not count", seq, want)
	}
}

// hooked is a store during whose next read something else happens.
type hooked struct {
	*memlog.Store
	before, after func()
}

func (h *hooked) Read(log string, answer func(sessionlog.Answer)) {
	before, after := h.before, h.after
	h.before, h.after = nil, nil
	if before == nil {
		h.Store.Read(log, answer)
		return
	}
	before()
	h.Store.Read(log, func(a sessionlog.Answer) {
		after()
		answer(a)
	})
}

// answered is a store whose reads are answered by a function.
type answered struct {
	*memlog.Store
	entries func() []sessionlog.Entry
}

func (y answered) Read(log string, answer func(sessionlog.Answer)) {
	y.Store.Read(log, func(a sessionlog.Answer) {
		a.Entries = y.entries()
		answer(a)
	})
}

// limited is a store that takes a number of writes from an edge, which then is as good as dead.
type limited struct {
	sessionlog.Log
	left *int
}

func (l limited) Append(w sessionlog.Write, answer func(sessionlog.Answer)) {
	if *l.left--; *l.left >= 0 {
		l.Log.Append(w, answer)
	}
}

// TestOneStore checks what is answered while one store is silent.
func TestOneStore(t *testing.T) {
	for _, c := range []struct {
		home, silent store
		mode         Mode
		read, ckpt   fence.Verdict
		why          string
	}{
		{inQuorum, inReplicated, Quorum, fence.OK, fence.OK, "the quorum store says that the log is there"},
		{inQuorum, inReplicated, Replicated, fence.OK, fence.OK, "it cannot move, and stays"},
		{inQuorum, inQuorum, Quorum, fence.Unknown, fence.Unknown, "the log is not there"},
		{inReplicated, inReplicated, Replicated, fence.Unknown, fence.Unknown, "the log is not there"},
		{inReplicated, inQuorum, Replicated, fence.Unknown, fence.OK, "the owner knows where it is"},
		{inReplicated, inQuorum, Quorum, fence.Unknown, fence.OK, "it cannot move, and stays"},
	} {
		f := newFixture(t)
		seq := f.must(f.edge(Mode(c.home)), 0, "ckpt", "the log begins")
		l := f.edge(c.mode)
		f.want(l, "the edge adopts it", "ckpt")
		seq = f.must(l, seq, "adopt", "the edge adopts it")
		f.stores[c.silent].SetSilent(true)
		if v := f.append(l, seq, "ckpt").Verdict; v != c.ckpt {
			t.Errorf("log in %d, %d silent, mode %d: a checkpoint is answered %v, want %v: %s", c.home, c.silent, c.mode, v, c.ckpt, c.why)
		}
		if v := f.read(f.edge(c.mode)).Verdict; v != c.read {
			t.Errorf("log in %d, %d silent, mode %d: a read is answered %v, want %v: %s", c.home, c.silent, c.mode, v, c.read, c.why)
		}
	}
}

// TestRemains checks that an edge which could not move a log does not try again at once.
func TestRemains(t *testing.T) {
	f := newFixture(t)
	seq := f.must(f.edge(Quorum), 0, "ckpt", "the log begins")
	l := f.edge(Replicated)
	f.want(l, "it is adopted", "ckpt")
	f.stores[inReplicated].SetSilent(true)
	seq = f.must(l, seq, "ckpt", "it stays")
	f.stores[inReplicated].SetSilent(false)
	seq = f.must(l, seq, "ckpt", "too early")
	if s := l.Stats(); s.Remained != 1 || s.ToReplicated != 0 {
		t.Errorf("%+v, want one log that remained", s)
	}
	f.later += stayTime
	seq = f.must(l, seq, "ckpt", "it moves")
	f.wantKinds("data gone", "it moved")

	large := write(seq, strings.Repeat("x", movedMax))
	large.Rollup = true
	q := f.edge(Quorum)
	a := f.wait(func(answer func(sessionlog.Answer)) { q.Append(large, answer) })
	if a.Verdict != fence.OK {
		t.Errorf("a checkpoint that is too large to move is answered %v", a.Verdict)
	}
	f.wantKinds("data gone", "a copy with its headers might not fit into the other store")
}

// TestLastRelease checks the time in which edges of the last release may live: nothing moves to the
// quorum store, and nothing begins there without a look at the replicated one for a while longer.
func TestLastRelease(t *testing.T) {
	f := newFixture(t)
	f.wait(func(answer func(sessionlog.Answer)) { f.stores[inReplicated].Append(write(0, "ckpt"), answer) })
	all := false
	l := New(Config{
		Replicated: f.stores[inReplicated], Quorum: f.stores[inQuorum], Mode: Quorum, Single: true,
		May: func() bool { return all }, Now: func() time.Time { return f.net.Now().Add(f.later) }, After: f.net.Schedule,
	})
	seq := f.want(l, "a log of the last release", "ckpt")
	f.wantKinds("data none", "a read writes nothing")
	seq = f.must(l, seq, "adopt", "it is the last sequence")
	f.wantKinds("data gone", "the quorum store knows of it before the first write")
	seq = f.must(l, seq, "ckpt", "a checkpoint")
	f.wantKinds("data gone", "an edge of the last release may live")
	all = true
	f.must(l, seq, "ckpt", "a checkpoint")
	f.wantKinds("gone data", "all edges know both stores")

	b := func(expect uint64) sessionlog.Answer {
		w := write(expect, "ckpt")
		w.Log = "B"
		return f.wait(func(answer func(sessionlog.Answer)) { l.Append(w, answer) })
	}
	f.stores[inReplicated].SetSilent(true)
	if v := b(0).Verdict; v != fence.Unknown {
		t.Errorf("soon after the last edge of the last release: a log begins with %v without the replicated store, want unknown", v)
	}
	f.later += vacantAfter
	if v := b(0).Verdict; v != fence.OK {
		t.Errorf("later a log begins with %v, want ok", v)
	}
	all = false
	f.stores[inReplicated].SetSilent(false)
	f.must(l, f.want(l, "an edge of the last release is back", "ckpt"), "ckpt", "a checkpoint")
	f.wantKinds("data gone", "logs move back")
}

// TestOtherFormat checks that programs which do not know this package leave its records alone, and that
// this one leaves those of the next release alone.
func TestOtherFormat(t *testing.T) {
	for k := data; k < other; k++ {
		r := record{kind: k, generation: 1, write: write(0, "ckpt").Data}
		if _, err := sessionlog.ParseBlock(r.encode()); !errors.Is(err, sessionlog.ErrFormat) {
			t.Errorf("kind %d: %v, want another format", k, err)
		}
	}
	for s := range stores {
		f := newFixture(t)
		next := append([]byte{recordFormat, recordVersion + 1}, "of the next release"...)
		at := f.wait(func(answer func(sessionlog.Answer)) {
			f.stores[s].Append(sessionlog.Write{Log: "A", Data: next, Rollup: true}, answer)
		}).Seq
		for _, mode := range []Mode{Replicated, Quorum} {
			l := f.edge(mode)
			a := f.read(l)
			if a.Verdict != fence.OK || len(a.Entries) != 1 || !bytes.Equal(a.Entries[0].Data, next) {
				t.Errorf("store %d: a read is answered %v, %d entries: the session sees that it is of another format", s, a.Verdict, len(a.Entries))
			}
			for _, expect := range []uint64{0, at} {
				if v := f.append(l, expect, "ckpt").Verdict; v == fence.OK {
					t.Errorf("store %d, mode %d: a write over a record of the next release is stored", s, mode)
				}
			}
		}
	}
}

// TestTrace checks that the quorum store does not forget where a log is that stays in the replicated one.
func TestTrace(t *testing.T) {
	f := newFixture(t)
	l := f.edge(Replicated)
	seq := f.must(l, 0, "ckpt", "the log begins")
	before := f.counts()
	f.later += traceTime - 10*time.Second
	seq = f.must(l, seq, "ckpt", "early")
	f.wantCounts(before, [4]int{1, 0, 0, 0}, "the record is young")
	f.later += 10 * time.Second
	seq = f.must(l, seq, "ckpt", "late")
	f.wantCounts(before, [4]int{2, 0, 1, 0}, "the record is written again")
	f.must(l, seq, "ckpt", "later")
	f.wantCounts(before, [4]int{3, 0, 1, 0}, "the record is young")
	f.want(l, "nothing else changes", "ckpt")
}

// TestBounds checks what an edge keeps in memory.
func TestBounds(t *testing.T) {
	f := newFixture(t)
	l := f.edge(Quorum)
	var busy, ok int
	calling := true
	for range queueMax + 5 {
		l.Read("A", func(a sessionlog.Answer) {
			if calling {
				t.Error("a request is answered before the call returns")
			}
			switch a.Verdict {
			case fence.Busy:
				busy++
			case fence.OK:
				ok++
			}
		})
	}
	calling = false
	f.net.Run(5 * time.Second)
	if busy != 5 || ok != queueMax || l.Stats().Refused != 5 {
		t.Errorf("%d requests are busy and %d ok, want 5 and %d; %+v", busy, ok, queueMax, l.Stats())
	}
	if n := l.Stats().Logs; n != 1 {
		t.Errorf("the edge remembers %d logs, want 1", n)
	}
	f.later += unused
	l.Read("B", func(sessionlog.Answer) {})
	if n := l.Stats().Logs; n != 1 {
		t.Errorf("the edge remembers %d logs, want only the one that was used", n)
	}
}

// TestRecords checks the bytes of records, and that no part of one is taken for another.
func TestRecords(t *testing.T) {
	for _, c := range []struct {
		record
		hex string
	}{
		{record{kind: data, generation: 5, seq: 300, write: []byte("w")}, "1f 01 01 05 ac02 77"},
		{record{kind: moved, generation: 6, seq: 300, mark: 7, write: []byte("w")}, "1f 01 02 06 ac02 07 77"},
		{record{kind: gone, generation: 6, mark: 7, shift: 300, time: 9}, "1f 01 03 06 07 ac02 09"},
	} {
		want, _ := hex.DecodeString(strings.ReplaceAll(c.hex, " ", ""))
		if got := c.encode(); !bytes.Equal(got, want) {
			t.Errorf("%+v is % x, want %s", c.record, got, c.hex)
		}
		got, ok := decode(want)
		if got.write == nil {
			got.write = c.write
		}
		if fmt.Sprint(got) != fmt.Sprint(c.record) && len(got.write)+len(c.write) > 0 || !ok {
			t.Errorf("%s is %+v, want %+v", c.hex, got, c.record)
		}
		for n := 1; n < len(want)-len(c.write); n++ {
			if r, ok := decode(want[:n]); !ok || r.kind != other {
				t.Errorf("the first %d bytes of %s are %+v, %v", n, c.hex, r, ok)
			}
		}
	}
	for _, text := range []string{"", "01", "1e 01 01 05 01"} {
		p, _ := hex.DecodeString(strings.ReplaceAll(text, " ", ""))
		if _, ok := decode(p); ok {
			t.Errorf("%q is a record", text)
		}
	}
}

// TestPlaces checks what a store's writes say of a log, also of a store that has not deleted yet what a
// checkpoint replaced.
func TestPlaces(t *testing.T) {
	entry := func(seq uint64, r record) sessionlog.Entry { return sessionlog.Entry{Seq: seq, Data: r.encode()} }
	plain := func(seq uint64) sessionlog.Entry { return sessionlog.Entry{Seq: seq, Data: write(seq, "one").Data} }
	for _, c := range []struct {
		why     string
		s       store
		stored  []sessionlog.Entry
		kind    kind
		entries []uint64
	}{
		{"nothing", inReplicated, nil, none, nil},
		{"writes of sessions", inReplicated, []sessionlog.Entry{plain(1), plain(2)}, data, []uint64{11, 12}},
		{"it left", inReplicated, []sessionlog.Entry{plain(1), entry(2, record{kind: moved})}, moved, nil},
		{"it is back", inReplicated, []sessionlog.Entry{plain(1), entry(2, record{kind: gone}), plain(3), plain(4)}, data, []uint64{13, 14}},
		{"a header where there is none", inReplicated, []sessionlog.Entry{entry(1, record{kind: data})}, other, []uint64{11}},
		{"writes with headers", inQuorum, []sessionlog.Entry{entry(1, record{kind: data, seq: 7}), entry(2, record{kind: data, seq: 8})}, data, []uint64{17, 18}},
		{"it came", inQuorum, []sessionlog.Entry{entry(1, record{kind: gone}), entry(2, record{kind: data, seq: 8})}, data, []uint64{18}},
		{"no header where there must be one", inQuorum, []sessionlog.Entry{plain(1)}, other, []uint64{11}},
	} {
		p := placeOf(c.s, c.stored)
		var seqs []uint64
		for _, e := range p.entries(10) {
			seqs = append(seqs, e.Seq)
		}
		if p.kind != c.kind || !slices.Equal(seqs, c.entries) {
			t.Errorf("%s: kind %d and entries %v, want kind %d and %v", c.why, p.kind, seqs, c.kind, c.entries)
		}
		if n := len(c.stored); n > 0 && p.tail != c.stored[n-1].Seq {
			t.Errorf("%s: the last sequence in the store is %d, want %d", c.why, p.tail, c.stored[n-1].Seq)
		}
	}
}

// TestTogether has two edges of different modes write to the same logs from many goroutines, over
// stores that answer from others.
func TestTogether(t *testing.T) {
	var both [stores]*table
	for s := range both {
		both[s] = &table{logs: map[string][]sessionlog.Entry{}}
	}
	const writers, writes = 4, 50
	var running sync.WaitGroup
	for w := range writers {
		l := New(Config{Replicated: both[inReplicated], Quorum: both[inQuorum], Mode: Mode(w % 2)})
		for log := range 3 {
			running.Go(func() {
				name, stored := fmt.Sprint("LOG", log), 0
				for stored < writes {
					read := ask(func(answer func(sessionlog.Answer)) { l.Read(name, answer) })
					if read.Verdict != fence.OK {
						continue
					}
					last := uint64(0)
					if n := len(read.Entries); n > 0 {
						last = read.Entries[n-1].Seq
					}
					k := sessionlog.Block{Owner: uint64(w), Number: uint64(stored), Previous: last}
					a := ask(func(answer func(sessionlog.Answer)) {
						l.Append(sessionlog.Write{Log: name, Expect: last, Data: k.Append(nil), Rollup: stored%5 == 0}, answer)
					})
					if a.Verdict == fence.OK {
						stored++
						if a.Seq <= last {
							t.Errorf("%s: sequence %d behind %d", name, a.Seq, last)
						}
					}
				}
			})
		}
	}
	running.Wait()
}

func ask(f func(func(sessionlog.Answer))) sessionlog.Answer {
	answers := make(chan sessionlog.Answer, 1)
	f(func(a sessionlog.Answer) { answers <- a })
	return <-answers
}

// A table is a store that answers from goroutines.
type table struct {
	mu   sync.Mutex
	seq  uint64
	logs map[string][]sessionlog.Entry
}

func (b *table) Append(w sessionlog.Write, answer func(sessionlog.Answer)) {
	go func() {
		b.mu.Lock()
		list, last := b.logs[w.Log], uint64(0)
		if n := len(list); n > 0 {
			last = list[n-1].Seq
		}
		a := sessionlog.Answer{Verdict: fence.Stale}
		if last == w.Expect {
			if b.seq++; w.Rollup {
				list = nil
			}
			b.logs[w.Log] = append(slices.Clip(list), sessionlog.Entry{Seq: b.seq, Data: w.Data})
			a = sessionlog.Answer{Verdict: fence.OK, Seq: b.seq}
		}
		b.mu.Unlock()
		answer(a)
	}()
}

func (b *table) Read(log string, answer func(sessionlog.Answer)) {
	go func() {
		b.mu.Lock()
		a := sessionlog.Answer{Verdict: fence.OK, Entries: b.logs[log]}
		b.mu.Unlock()
		answer(a)
	}()
}
