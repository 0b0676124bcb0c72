package replication

import (
	"time"

	"github.com/dnprelay/dnprelay/replication/view"
)

// A batcher numbers batches and keeps the outputs of a Store in the order in which they
// leave: an answer, a write result or an event never overtakes the batch with its change.
type batcher struct {
	epoch, seq uint64 // of the last batch
	durable    bool   // what answers say about the durable store

	changed []*stored // states with marks, in the order of their first change
	removed []*stored // states that end with the next batch
	emitted time.Time // when the last changes were emitted

	records []byte // of the batch being built
	trace   []byte // trace block of the next batches; empty if no change in them is sampled
	ring    ring

	waiting []Output // leave behind the next batch
	ready   []Output // Advance returns them
	spare   []Output // the slice that the last Advance returned, reused by the next
}

func (b *batcher) pending() bool { return len(b.changed) > 0 || len(b.removed) > 0 }

// mark queues st for emission.
func (b *batcher) mark(st *stored) {
	if !st.queued {
		st.queued = true
		b.changed = append(b.changed, st)
	}
}

// send puts o behind everything that has changed.
func (b *batcher) send(o Output) {
	if b.pending() {
		b.waiting = append(b.waiting, o)
		return
	}
	b.sendNow(o)
}

// sendNow sends o at the current position, ahead of pending changes.
func (b *batcher) sendNow(o Output) {
	switch o.Kind {
	case OutputAnswer:
		o.Answer.Epoch, o.Answer.Seq, o.Answer.Durable = b.epoch, b.seq, b.durable
	case OutputWrite:
		o.Write.Epoch, o.Write.Seq = b.epoch, b.seq
	case OutputEvent:
		o.Event.Epoch, o.Event.Seq = b.epoch, b.seq
	}
	b.ready = append(b.ready, o)
}

// splitIfFull cuts the batch before the records that were appended since begin, if those make it
// too large.
func (b *batcher) splitIfFull(now time.Time, begin int, stats *StoreStats) {
	if len(b.records) > recordsMax {
		b.cut(now, begin, stats)
	}
}

// cut sends the first n bytes of records as one batch. The batch has bytes of its own,
// because the bus, the ring and many replicas share them.
func (b *batcher) cut(now time.Time, n int, stats *StoreStats) {
	if n == 0 {
		return
	}
	h := view.Header{Epoch: b.epoch, Seq: b.seq + 1, Prev: b.seq}
	if len(b.trace) > 0 {
		h.Flags, h.Trace = view.FlagTrace, b.trace
	}
	b.seq++
	data := make([]byte, 0, view.HeaderMax+n)
	data = append(h.Append(data), b.records[:n]...)
	b.records = b.records[:copy(b.records, b.records[n:])]
	b.ring.add(now, b.seq, data)
	b.ready = append(b.ready, Output{Kind: OutputBatch, Data: data})
	stats.Batches++
	stats.BatchBytes += uint64(len(data))
}

// release sends the outputs that waited for the batches of an emission.
func (b *batcher) release() {
	b.trace = b.trace[:0]
	for _, o := range b.waiting {
		b.sendNow(o)
	}
	clear(b.waiting)
	b.waiting = b.waiting[:0]
}

// take returns the outputs that are ready. The result is valid until the next take.
func (b *batcher) take() []Output {
	out := b.ready
	clear(b.spare)
	b.ready, b.spare = b.spare[:0], out
	return out
}

// Bounds of the batches that a holder keeps for replicas that missed some of them.
const (
	ringAge   = 4 * time.Second
	ringBytes = 4 << 20
)

// A ring holds the newest batches in the order of their sequence numbers.
type ring struct {
	batches []ringBatch
	first   int // index of the oldest in batches
	bytes   int
}

type ringBatch struct {
	at   time.Time
	seq  uint64
	data []byte
}

// add appends a batch and drops the oldest ones while the ring is beyond its bounds. The
// newest batch always stays.
func (r *ring) add(now time.Time, seq uint64, data []byte) {
	r.batches = append(r.batches, ringBatch{now, seq, data})
	r.bytes += len(data)
	last := len(r.batches) - 1
	for r.first < last && (r.bytes > ringBytes || now.Sub(r.batches[r.first].at) > ringAge) {
		r.bytes -= len(r.batches[r.first].data)
		r.batches[r.first] = ringBatch{}
		r.first++
	}
	if r.first > 64 && r.first > len(r.batches)/2 {
		n := copy(r.batches, r.batches[r.first:])
		clear(r.batches[n:])
		r.batches, r.first = r.batches[:n], 0
	}
}

// from returns the batches from seq on. It is not ok if the ring does not reach back to seq.
func (r *ring) from(seq uint64) ([]ringBatch, bool) {
	all := r.batches[r.first:]
	if len(all) == 0 || seq < all[0].seq {
		return nil, false
	}
	skip := seq - all[0].seq
	if skip > uint64(len(all)) {
		skip = uint64(len(all))
	}
	return all[skip:], true
}
