package replication

import (
	"cmp"
	"slices"
	"time"

	"github.com/dnprelay/dnprelay/replication/view"
)

// asking is the schedule of a replica's requests.
type asking struct {
	kind RepairKind // of the last request
	sent bool       // a request was sent and its answer is not complete
	at   time.Time  // time of the next request
	last time.Time  // time of the last request
	wait time.Duration
	id   uint64 // of the last request for batches or keyframes

	from Asked // whose request it was
}

// An answer collects the keyframes for one request.
type answer struct {
	id         uint64 // of the request
	epoch, seq uint64
	round      uint32 // counts answers; every state that an answer mentions carries the number
	parts      map[uint16]bool
	last       int // number of the last part; -1 while unknown
}

// Apply applies or buffers a live batch. The replica may keep the batch, so the caller must not
// change it.
func (r *Replica) Apply(now time.Time, batch []byte) { r.receive(now, batch, 0) }

// ApplyReply applies one part of the answer to a repair request. The replica may keep the part,
// so the caller must not change it.
func (r *Replica) ApplyReply(now time.Time, part []byte) { r.receive(now, part, view.FlagReply) }

// receive applies a live batch, or one part of an answer if reply is set.
func (r *Replica) receive(now time.Time, p []byte, reply view.Flags) {
	h, records, err := view.Parse(p)
	if err != nil || h.Flags&view.FlagReply != reply || h.Epoch == 0 {
		r.stats.Malformed++
		return
	}
	if !r.follow(now, h.Epoch) {
		return
	}
	r.known = max(r.known, h.Seq)
	r.from = Witnessed{Epoch: h.Epoch, Seq: h.Seq, Repair: true}
	if reply != 0 {
		r.stats.AnsweredBytes += uint64(len(p))
	}
	switch {
	case reply == 0:
		r.applyOrBuffer(h, records)
	case h.Flags&(view.FlagStates|view.FlagSums) != 0:
		r.replyDoubt(h, records)
	case h.Flags&view.FlagKeyframes != 0:
		r.replyKeyframes(now, h, records)
	default:
		r.replyRange(now, h, records)
	}
	r.settle(now)
}

// applyOrBuffer applies a batch of the current epoch, or buffers it.
func (r *Replica) applyOrBuffer(h view.Header, records []byte) {
	switch {
	case !r.broken && h.Seq <= r.seq:
		r.stats.Duplicates++
	case !r.broken && h.Prev == r.seq:
		r.applyBatch(h.Seq, records)
		r.drain()
	default:
		if !r.broken {
			r.stats.Gaps++
		}
		if !r.buffer.add(h, records) {
			r.stats.BufferFull++
		}
	}
}

func (r *Replica) applyBatch(seq uint64, records []byte) {
	r.stats.Batches++
	r.from = Witnessed{Epoch: r.epoch, Seq: seq}
	r.records(records)
	r.seq = seq
	r.applyHeld()
}

// drain applies the buffered batches that follow the position.
func (r *Replica) drain() {
	for !r.broken && len(r.buffer.held) > 0 {
		b, ok := r.buffer.next(r.seq)
		if !ok {
			return
		}
		r.applyBatch(b.seq, b.records)
	}
}

// follow reports whether the replica listens to a message of this epoch. A higher epoch means a
// new holder, whose states may all be different.
func (r *Replica) follow(now time.Time, epoch uint64) bool {
	if epoch < r.top {
		r.stats.OldEpoch++
		return false
	}
	if epoch == r.top {
		return true
	}
	if r.top > 0 {
		r.stats.Epochs++
		r.ask = asking{at: now, id: r.ask.id}
	}
	r.top, r.known = epoch, 0
	r.broken = true
	r.buffer = buffer{}
	r.doubt = doubt{}
	clear(r.refs)
	return true
}

// ApplyHead applies the holder's report of the last sequence number of the space.
func (r *Replica) ApplyHead(now time.Time, epoch, seq uint64) {
	if epoch == 0 || !r.follow(now, epoch) {
		return
	}
	r.known = max(r.known, seq)
	if r.ask.sent && !now.Before(r.ask.last.Add(askAfter)) {
		r.ask.sent, r.ask.wait = false, 0 // the head proves that the holder is reachable: ask at once
	}
	r.settle(now)
}

