package movelog

import (
	"time"

	"github.com/dnprelay/dnprelay/internal/fence"
	"github.com/dnprelay/dnprelay/sessionlog"
)

// A store is one of the two.
type store uint8

const (
	inReplicated store = iota
	inQuorum
	stores
)

func (s store) other() store { return 1 - s }

// Bounds of one request. A client waits for three seconds, and each step takes as long as a store
// may take. All are arbitrary.
const (
	patience  = 1200 * time.Millisecond // after which no further step begins
	stepsMax  = 16
	queueMax  = 16              // requests of one log that wait for the one before: its sessions have one each
	movedMax  = 768 << 10       // bytes of a write that moves its log: with headers, both stores must take it
	stayTime  = 5 * time.Second // until the next attempt to move a log whose other store does not answer
	traceTime = time.Hour       // after which gone is written again, which the store would forget after 24 h
)

// An env is what movers share. Its functions do not block and do not call back before they return.
type env struct {
	now    func() time.Time
	append func(s store, w sessionlog.Write, answer func(sessionlog.Answer))
	read   func(s store, log string, answer func(sessionlog.Answer))
	counts *counters
}

// A mover is one log at one edge: requests of its sessions, one after another, and what this edge
// knows of the stores. The knowledge may be outdated: the stores refuse what does not follow.
type mover struct {
	*env
	name   string
	queue  []*op // the first is under way
	at     [stores]place
	known  [stores]bool
	stayTo time.Time // the log does not move before
}

// An op is a request to the log.
type op struct {
	write  *sessionlog.Write // nil for a read
	answer func(sessionlog.Answer)
	want   store // where the log is to be
	blind  bool  // a log may begin without a look at the stores

	began     time.Time
	steps     int
	fresh     bool // what is known was read for this request
	unsure    bool // the log may have moved between the two reads
	changed   bool // something was written since
	stay      bool // the log does not move with this write
	ready     bool // the store that it moves to is ready
	committed bool // the log moved with this write
}

func (m *mover) request(o *op) {
	m.queue = append(m.queue, o)
	if len(m.queue) == 1 {
		m.begin(o)
	}
}

func (m *mover) begin(o *op) {
	o.began = m.now()
	switch {
	case o.write == nil:
		m.forget()
	case o.blind && o.write.Expect == 0 && !m.known[inQuorum]:
		m.at, m.known = [stores]place{}, [stores]bool{true, true} // the stores refuse it otherwise
	}
	m.advance(o)
}

func (m *mover) forget() { m.at, m.known = [stores]place{}, [stores]bool{} }

// end answers a request, and begins the next one.
func (m *mover) end(o *op, a sessionlog.Answer) {
	if a.Verdict != fence.OK && o.committed {
		a.Verdict = fence.Unknown
	}
	if o.unsure || a.Verdict != fence.OK && a.Verdict != fence.Busy && a.Verdict != fence.Unreachable {
		m.forget()
	}
	for s := range m.at {
		m.at[s].plain, m.at[s].write = nil, nil
		if k := m.at[s].kind; k == moved || k == other {
			m.known[s] = false
		}
	}
	m.queue = m.queue[1:]
	o.answer(a)
	if len(m.queue) > 0 {
		m.begin(m.queue[0])
	}
}

// advance takes the next step of a request, whose answer takes the one after it: read what is not
// known, finish a move that somebody began, carry out the request.
func (m *mover) advance(o *op) {
	q, r := &m.at[inQuorum], &m.at[inReplicated]
	if o.steps++; o.steps > stepsMax || m.now().Sub(o.began) > patience {
		m.end(o, sessionlog.Answer{Verdict: fence.Unknown})
		return
	}
	if q.kind == data && m.known[inReplicated] && r.kind == moved {
		m.clean()
	}
	switch {
	case !m.known[inQuorum]:
		m.look(o, inQuorum, func() {})
	case q.kind != data && q.kind != other && !m.known[inReplicated]:
		m.look(o, inReplicated, func() {})
	case q.kind == moved:
		m.toReplicated(o)
	case q.kind == gone && r.kind == moved && r.generation > q.generation:
		m.toQuorum(o)
	case o.unsure:
		m.confirm(o)
	case q.kind == gone && r.kind != none && r.tail <= q.mark: // an outdated answer
		m.lookAgain(o)
	case o.write != nil:
		m.carryOut(o)
	case o.changed:
		m.lookAgain(o)
	default:
		m.end(o, sessionlog.Answer{Verdict: fence.OK, Entries: m.here().entries(m.shift())})
	}
}

// look reads one store. The quorum store is read first: it tells whether the log is there, or
// whether the replicated store has to be asked.
func (m *mover) look(o *op, s store, then func()) {
	m.read(s, m.name, func(a sessionlog.Answer) {
		if a.Verdict != fence.OK {
			m.end(o, sessionlog.Answer{Verdict: a.Verdict})
			return
		}
		m.at[s], m.known[s] = placeOf(s, a.Entries), true
		o.fresh, o.unsure = true, s == inReplicated
		then()
		m.advance(o)
	})
}

