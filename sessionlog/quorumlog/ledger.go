package quorumlog

import (
	"bytes"
	"math/rand/v2"
	"time"

	"github.com/dnprelay/dnprelay/internal/fence"
	"github.com/dnprelay/dnprelay/sessionlog"
)

const (
	copies = 3
	quorum = 2 // of the copies: any two such sets have one in common
)

// Times of one request to a log. A client waits for three seconds, and a session asks again
// after half a second without an answer.
const (
	patience  = 800 * time.Millisecond // for everything that a request needs
	thirdWait = 250 * time.Millisecond // for the third copy, where two do not agree
	racePause = 5 * time.Millisecond   // before copies are read again that a write may just reach
	busyPause = time.Millisecond       // before a copy is asked again that was busy
	lookPause = time.Second            // between two reads of a copy that left a lead
	duelPause = 20 * time.Millisecond  // at most, times the number of tries, before a lead is taken from an edge that just got it
)

// Bounds of one log.
const (
	opsMax       = 8         // requests that wait for each other; more are busy
	queueRecords = 16        // that wait for a slow copy; more leave it behind
	queueBytes   = 128 << 10 // of them
	stateBytes   = 512 << 10 // of one part of a state that has several
	triesMax     = 4         // attempts to lead within one request
	retriesMax   = 20        // requests to a copy for one record, while it is busy, or copies for one lead
)

// An env is what ledgers share. Its functions do not block and do not call back before they
// return.
type env struct {
	now        func() time.Time
	after      func(d time.Duration, f func())
	rand       *rand.Rand
	stateBytes int // of one part of a state that has several
	counts     Stats
	endings    int // logs that ended and that the copies may not forget yet

	expire func(l *ledger, o *op) // gives up after patience

	append func(copy int, w sessionlog.Write, answer func(sessionlog.Answer))
	read   func(copy int, log string, answer func(sessionlog.Answer))
	away   func(copy int) bool // whether the copy answers nothing for now
}

// A ledger is one log at one edge: requests of its sessions, one after another, and the lead
// if this edge has it.
type ledger struct {
	*env
	name  string
	queue []*op // the first is under way
	lead  *lead // nil if this edge has to take it first

	ending   *storing  // of the end of the log, until the copies may forget it; nil if it lives
	endUntil time.Time // when this edge gives that up
}

// An op is a request to the log.
type op struct {
	write   *sessionlog.Write // nil for a read
	answer  func(sessionlog.Answer)
	entry   entry   // the write; a copy may have it as soon as it has a sequence
	entries []entry // what is written: the entry and what precedes it, or what is written back
	rewrite bool    // a read of this package's own: what the log has is written back
	tries   int     // attempts to lead
	led     bool    // this edge had the lead
	reads   int     // of a read that was not settled
	over    bool

	known [copies]*content // what the copies have, if they were just read
}

// follows reports whether a request may be carried out over a history. The entry of a write may be
// there already, from an attempt before.
func (o *op) follows(h *content) bool {
	switch {
	case o.rewrite:
		return h.ended()
	case o.write == nil:
		return true
	}
	return o.write.Expect == h.end() || o.in(h)
}

// in reports whether the entry of a write is the last one of a history.
func (o *op) in(h *content) bool {
	return o.entry.seq != 0 && o.entry.seq == h.end() && bytes.Equal(o.entry.data, h.entries[len(h.entries)-1].data)
}

func (l *ledger) request(o *op) {
	if len(l.queue) >= opsMax {
		l.counts.Refused++
		o.answer(sessionlog.Answer{Verdict: fence.Busy})
		return
	}
	l.queue = append(l.queue, o)
	if len(l.queue) == 1 {
		l.begin(o)
	}
}

// idle reports whether nothing is under way.
func (l *ledger) idle() bool { return len(l.queue) == 0 && l.ending == nil }

