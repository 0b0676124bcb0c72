package relay

import (
	"slices"
	"time"

	"github.com/dnprelay/dnprelay/bus"
	"github.com/dnprelay/dnprelay/replication"
	"github.com/dnprelay/dnprelay/replication/view"
)

// A requester gets its keyframes once in repairWindow, and at once the first time. What it asks for
// later in the window is answered at the end of it, with the newest states. So a storm of requests
// costs no storm of answers. The original protocol has the same limit, by entity, on a channel that
// loses nothing. Here an answer may be lost in part, and its repetition, which has only what was lost,
// must not wait: half as much as the first answer is free, and repairFree is.
//
// A requester is a subject for answers: all workers of an edge have one.
const (
	repairWindow  = 3 * time.Second
	repairFree    = 64 << 10 // bytes of keyframes behind the first answer
	repairBatches = 8 << 20  // bytes of batches and sums: twice what a store keeps
	repairsMax    = 64       // answers, because each costs time even if it has few bytes
	repairWaits   = 16       // requests of a requester that wait; the oldest gives way, and is made again
	requestersMax = 256      // of a space; all beyond that are one requester
)

// repairs are the requesters of a space. A requester that asked for nothing lately is forgotten.
type repairs struct {
	requesters map[string]*requester
	due        time.Time // when the first window with waiting requests ends; zero if there is none
}

// A requester is what one subject for answers has got in its window.
type requester struct {
	since     time.Time // when the window began
	first     int       // bytes of the first answer with keyframes
	keyframes int       // bytes of all such answers
	batches   int       // bytes of other answers
	answers   int       // including those that were too large
	waiting   []bus.Msg // in the order in which they arrived
}

// ended reports whether the window is over.
func (r *requester) ended(now time.Time) bool { return now.Sub(r.since) >= repairWindow }

// renew begins a window, in which nothing was answered.
func (r *requester) renew(now time.Time) { *r = requester{since: now, waiting: r.waiting} }

// mustWait reports whether a request has to wait, whatever its answer is. Making an answer costs time.
func (r *requester) mustWait(m bus.Msg) bool {
	return r.answers >= repairsMax || len(r.waiting) > 0 && replication.RequestKind(m.Data) == replication.RepairKeyframes
}

// admit reports whether an answer may leave in this window, and counts it if so.
func (r *requester) admit(bytes int, keyframes bool) bool {
	switch {
	case !keyframes && r.batches > 0 && r.batches+bytes > repairBatches:
		return false
	case keyframes && r.first > 0 && r.keyframes+bytes > r.first+max(repairFree, r.first/2):
		return false
	}
	if !keyframes {
		r.batches += bytes
		return true
	}
	if r.keyframes += bytes; r.first == 0 {
		r.first = bytes
	}
	return true
}

// wait has a request wait for the end of the window. It takes the place of an equal one.
func (r *requester) wait(m bus.Msg) {
	r.waiting = slices.DeleteFunc(r.waiting, func(o bus.Msg) bool { return string(o.Data) == string(m.Data) })
	if len(r.waiting) >= repairWaits {
		r.waiting = slices.Delete(r.waiting, 0, 1)
	}
	r.waiting = append(r.waiting, m)
}

// of returns the requester with this subject, whose window it renews if that is over.
func (p *repairs) of(now time.Time, reply string) *requester {
	r, ok := p.requesters[reply]
	if !ok {
		if p.requesters == nil {
			p.requesters = make(map[string]*requester)
		}
		if len(p.requesters) >= requestersMax {
			p.forget(now)
		}
		if len(p.requesters) >= requestersMax {
			reply = ""
			r = p.requesters[reply]
		}
		if r == nil {
			r = &requester{since: now}
			p.requesters[reply] = r
		}
	}
	if r.ended(now) && len(r.waiting) == 0 {
		r.renew(now)
	}
	return r
}

// forget drops the requesters whose windows are over.
func (p *repairs) forget(now time.Time) {
	for reply, r := range p.requesters {
		if r.ended(now) && len(r.waiting) == 0 {
			delete(p.requesters, reply)
		}
	}
}

// plan notes when the first request that waits has to be answered.
func (p *repairs) plan() {
	p.due = time.Time{}
	for _, r := range p.requesters {
		if end := r.since.Add(repairWindow); len(r.waiting) > 0 && (p.due.IsZero() || end.Before(p.due)) {
			p.due = end
		}
	}
}

// repair answers a replica, now or at the end of its requester's window.
func (w *Worker) repair(now time.Time, o *ownership, m bus.Msg) {
	name, ok := replication.RequestSpace(m.Data)
	if !ok || m.Reply == "" || !w.belongs(string(name), o.shard) {
		w.counts.Malformed++
		return
	}
	sp, ok := w.space(now, o, string(name))
	if !ok {
		return // the replica asks again
	}
	w.counts.RepairAsked += uint64(len(m.Data))
	r := sp.repairs.of(now, m.Reply)
	if r.mustWait(m) || !w.answerRepair(now, sp, r, m) {
		w.counts.RepairsCoalesced++
		w.counts.CoalescedBytes += uint64(len(m.Data))
		r.wait(m)
		sp.repairs.plan()
	}
	w.plan(sp)
}

// answerRepair answers a request, if the answer may leave in this window. Batches that the store has
// not emitted go first, because the answer describes the space behind them.
func (w *Worker) answerRepair(now time.Time, sp *space, r *requester, m bus.Msg) bool {
	r.answers++
	w.emit(now, sp)
	parts := sp.store.Repair(now, m.Data)
	w.emit(now, sp)
	bytes, keyframes := 0, false
	for _, part := range parts {
		bytes += len(part)
		keyframes = keyframes || view.Flags(part[1])&(view.FlagKeyframes|view.FlagStates) != 0
	}
	if !r.admit(bytes, keyframes) {
		return false
	}
	for _, part := range parts {
		w.answer(m.Reply, part)
	}
	w.counts.Repairs++
	w.counts.RepairBytes += uint64(bytes)
	return true
}

// answerWaiting answers the requests that waited for the end of a window, the newest first. Those
// whose answers do not fit into the next window either wait for its end.
func (w *Worker) answerWaiting(now time.Time, sp *space) {
	if sp.repairs.due.IsZero() || now.Before(sp.repairs.due) {
		return
	}
	for _, reply := range sortedKeys(sp.repairs.requesters) {
		r := sp.repairs.requesters[reply]
		if len(r.waiting) == 0 || !r.ended(now) {
			continue
		}
		r.renew(now)
		for n := len(r.waiting); n > 0 && w.answerRepair(now, sp, r, r.waiting[n-1]); n-- {
			r.waiting = r.waiting[:n-1]
		}
	}
	sp.repairs.plan()
}
