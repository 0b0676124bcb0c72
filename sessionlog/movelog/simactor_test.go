package movelog

import (
	"strings"
	"time"

	"github.com/dnprelay/dnprelay/internal/fence"
	"github.com/dnprelay/dnprelay/sessionlog"
)

// A truth is what the test knows of one log: a tree of entries, of which the believed ones must
// be one chain.
type truth struct {
	name    string
	entries []node         // by id
	seqs    map[uint64]int // ids by sequence
	head    int            // the newest entry of which somebody was told that it is stored
	healed  int            // what it was when the faults ended
	quiet   time.Duration  // until when it stays ended, so that stores forget it
}

// A node is an entry. Its parent is the one that its writer knew as the last; unborn means that
// it was written to a log that its writer did not look at.
type node struct {
	parent        int
	rollup, final bool
	anew          bool   // it was written to an empty log
	seq           uint64 // 0 as long as it is not known
}

const unborn = -1

func newTruth(name string) *truth {
	return &truth{name: name, entries: []node{{final: true}}, seqs: map[uint64]int{}}
}

// descends reports whether an entry is another one, or comes after it.
func (t *truth) descends(id, from int) bool {
	for id > from {
		id = t.entries[id].parent
	}
	return id == from
}

// believe notes that somebody was told that the log goes up to id. since is what was believed
// when it asked.
func (w *world) believe(t *truth, id, since int, what string, outdated bool) {
	for up := id; up > 0; up = t.entries[up].parent {
		n := &t.entries[up]
		if n.parent != unborn {
			continue
		}
		if n.parent = t.head; !t.entries[t.head].final {
			w.fail("%s: %d begins over %d, which lives", t.name, up, t.head)
		}
		break
	}
	switch {
	case outdated && t.descends(t.head, id):
	case !t.descends(id, since):
		w.fail("%s: %s of %d, but %d was stored before", t.name, what, id, since)
	case t.descends(id, t.head):
		t.head = id
	case !t.descends(t.head, id):
		w.fail("%s: %s of %d, but %d is stored", t.name, what, id, t.head)
	}
}

// note checks that an entry has one sequence, and that no other entry has it.
func (w *world) note(t *truth, id int, seq uint64) {
	n := &t.entries[id]
	if old, ok := t.seqs[seq]; ok && old != id {
		w.fail("%s: sequence %d is that of %d and of %d", t.name, seq, old, id)
	}
	if n.seq != 0 && n.seq != seq {
		w.fail("%s: %d has the sequences %d and %d", t.name, id, n.seq, seq)
	}
	if n.parent > 0 && !n.anew && seq <= t.entries[n.parent].seq {
		w.fail("%s: %d has the sequence %d, and the one before %d", t.name, id, seq, t.entries[n.parent].seq)
	}
	t.seqs[seq], n.seq = id, seq
}

// An actor writes to a log by the rules of sessions: it reads it, takes it over, and goes on until
// another does.
type actor struct {
	e    *edge
	t    *truth
	last uint64 // sequence of the last entry that it knows
	id   int    // of that entry
	mine bool
	left int // writes to do

	pending *sessionlog.Write
	made    int           // id of the pending write
	short   time.Duration // since when the log is shorter than it was; 0 if it is not
}

func (a *actor) later(d time.Duration, f func()) {
	a.e.w.net.Schedule(d, func() { a.e.alive(f) })
}

func (a *actor) begin() {
	if a.e.w.over || a.e.dead {
		return
	}
	if left := a.t.quiet - a.e.w.net.Elapsed(); left > 0 {
		a.later(min(left, time.Second), a.begin)
		return
	}
	a.mine, a.pending, a.id, a.left, a.short = false, nil, 0, 1+a.e.w.rnd.IntN(60), 0
	if a.e.w.hasty {
		a.left = 1 + a.left/10
	}
	if a.e.w.rnd.IntN(8) == 0 { // the client, or an old copy of its request, comes to this edge
		a.last, a.id = 0, unborn
		a.later(0, func() { a.write(true) })
		return
	}
	a.later(0, a.read)
}

// request checks that a request is answered once.
func (a *actor) request(ask func(func(sessionlog.Answer)), answer func(since int, r sessionlog.Answer)) {
	w, since, answered, calling := a.e.w, a.t.head, false, true
	if w.over {
		return
	}
	a.e.asked++
	ask(func(r sessionlog.Answer) {
		if answered || calling {
			w.fail("a request is answered twice, or before the call returns")
		}
		answered = true
		a.e.asked--
		a.e.alive(func() { answer(since, r) })
	})
	calling = false
}

func (a *actor) read() {
	a.request(func(f func(sessionlog.Answer)) { a.e.log.Read(a.t.name, f) }, a.readDone)
}