func (l *ledger) begin(o *op) {
	l.expire(l, o)
	ld := l.lead
	switch {
	case o.rewrite:
		l.takeLead(o)
	case o.write == nil:
		l.beginRead(o)
	case ld == nil || l.ending != nil || o.write.Expect != ld.end || o.write.Final && !o.write.Rollup:
		l.takeLead(o)
	case o.write.Rollup && l.regains(o, ld): // a checkpoint is cheapest for that
		l.takeLead(o)
	default:
		l.lookOut(ld)
		o.entry = entry{l.sequence(ld), o.write.Final, o.write.Data}
		o.entries = []entry{o.entry}
		if o.write.Rollup {
			l.store(o, ld, l.states(ld.ballot, o.entries))
			return
		}
		r := record{kind: kindNext, ballot: ld.ballot, previous: ld.end, entries: o.entries}
		l.store(o, ld, []item{{data: r.append(nil)}})
	}
}

// lookOut reads copies that left the lead, so that a checkpoint can bring them back. A lead that
// goes well must not depend on the answers: a server refuses reads while JetStream has no leader.
func (l *ledger) lookOut(ld *lead) {
	now := l.now()
	if now.Sub(ld.looked) < lookPause {
		return
	}
	for i := range ld.followers {
		if f := &ld.followers[i]; f.place == out && f.found == nil && !l.away(i) {
			ld.looked = now
			f.look()
		}
	}
}

// regains reports whether another lead may bring a copy back that left. That lead needs no read of the
// other copies: what they have is known, because this edge wrote it.
func (l *ledger) regains(o *op, ld *lead) bool {
	var known [copies]*content
	found := false
	for i := range ld.followers {
		switch f := &ld.followers[i]; {
		case f.place == member && len(f.queue) == 0:
			known[i] = &content{tail: f.tail, top: ld.ballot, data: ld.ballot, entries: []entry{{seq: ld.end}}}
		case f.place == out && (f.found != nil || f.forgot) && !l.away(i):
			known[i], found = f.found, true
		}
	}
	if found {
		o.known, o.tries = known, 1 // no pause for another edge: it had time since the copy was read
	}
	return found
}

// sequence returns the sequence of the next entry. That of the first entry of a lead is random:
// two edges that lead one after another may write different entries behind the same one, and no
// expected sequence may fit by chance.
func (l *ledger) sequence(ld *lead) uint64 {
	switch {
	case ld.own:
		return ld.end + 1
	case ld.end == 0:
		return uint64(l.now().UnixMilli()) + l.rand.Uint64N(1<<40)
	}
	return ld.end + 1 + l.rand.Uint64N(1<<40)
}

// end answers a request, and begins the next one. What it began at copies may still be carried
// out; so a write without a clear answer ends the lead.
func (l *ledger) end(o *op, a sessionlog.Answer) {
	if o.over {
		return
	}
	o.over = true
	if a.Verdict != fence.OK && o.write != nil {
		l.lead = nil
	}
	l.queue = l.queue[1:]
	o.answer(a)
	if len(l.queue) > 0 {
		l.begin(l.queue[0])
	}
}

// giveUp answers a request that cannot be carried out for now.
func (l *ledger) giveUp(o *op) {
	v := fence.Unreachable
	if o.entry.seq != 0 {
		v = fence.Unknown
	}
	l.end(o, sessionlog.Answer{Verdict: v})
}

// states returns a state in as many parts as are needed.
func (l *ledger) states(b ballot, entries []entry) []item {
	var parts [][]entry
	size := 0
	for i := range entries {
		if size += len(entries[i].data); parts == nil || size > l.stateBytes {
			parts, size = append(parts, nil), len(entries[i].data)
		}
		parts[len(parts)-1] = append(parts[len(parts)-1], entries[i])
	}
	var list []item
	for i, part := range parts {
		r := record{kind: kindState, ballot: b, part: uint64(i), parts: uint64(len(parts)), entries: part}
		list = append(list, item{data: r.append(nil), state: i == 0, rollup: len(parts) == 1})
	}
	return list
}
