package socket

import (
	"sync"

	"github.com/dnprelay/dnprelay/cluster/forward"
)

// Bounds of a batch. What does not fit is dropped, and counted.
const (
	batchOps   = 8192
	batchBytes = 4 << 20
)

// An op is what a worker wants: to forward a datagram to a node, or to return one by it.
type op struct {
	back   bool
	hops   uint8
	node   string
	client forward.Client
	epoch  uint64
	data   []byte // in the batch
}

// A batch is what workers want between two turns of Run.
type batch struct {
	ops   []op
	bytes []byte
}

// add copies o into the batch. It reports whether there was room.
func (b *batch) add(o op) bool {
	if len(b.ops) >= batchOps || len(b.bytes)+len(o.data) > batchBytes {
		return false
	}
	at := len(b.bytes)
	b.bytes = append(b.bytes, o.data...)
	o.data = b.bytes[at:] // stays as it is when bytes grows elsewhere
	b.ops = append(b.ops, o)
	return true
}

func (b *batch) reset() {
	clear(b.ops)
	b.ops, b.bytes = b.ops[:0], b.bytes[:0]
}

// A queue brings what workers want to the goroutine of Run.
//
// It has a mutex, because all workers put datagrams into the same batch: one each would
// need somebody who says that a worker's turn is over. It is held for one copy.
type queue struct {
	mu      sync.Mutex
	filling *batch
	lost    uint64
}

func (q *queue) put(o op) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.filling.add(o) {
		q.lost++
	}
}

// take returns what was put since, and has empty filled next.
func (q *queue) take(empty *batch) *batch {
	q.mu.Lock()
	defer q.mu.Unlock()
	full := q.filling
	q.filling = empty
	return full
}

func (q *queue) drops() uint64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.lost
}
