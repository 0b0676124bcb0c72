package replication

import (
	"encoding/binary"
	"hash/crc32"
	"maps"
	"slices"
	"time"

	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/replication/view"
)

// Bounds and intervals of what a replica asks for because it doubts its copy.
const (
	doubtMax   = 64 // states, RefIds and groups in doubt; beyond that the replica asks for everything
	doubtTries = 3  // requests without an answer that helps; then the replica asks for everything
	doubtCycle = 64 // requests until nothing is in doubt; then likewise

	auditEvery  = 30 * time.Second // between two audits of a replica
	auditGroups = 64               // groups that an audit compares
)

// A doubt is what a replica does not trust in its copy although it has applied every batch up to
// its position. The replica goes on applying batches meanwhile, and applies an answer when it is
// exactly at the answer's position: values never go back.
type doubt struct {
	states map[uint64]bool // numbers; a state may be wrong, missing or too much
	refs   map[view.RefID]bool
	groups []uint16 // whose sums differ, of groupsOf
	of     int      // into how many groups the space is divided for groups and next
	all    bool     // anything may be wrong: the groups from next on are to be compared
	next   int

	id    uint64 // of the last request
	asked asked
	held  heldAnswer
	tries int // requests since the last one that helped
	cycle int // requests since nothing was in doubt

	auditAt   time.Time
	auditNext int // group
}

// asked is what the last request was about.
type asked struct {
	states []uint64
	refs   []view.RefID
	groups int      // of doubt.groups, from the first on
	sums   groupSet // of a RepairSums request
}

// A heldAnswer waits until the replica is at its position.
type heldAnswer struct {
	header  view.Header
	records []byte
	ok      bool
}

// some reports whether it is known what is in doubt.
func (d *doubt) some() bool { return len(d.states)+len(d.refs)+len(d.groups) > 0 }

// room reports whether more can be in doubt. If not, the replica needs everything, and an answer that
// is being applied is no good.
func (r *Replica) room() bool {
	d := &r.doubt
	if len(d.states) < doubtMax && len(d.refs) < doubtMax {
		return true
	}
	if r.strict {
		r.faulty = true
	} else {
		r.breakDown()
	}
	return false
}

// breakDown makes the replica need everything. Then nothing else is in doubt.
func (r *Replica) breakDown() {
	r.broken = true
	d := &r.doubt
	r.doubt = doubt{auditAt: d.auditAt, auditNext: d.auditNext}
}

// doubtState doubts a state that is addressed by ref, and what ref means.
func (r *Replica) doubtState(number uint64, ref view.RefID) {
	if number == 0 || !r.room() {
		return
	}
	d := &r.doubt
	if d.states == nil {
		d.states = make(map[uint64]bool)
	}
	d.states[number] = true
	r.doubtRef(ref)
}

func (r *Replica) doubtRef(ref view.RefID) {
	if ref == 0 || ref == view.NoRef || !r.room() {
		return
	}
	d := &r.doubt
	if d.refs == nil {
		d.refs = make(map[view.RefID]bool)
	}
	d.refs[ref] = true
}

// doubtAll doubts everything.
func (r *Replica) doubtAll() {
	if r.strict {
		r.faulty = true
		return
	}
	if r.room() {
		r.doubt.all, r.doubt.next = true, 0
	}
}

// doubtRecord doubts what a bad record should have changed.
func (r *Replica) doubtRecord(m *view.Record) {
	if r.strict {
		r.faulty = true
		return
	}
	switch v := r.ref(m.Ref); {
	case m.Message == view.RefIDAssign: // it is not known which RefId means something else now
		r.doubtAll()
		r.doubtState(m.Entity.State(), 0)
	case v != nil:
		r.doubtState(v.number, m.Ref)
	case m.Ref == view.NoRef:
		r.doubtAll()
	default:
		r.doubtRef(m.Ref)
	}
}

