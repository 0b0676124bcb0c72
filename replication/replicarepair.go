package replication

import (
	"slices"
	"time"

	"github.com/dnprelay/dnprelay/replication/view"
)

// asking is what a replica remembers of its requests.
type asking struct {
	sent bool      // a request is out, and was not answered in full
	at   time.Time // when the next one is due
	last time.Time // when one was sent last
	wait time.Duration
	id   uint64 // of the last request
}

// An answer is the keyframes that came so far for one request.
type answer struct {
	id         uint64 // of the request
	epoch, seq uint64
	round      uint32 // counts answers; states that an answer mentions carry it
	parts      map[uint16]bool
	last       int // number of the last part; -1 while unknown
}

// Apply takes a live batch. The replica may keep it, so it must not change.
func (r *Replica) Apply(now time.Time, batch []byte) {
	h, records, err := view.Parse(batch)
	if err != nil || h.Flags&view.FlagReply != 0 || h.Epoch == 0 {
		r.stats.Malformed++
		return
	}
	if !r.follow(now, h.Epoch) {
		return
	}
	r.known = max(r.known, h.Seq)
	r.take(h, records)
	r.settle(now)
}

// take applies a batch of the current epoch, or holds it.
func (r *Replica) take(h view.Header, records []byte) {
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
		if _, full := r.buffer.add(h, records); full {
			r.stats.BufferFull++
		}
	}
}

func (r *Replica) applyBatch(seq uint64, records []byte) {
	r.stats.Batches++
	r.records(records)
	r.seq = seq
}

// drain applies what the buffer holds next.
func (r *Replica) drain() {
	for !r.broken && len(r.buffer.held) > 0 {
		b, ok := r.buffer.next(r.seq)
		if !ok {
			return
		}
		r.applyBatch(b.seq, b.records)
	}
}

// follow reports whether what comes with this epoch is to be listened to. A
// higher epoch is a new holder, and all that it has may be different.
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
	r.buffer.reset()
	clear(r.refs)
	return true
}

// ApplyHead takes the holder's word on how far the space is.
func (r *Replica) ApplyHead(now time.Time, epoch, seq uint64) {
	if epoch == 0 || !r.follow(now, epoch) {
		return
	}
	r.known = max(r.known, seq)
	if r.ask.sent && !now.Before(r.ask.last.Add(r.cfg.AskAfter)) {
		r.ask.sent, r.ask.wait = false, 0 // the holder can be heard, so it is worth asking at once
	}
	r.settle(now)
}

// Reconnected says that messages may have been lost without a trace.
func (r *Replica) Reconnected(now time.Time) {
	r.open = true
	r.ask.sent = false // the request or its answer may be among them
	r.settle(now)
}

// wants reports whether the replica has something to ask for.
func (r *Replica) wants() bool { return r.broken || r.open || r.known > r.seq }

// settle plans the next request. A need that just arose is asked for at once,
// but keyframes not faster than the first repetition would be: a state that
// differs again and again must not become a storm.
func (r *Replica) settle(now time.Time) {
	if !r.wants() {
		r.ask.sent, r.ask.wait = false, 0
		return
	}
	if r.ask.sent {
		return
	}
	at := now
	if soonest := r.ask.last.Add(r.cfg.AskAfter); r.broken && !r.ask.last.IsZero() && soonest.After(now) {
		at = soonest
	}
	r.ask.at = at
}

// Advance returns a request to send to the holder, if one is due. The caller
// owns it.
func (r *Replica) Advance(now time.Time) (request []byte, ok bool) {
	if !r.wants() || now.Before(r.ask.at) {
		return nil, false
	}
	q := RepairRequest{Space: r.space, Epoch: r.top, Seq: r.seq}
	if r.broken {
		q.Kind, q.sums = RepairKeyframes, r.sums()
		r.stats.KeyframeRequests++
	} else {
		q.Kind, q.From, q.To = RepairRange, r.seq+1, r.known
		if r.open {
			q.To = rangeOpen
		}
		r.stats.RangeRequests++
	}
	request = q.append(nil)
	r.ask.wait = min(max(2*r.ask.wait, r.cfg.AskAfter), r.cfg.AskAfterMax)
	r.ask.sent, r.ask.last, r.ask.at = true, now, now.Add(r.ask.wait)
	r.ask.id = requestID(request)
	return request, true
}

