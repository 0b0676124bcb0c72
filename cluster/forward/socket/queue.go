package socket

import (
	"sync"
	"sync/atomic"

	"github.com/dnprelay/dnprelay/cluster/forward"
)

// Bounds of a batch. A datagram that does not fit is dropped and counted.
const (
	batchOps   = 8192
	batchBytes = 4 << 20
)

// An op is a datagram of a worker: to be forwarded to a node, or returned by it.
type op struct {
	back   bool
	hops   uint8
	node   string
	client forward.Client
	epoch  uint64
	data   []byte // in the batch
}

// A batch is the datagrams of the workers between two turns of Run.
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
	o.data = b.bytes[at:] // stays valid when bytes moves
	b.ops = append(b.ops, o)
	return true
}

func (b *batch) reset() {
	clear(b.ops)
	b.ops, b.bytes = b.ops[:0], b.bytes[:0]
}

// A queue brings datagrams of workers to the goroutine of Run.
//
// The mutex is there because all workers put datagrams into the same batch: with a batch
// for each, they would have to say when a turn of theirs is over. It is held for one copy.
type queue struct {
	mu      sync.Mutex
	filling *batch
	lost    atomic.Uint64
}

func (q *queue) put(o op) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.filling.add(o) {
		q.lost.Add(1)
	}
}

// take returns the batch that was filled, and has empty filled next.
func (q *queue) take(empty *batch) *batch {
	q.mu.Lock()
	defer q.mu.Unlock()
	full := q.filling
	q.filling = empty
	return full
}