// Reconnected notes that messages may have been lost without a trace.
func (r *Replica) Reconnected(now time.Time) {
	r.open = true
	r.ask.sent = false // the request or its answer may be lost too
	r.settle(now)
}

// need returns what the replica has to ask for, and 0 if it needs nothing.
func (r *Replica) need() RepairKind {
	switch {
	case r.broken:
		return RepairKeyframes
	case r.open || r.known > r.seq:
		return RepairRange
	case r.doubt.some():
		return RepairStates
	case r.doubt.all:
		return RepairSums
	}
	return 0
}

// wants reports whether the replica needs to ask for something.
func (r *Replica) wants() bool { return r.need() != 0 }

// settle sweeps removed states and plans the next request. The replica asks for a new need at
// once, except that it asks for batches only sooner than askAfter behind the last request: a
// state that differs again and again must not cause a storm of requests.
func (r *Replica) settle(now time.Time) {
	r.states.sweep(func(*State) {})
	need := r.need()
	if need == 0 {
		r.ask.sent, r.ask.wait = false, 0
		return
	}
	if r.ask.sent && r.ask.kind == need {
		return
	}
	if r.ask.kind != need {
		r.ask.sent, r.ask.wait = false, 0
	}
	r.ask.at = now
	if soonest := r.ask.last.Add(askAfter); need != RepairRange && soonest.After(now) {
		r.ask.at = soonest
	}
}

// Advance returns a request for the holder, if one is due. The caller owns its bytes.
func (r *Replica) Advance(now time.Time) (request []byte, ok bool) {
	need := r.need()
	if need == 0 {
		request, ok = r.audit(now)
		r.stats.AskedBytes += uint64(len(request))
		return request, ok
	}
	if now.Before(r.ask.at) {
		return nil, false
	}
	q := RepairRequest{Kind: need, Space: r.space, Epoch: r.top}
	if r.epoch == r.top {
		q.Seq = r.seq
	}
	if need == RepairStates || need == RepairSums {
		if !r.askDoubt(&q) {
			q.Kind = RepairKeyframes
		}
	}
	switch q.Kind {
	case RepairKeyframes:
		q.sums = r.sums()
		r.stats.KeyframeRequests++
	case RepairRange:
		q.From, q.To = r.seq+1, r.known
		if r.open {
			q.To = rangeOpen
		}
		r.stats.RangeRequests++
	default:
		r.stats.StateRequests++
	}
	request = q.append(nil)
	if q.Kind != r.ask.kind {
		r.ask.wait = 0
	}
	r.ask.wait = min(max(2*r.ask.wait, askAfter), askAfterMax)
	r.ask.kind, r.ask.sent, r.ask.last, r.ask.at = q.Kind, true, now, now.Add(r.ask.wait)
	r.Shared(Asked{ID: RequestID(request)})
	r.stats.AskedBytes += uint64(len(request))
	return request, true
}

// Asked is a request whose answer a replica gets, which another replica may have made.
type Asked struct {
	ID     uint64 // from RequestID
	Unlike bool   // another replica asked for keyframes, whose states may differ
	Early  bool   // the answer is older than the request of this replica, which may have missed what followed
}

// Shared says that the answer to another replica's request is also the answer to the last request of this
// one. When it is complete, the replica compares what it has, and asks for later batches, as far as needed.
func (r *Replica) Shared(q Asked) {
	r.ask.from = q
	switch r.ask.kind {
	case RepairRange, RepairKeyframes:
		r.ask.id = q.ID
	default:
		r.doubt.id = q.ID
	}
}

// NextTimeout returns when the owner must call Advance; the zero time means at once.
func (r *Replica) NextTimeout() (time.Time, bool) {
	if r.wants() {
		return r.ask.at, true
	}
	return r.doubt.auditAt, !r.doubt.auditAt.IsZero()
}

// replyRange applies a missed batch. A part without records only reports the last sequence
// number.
func (r *Replica) replyRange(now time.Time, h view.Header, records []byte) {
	if r.broken || h.Epoch != r.epoch {
		r.stats.UnwantedReplies++
		return
	}
	before := r.seq
	if len(records) > 0 {
		r.applyOrBuffer(h, records)
	}
	if h.Flags&view.FlagLast != 0 {
		r.open = false
	}
	if r.seq > before {
		r.progress(now)
	}
}

