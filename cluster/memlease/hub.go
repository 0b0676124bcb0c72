package memlease

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/internal/fence"
)

// firstSeq is the first sequence: a time in milliseconds, as in JetStream, so that epochs look the same.
const firstSeq = 1_790_000_000_000

// A Config says how the store behaves. Its fields may be changed while it runs.
type Config struct {
	// Schedule calls f after delay of simulated time, never before it returns. Now is the simulated
	// time.
	Schedule func(delay time.Duration, f func())
	Now      func() time.Time
	Rand     *rand.Rand

	Latency time.Duration // of one way; 0 means 500 µs
	Loss    float64       // probability that a request or an answer is lost
	Late    float64       // probability that a write without answer is applied seconds later

	// OnStore, if set, is called for each keyframe that the holder of epoch stores.
	OnStore func(epoch uint64, k cluster.Keyframe)
}

// A Hub is the store and all nodes that use it.
type Hub struct {
	Config
	seq    uint64
	shards map[int]*shard
	nodes  map[string]*Node
	order  []*Node
	silent bool
	held   []func() // writes to apply when the store answers again

	// Violations are the broken invariants.
	Violations []string

	writers map[uint64]*Node // the node that wrote in an epoch
}

// A shard is the content of the store for one shard.
type shard struct {
	holder    cluster.Holder
	heartbeat cluster.Heartbeat
	states    map[key]cluster.Keyframe
}

type key struct {
	space  string
	number uint64
}

// New returns an empty store.
func New(cfg Config) *Hub {
	cfg.Latency = cmp.Or(cfg.Latency, 500*time.Microsecond)
	return &Hub{Config: cfg, seq: firstSeq, shards: make(map[int]*shard), nodes: make(map[string]*Node), writers: make(map[uint64]*Node)}
}

// Cut separates a node from the store, or heals that.
func (h *Hub) Cut(name string, cut bool) {
	n := h.nodes[name]
	n.cut = cut
	if !cut {
		for s := range n.leases {
			n.see(s)
		}
	}
}

// SetSilent stops the store from answering, as during an election, or lets it answer again. Half of the
// writes meanwhile are applied then.
func (h *Hub) SetSilent(silent bool) {
	h.silent = silent
	if silent {
		return
	}
	held := h.held
	h.held = nil
	for _, f := range held {
		f()
	}
	for _, n := range h.order { // the watches bring the records
		for s := range n.leases {
			n.see(s)
		}
	}
}

func (h *Hub) shard(n int) *shard {
	s, ok := h.shards[n]
	if !ok {
		s = &shard{states: make(map[key]cluster.Keyframe)}
		h.shards[n] = s
	}
	return s
}

func (h *Hub) lost() bool { return h.Rand.Float64() < h.Loss }

// ask brings an action to the store and the answer back.
func (h *Hub) ask(n *Node, s int, a cluster.Action, batch []cluster.Keyframe, answer func(cluster.Answer)) {
	h.Schedule(h.Latency, func() {
		switch {
		case n.cut:
		case h.silent:
			if h.Rand.IntN(2) == 0 {
				h.held = append(h.held, func() { h.do(n, s, a, batch) })
			}
		case h.lost():
			if h.Rand.Float64() < h.Late {
				h.Schedule(time.Duration(h.Rand.Int64N(int64(8*time.Second))), func() { h.do(n, s, a, batch) })
			}
		default:
			x := h.do(n, s, a, batch)
			if !h.lost() {
				h.Schedule(h.Latency, func() {
					if !n.cut {
						answer(x)
					}
				})
			}
		}
	})
}

// do carries out actions in one order.
func (h *Hub) do(by *Node, n int, a cluster.Action, batch []cluster.Keyframe) cluster.Answer {
	s := h.shard(n)
	if a.Kind == cluster.ActionRead {
		return cluster.Answer{Verdict: fence.OK, Holder: s.holder, Heartbeat: s.heartbeat}
	}
	if a.ExpectHolder != s.holder.Seq ||
		(a.Kind == cluster.ActionStore || a.Kind == cluster.ActionAcquire) && a.ExpectHeartbeat != s.heartbeat.Seq {
		return cluster.Answer{Verdict: fence.Stale}
	}
	h.audit(by, s, a)
	switch a.Kind {
	case cluster.ActionAcquire:
		s.heartbeat = a.Heartbeat
		s.heartbeat.Seq = h.next()
		s.holder = a.Holder
		s.holder.Seq = h.next()
	case cluster.ActionRelease:
		s.holder = a.Holder
		s.holder.Seq = h.next()
	default:
		for _, k := range batch {
			h.next()
			s.states[key{k.Space, k.Number}] = k
			if h.OnStore != nil {
				h.OnStore(a.Heartbeat.Epoch, k)
			}
		}
		s.heartbeat = a.Heartbeat
		s.heartbeat.Seq = h.next()
	}
	answer := cluster.Answer{Verdict: fence.OK, Seq: h.seq, Holder: s.holder, Heartbeat: s.heartbeat}
	for _, node := range h.order {
		h.Schedule(h.Latency, func() { node.see(n) })
	}
	return answer
}

// audit checks that a write is of the epoch of the lease, and that one node writes in it.
func (h *Hub) audit(by *Node, s *shard, a cluster.Action) {
	if a.Kind != cluster.ActionRenew && a.Kind != cluster.ActionStore {
		return
	}
	epoch := a.Heartbeat.Epoch
	if epoch != s.holder.Seq || s.holder.Released || s.holder.Node != by.name || s.holder.ID != by.cfg.ID {
		h.Violations = append(h.Violations, fmt.Sprintf("%s wrote in epoch %d, but %s holds epoch %d", by.name, epoch, s.holder.Node, s.holder.Seq))
	}
	if other, ok := h.writers[epoch]; ok && other != by {
		h.Violations = append(h.Violations, fmt.Sprintf("%s and %s both wrote in epoch %d", other.name, by.name, epoch))
	}
	h.writers[epoch] = by
}

// Holder returns the node that holds a shard, as the store has it.
func (h *Hub) Holder(shard int) string {
	holder := h.shard(shard).holder
	if holder.Released {
		return ""
	}
	return holder.Node
}

// Epoch returns the epoch of the newest record of a holder.
func (h *Hub) Epoch(shard int) uint64 { return h.shard(shard).holder.Seq }

func (h *Hub) next() uint64 {
	h.seq++
	return h.seq
}

// keyframes returns all keyframes of a shard, in a fixed order.
func (s *shard) keyframes() []cluster.Keyframe {
	keys := slices.SortedFunc(maps.Keys(s.states), func(a, b key) int {
		return cmp.Or(cmp.Compare(a.space, b.space), cmp.Compare(a.number, b.number))
	})
	list := make([]cluster.Keyframe, len(keys))
	for i, k := range keys {
		list[i] = s.states[k]
	}
	return list
}
