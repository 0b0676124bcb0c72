package sessionlog_test

import (
	"bytes"
	"encoding/binary"
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/internal/fence"
	"github.com/dnprelay/dnprelay/internal/simnet"
	"github.com/dnprelay/dnprelay/sessionlog"
	"github.com/dnprelay/dnprelay/sessionlog/memlog"
	"github.com/dnprelay/dnprelay/sessionlog/quorumlog"
)

// quorumPlans are the faults that sessions over three copies meet, besides copies that fall silent, one
// at a time. None of them is an excuse for a client that is interrupted.
var quorumPlans = []plan{
	{name: "copies", loss: 0.02},
	{name: "copies and kill", kills: true, loss: 0.02},
	{name: "copies and pause", pauses: true, loss: 0.02},
	{name: "copies and hand over", hands: true, loss: 0.02},
	{name: "copies, all", kills: true, pauses: true, hands: true, lies: 0.05, lost: 0.01, late: 0.01, busy: 0.02, loss: 0.02},
}

// TestQuorum simulates sessions over three copies of the log. The rules of sessions are the same.
func TestQuorum(t *testing.T) {
	var sum tally
	emptied := 0
	for s := *first; s < *first+uint64(*seeds)/4; s++ {
		w := newQuorumWorld(s, quorumPlans[s%uint64(len(quorumPlans))])
		for _, e := range w.run() {
			t.Errorf("seed %d (%s): %s", s, w.name, e)
		}
		emptied += w.emptied
		if sum.add(w); t.Failed() {
			t.Fatalf("repeat with: -run TestQuorum -first %d -seeds 4", s)
		}
	}
	t.Logf("%d seeds: %d kills of owners, %d pauses, %d hand-overs, %d adoptions, %d copies that forgot everything; %d messages in, %d out; service gap after a kill: %s",
		sum.seeds, sum.kills, sum.pauses, sum.hands, sum.adoptions, emptied, sum.in, sum.out, quantiles(sum.gaps))
}

func newQuorumWorld(seed uint64, p plan) *world {
	w := newWorldOf(seed, p)
	for c := range w.empty {
		w.copies = append(w.copies, memlog.New(memlog.Config{Schedule: w.net.Schedule, Rand: w.net.Rand(), Lost: p.lost, Late: p.late, Busy: p.busy}))
		w.empty[c] = w.copies[c].Snapshot()
	}
	for _, e := range w.edges {
		e.log = e.quorum()
	}
	return w
}

// breakCopy makes one copy fall silent, unless another one is. It may forget everything meanwhile, if the others lack
// nothing.
func (w *world) breakCopy() {
	if w.net.Elapsed() < w.brokenTill {
		return
	}
	forgets := w.net.Rand().IntN(2) == 0
	d := time.Duration(1000+w.net.Rand().IntN(8000)) * time.Millisecond
	w.brokenTill = w.net.Elapsed() + d + 3*time.Second // for what it missed
	c := w.net.Rand().IntN(3)
	w.tell("copy %d falls silent", c)
	w.copies[c].SetSilent(true)
	w.net.Schedule(d, func() {
		if forgets && w.whole(c) {
			w.forget(c)
		}
		w.copies[c].SetSilent(false)
		w.tell("copy %d answers", c)
	})
}

// whole reports whether all copies but one end with the same record of each log.
func (w *world) whole(but int) bool {
	all := slices.Delete(slices.Clone(w.copies), but, but+1)
	for log := range w.chk.facts {
		a, b := all[0].Entries(log), all[1].Entries(log)
		if len(a) == 0 || len(b) == 0 || !bytes.Equal(a[len(a)-1].Data, b[len(b)-1].Data) {
			return false
		}
	}
	return true
}

// forget has a copy forget everything. The edges notice soon, one after another, unless they are stopped.
func (w *world) forget(c int) {
	w.tell("copy %d forgets everything", c)
	w.empty[c]()
	w.emptied++
	for _, e := range w.edges {
		e.after(time.Duration(w.net.Rand().IntN(500))*time.Millisecond, func() { e.forgot(c) })
	}
}

// forgot is what an edge does when it notices that a copy has forgotten everything.
func (e *simEdge) forgot(c int) {
	e.log.(observed).Log.(*quorumlog.Log).Forgot(c+1, all)
	for _, addr := range slices.SortedFunc(maps.Keys(e.sessions), netip.AddrPort.Compare) {
		e.sessions[addr].Refresh(e.w.net.Now().Add(time.Duration(e.rand.IntN(500)) * time.Millisecond))
	}
}