// askDoubt makes q ask for what is in doubt. It reports false if the replica needs everything
// instead.
func (r *Replica) askDoubt(q *RepairRequest) bool {
	d := &r.doubt
	d.tries, d.cycle = d.tries+1, d.cycle+1
	if d.tries > doubtTries || d.cycle > doubtCycle {
		r.breakDown()
		return false
	}
	if q.Kind == RepairSums {
		if d.next == 0 {
			d.of = groupsOf(r.states.views)
		}
		q.groups = groupSet{of: d.of, first: d.next, n: min(sumsAnswerMax, d.of-d.next)}
		d.asked = asked{sums: q.groups}
		return true
	}
	d.asked = asked{states: slices.Sorted(maps.Keys(d.states)), refs: slices.Sorted(maps.Keys(d.refs))}
	for _, ref := range d.asked.refs {
		q.refs = binary.LittleEndian.AppendUint16(q.refs, uint16(ref))
	}
	for _, number := range d.asked.states {
		q.sums = r.appendStateSums(q.sums, number)
	}
	r.askGroups(q)
	if d.asked.groups == 0 && len(d.groups) > 0 && len(d.states)+len(d.refs) == 0 {
		r.breakDown() // one group has more views than fit into a request
		return false
	}
	return true
}

// appendStateSums appends the views of a state to a list. If there is no such state, if there is
// no room for its views, or if an answer about differing views did not help, the list asks for
// the whole state.
func (r *Replica) appendStateSums(b []byte, number uint64) []byte {
	st := r.states.byNumber[number]
	if st == nil || r.doubt.tries > 1 || len(b)/sumBytes+len(st.schema.ranges) > sumsAskedMax-doubtMax {
		return appendSums(b, view.Entity(number, 0), sums{})
	}
	return r.appendViewSums(b, st)
}

func (r *Replica) appendViewSums(b []byte, st *State) []byte {
	for i, rg := range st.schema.ranges {
		b = appendSums(b, view.Entity(st.Number, i), sums{st.crc(&r.scratch, rg), st.sum})
	}
	return b
}

// askGroups adds the views of as many groups as there is room for. The holder answers with the
// states of those groups that are not listed.
func (r *Replica) askGroups(q *RepairRequest) {
	d := &r.doubt
	q.groups.of = d.of
	for _, group := range d.groups[:min(len(d.groups), groupsAskedMax)] {
		list := q.sums
		for _, st := range r.states.all {
			if !st.dead && st.Number%uint64(d.of) == uint64(group) && !d.states[st.Number] {
				list = r.appendViewSums(list, st)
			}
		}
		if len(list) > sumsAskedMax*sumBytes {
			return
		}
		q.sums = list
		q.groups.list = binary.LittleEndian.AppendUint16(q.groups.list, group)
		d.asked.groups++
	}
}

// audit asks for the sums of the groups whose turn it is, if it is time. Checksums of a state
// cease when the state goes quiet, and never tell of a state that the holder does not have. All
// replicas of a space ask at the same time, so that one answer serves those of an edge.
func (r *Replica) audit(now time.Time) (request []byte, ok bool) {
	d := &r.doubt
	if d.auditAt.IsZero() {
		d.auditAt = auditAfter(r.space, now)
	}
	if now.Before(d.auditAt) {
		return nil, false
	}
	d.auditAt = auditAfter(r.space, now)
	g := groupSet{of: groupsOf(r.states.views)}
	if d.auditNext >= g.of {
		d.auditNext = 0
	}
	g.first, g.n = d.auditNext, min(auditGroups, g.of-d.auditNext)
	d.auditNext += g.n
	d.asked = asked{sums: g}
	q := RepairRequest{Kind: RepairSums, Space: r.space, Epoch: r.top, Seq: r.seq, groups: g}
	request = q.append(nil)
	r.ask.kind, d.id = RepairSums, RequestID(request)
	r.stats.AuditRequests++
	return request, true
}

// auditAfter returns the time of the audit behind now. It is different for each space, so that a
// holder of many spaces has an even load.
func auditAfter(space string, now time.Time) time.Time {
	offset := time.Duration(crc32.ChecksumIEEE([]byte(space))) * time.Second % auditEvery
	return now.Add(-offset).Truncate(auditEvery).Add(auditEvery + offset)
}

