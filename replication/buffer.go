package replication

import (
	"slices"

	"github.com/dnprelay/dnprelay/replication/view"
)

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
