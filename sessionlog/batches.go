package sessionlog

// Bounds of one request. JetStream takes a thousand messages in one atomic batch, and
// a mebibyte in one message.
const (
	batchWrites = 500
	batchBytes  = 512 << 10
)

// Batches collects the writes of many sessions, so that those of a log shard go to
// the log as one request where it can take them so. Each write still is fenced and
// answered by itself. T is what its answer is for. The zero value is not usable; see
// NewBatches.
type Batches[T any] struct {
	shards []batch[T]
	used   []int // shards with writes, in the order of their first
}

type batch[T any] struct {
	writes []Write
	owners []T
}

// NewBatches returns an empty collection for so many log shards.
func NewBatches[T any](shards int) *Batches[T] { return &Batches[T]{shards: make([]batch[T], shards)} }

// Add takes the write of an ActionAppend.
func (b *Batches[T]) Add(owner T, w Write) {
	i := Shard(w.Log, len(b.shards))
	t := &b.shards[i]
	if len(t.writes) == 0 {
		b.used = append(b.used, i)
	}
	t.writes, t.owners = append(t.writes, w), append(t.owners, owner)
}

// Flush hands everything to send, a shard at a time and no more at once than a log
// takes in one request. The slices are the receiver's.
func (b *Batches[T]) Flush(send func(shard int, writes []Write, owners []T)) {
	for _, i := range b.used {
		t := b.shards[i]
		b.shards[i] = batch[T]{}
		for from := 0; from < len(t.writes); {
			to, bytes := from, 0
			for to < len(t.writes) && to-from < batchWrites && (to == from || bytes+len(t.writes[to].Data) <= batchBytes) {
				bytes += len(t.writes[to].Data)
				to++
			}
			send(i, t.writes[from:to:to], t.owners[from:to:to])
			from = to
		}
	}
	b.used = b.used[:0]
}
