package quorumlog_test

import (
	"encoding/binary"
	"time"

	"github.com/dnprelay/dnprelay/internal/fence"
	"github.com/dnprelay/dnprelay/internal/simnet"
	"github.com/dnprelay/dnprelay/sessionlog"
	"github.com/dnprelay/dnprelay/sessionlog/quorumlog"
)

// A truth is what the test knows of one log: a tree of entries, of which those that an edge was told
// to be stored must be one chain. An entry's id is its place in the list.
type truth struct {
	name    string
	entries []node
	seqs    map[uint64]int // ids by sequence
	head    int            // the newest entry that an edge was told to be stored
}

// A node is an entry.
type node struct {
	parent int // the one that its writer knew as the last
	ckpt   bool
	final  bool
	open   bool // its writer believed that the log is empty
}

func newTruth(name string) *truth {
	return &truth{name: name, entries: []node{{}}, seqs: map[uint64]int{}}
}

// descends reports whether an entry is another one, or comes after it.
func (t *truth) descends(id, from int) bool {
	for id > from {
		id = t.entries[id].parent
	}
	return id == from
}

// believe notes that an edge was told that the log goes up to id. since is what edges had been told
// when it asked.
func (w *world) believe(t *truth, id, since int, what string) {
	n := t.entries[id]
	switch {
	case n.open && n.parent != 0 && !t.entries[n.parent].final:
		w.fail("%s: %s of %d, which begins the log anew, but %d lives", t.name, what, id, n.parent)
	case !t.descends(id, since):
		w.fail("%s: %s of %d, but %d was stored before", t.name, what, id, since)
	case t.descends(id, t.head):
		t.head = id
	case !t.descends(t.head, id):
		w.fail("%s: %s of %d, but %d is stored", t.name, what, id, t.head)
	}
}

// numbered notes which entry has a sequence.
func (w *world) numbered(t *truth, seq uint64, id int) {
	if old, ok := t.seqs[seq]; ok && old != id {
		w.fail("%s: sequence %d is that of %d and of %d", t.name, seq, old, id)
	}
	t.seqs[seq] = id
}

// parse returns the id and the sequence of the last entry.
func (w *world) parse(t *truth, entries []sessionlog.Entry) (id int, seq uint64) {
	for i, e := range entries {
		next := int(binary.LittleEndian.Uint32(e.Data))
		w.numbered(t, e.Seq, next)
		switch n := t.entries[next]; {
		case e.Seq <= seq:
			w.fail("%s: sequence %d after %d", t.name, e.Seq, seq)
		case i == 0 && !n.ckpt:
			w.fail("%s: it begins with %d, which is no checkpoint", t.name, next)
		case i > 0 && n.ckpt:
			w.fail("%s: there is something before the checkpoint %d", t.name, next)
		case i > 0 && n.parent != id:
			w.fail("%s: %d follows %d, but was written behind %d", t.name, next, id, n.parent)
		}
		id, seq = next, e.Seq
	}
	return id, seq
}

// An edge is a process.
type edge struct {
	w       *world
	i       int
	log     *quorumlog.Log
	dead    bool
	stopped bool
	stops   int
	held    []func()

	asked       map[*request]bool // requests that have no answer
	checkpoints map[string]int    // without faults, in the end
}

// A request is one to a log.
type request struct {
	t     *truth
	began time.Duration
	most  time.Duration // that it may take
}

// start begins an edge, or another process of it.
func (w *world) start(i int) *edge {
	if old := w.edges[i]; old != nil {
		old.dead = true
		w.stats = sum(w.stats, old.log.Stats())
	}
	e := &edge{w: w, i: i, asked: map[*request]bool{}, checkpoints: map[string]int{}}
	w.edges[i] = e
	skew := w.pause(skewMax)
	cfg := quorumlog.Config{
		Now:   func() time.Time { return simnet.Epoch.Add(w.net.Elapsed() + skew) },
		After: func(d time.Duration, f func()) { w.net.Schedule(d, func() { e.alive(f) }) },
		Seed:  new([32]byte),
	}
	cfg.SetStateBytes(w.parts)
	binary.LittleEndian.PutUint64(cfg.Seed[:], w.rnd.Uint64())
	for c := range cfg.Copies {
		cfg.Copies[c] = way{e, c}
	}
	e.log = quorumlog.New(cfg)
	for _, name := range logNames {
		for range 1 + w.rnd.IntN(5)/4 { // two sessions of one node
			a := &actor{e: e, t: w.logs[name]}
			w.net.Schedule(w.pause(3*time.Second), func() { e.alive(a.begin) })
		}
	}
	return e
}

