package quorumlog

import (
	"slices"
	"time"

	"github.com/dnprelay/dnprelay/internal/fence"
	"github.com/dnprelay/dnprelay/sessionlog"
)

// An attempt to lead a log has a ballot of its own.
type attempt struct {
	l    *ledger
	o    *op
	over bool // given up
	ld   *lead

	ballot ballot           // zero until two copies are known
	known  [copies]*content // what a copy had before the record that leads it
	asked  [copies]bool
	tails  [copies]uint64 // of the records that lead the copies; 0 for none
	gone   [copies]bool   // copies that do not take part
	tries  int
}

// takeLead leads the log, and carries out the request then.
func (l *ledger) takeLead(o *op) {
	if o.over {
		return
	}
	o.led = o.led || l.lead != nil
	l.lead = nil
	if o.tries++; o.tries > triesMax {
		l.giveUp(o)
		return
	}
	a := &attempt{l: l, o: o, known: o.known}
	if o.write != nil && o.write.Expect == 0 && o.tries == 1 { // most likely a new session
		a.known = [copies]*content{{}, {}, {}}
	}
	o.known = [copies]*content{}
	for i, c := range a.known {
		if c == nil {
			a.look(i)
		}
	}
	a.ask()
}

// dead reports whether answers to an attempt do not matter any more.
func (a *attempt) dead() bool {
	return a.over || a.ld == nil && a.o.over || a.ld != nil && a.l.lead != a.ld
}

// again begins another attempt after a pause in which another edge may come to an end.
func (a *attempt) again() {
	a.over = true
	a.l.after(time.Millisecond+time.Duration(a.l.rand.Int64N(int64(duelPause)*int64(a.o.tries))), func() { a.l.takeLead(a.o) })
}

// look reads a copy.
func (a *attempt) look(i int) {
	a.l.read(i, a.l.name, func(r sessionlog.Answer) {
		if a.dead() {
			return
		}
		c, ok := read(r.Entries)
		switch {
		case r.Verdict != fence.OK || !ok:
			a.lose(i)
		case a.asked[i] && c.has(a.record(i)):
			a.join(i, c.tail)
		case a.ballot != ballot{} && c.top.compare(a.ballot) >= 0 && a.ld != nil:
			a.lose(i)
		case a.ballot != ballot{} && c.top.compare(a.ballot) >= 0:
			a.again()
		case c.torn && a.ld != nil: // two others follow, so nothing that it has counts
			a.known[i], a.asked[i] = &content{tail: c.tail, top: c.top}, false
			a.ask()
		case c.torn:
			a.retry(i, racePause)
		default:
			a.known[i], a.asked[i] = &c, false
			a.ask()
		}
	})
}

// retry reads a copy again after a pause.
func (a *attempt) retry(i int, pause time.Duration) {
	if a.tries++; a.tries > retriesMax {
		a.lose(i)
		return
	}
	a.l.after(pause, func() {
		if !a.dead() {
			a.look(i)
		}
	})
}

// lose says that a copy does not take part.
func (a *attempt) lose(i int) {
	if a.ld != nil {
		a.ld.followers[i].leave(fence.Unreachable)
		return
	}
	a.gone[i] = true
	if count(a.gone, false) > copies-quorum {
		a.over = true
		a.l.giveUp(a.o)
	}
}

// ask writes to the copies that are known that this edge leads them.
func (a *attempt) ask() {
	if (a.ballot == ballot{}) && !a.choose() {
		return
	}
	for i, c := range a.known {
		if c != nil && !a.asked[i] && a.tails[i] == 0 {
			a.asked[i] = true
			w := sessionlog.Write{Log: a.l.name, Expect: c.tail, Data: a.record(i), Rollup: c.ended()}
			a.l.append(i, w, func(r sessionlog.Answer) { a.answered(i, r) })
		}
	}
}

// choose chooses the ballot, as soon as two copies are known: above all that were seen, and above
// all from before the copies forgot a log that ended.
func (a *attempt) choose() bool {
	var top ballot
	for _, c := range a.known {
		if c != nil && c.top.compare(top) > 0 {
			top = c.top
		}
	}
	h := history(a.known[:])
	switch {
	case count(a.known, nil) < quorum:
	case !a.o.follows(h): // without a record that would disturb the edge that leads
		a.refuse()
	case top.compare(h.data) > 0 && a.o.tries == 1: // another edge may be about to write
		a.again()
	default:
		a.ballot = ballot{max(top.counter+1, uint64(a.l.now().UnixMilli())), a.l.rand.Uint64()}
		return true
	}
	return false
}

// refuse answers a request that does not follow what the log has.
func (a *attempt) refuse() {
	if a.over = true; a.o.led {
		a.l.counts.Superseded++
	}
	a.l.end(a.o, sessionlog.Answer{Verdict: fence.Stale})
}

// record returns the record that leads a copy.
func (a *attempt) record(i int) []byte {
	c := a.known[i]
	r := record{kind: kindLead, first: c.tail == 0, ballot: a.ballot}
	if c.ended() {
		r.data, r.entries = c.data, c.entries
	}
	return r.append(nil)
}

func (a *attempt) answered(i int, r sessionlog.Answer) {
	if a.dead() {
		return
	}
	switch r.Verdict {
	case fence.OK:
		a.join(i, r.Seq)
	case fence.Stale, fence.Unknown, fence.Busy:
		a.retry(i, busyPause)
	default:
		a.lose(i)
	}
}

// join says that a copy follows. With two of them, the request is carried out over what they had.
func (a *attempt) join(i int, tail uint64) {
	a.tails[i] = tail
	switch {
	case a.ld != nil:
		a.ld.followers[i].join(tail)
	case count(a.tails, 0) == quorum:
		a.begin()
	}
}

func (a *attempt) begin() {
	l, o := a.l, a.o
	ld := &lead{ballot: a.ballot}
	a.ld = ld
	for i := range copies {
		f := &ld.followers[i]
		*f = follower{l: l, ld: ld, copy: i}
		if a.gone[i] {
			f.place = out
		}
		if a.tails[i] != 0 {
			f.join(a.tails[i])
		}
	}
	l.counts.Leads++
	h := history(a.known[:]) // what only a copy has that does not follow is as good as what the others have
	if !o.follows(h) {
		a.refuse()
		return
	}
	ld.end = h.end()
	o.entries = slices.Clone(h.entries)
	if o.write != nil && !o.in(h) {
		if o.entry.seq == 0 {
			o.entry = entry{l.sequence(ld), o.write.Final, o.write.Data}
		}
		if o.write.Rollup {
			o.entries = nil
		}
		o.entries = append(o.entries, o.entry)
	}
	if len(o.entries) == 0 { // of a read: the log is empty, and an edge that wants to write has to lead it
		a.over = true
		l.end(o, sessionlog.Answer{Verdict: fence.OK})
		return
	}
	l.lead = ld
	l.store(o, ld, l.states(ld.ballot, o.entries))
}

// count returns how many of the copies have another value than none.
func count[T comparable](list [copies]T, none T) (n int) {
	for _, x := range list {
		n += int(flag(x != none))
	}
	return n
}
