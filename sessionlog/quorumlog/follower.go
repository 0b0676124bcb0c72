package quorumlog

import (
	"slices"
	"time"

	"github.com/dnprelay/dnprelay/internal/fence"
	"github.com/dnprelay/dnprelay/sessionlog"
)

// A lead is the right of this edge to append to a log: two copies at least refuse what others
// write.
type lead struct {
	ballot    ballot
	end       uint64    // sequence of the last entry that is stored
	own       bool      // that entry is this lead's
	looked    time.Time // at copies that left
	followers [copies]follower
}

// An item is a record on its way to one copy.
type item struct {
	data   []byte
	state  bool // the first part of a state, which replaces what waits
	rollup bool
	final  bool                  // the copy may forget the log
	done   func(v fence.Verdict) // of the last record of a request; called once
}

// A place is how a copy stands to a lead.
type place uint8

const (
	joining place = iota // it is asked to follow
	member               // it follows: what it stores counts
	out                  // it did not take something. Only another lead brings it back, because it may have forgotten whom it follows
)

// A follower is one copy of a log that this edge leads. Records go there one after another.
type follower struct {
	l      *ledger
	ld     *lead
	copy   int
	place  place
	tail   uint64 // sequence of the last record in this copy
	queue  []item // the first is under way if busy
	busy   bool
	tries  int      // for the first record
	found  *content // what the copy has after it left; nil if that is not known
	forgot bool     // it is known to have lost records, and answers again; a lead that brings it back reads it
}

func (f *follower) current() bool { return f.l.lead == f.ld && f.place != out }

// join says that a copy follows; tail is the record that says so.
func (f *follower) join(tail uint64) {
	if f.place == joining {
		f.place, f.tail = member, tail
		f.pump()
	}
}

// leave says that a copy does not follow any more.
func (f *follower) leave(v fence.Verdict) {
	if f.place == out {
		return
	}
	queue := f.queue
	f.place, f.queue = out, nil
	for i := range queue {
		if done := queue[i].done; done != nil {
			done(v)
		}
	}
}

// forget says that the copy lost records. The next checkpoint brings it back.
func (f *follower) forget() {
	f.leave(fence.Unreachable)
	f.found, f.forgot = nil, true
}

// look reads the copy after it left.
func (f *follower) look() {
	f.l.read(f.copy, f.l.name, func(a sessionlog.Answer) {
		switch c, ok := read(a.Entries); {
		case a.Verdict != fence.OK || !ok || f.l.lead != f.ld:
		case c.torn:
			f.forgot = true
		default:
			f.found = &c
		}
	})
}

// push writes records to the copy, one after another. A state replaces everything that waits.
func (f *follower) push(list []item) {
	if list[0].state {
		f.queue = slices.Clip(f.queue[:min(len(f.queue), int(flag(f.busy)))])
	} else if f.full(list) {
		f.leave(fence.Unreachable)
	}
	if f.place == out {
		list[len(list)-1].done(fence.Unreachable)
		return
	}
	f.queue = append(f.queue, list...)
	f.pump()
}

// full reports whether there is no room for another entry. The record that is under way, and a
// state that waits, do not count.
func (f *follower) full(list []item) bool {
	size := len(list[0].data)
	for i := range f.queue {
		if i > 0 && !f.queue[i].state {
			size += len(f.queue[i].data)
		}
	}
	return len(f.queue) >= queueRecords || size > queueBytes
}

// pump sends the first record.
func (f *follower) pump() {
	if f.busy || f.place != member || len(f.queue) == 0 || !f.current() {
		return
	}
	f.busy = true
	it := &f.queue[0]
	f.l.append(f.copy, sessionlog.Write{Log: f.l.name, Expect: f.tail, Data: it.data, Rollup: it.rollup, Final: it.final}, f.written)
}

func (f *follower) written(a sessionlog.Answer) {
	switch {
	case !f.current():
	case a.Verdict == fence.OK:
		it := f.queue[0]
		f.queue, f.busy, f.tries, f.tail = f.queue[1:], false, 0, a.Seq
		if it.done != nil {
			it.done(fence.OK)
		}
		f.pump()
	case a.Verdict == fence.Busy && f.tries < retriesMax:
		f.tries++
		f.l.after(busyPause, func() {
			f.busy = false
			f.pump()
		})
	default:
		f.leave(a.Verdict)
	}
}