// alive does something unless the edge is dead, and later if it is stopped.
func (e *edge) alive(f func()) {
	switch {
	case e.dead:
	case e.stopped:
		e.held = append(e.held, f)
	default:
		f()
	}
}

// stop stops the process for a while.
func (e *edge) stop() {
	if e.stopped {
		return
	}
	e.w.tell("edge %d is stopped", e.i)
	e.stopped = true
	e.stops++
	e.w.net.Schedule(e.w.pause(5*time.Second), func() {
		e.w.tell("edge %d goes on", e.i)
		e.stopped = false
		held := e.held
		e.held = nil
		for _, f := range held {
			e.alive(f)
		}
	})
}

// A way leads from an edge to a copy.
type way struct {
	e *edge
	c int
}

func (y way) Append(r sessionlog.Write, answer func(sessionlog.Answer)) {
	told := func(a sessionlog.Answer) {
		y.e.w.tell("  edge %d, copy %d of %s, %d: %v%s", y.e.i, y.c, r.Log, r.Expect, a.Verdict, quorumlog.Dump([]sessionlog.Entry{{Data: r.Data}}))
		answer(a)
	}
	y.ask(told, func(f func(sessionlog.Answer)) { y.e.w.stores[y.c].Append(r, f) })
}

func (y way) Read(log string, answer func(sessionlog.Answer)) {
	w := y.e.w
	torn := func(a sessionlog.Answer) { // a rollup deletes the beginning meanwhile
		if n := len(a.Entries); n > 1 && w.faults && !w.healed && w.rnd.IntN(20) == 0 {
			a.Entries = a.Entries[w.rnd.IntN(n):]
		}
		answer(a)
	}
	y.ask(torn, func(f func(sessionlog.Answer)) { w.stores[y.c].Read(log, f) })
}

// ask sends a request, which does not arrive if the way is cut, or has no answer if it is cut then.
func (y way) ask(answer func(sessionlog.Answer), send func(func(sessionlog.Answer))) {
	w := y.e.w
	after := func(d time.Duration, a sessionlog.Answer) {
		w.net.Schedule(d, func() { y.e.alive(func() { answer(a) }) })
	}
	cut := &w.cut[y.e.i][y.c]
	switch {
	case *cut && w.rnd.IntN(2) == 0:
		after(time.Millisecond, sessionlog.Answer{Verdict: fence.Unreachable})
	case *cut:
		after(500*time.Millisecond, sessionlog.Answer{Verdict: fence.Unknown})
	default:
		send(func(a sessionlog.Answer) {
			if *cut {
				after(499*time.Millisecond, sessionlog.Answer{Verdict: fence.Unknown})
			} else {
				after(0, a)
			}
		})
	}
}

// An actor writes to a log by the rules of sessions: it reads it, takes it over, and goes on until
// another one does.
type actor struct {
	e    *edge
	t    *truth
	last uint64 // sequence of the last entry that it knows
	id   int    // of that entry
	mine bool
	left int  // writes to do
	once bool // it does not begin again
	done bool

	began time.Duration // when it first wrote what is pending

	pending *sessionlog.Write
	made    int // id of the pending write
}

func (a *actor) later(d time.Duration, f func()) {
	a.e.w.net.Schedule(d, func() { a.e.alive(f) })
}

func (a *actor) begin() {
	w := a.e.w
	if w.ending && a.e.i != edges || a.done {
		return
	}
	a.done = a.once
	a.mine, a.pending, a.left = false, nil, 1+w.rnd.IntN(60)
	if w.endings && w.rnd.IntN(3) == 0 { // a client that may be new
		a.last, a.id = 0, a.t.head
		a.write(true)
		return
	}
	a.read()
}

