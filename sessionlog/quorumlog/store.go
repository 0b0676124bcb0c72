package quorumlog

import (
	"slices"
	"time"

	"github.com/dnprelay/dnprelay/internal/fence"
	"github.com/dnprelay/dnprelay/sessionlog"
)

// The copies may forget a log that ended when all of them have its end.
const (
	endRetry   = 5 * time.Second // between two attempts to write the end to a copy that lacks it
	endWait    = time.Minute     // for copies that lack it
	endingsMax = 1024            // logs of a shard that wait for that
)

// A storing is the records of one request on their way to all copies.
type storing struct {
	l      *ledger
	o      *op
	ld     *lead
	list   []item
	has    [copies]bool
	failed int  // copies that did not take it
	large  bool // one of them because of its size
	forget bool // the records say that the copies may forget the log
}

// store writes records to all copies, and answers when two have them.
func (l *ledger) store(o *op, ld *lead, list []item) {
	s := &storing{l: l, o: o, ld: ld, list: list}
	s.push()
}

func (s *storing) push() {
	for i := range copies {
		list := slices.Clone(s.list)
		list[len(list)-1].done = func(v fence.Verdict) { s.done(i, v) }
		if s.l.lead == s.ld {
			s.ld.followers[i].push(list)
		}
	}
}

// done takes the verdict of a copy. A lead with fewer than two copies ends: a new one brings
// copies back that missed something.
func (s *storing) done(i int, v fence.Verdict) {
	switch {
	case s.l.lead != s.ld:
	case v == fence.OK:
		s.has[i] = true
		s.stored()
	case s.o.over:
	default:
		s.large = s.large || v == fence.TooLarge
		if s.failed++; s.failed <= copies-quorum {
			return
		}
		if s.large {
			s.l.end(s.o, sessionlog.Answer{Verdict: fence.TooLarge})
			return
		}
		s.l.takeLead(s.o)
	}
}

func (s *storing) stored() {
	switch n := count(s.has, false); {
	case n == quorum && !s.o.over:
		s.answer()
	case n < copies || s.l.ending != s:
	case !s.forget: // all have the end, so no copy can bring the log back to life
		f := &storing{l: s.l, o: s.o, ld: s.ld, list: slices.Clone(s.list), forget: true}
		for i := range f.list {
			f.list[i].final = true
		}
		s.l.ending = f
		f.push()
	default:
		s.l.endDone()
		s.l.lead = nil
	}
}

// answer answers the request that two copies have.
func (s *storing) answer() {
	a := sessionlog.Answer{Verdict: fence.OK, Seq: s.o.entry.seq}
	if s.o.write == nil {
		a.Entries = stored(s.o.entries)
	} else {
		s.ld.end, s.ld.own = s.o.entry.seq, true
	}
	if (&content{entries: s.o.entries}).ended() {
		s.l.endBegun(s)
	} else {
		s.l.endDone()
	}
	s.l.end(s.o, a)
}

// endBegun notes that two copies have the end of a log.
func (l *ledger) endBegun(s *storing) {
	if l.ending != nil { // it was written again
		l.ending = s
		return
	}
	if l.endings >= endingsMax {
		l.counts.EndsKept++
		return
	}
	l.endings++
	l.ending, l.endUntil = s, l.now().Add(endWait)
	l.after(endRetry, l.insist)
}

// insist takes the lead again for a log that ended, if a copy does not follow that lacks the end.
func (l *ledger) insist() {
	switch {
	case l.ending == nil:
	case l.now().After(l.endUntil):
		l.counts.EndsKept++
		l.endDone()
	default:
		if len(l.queue) == 0 {
			l.request(&op{rewrite: true, answer: func(a sessionlog.Answer) {
				if a.Verdict == fence.Stale { // the copies forgot it, or another edge began it anew
					l.endDone()
				}
			}})
		}
		l.after(endRetry, l.insist)
	}
}

// endDone says that the copies forget the log, or keep it, or that it lives again.
func (l *ledger) endDone() {
	if l.ending != nil {
		l.endings--
		l.ending = nil
	}
}