// confirm reads the quorum store for the second time. If it has not changed, it was so when the
// replicated store was read.
func (m *mover) confirm(o *op) {
	tail := m.at[inQuorum].tail
	m.look(o, inQuorum, func() { m.known[inReplicated] = m.at[inQuorum].tail == tail })
}

// lookAgain reads the stores again, because they contradict what is known.
func (m *mover) lookAgain(o *op) {
	if o.committed { // it is not certain any more that its entry is the last one
		m.end(o, sessionlog.Answer{Verdict: fence.Unknown})
		return
	}
	o.unsure, o.changed, o.ready = false, false, false
	m.forget()
	m.advance(o)
}

// home returns the store where the log is, or where it begins.
func (m *mover) home() store {
	q := m.at[inQuorum].kind
	if q == gone || q == none && (m.at[inReplicated].kind == data || m.at[inReplicated].kind == other) {
		return inReplicated
	}
	return inQuorum
}

// here returns what that store has.
func (m *mover) here() *place { return &m.at[m.home()] }

// shift returns by how much its sequences differ from those that sessions see.
func (m *mover) shift() uint64 {
	if m.home() == inReplicated {
		return m.at[inQuorum].shift
	}
	return 0
}

// last returns the sequence of the last entry as sessions see it.
func (m *mover) last() uint64 {
	switch p := m.here(); {
	case p.kind != data:
		return 0
	case m.home() == inReplicated:
		return p.tail + m.shift()
	default:
		return p.seq
	}
}

// write writes a record to one store, over what is known to be there, and notes it if it is stored.
func (m *mover) write(s store, p place, data []byte, then func(fence.Verdict)) {
	w := sessionlog.Write{Log: m.name, Expect: m.at[s].tail, Data: data, Rollup: true}
	m.append(s, w, func(a sessionlog.Answer) {
		if a.Verdict == fence.OK {
			p.tail = a.Seq
			m.at[s], m.known[s] = p, true
		}
		then(a.Verdict)
	})
}

// put writes a record without which the request cannot go on.
func (m *mover) put(o *op, s store, r record, data []byte) {
	m.write(s, place{record: r}, data, func(v fence.Verdict) {
		switch v {
		case fence.OK:
			o.changed, o.unsure = true, o.unsure && s != inQuorum
			m.advance(o)
		case fence.Stale:
			m.counts.conflicts.Add(1)
			m.lookAgain(o)
		default:
			m.end(o, sessionlog.Answer{Verdict: v})
		}
	})
}

// toReplicated finishes a move to the replicated store: the copy, then gone in the quorum store.
// The copy is written over a record gone, which was there before the log moved, and only when the
// quorum store says gone does anybody write behind the copy. So what follows that record is the
// copy, or came after it; and a store that has nothing has forgotten both.
func (m *mover) toReplicated(o *op) {
	q, r := &m.at[inQuorum], &m.at[inReplicated]
	shift := max(q.seq, q.mark) - q.mark // sequences go on above q.seq
	switch {
	case r.kind == gone && r.generation < q.generation:
		m.counts.copies.Add(1)
		m.put(o, inReplicated, record{kind: data}, sessionlog.Rebase(q.write, -shift))
	case r.kind == none: // it may be an outdated answer, which the store would refuse to go with
		p := record{kind: gone, generation: q.generation}
		m.put(o, inReplicated, p, p.encode())
	case r.kind == gone, r.kind == data && r.tail > q.mark:
		p := m.trace(q.generation, q.mark, shift)
		m.put(o, inQuorum, p, p.encode())
	default:
		m.lookAgain(o)
	}
}

// trace returns the record which says that the log is in the replicated store.
func (m *mover) trace(generation, mark, shift uint64) record {
	return record{kind: gone, generation: generation, mark: mark, shift: shift, time: uint64(m.now().Unix())}
}

// toQuorum finishes a move to the quorum store. What the replicated store still has of the log
// does not count from then on, so the request does not wait until it is gone.
func (m *mover) toQuorum(o *op) {
	m.counts.copies.Add(1)
	r := m.at[inReplicated]
	p := record{kind: data, generation: r.generation, seq: m.above(r.seq), write: r.write}
	m.put(o, inQuorum, p, p.encode())
}

// clean makes the replicated store forget a log that moved.
func (m *mover) clean() {
	r := &m.at[inReplicated]
	p := record{kind: gone, generation: r.generation}
	m.append(inReplicated, sessionlog.Write{Log: m.name, Expect: r.tail, Data: p.encode(), Rollup: true, Final: true}, func(sessionlog.Answer) {})
	m.known[inReplicated] = false
}

// above returns the sequence of the next entry in the quorum store. It is above all those of the
// replicated store, which count from a time in milliseconds.
func (m *mover) above(seq uint64) uint64 { return max(seq+1, uint64(m.now().UnixMicro())) }

// first returns the generation of a log that begins. It is above those of all logs of this name
// that the stores have forgotten.
func (m *mover) first() uint64 {
	return max(m.at[inReplicated].generation, uint64(m.now().UnixMilli()))
}

