package cluster

import (
	"errors"

	"github.com/dnprelay/dnprelay/cluster/lease"
)

// Errors of Leases.
var (
	// ErrNotHeld says that this relay does not hold the shard in that epoch, or lost it before
	// the batch was known to be stored.
	ErrNotHeld = errors.New("the shard is not held")

	// ErrKeyframeSize says that a keyframe is larger than KeyframeBytesMax. Nothing of its
	// batch is stored.
	ErrKeyframeSize = errors.New("a keyframe is too large to be stored")

	// ErrQueueFull says that more waits to be stored than is allowed.
	ErrQueueFull = errors.New("too much waits to be stored")
)

// Bounds of what is stored. A batch for Store may be larger than one write of the store; it is
// then written in several.
const (
	// KeyframeBytesMax bounds the data of one keyframe.
	KeyframeBytesMax = 900 << 10

	// BatchKeyframesMax bounds the keyframes of one write of the store.
	BatchKeyframesMax = 998
)

// A Keyframe is one state of one space as it is stored.
type Keyframe struct {
	Space  string
	Number uint64 // of the state
	Data   []byte // nil or empty if the state was removed
}

// A LeaseEventKind is the kind of a LeaseEvent.
type LeaseEventKind uint8

// The kinds.
const (
	// ShardAcquired: this relay holds the shard in Epoch. It calls Load next, and serves the
	// shard when that is done.
	ShardAcquired LeaseEventKind = iota + 1

	// ShardLost: this relay must stop serving the shard.
	ShardLost

	// ShardPaused: the store has been silent for so long that this relay must not serve the shard before ShardResumed. It still
	// holds it.
	ShardPaused
	ShardResumed

	// ShardDurable: whether the changes that this relay accepts for the shard are being stored
	// changed to Durable. It is true at ShardAcquired.
	ShardDurable

	// ShardPlaced: Node should hold the shard, which this relay holds; any relay, if it is empty. It is this relay at ShardAcquired.
	ShardPlaced

	// ShardSeen: another relay, Node, holds the shard in Epoch. Node is empty if the record has
	// another format.
	ShardSeen
)

// A LeaseEvent is a change of who holds a shard.
type LeaseEvent struct {
	Kind    LeaseEventKind
	Shard   int
	Epoch   uint64
	Node    string
	Reason  lease.Reason
	Durable bool

	// ShardAcquired: the epoch that this relay lost with its lease, or with the loss of the store, if
	// no other relay held the shard between; 0 for none. Nothing is newer then than what the
	// relay still has from that epoch. Wiped says that the store does not have it.
	Former uint64
	Wiped  bool
}

// Leases is a relay's port to the leases and the durable keyframes of all shards. Its methods may
// be called from any goroutine, also from a callback, and do not block on the store. Callbacks
// come from goroutines of the adapter; those of one shard come one after the other, in order.
type Leases interface {
	// OnEvent sets the receiver of events. It is called once, before Alive. handle must not
	// block: while it does, nothing is renewed.
	OnEvent(handle func(LeaseEvent))

	// Alive says that the worker of a shard turns, and whether this relay may be given shards. The worker repeats it every
	// lease.AliveInterval, or loses the shard.
	Alive(shard int, open bool)

	// Release gives the shard that this relay holds in epoch to the node successor, or to any
	// relay if successor is empty. The relay must have stopped serving the shard.
	// Batches given to Store before are stored first, if the store answers. ShardLost follows.
	// Nothing happens if the shard is not held in that epoch.
	Release(shard int, epoch uint64, successor string)

	// Fence says that an epoch was seen on the bus. A holder of a lower one stops serving.
	Fence(shard int, epoch uint64)

	// Store stores a batch of keyframes in the order of calls, and calls done once: with nil
	// when everything is stored, with ErrNotHeld when this relay lost the shard before, in
	// which case none, some or all keyframes may be stored, with ErrQueueFull at once if more
	// than the adapter's bound waits, or with ErrKeyframeSize. It tries for as long as the
	// shard is held. One batch of a shard is under way at a time. batch and its bytes belong to the adapter from then on and must not be
	// changed. done must not block. A holder stores nothing before it has loaded. An empty batch
	// is a question: after nil, the relay held the shard at a moment after the call.
	Store(shard int, epoch uint64, batch []Keyframe, done func(error))

	// Load brings all keyframes of a shard, in no order, as of the beginning of epoch:
	// everything that earlier holders were told is stored, and nothing older. each is called
	// for a part at a time and may block, which slows the load down; the part and its bytes
	// belong to it. Removed states come with nil Data for as long as the store remembers them.
	// Then done is called once: with nil, with ErrNotHeld if this relay lost the shard before, or
	// with why the store refuses the load for too long; the relay asks again then. Load waits for a
	// silent store for as long as the shard is held.
	Load(shard int, epoch uint64, each func([]Keyframe), done func(error))
}