// progress postpones the repetition of the request while parts of its answer arrive.
func (r *Replica) progress(now time.Time) {
	r.ask.sent, r.ask.wait = true, askAfter
	r.ask.at = now.Add(r.ask.wait)
}

// replyKeyframes applies one part of the answer to the last request. Every part has whole
// states and is applied at once. A lost part costs only its own states: the next request lists
// the others as equal.
func (r *Replica) replyKeyframes(now time.Time, h view.Header, records []byte) {
	older := h.Epoch == r.epoch && h.Seq < r.seq
	if h.Prev != r.ask.id || older || !r.wants() || !r.collect(h) {
		r.stats.UnwantedReplies++
		return
	}
	sound := r.apply(records)
	r.progress(now)
	if !sound {
		r.answer.parts = nil
		return
	}
	if len(r.answer.parts) == r.answer.last+1 {
		r.finish(h)
	}
}

// apply applies the records of an answer, and reports whether all of them were good.
func (r *Replica) apply(records []byte) (sound bool) {
	r.strict, r.faulty = true, false
	r.records(records)
	r.strict = false
	return !r.faulty
}

// collect notes a part and reports whether it is the first with its number. The first part of a
// later answer replaces the collected one. So does the first part of an answer to another
// request, at any position: that answer is cut differently, because its request listed other
// states as equal.
func (r *Replica) collect(h view.Header) bool {
	a := &r.answer
	switch {
	case a.parts == nil || h.Prev != a.id || h.Epoch != a.epoch || h.Seq > a.seq:
		*a = answer{id: h.Prev, epoch: h.Epoch, seq: h.Seq, round: a.round + 1, parts: make(map[uint16]bool), last: -1}
	case h.Seq < a.seq || a.parts[h.Part]:
		return false
	}
	a.parts[h.Part] = true
	if h.Flags&view.FlagLast != 0 {
		a.last = int(h.Part)
	}
	return true
}

// finish ends a repair: it moves the replica to the position of the answer, and removes the states that the answer did not
// mention. The observer sees by the position whether a new holder does not have them.
func (r *Replica) finish(h view.Header) {
	r.epoch, r.seq = h.Epoch, h.Seq
	for _, st := range r.states.all {
		if !st.dead && st.round != r.answer.round {
			r.remove(st)
		}
	}
	r.answer.parts = nil
	r.broken, r.open = false, r.ask.from.Early
	r.ask.sent = false
	if r.ask.from.Unlike {
		r.doubtAll()
	}
	r.ask.from = Asked{}
	r.drain()
}

// A buffer holds batches that cannot be applied yet, by sequence number.
type buffer struct {
	held []heldBatch
	size int // bytes of held
}

type heldBatch struct {
	seq, prev uint64
	records   []byte
}

// add reports whether the buffer holds a batch. A full buffer drops it: the batches in the buffer
// can be applied sooner, and the replica asks for the rest as a range.
func (b *buffer) add(h view.Header, records []byte) bool {
	at, found := slices.BinarySearchFunc(b.held, h.Seq, func(e heldBatch, seq uint64) int {
		return cmp.Compare(e.seq, seq)
	})
	if found {
		return true
	}
	if len(b.held) >= bufferBatches || b.size+len(records) > bufferBytes {
		return false
	}
	b.held = slices.Insert(b.held, at, heldBatch{h.Seq, h.Prev, records})
	b.size += len(records)
	return true
}

// next removes and returns the batch that follows seq. It drops the batches up to seq.
func (b *buffer) next(seq uint64) (heldBatch, bool) {
	for len(b.held) > 0 && b.held[0].seq <= seq {
		b.pop()
	}
	if len(b.held) == 0 || b.held[0].prev != seq {
		return heldBatch{}, false
	}
	return b.pop(), true
}

func (b *buffer) pop() heldBatch {
	e := b.held[0]
	b.size -= len(e.records)
	b.held = slices.Delete(b.held, 0, 1)
	return e
}
