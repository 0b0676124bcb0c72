// Package turn has the parts of goroutines that own their state and are turned: a loop, or
// a simulation, calls one method that handles what was posted and does what is due.
//
// Others hand them work through an [Inbox], which is bounded and drops work beyond its
// bound, or through a [Queue], which never drops any, and wake them. An owner whose loop
// waits in a select sleeps on a [Wake]; one whose loop waits in a system call brings a
// wake function of its own.
package turn

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// A Wake wakes one goroutine that receives from it. It has one slot, so waking never
// blocks, and one wake-up stands for all that came before it was received.
type Wake chan struct{}

// NewWake returns a Wake.
func NewWake() Wake { return make(Wake, 1) }

// Wake wakes the receiver. Any goroutine may call it.
func (w Wake) Wake() {
	select {
	case w <- struct{}{}:
	default:
	}
}

// Sleep waits for d or until ctx ends, and reports whether ctx goes on.
func Sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// An Inbox holds items for one owner, up to a number of items and of bytes that they
// hold. It loses and counts an item that does not fit, so it is for items whose sender
// notices the loss and asks again.
type Inbox[T any] struct {
	items    chan item[T]
	bytesMax int64
	bytes    atomic.Int64
	lost     atomic.Uint64
	wake     func()
}

type item[T any] struct {
	value T
	size  int64
}

// NewInbox returns an empty inbox. wake is called from any goroutine, after an item was
// posted; it must not block.
func NewInbox[T any](itemsMax int, bytesMax int64, wake func()) *Inbox[T] {
	return &Inbox[T]{items: make(chan item[T], itemsMax), bytesMax: bytesMax, wake: wake}
}

// Post adds an item that holds size bytes, from any goroutine. It never blocks. It reports
// false if the item is lost.
func (b *Inbox[T]) Post(value T, size int) bool {
	if b.bytes.Add(int64(size)) <= b.bytesMax {
		select {
		case b.items <- item[T]{value, int64(size)}:
			b.wake()
			return true
		default:
		}
	}
	b.bytes.Add(-int64(size))
	b.lost.Add(1)
	return false
}

// Take removes the items that were there when it began and gives them to handle, so that
// an owner with a full inbox gets to do other things, too.
func (b *Inbox[T]) Take(handle func(T)) {
	for range len(b.items) {
		x := <-b.items
		handle(x.value)
		b.bytes.Add(-x.size)
	}
}

// Len returns the number of items.
func (b *Inbox[T]) Len() int { return len(b.items) }

// Bytes returns how many bytes the items hold.
func (b *Inbox[T]) Bytes() int64 { return max(0, b.bytes.Load()) }

// Lost returns how many items were lost.
func (b *Inbox[T]) Lost() uint64 { return b.lost.Load() }

// A Queue holds items for one owner and never loses one. It has no bound of its own: the
// senders must have one, as a request has one answer.
//
// The mutex is there because items come from the goroutines of adapters, and a channel
// would have to block them when it is full.
type Queue[T any] struct {
	wake func()

	mu          sync.Mutex
	list, spare []T
}

// NewQueue returns an empty queue. wake is called from any goroutine, after an item was
// put in; it must not block.
func NewQueue[T any](wake func()) *Queue[T] { return &Queue[T]{wake: wake} }

// Put adds an item, from any goroutine. It never blocks.
func (q *Queue[T]) Put(value T) {
	q.mu.Lock()
	q.list = append(q.list, value)
	q.mu.Unlock()
	q.wake()
}

// Take removes all items and returns them. The list is valid until the next call.
func (q *Queue[T]) Take() []T {
	q.mu.Lock()
	defer q.mu.Unlock()
	clear(q.spare)
	list := q.list
	q.list, q.spare = q.spare[:0], list
	return list
}