// NextTimeout returns when Advance must be called; the zero time means at once.
func (r *Replica) NextTimeout() (time.Time, bool) { return r.ask.at, r.wants() }

// ApplyReply takes one message of the answer to a repair request. The replica
// may keep it, so it must not change.
func (r *Replica) ApplyReply(now time.Time, part []byte) {
	h, records, err := view.Parse(part)
	if err != nil || h.Flags&view.FlagReply == 0 || h.Epoch == 0 {
		r.stats.Malformed++
		return
	}
	if !r.follow(now, h.Epoch) {
		return
	}
	r.known = max(r.known, h.Seq)
	if h.Flags&view.FlagKeyframes != 0 {
		r.replyKeyframes(now, h, records)
	} else {
		r.replyRange(now, h, records)
	}
	r.settle(now)
}

// replyRange takes a batch that was missed. An answer without records only says
// how far the space is.
func (r *Replica) replyRange(now time.Time, h view.Header, records []byte) {
	if r.broken || h.Epoch != r.epoch {
		r.stats.UnwantedReplies++
		return
	}
	before := r.seq
	if len(records) > 0 {
		r.take(h, records)
	}
	if h.Flags&view.FlagLast != 0 {
		r.open = false
	}
	if r.seq > before {
		r.progress(now)
	}
}

// progress says that an answer is arriving, so that it is not asked for again
// as long as parts keep coming.
func (r *Replica) progress(now time.Time) {
	r.ask.sent, r.ask.wait = true, r.cfg.AskAfter
	r.ask.at = now.Add(r.ask.wait)
}

// replyKeyframes takes one part of the answer to the last request. Every part
// has whole states, so it is applied at once, and a part that gets lost only
// costs its own states: the next request lists the others as equal.
func (r *Replica) replyKeyframes(now time.Time, h view.Header, records []byte) {
	older := h.Epoch == r.epoch && h.Seq < r.seq
	if h.Prev != r.ask.id || older || !r.wants() || !r.collect(h) {
		r.stats.UnwantedReplies++
		return
	}
	r.broken = false
	r.records(records)
	faulty := r.broken
	r.broken = true
	r.progress(now)
	if faulty {
		r.answer.parts = nil
		return
	}
	if len(r.answer.parts) == r.answer.last+1 {
		r.finish(h)
	}
}

// collect notes a part and reports whether it is the first of its number. The
// first part of a later answer drops what is known of the one before. So does that
// of an answer to another request, at whatever position: it is cut differently,
// because the request listed what came meanwhile.
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

// finish ends a repair: what the answer did not mention is gone, and the
// replica is at its position.
func (r *Replica) finish(h view.Header) {
	for _, st := range r.order {
		if !st.dead && st.round != r.answer.round {
			r.remove(st)
		}
	}
	r.answer.parts = nil
	r.epoch, r.seq = h.Epoch, h.Seq
	r.broken, r.open = false, false
	r.ask.sent = false
	r.drain()
}

// A buffer holds batches that cannot be applied yet, by seq.
type buffer struct {
	batches, bytes int // bounds
	held           []heldBatch
	size           int // bytes of held
}

type heldBatch struct {
	seq, prev uint64
	records   []byte
}

// add holds a batch. When the buffer is full the batch is dropped: what is held
// already can be applied sooner, and the rest is asked for as a range.
func (b *buffer) add(h view.Header, records []byte) (held, full bool) {
	at, found := slices.BinarySearchFunc(b.held, h.Seq, func(e heldBatch, seq uint64) int {
		if e.seq == seq {
			return 0
		}
		return compare(e.seq, seq)
	})
	if found {
		return false, false
	}
	if len(b.held) >= b.batches || b.size+len(records) > b.bytes {
		return false, true
	}
	b.held = slices.Insert(b.held, at, heldBatch{h.Seq, h.Prev, records})
	b.size += len(records)
	return true, false
}

// next removes and returns the batch that follows seq, after those that do not
// come later than seq.
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

func (b *buffer) reset() {
	clear(b.held)
	b.held, b.size = b.held[:0], 0
}
