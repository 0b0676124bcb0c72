package cluster

import "errors"

// Errors that Leases tells its callers apart by.
var (
	// ErrNotHeld says that this relay does not hold the shard in that epoch, or
	// lost it before the batch was known to be stored.
	ErrNotHeld = errors.New("the shard is not held")

	// ErrKeyframeSize says that a keyframe is larger than KeyframeBytesMax. Nothing
	// of its batch is stored.
	ErrKeyframeSize = errors.New("a keyframe is too large to be stored")

	// ErrQueueFull says that more waits to be stored than is allowed.
	ErrQueueFull = errors.New("too much waits to be stored")
)

// Bounds of what is stored. A batch for Store may be larger than one write of
// the store; it is then written in several, each all or nothing.
const (
	// KeyframeBytesMax is the most that one keyframe may have.
	KeyframeBytesMax = 900 << 10

	// BatchKeyframesMax is the most that one write of the store has.
	BatchKeyframesMax = 999
)

// A Keyframe is one state of one space as it is stored.
type Keyframe struct {
	Space  string
	Number uint64 // of the state
	Data   []byte // nil or empty if the state was removed
}

// A LeaseEventKind is what happened to a shard.
type LeaseEventKind uint8

// The kinds.
const (
	// ShardAcquired: this relay holds the shard in Epoch. It calls Load next, and
	// speaks for the shard when that is done.
	ShardAcquired LeaseEventKind = iota + 1

	// ShardLost: this relay must not speak for the shard any more.
	ShardLost

	// ShardDurable: whether what this relay accepts for the shard is being stored
	// changed to Durable. It is true at ShardAcquired.
	ShardDurable

	// ShardSeen: another relay, Node, holds the shard in Epoch.
	ShardSeen
)

// A LeaseEvent is something that happened to a shard.
type LeaseEvent struct {
	Kind    LeaseEventKind
	Shard   int
	Epoch   uint64
	Node    string
	Reason  Reason
	Durable bool
}

// Leases is a relay's port to the leases and the durable keyframes of all
// shards. Its methods may be called from any goroutine, also from a callback,
// and none blocks on the store. Callbacks come from goroutines of the adapter;
// those of one shard come one after the other, in order.
type Leases interface {
	// OnEvent sets who is told what happens. It is called once, before Want. handle
	// must not block: while it does, the shard is not renewed.
	OnEvent(handle func(LeaseEvent))

	// Want says whether this relay should hold a shard. It never ends a holding:
	// that takes a Release, because only the relay knows when it has stopped
	// speaking and what there is to store before.
	Want(shard int, want bool)

	// Release ends the holding of epoch in favour of the node to, or of whoever
	// wants the shard if to is empty. The relay must have stopped speaking for the
	// shard. Batches given to Store before are stored first, if the store answers.
	// ShardLost follows. Nothing happens if the shard is not held in that epoch.
	Release(shard int, epoch uint64, to string)

	// Fence says that an epoch was seen on the bus. A holder of a lower one stops.
	Fence(shard int, epoch uint64)

	// Store stores a batch of keyframes in the order of calls, and calls done once:
	// with nil when all is stored, with ErrNotHeld when the holding ended before,
	// in which case none, some or all may be stored, with ErrQueueFull at once if
	// more than the adapter's bound waits, or ErrKeyframeSize. It tries for as long as the shard is
	// held. batch and its bytes belong to the adapter from then on and must not be
	// changed. done must not block. A holder stores nothing before it has loaded.
	Store(shard int, epoch uint64, batch []Keyframe, done func(error))

	// Load brings all keyframes of a shard, in no order, as of the beginning of the
	// holding of epoch: all that earlier holders were told is stored, and nothing
	// older. each is called for a part at a time and may block, which slows the
	// load down; the part and its bytes belong to it. Removed states come with nil
	// Data for as long as the store remembers them. Then done is called once: with
	// nil, or with ErrNotHeld if the holding ended before. It tries for as long as
	// the shard is held.
	Load(shard int, epoch uint64, each func([]Keyframe), done func(error))
}