func all(string) bool { return true }

// TestServersForgetInTurn has the servers of all copies lose everything one after another, under a session that writes
// nothing, as in an update of servers without disks. Another edge finds the session then.
func TestServersForgetInTurn(t *testing.T) {
	d := &desk{T: t, net: simnet.New(1)}
	cfg := quorumlog.Config{Now: d.net.Now, After: d.net.Schedule, Seed: new([32]byte)}
	var empty []func()
	for c := range cfg.Copies {
		s := memlog.New(memlog.Config{Schedule: d.net.Schedule, Rand: d.net.Rand()})
		cfg.Copies[c], empty = s, append(empty, s.Snapshot())
	}
	log := quorumlog.New(cfg)
	d.log = log
	d.open()
	for c := range empty {
		d.run(5 * time.Minute) // the edge forgets that it leads the log
		empty[c]()
		log.Forgot(c+1, all)
		d.s.Refresh(d.net.Now().Add(2 * time.Second))
		d.run(3 * time.Second)
	}
	d.want("the session goes on", "opened")
	cfg.Seed[0] = 1 // another edge
	d.log = quorumlog.New(cfg)
	d.s = sessionlog.Adopt(d.config("b"), "log")
	d.run(time.Second)
	d.want("each copy had the log when the next one forgot it", "found")
}

// TestRefresh checks when a session writes a checkpoint although there is nothing to write.
func TestRefresh(t *testing.T) {
	d := newDesk(t)
	last := func() uint64 { return d.store.Entries("log")[0].Seq }
	first := last()
	d.run(time.Second) // not so long that a checkpoint is due because of its age
	d.s.Refresh(d.net.Now().Add(2 * time.Second))
	d.s.Refresh(d.net.Now().Add(4 * time.Second))
	if d.run(1900 * time.Millisecond); last() != first {
		t.Fatal("a session writes before it is due")
	}
	if d.run(200 * time.Millisecond); len(d.store.Entries("log")) != 1 || last() == first {
		t.Fatal("no checkpoint replaces what was written, though the log is to be written again")
	}
	second := last()
	if d.run(time.Minute); last() != second {
		t.Fatal("a session writes twice")
	}
}

func (w *world) healCopies() {
	for _, s := range w.copies {
		s.SetSilent(false)
		s.Lost, s.Late, s.Busy = 0, 0, 0
	}
}

// quorum returns the log of a process of an edge over three copies.
func (e *simEdge) quorum() sessionlog.Log {
	start := e.start
	cfg := quorumlog.Config{
		Now:   e.w.net.Now,
		After: func(d time.Duration, f func()) { e.w.net.Schedule(d, func() { e.runAs(start, f) }) },
		Seed:  new([32]byte),
	}
	binary.LittleEndian.PutUint64(cfg.Seed[:], e.rand.Uint64())
	for c, s := range e.w.copies {
		cfg.Copies[c] = ofProcess{s, func(f func()) { e.runAs(start, f) }}
	}
	return observed{quorumlog.New(cfg), e.w}
}

// ofProcess is a log that answers to a process, which may be stopped.
type ofProcess struct {
	sessionlog.Log
	run func(f func())
}

func (l ofProcess) Append(w sessionlog.Write, answer func(sessionlog.Answer)) {
	l.Log.Append(w, func(a sessionlog.Answer) { l.run(func() { answer(a) }) })
}

func (l ofProcess) Read(log string, answer func(sessionlog.Answer)) {
	l.Log.Read(log, func(a sessionlog.Answer) { l.run(func() { answer(a) }) })
}

// An observed log shows the checker each write when an edge learns first that it is stored.
type observed struct {
	sessionlog.Log
	w *world
}

func (l observed) Append(w sessionlog.Write, answer func(sessionlog.Answer)) {
	l.Log.Append(w, func(a sessionlog.Answer) {
		if a.Verdict == fence.OK {
			l.w.chk.seen(w.Log, sessionlog.Entry{Seq: a.Seq, Data: w.Data})
		}
		answer(a)
	})
}

func (l observed) Read(log string, answer func(sessionlog.Answer)) {
	l.Log.Read(log, func(a sessionlog.Answer) {
		for _, e := range a.Entries {
			l.w.chk.seen(log, e)
		}
		answer(a)
	})
}

// seen judges an entry that no edge knew before.
func (c *checker) seen(log string, e sessionlog.Entry) {
	if f := c.of(log); e.Seq > f.seq {
		c.applied(log, e)
		c.of(log).seq = e.Seq
	}
}
