package sessionlog_test

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/internal/fence"
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
	for s := *first; s < *first+uint64(*seeds)/4; s++ {
		w := newQuorumWorld(s, quorumPlans[s%uint64(len(quorumPlans))])
		for _, e := range w.run() {
			t.Errorf("seed %d (%s): %s", s, w.name, e)
		}
		if sum.add(w); t.Failed() {
			t.Fatalf("repeat with: -run TestQuorum -first %d -seeds 4", s)
		}
	}
	t.Logf("%d seeds: %d kills of owners, %d pauses, %d hand-overs, %d adoptions; %d messages in, %d out; service gap after a kill: %s",
		sum.seeds, sum.kills, sum.pauses, sum.hands, sum.adoptions, sum.in, sum.out, quantiles(sum.gaps))
}

func newQuorumWorld(seed uint64, p plan) *world {
	w := newWorldOf(seed, p)
	for range 3 {
		w.copies = append(w.copies, memlog.New(memlog.Config{Schedule: w.net.Schedule, Rand: w.net.Rand(), Lost: p.lost, Late: p.late, Busy: p.busy}))
	}
	for _, e := range w.edges {
		e.log = e.quorum()
	}
	return w
}

// breakCopy makes one copy fall silent, unless another one is.
func (w *world) breakCopy() {
	if w.net.Elapsed() < w.brokenTill {
		return
	}
	d := time.Duration(1000+w.net.Rand().IntN(8000)) * time.Millisecond
	w.brokenTill = w.net.Elapsed() + d + 3*time.Second // for what it missed
	c := w.net.Rand().IntN(3)
	w.tell("copy %d falls silent", c)
	w.copies[c].SetSilent(true)
	w.net.Schedule(d, func() { w.copies[c].SetSilent(false); w.tell("copy %d answers", c) })
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
