package quorumlog

import (
	"github.com/dnprelay/dnprelay/internal/fence"
	"github.com/dnprelay/dnprelay/sessionlog"
)

// readsMax is how often a log is read that is not settled, before what was read is written
// back: most of the time, a write just reaches the copies.
const readsMax = 2

// A look is one reading of all copies.
type look struct {
	l        *ledger
	o        *op
	over     bool
	late     bool // the third copy takes too long
	known    [copies]*content
	answered int
}

func (l *ledger) beginRead(o *op) {
	if o.over {
		return
	}
	o.reads++
	k := &look{l: l, o: o}
	for i := range copies {
		l.read(i, l.name, func(a sessionlog.Answer) { k.answer(i, a) })
	}
	l.after(thirdWait, func() {
		k.late = true
		k.decide()
	})
}

func (k *look) answer(i int, a sessionlog.Answer) {
	k.answered++
	if c, ok := read(a.Entries); a.Verdict == fence.OK && ok && !c.torn {
		k.known[i] = &c
	}
	k.decide()
}

// decide answers a read if what was read is settled, and otherwise reads again, or writes it
// back.
func (k *look) decide() {
	if k.over || k.o.over {
		return
	}
	n, waiting := count(k.known, nil), k.answered < copies && !k.late
	for i, c := range k.known {
		if c == nil && waiting && k.l.away(i) {
			waiting = false
		}
	}
	best := history(k.known[:])
	switch {
	case n >= quorum && settled(k.known[:], best) && (len(best.entries) > 0 || !waiting):
		k.over = true
		k.l.end(k.o, sessionlog.Answer{Verdict: fence.OK, Entries: stored(best.entries)})
	case n < quorum && k.answered < copies, n >= quorum && waiting:
	case n < quorum && k.o.reads > readsMax:
		k.over = true
		k.l.giveUp(k.o)
	case k.o.reads <= readsMax:
		k.over = true
		k.l.after(racePause, func() { k.l.beginRead(k.o) })
	default:
		k.over = true
		k.l.counts.WriteBacks++
		k.o.known = k.known
		k.l.takeLead(k.o)
	}
}

func stored(entries []entry) (list []sessionlog.Entry) {
	for _, e := range entries {
		list = append(list, sessionlog.Entry{Seq: e.seq, Data: e.data})
	}
	return list
}