// replyDoubt applies the answer to a request for states or sums, or holds it until the replica is
// at its position. An answer that live batches overtook is no longer true; the replica asks again.
func (r *Replica) replyDoubt(h view.Header, records []byte) {
	d := &r.doubt
	if r.broken || h.Epoch != r.epoch || h.Prev != d.id || d.held.ok {
		r.stats.UnwantedReplies++
		return
	}
	d.id = 0
	if h.Seq < r.seq {
		r.stats.UnwantedReplies++
		r.askAgain()
		return
	}
	d.held = heldAnswer{h, records, true}
	r.applyHeld()
}

// applyHeld applies the answer that the replica holds, if the replica has come to its position. It
// drops one that the replica has passed.
func (r *Replica) applyHeld() {
	d := &r.doubt
	held := d.held
	if !held.ok || r.broken || r.seq < held.header.Seq {
		return
	}
	d.held = heldAnswer{}
	r.askAgain()
	if r.seq > held.header.Seq {
		return
	}
	if held.header.Flags&view.FlagSums != 0 {
		r.compare(held.records)
		return
	}
	r.from = Witnessed{Epoch: held.header.Epoch, Seq: held.header.Seq, Repair: true}
	if r.heal(held.records) {
		r.healed(held.header.Flags&view.FlagLast != 0, held.records)
	}
}

// askAgain ends the wait for the answer to a request for states or sums.
func (r *Replica) askAgain() {
	if r.ask.kind == RepairStates || r.ask.kind == RepairSums {
		r.ask.sent = false
	}
}

// heal applies the answer to a request for states.
func (r *Replica) heal(p []byte) (sound bool) {
	kept := p[:0:0]
	records := view.NewRecords(p)
	for m, ok := records.Next(); ok; m, ok = records.Next() {
		if m.Message != view.Remove || m.Ref != view.NoRef {
			kept = m.Append(kept)
			continue
		}
		if st := r.states.byNumber[m.Entity.State()]; st != nil {
			r.remove(st)
			r.stats.Keyframed++
		}
	}
	return records.Err() == nil && r.apply(kept)
}

// healed forgets what was in doubt and is not: all that was asked for, or, if the answer is not
// complete, the states in it.
func (r *Replica) healed(whole bool, p []byte) {
	d := &r.doubt
	d.tries = 0
	if !whole {
		records := view.NewRecords(p)
		for m, ok := records.Next(); ok; m, ok = records.Next() {
			delete(d.states, m.Entity.State())
		}
		return
	}
	for _, number := range d.asked.states {
		delete(d.states, number)
	}
	for _, ref := range d.asked.refs {
		delete(d.refs, ref)
	}
	d.groups = d.groups[min(d.asked.groups, len(d.groups)):]
	d.asked = asked{}
	if !d.some() && !d.all {
		d.cycle = 0
	}
}

// compare compares the sums of groups at the position of the replica.
func (r *Replica) compare(p []byte) {
	d, g := &r.doubt, r.doubt.asked.sums
	in := wire.NewReader(p)
	if of, first := int(in.Uint16()), int(in.Uint16()); of != g.of || first != g.first || len(in.Rest()) != 4*g.n || g.n == 0 {
		r.stats.Malformed++
		return
	}
	sums := in.Rest()
	differ := false
	for i, sum := range groupSums(&r.states, &r.scratch, g) {
		if binary.LittleEndian.Uint32(sums[4*i:]) == sum {
			continue
		}
		r.stats.Divergence++
		differ = true
		if !r.room() {
			return
		}
		if len(d.groups) >= doubtMax {
			r.breakDown()
			return
		}
		d.groups, d.of = append(d.groups, uint16(g.first+i)), g.of
	}
	d.tries, d.asked = 0, asked{}
	if d.all && g.of == d.of {
		d.next = g.first + g.n
		d.all = d.next < g.of
	}
	if differ || d.all {
		r.ask.last = time.Time{} // the next request follows at once
	} else if !d.some() {
		d.cycle = 0
	}
}