// carryOut carries out a write when it is known where the log is.
func (m *mover) carryOut(o *op) {
	w, home, q := o.write, m.home(), &m.at[inQuorum]
	switch {
	case o.committed:
		m.end(o, sessionlog.Answer{Verdict: fence.OK, Seq: m.last()})
	case m.here().kind == other, w.Expect != m.last() && o.fresh:
		m.end(o, sessionlog.Answer{Verdict: fence.Stale})
	case w.Expect != m.last():
		m.lookAgain(o)
	case q.kind == none && (home == inReplicated || o.want == inReplicated): // it is, or begins there
		p := m.trace(m.first(), 0, 0)
		m.put(o, inQuorum, p, p.encode())
	case o.want == home || !w.Rollup || w.Final || o.stay || len(w.Data) > movedMax || m.now().Before(m.stayTo):
		m.store(o, home)
	case o.ready:
		m.move(o, home)
	case home == inQuorum:
		m.readyReplicated(o)
	default:
		m.readyQuorum(o)
	}
}

// store writes to the store where the log is, or begins.
func (m *mover) store(o *op, home store) {
	w, p := *o.write, place{record: record{kind: data}}
	w.Expect = m.at[home].tail
	if q := &m.at[inQuorum]; home == inReplicated {
		w.Data = sessionlog.Rebase(w.Data, -q.shift)
	} else {
		if p.generation, p.seq = q.generation, q.seq+1; q.kind == none {
			p.generation, p.seq = m.first(), m.above(0)
		}
		p.write = w.Data
		w.Data = p.encode()
	}
	m.append(home, w, func(a sessionlog.Answer) {
		if a.Verdict == fence.OK {
			p.tail = a.Seq
			m.at[home] = p
			a.Seq = m.last()
			if home == inReplicated && w.Rollup {
				m.traceAgain()
			}
		}
		m.end(o, sessionlog.Answer{Verdict: a.Verdict, Seq: a.Seq})
	})
}

// traceAgain writes the record that says where the log is once more, before the quorum store
// forgets it for its age.
func (m *mover) traceAgain() {
	q := m.at[inQuorum]
	p := m.trace(q.generation, q.mark, q.shift)
	if p.time-q.time < uint64(traceTime/time.Second) {
		return
	}
	m.append(inQuorum, sessionlog.Write{Log: m.name, Expect: q.tail, Data: p.encode(), Rollup: true}, func(a sessionlog.Answer) {
		if now := &m.at[inQuorum]; a.Verdict == fence.OK && now.tail == q.tail {
			*now = place{record: p, tail: a.Seq}
		}
	})
}

// readyReplicated prepares the replicated store for a log of the quorum store: it says gone, and
// shows that it takes writes.
func (m *mover) readyReplicated(o *op) {
	m.read(inReplicated, m.name, func(a sessionlog.Answer) {
		q, r := &m.at[inQuorum], placeOf(inReplicated, a.Entries)
		switch {
		case a.Verdict == fence.OK && (r.kind == data || r.kind == other):
			m.counts.both.Add(1)
			m.remain(o)
			return
		case a.Verdict != fence.OK || r.generation > q.generation:
			m.remain(o)
			return
		}
		m.at[inReplicated] = r
		p := record{kind: gone, generation: q.generation}
		m.write(inReplicated, place{record: p}, p.encode(), func(v fence.Verdict) {
			if o.ready = v == fence.OK; !o.ready {
				m.remain(o)
				return
			}
			m.advance(o)
		})
	})
}

// readyQuorum finds out whether the quorum store answers and says gone.
func (m *mover) readyQuorum(o *op) {
	m.read(inQuorum, m.name, func(a sessionlog.Answer) {
		q := placeOf(inQuorum, a.Entries)
		switch {
		case a.Verdict != fence.OK:
			m.remain(o)
		case q.kind == gone && q.generation == m.at[inQuorum].generation:
			m.at[inQuorum], o.ready = q, true
			m.advance(o)
		default:
			m.lookAgain(o)
		}
	})
}

// remain has the log stay where it is for a while.
func (m *mover) remain(o *op) {
	m.counts.remained.Add(1)
	o.stay, m.stayTo, m.known[inReplicated] = true, m.now().Add(stayTime), m.home() == inReplicated
	m.advance(o)
}

// move writes the record with which the log leaves. That decides; the copy follows.
func (m *mover) move(o *op, home store) {
	p := record{kind: moved, generation: m.at[inQuorum].generation + 1, seq: m.last(), write: o.write.Data}
	if home == inQuorum {
		p.mark = m.at[inReplicated].tail
	}
	m.write(home, place{record: p}, p.encode(), func(v fence.Verdict) {
		switch v {
		case fence.OK:
			m.counts.moves[home.other()].Add(1)
			o.committed = true
			m.advance(o)
		case fence.TooLarge:
			m.remain(o)
		default:
			m.end(o, sessionlog.Answer{Verdict: v})
		}
	})
}