// request checks that a request is answered once, in time, and not within the call.
func (a *actor) request(ask func(func(sessionlog.Answer)), answer func(since int, r sessionlog.Answer)) {
	w, e, since, stops := a.e.w, a.e, a.t.head, a.e.stops
	q := &request{t: a.t, began: w.net.Elapsed(), most: answerMax + answerLate}
	if w.endings { // the log's own request, which brings the end to a copy that lacks it
		q.most += answerMax
	}
	for before := range e.asked {
		if before.t == q.t {
			q.most += answerMax
		}
	}
	e.asked[q] = true
	during := true
	ask(func(r sessionlog.Answer) {
		switch d := w.net.Elapsed() - q.began; {
		case !e.asked[q]:
			w.fail("a request is answered twice")
		case during:
			w.fail("a request is answered within the call")
		case e.stops == stops && d > q.most:
			w.fail("an answer took %v, want at most %v", d, q.most)
		}
		delete(e.asked, q)
		e.alive(func() { answer(since, r) })
	})
	during = false
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
	id, seq := w.parse(a.t, r.Entries)
	if len(r.Entries) == 0 { // the copies may forget a log that ended
		for _, last := range []int{since, a.t.head} {
			if a.t.entries[last].final {
				id = last
			}
		}
	}
	w.tell("edge %d reads %s: %d", a.e.i, a.t.name, id)
	w.believe(a.t, id, since, "read")
	switch {
	case a.pending != nil && id == a.made && seq != 0:
		a.stored(seq)
	case a.mine && id == a.id && seq == a.last && a.pending != nil:
		a.append()
	case a.mine && (id != a.id || seq != a.last): // lost
		a.mine = false
		a.later(w.pause(3*time.Second), a.begin)
	case a.mine:
		a.next()
	default:
		a.last, a.id = seq, id
		a.write(seq == 0 || a.t.entries[id].final)
	}
}

// write writes another entry. The first of an owner is a small one, but over a log that is empty or
// has ended it is a checkpoint.
func (a *actor) write(ckpt bool) {
	w := a.e.w
	final := w.endings && !w.ending && !ckpt && w.rnd.IntN(12) == 0
	ckpt = ckpt || final
	a.t.entries = append(a.t.entries, node{parent: a.id, ckpt: ckpt, final: final, open: a.last == 0})
	a.made = len(a.t.entries) - 1
	size := 4
	if w.rnd.IntN(50) == 0 {
		size = 60 << 10
	}
	data := make([]byte, size)
	binary.LittleEndian.PutUint32(data, uint32(a.made))
	a.pending = &sessionlog.Write{Log: a.t.name, Expect: a.last, Data: data, Rollup: ckpt, Final: final}
	a.began = w.net.Elapsed()
	a.append()
}

// openMax is how long an edge tries to begin a session, as long as its client waits.
const openMax = 3 * time.Second

func (a *actor) append() {
	if a.pending.Expect == 0 && a.e.w.net.Elapsed()-a.began > openMax {
		a.mine = false
		a.later(0, a.begin)
		return
	}
	a.e.w.tell("edge %d writes %s: %d behind %d", a.e.i, a.t.name, a.made, a.id)
	a.request(func(f func(sessionlog.Answer)) { a.e.log.Append(*a.pending, f) }, a.appended)
}

func (a *actor) appended(_ int, r sessionlog.Answer) {
	w := a.e.w
	w.tell("edge %d wrote %s: %d: %v", a.e.i, a.t.name, a.made, r.Verdict)
	switch r.Verdict {
	case fence.OK:
		w.numbered(a.t, r.Seq, a.made)
		if r.Seq <= a.last {
			w.fail("%s: sequence %d behind %d", a.t.name, r.Seq, a.last)
		}
		w.acks++
		w.believe(a.t, a.made, 0, "write")
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
	if w := a.e.w; w.healed && a.t.entries[a.made].ckpt {
		a.e.checkpoints[a.t.name]++
	}
	a.last, a.id, a.mine, a.pending = seq, a.made, true, nil
	a.next()
}

func (a *actor) next() {
	w := a.e.w
	a.left--
	if a.left <= 0 && a.e.i != edges || a.t.entries[a.id].final {
		a.mine = false
		a.later(w.pause(5*time.Second), a.begin)
		return
	}
	d := w.pause(20 * time.Millisecond)
	if w.rnd.IntN(20) == 0 && a.e.i != edges {
		d = w.pause(3 * time.Second)
	}
	a.later(d, func() {
		if a.e.i == edges && a.e.checkpoints[a.t.name] >= 2 {
			return
		}
		a.write(a.e.i == edges || w.rnd.IntN(8) == 0)
	})
}