func (a *actor) readDone(since int, r sessionlog.Answer) {
	w := a.e.w
	if r.Verdict != fence.OK {
		a.later(100*time.Millisecond, a.read)
		return
	}
	id, seq, why := a.parse(r.Entries, since)
	w.tell("edge %d reads %s: %d %s", a.e.i, a.t.name, id, why)
	switch {
	case why == "another format" && a.e.old:
		a.later(w.pause(2*time.Second), a.begin)
		return
	case why != "" && w.reads && !w.healed:
		a.later(20*time.Millisecond, a.read)
		return
	case why != "":
		w.fail("%s: %s", a.t.name, why)
		return
	}
	w.believe(a.t, id, since, "read", w.reads && !w.healed)
	switch {
	case a.pending != nil && id == a.made:
		a.stored(seq)
	case a.mine && id != a.id && a.t.descends(a.id, id): // an outdated answer
		a.shorter()
	case a.pending != nil && (seq == a.last):
		a.append()
	case a.mine || a.id == unborn: // lost, or elsewhere
		a.later(a.rest(), a.begin)
	case a.t.entries[id].final && a.t.quiet > w.net.Elapsed():
		a.later(0, a.begin)
	default:
		a.last, a.id = seq, id
		a.write(a.t.entries[id].final || w.rnd.IntN(2) == 0)
	}
}

// rest is for how long it leaves the log alone.
func (a *actor) rest() time.Duration {
	if a.e.w.hasty {
		return a.e.w.pause(time.Second)
	}
	return a.e.w.pause(5 * time.Second)
}

func (a *actor) shorter() {
	if now := a.e.w.net.Elapsed(); a.short == 0 {
		a.short = now
	} else if now-a.short > 12*time.Second {
		a.e.w.fail("%s: edge %d finds the log shorter than it was", a.t.name, a.e.i)
	}
	a.later(100*time.Millisecond, a.read)
}

// parse returns the id and the sequence of the last entry, and what is wrong with the log. since is
// what was believed when the log was asked.
func (a *actor) parse(entries []sessionlog.Entry, since int) (id int, seq uint64, wrong string) {
	w, t := a.e.w, a.t
	for i, e := range entries {
		k, err := sessionlog.ParseBlock(e.Data)
		if err != nil {
			return 0, 0, "another format"
		}
		next := int(k.Number)
		n := &t.entries[next]
		if !a.e.old {
			w.note(t, next, e.Seq)
		}
		switch {
		case i == 0 && !n.rollup:
			return 0, 0, "it begins without a checkpoint"
		case i > 0 && (n.parent != id || k.Previous != seq):
			return 0, 0, "it is torn"
		}
		id, seq = next, e.Seq
	}
	for _, end := range [...]int{since, t.head} {
		if len(entries) == 0 && t.entries[end].final {
			id = end // which may be forgotten
		}
	}
	return id, seq, ""
}

func (a *actor) write(rollup bool) {
	w := a.e.w
	final := w.endings && a.mine && w.rnd.IntN(25) == 0
	rollup = rollup || final
	a.t.entries = append(a.t.entries, node{parent: a.id, rollup: rollup, final: final, anew: a.last == 0})
	a.made = len(a.t.entries) - 1
	size := 0
	switch n := w.rnd.IntN(200); {
	case n == 0:
		size = 100 << 10
	case n == 1 && !w.healed:
		size = movedMax
	}
	about := strings.Repeat("x", size)
	k := sessionlog.Block{Epoch: 1, Owner: uint64(a.e.i), Number: uint64(a.made), Previous: a.last, Adopt: &about}
	a.pending = &sessionlog.Write{Log: a.t.name, Expect: a.last, Data: k.Append(nil), Rollup: rollup, Final: final}
	a.append()
}

func (a *actor) append() {
	a.e.w.tell("edge %d writes %s: %d behind %d, rollup %v, final %v", a.e.i, a.t.name, a.made, a.id, a.pending.Rollup, a.pending.Final)
	a.request(func(f func(sessionlog.Answer)) { a.e.log.Append(*a.pending, f) }, a.appended)
}

func (a *actor) appended(_ int, r sessionlog.Answer) {
	w := a.e.w
	w.tell("edge %d wrote %s: %d: %v, sequence %d", a.e.i, a.t.name, a.made, r.Verdict, r.Seq)
	switch r.Verdict {
	case fence.OK:
		if !a.e.old {
			w.note(a.t, a.made, r.Seq)
		}
		w.acks++
		w.believe(a.t, a.made, 0, "write", false)
		a.stored(r.Seq)
	case fence.Busy:
		a.later(time.Millisecond, a.append)
	case fence.Unreachable:
		a.later(100*time.Millisecond, a.append)
	case fence.TooLarge:
		w.fail("too large")
	default:
		a.later(0, a.read)
	}
}

func (a *actor) stored(seq uint64) {
	a.last, a.id, a.mine, a.pending, a.short = seq, a.made, true, nil, 0
	w := a.e.w
	a.left--
	if a.left <= 0 || a.t.entries[a.id].final {
		a.mine = false
		a.later(a.rest(), a.begin)
		return
	}
	d := w.pause(30 * time.Millisecond)
	if w.rnd.IntN(20) == 0 {
		d = w.pause(3 * time.Second)
	}
	rollup := !a.t.entries[a.id].rollup && w.rnd.IntN(6) == 0 || a.left%15 == 0
	a.later(d, func() { a.write(rollup) })
}
