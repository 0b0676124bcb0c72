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

// firstSeq is where sequences begin: like those of JetStream at a time in
// milliseconds, so that epochs look as they do.
const firstSeq = 1_790_000_000_000

// A Config says how the store behaves. Its fields may be changed while it runs.
type Config struct {
	// Schedule calls f after delay of simulated time, never before it returns. Now
	// is that time.
	Schedule func(delay time.Duration, f func())
	Now      func() time.Time
	Rand     *rand.Rand

	Latency time.Duration // of one way; 0 means 500 µs
	Loss    float64       // probability that a request or an answer is lost
	Late    float64       // probability that a write without answer is applied seconds later

	// OnStore is called for each keyframe that is stored, by the holder of epoch.
	// nil means that nobody looks.
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
	held   []func() // what happens when the store answers again

	// Violations are things that must never happen and did.
	Violations []string

	writers map[uint64]*Node // who wrote in an epoch
}

// A shard is what the store has of one.
type shard struct {
	own    cluster.Holder
	beat   cluster.Heartbeat
	states map[key]cluster.Keyframe
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

// SetSilent makes the store answer nothing, as during an election, or answer
// again. Half of the writes meanwhile are applied when it does.
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
	for _, n := range h.order { // the watches go on where they were
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

// ask brings an action to the store and its answer back.
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

// do is where things happen in one order.
func (h *Hub) do(by *Node, n int, a cluster.Action, batch []cluster.Keyframe) cluster.Answer {
	s := h.shard(n)
	if a.Kind == cluster.ActionRead {
		return cluster.Answer{Verdict: fence.OK, Holder: s.own, Heartbeat: s.beat}
	}
	if a.ExpectHolder != s.own.Seq ||
		(a.Kind == cluster.ActionStore || a.Kind == cluster.ActionAcquire) && a.ExpectHeartbeat != s.beat.Seq {
		return cluster.Answer{Verdict: fence.Stale}
	}
	h.audit(by, s, a)
	switch a.Kind {
	case cluster.ActionAcquire:
		s.beat = a.Heartbeat
		s.beat.Seq = h.next()
		s.own = a.Holder
		s.own.Seq = h.next()
	case cluster.ActionRelease:
		s.own = a.Holder
		s.own.Seq = h.next()
	default:
		for _, k := range batch {
			h.next()
			s.states[key{k.Space, k.Number}] = k
			if h.OnStore != nil {
				h.OnStore(a.Heartbeat.Epoch, k)
			}
		}
		s.beat = a.Heartbeat
		s.beat.Seq = h.next()
	}
	answer := cluster.Answer{Verdict: fence.OK, Seq: h.seq, Holder: s.own, Heartbeat: s.beat}
	for _, node := range h.order {
		h.Schedule(h.Latency, func() { node.see(n) })
	}
	return answer
}

// audit notes who writes in an epoch, and that it is the epoch of the lease.
func (h *Hub) audit(by *Node, s *shard, a cluster.Action) {
	if a.Kind != cluster.ActionRenew && a.Kind != cluster.ActionStore {
		return
	}
	epoch := a.Heartbeat.Epoch
	if epoch != s.own.Seq || s.own.Released || s.own.Node != by.name || s.own.ID != by.cfg.ID {
		h.Violations = append(h.Violations, fmt.Sprintf("%s wrote in epoch %d, but %s holds epoch %d", by.name, epoch, s.own.Node, s.own.Seq))
	}
	if other, ok := h.writers[epoch]; ok && other != by {
		h.Violations = append(h.Violations, fmt.Sprintf("%s and %s both wrote in epoch %d", other.name, by.name, epoch))
	}
	h.writers[epoch] = by
}

// Holder returns the node that holds a shard, as the store has it.
func (h *Hub) Holder(shard int) string {
	own := h.shard(shard).own
	if own.Released {
		return ""
	}
	return own.Node
}

// Epoch returns the epoch of the holding that Holder tells of.
func (h *Hub) Epoch(shard int) uint64 { return h.shard(shard).own.Seq }

func (h *Hub) next() uint64 {
	h.seq++
	return h.seq
}

// keyframes returns all that is stored of a shard, in a fixed order.
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
