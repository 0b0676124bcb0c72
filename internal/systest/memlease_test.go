package systest

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/dnprelay/dnprelay/cluster"
	verdict "github.com/dnprelay/dnprelay/internal/fence"
)

// firstSeq is the first sequence: a time in milliseconds, as in JetStream, so that epochs look the same.
const firstSeq = 1_790_000_000_000

// A leaseConfig says how the store behaves. Its fields may be changed while it runs.
type leaseConfig struct {
	// Schedule calls f after delay of simulated time, never before it returns. Now is the simulated
	// time.
	Schedule func(delay time.Duration, f func())
	Now      func() time.Time
	Rand     *rand.Rand

	Latency time.Duration // of one way; 0 means 500 µs
	Loss    float64       // probability that a request or an answer is lost
	Late    float64       // probability that a write without answer is applied seconds later

	// Slow, if set, returns how much longer than Latency a request, an answer or a part of a load takes, which may bring
	// them out of order. Part is how many keyframes a part of a load has at most; 0 means that a load has one part.
	Slow func() time.Duration
	Part int

	// OnAcquire, if set, is called with what is stored when a node becomes the holder of a shard in an epoch, and OnLoad
	// when it begins to load the shard.
	OnAcquire func(n *leaseNode, shard int, epoch uint64, stored []cluster.Keyframe)
	OnLoad    func()

	// OnStore, if set, is called for each keyframe that the holder of epoch stores.
	OnStore func(epoch uint64, k cluster.Keyframe)
}

// A leaseHub is [cluster.Leases] over a store in memory, with all nodes that use it.
//
//	hub := newLeaseHub(leaseConfig{Schedule: net.Schedule, Now: net.Now, Rand: rnd, Loss: 0.01})
//	leases := hub.Node("relay1", "start1", 64)
//	...
//	hub.SetSilent(true) // the store elects a leader
//	hub.Cut("relay1", true)
//
// The leases are the product's ([cluster.Lease]); only the store is a model: linearizable like a
// JetStream stream, with a latency, answers that are lost, writes that are applied late, and outages in
// which it does not answer.
//
// It belongs to the goroutine that runs the scheduled functions.
type leaseHub struct {
	leaseConfig
	seq    uint64
	shards map[int]*leaseShard
	nodes  map[string]*leaseNode
	order  []*leaseNode
	silent bool
	held   []func() // writes to apply when the store answers again

	// Violations are the broken invariants.
	Violations []string

	writers map[uint64]*leaseNode // the node that wrote in an epoch
}

// A leaseShard is the content of the store for one shard.
type leaseShard struct {
	holder    cluster.Holder
	heartbeat cluster.Heartbeat
	states    map[stateKey]cluster.Keyframe
}

type stateKey struct {
	space  string
	number uint64
}

// newLeaseHub returns an empty store.
func newLeaseHub(cfg leaseConfig) *leaseHub {
	cfg.Latency = cmp.Or(cfg.Latency, 500*time.Microsecond)
	return &leaseHub{leaseConfig: cfg, seq: firstSeq, shards: make(map[int]*leaseShard), nodes: make(map[string]*leaseNode), writers: make(map[uint64]*leaseNode)}
}

// Cut separates a node from the store, or heals that.
func (h *leaseHub) Cut(name string, cut bool) {
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
func (h *leaseHub) SetSilent(silent bool) {
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

// Wipe deletes the store and makes it anew; the sequences go on far behind. Nodes notice after a
// while, each for itself.
func (h *leaseHub) Wipe() {
	clear(h.shards)
	h.seq += 1 << 20
	for _, n := range h.order {
		h.Schedule(time.Duration(h.Rand.Int64N(int64(2*time.Second))), func() {
			for s, l := range n.leases {
				l.Wiped(h.Now())
				n.turn(s)
			}
		})
	}
}

func (h *leaseHub) shard(n int) *leaseShard {
	s, ok := h.shards[n]
	if !ok {
		s = &leaseShard{states: make(map[stateKey]cluster.Keyframe)}
		h.shards[n] = s
	}
	return s
}

// delay returns how long something takes on one way.
func (h *leaseHub) delay() time.Duration {
	if h.Slow == nil {
		return h.Latency
	}
	return h.Latency + h.Slow()
}

func (h *leaseHub) lost() bool { return h.Rand.Float64() < h.Loss }

// ask brings an action to the store and the answer back.
func (h *leaseHub) ask(n *leaseNode, s int, a cluster.Action, batch []cluster.Keyframe, answer func(cluster.Answer)) {
	h.Schedule(h.delay(), func() {
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
				h.Schedule(h.delay(), func() {
					if !n.cut {
						answer(x)
					}
				})
			}
		}
	})
}

// do carries out actions in one order.
func (h *leaseHub) do(by *leaseNode, n int, a cluster.Action, batch []cluster.Keyframe) cluster.Answer {
	s := h.shard(n)
	if a.Kind == cluster.ActionRead {
		return cluster.Answer{Verdict: verdict.OK, Holder: s.holder, Heartbeat: s.heartbeat}
	}
	if a.ExpectHolder != s.holder.Seq ||
		(a.Kind == cluster.ActionStore || a.Kind == cluster.ActionAcquire) && a.ExpectHeartbeat != s.heartbeat.Seq {
		return cluster.Answer{Verdict: verdict.Stale}
	}
	h.audit(by, s, a)
	switch a.Kind {
	case cluster.ActionAcquire:
		s.heartbeat = a.Heartbeat
		s.heartbeat.Seq = h.next()
		s.holder = a.Holder
		s.holder.Seq = h.next()
		if h.OnAcquire != nil {
			h.OnAcquire(by, n, s.holder.Seq, s.keyframes())
		}
	case cluster.ActionRelease:
		s.holder = a.Holder
		s.holder.Seq = h.next()
	default:
		for _, k := range batch {
			h.next()
			s.states[stateKey{k.Space, k.Number}] = k
			if h.OnStore != nil {
				h.OnStore(a.Heartbeat.Epoch, k)
			}
		}
		s.heartbeat = a.Heartbeat
		s.heartbeat.Seq = h.next()
	}
	answer := cluster.Answer{Verdict: verdict.OK, Seq: h.seq, Holder: s.holder, Heartbeat: s.heartbeat}
	for _, node := range h.order {
		h.Schedule(h.delay(), func() { node.see(n) })
	}
	return answer
}

// audit checks that a write is of the epoch of the lease, and that one node writes in it.
func (h *leaseHub) audit(by *leaseNode, s *leaseShard, a cluster.Action) {
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
func (h *leaseHub) Holder(shard int) string {
	holder := h.shard(shard).holder
	if holder.Released {
		return ""
	}
	return holder.Node
}

// Epoch returns the epoch of the newest record of a holder.
func (h *leaseHub) Epoch(shard int) uint64 { return h.shard(shard).holder.Seq }

func (h *leaseHub) next() uint64 {
	h.seq++
	return h.seq
}

// keyframes returns all keyframes of a shard, in a fixed order.
func (s *leaseShard) keyframes() []cluster.Keyframe {
	keys := slices.SortedFunc(maps.Keys(s.states), func(a, b stateKey) int {
		return cmp.Or(cmp.Compare(a.space, b.space), cmp.Compare(a.number, b.number))
	})
	list := make([]cluster.Keyframe, len(keys))
	for i, k := range keys {
		list[i] = s.states[k]
	}
	return list
}

// queueMax is how many batches of a shard may wait.
const queueMax = 16

// loadPause is how long a load waits for a store that does not answer.
const loadPause = 100 * time.Millisecond

// A leaseNode is the cluster.Leases of one relay.
type leaseNode struct {
	hub     *leaseHub
	name    string
	cfg     cluster.LeaseConfig
	leases  []*nodeLease
	handle  func(cluster.LeaseEvent)
	cut     bool
	stopped bool
	paused  bool
}

// A nodeLease is one shard of a node.
type nodeLease struct {
	*cluster.Lease
	queue   []leaseBatch
	storing bool // the first of queue is with the lease
	token   uint64
	turns   uint64 // of the lease; a timer of an older turn is outdated

	leaving   bool // the shard is released behind the last batch
	successor string
}

type leaseBatch struct {
	list []cluster.Keyframe
	done func(error)
}

// Node returns the leases of a relay that has just started. A former relay with this name is dead.
func (h *leaseHub) Node(name, id string, shards int) *leaseNode {
	n := &leaseNode{hub: h, name: name, cfg: cluster.LeaseConfig{Node: name, ID: id}}
	for range shards {
		n.leases = append(n.leases, &nodeLease{Lease: cluster.NewLease(n.cfg)})
	}
	if old, ok := h.nodes[name]; ok {
		old.stopped = true
	}
	h.nodes[name] = n
	h.order = append(h.order, n)
	return n
}

// Stop ends the node as kill -9 does.
func (n *leaseNode) Stop() { n.stopped = true }

// Pause stops the node, or lets it go on, like SIGSTOP and SIGCONT.
func (n *leaseNode) Pause(paused bool) {
	n.paused = paused
	if !paused {
		for s := range n.leases {
			n.see(s)
		}
	}
}

// OnEvent implements cluster.Leases.
func (n *leaseNode) OnEvent(handle func(cluster.LeaseEvent)) { n.handle = handle }

// Want implements cluster.Leases.
func (n *leaseNode) Want(shard int, rank int) {
	n.leases[shard].Want(n.hub.Now(), rank)
	n.turn(shard)
}

// Release implements cluster.Leases.
func (n *leaseNode) Release(shard int, epoch uint64, to string) {
	if l := n.leases[shard]; l.Epoch() == epoch {
		l.leaving, l.successor = true, to
		n.feed(l)
		n.turn(shard)
	}
}

// Fence implements cluster.Leases.
func (n *leaseNode) Fence(shard int, epoch uint64) {
	n.leases[shard].Fence(n.hub.Now(), epoch)
	n.turn(shard)
}

// Store implements cluster.Leases.
func (n *leaseNode) Store(shard int, epoch uint64, list []cluster.Keyframe, done func(error)) {
	l := n.leases[shard]
	switch {
	case l.Epoch() != epoch:
		n.hub.Schedule(0, func() { done(cluster.ErrNotHeld) })
		return
	case len(l.queue) >= queueMax:
		n.hub.Schedule(0, func() { done(cluster.ErrQueueFull) })
		return
	}
	l.queue = append(l.queue, leaseBatch{list, done})
	n.feed(l)
	n.turn(shard)
}

// feed gives the lease the first batch that waits and that it does not have yet, and behind the last one the release.
func (n *leaseNode) feed(l *nodeLease) {
	switch {
	case len(l.queue) > 0 && !l.storing:
		l.storing = true
		l.token++
		l.Lease.Store(n.hub.Now(), l.token)
	case len(l.queue) == 0 && l.leaving:
		l.leaving = false
		l.Release(l.successor)
	}
}

// Load implements cluster.Leases.
func (n *leaseNode) Load(shard int, epoch uint64, each func([]cluster.Keyframe), done func(error)) {
	if n.hub.OnLoad != nil {
		n.hub.OnLoad()
	}
	l := &nodeLoad{n: n, shard: shard, epoch: epoch, each: each, done: done}
	n.hub.Schedule(n.hub.delay(), l.step)
}

// A nodeLoad is a load of a shard. Nothing is stored in the shard while it lasts, unless another node holds the shard.
type nodeLoad struct {
	n     *leaseNode
	shard int
	epoch uint64
	each  func([]cluster.Keyframe)
	done  func(error)
	next  int // keyframe
}

// step brings the next part. In a store that does not answer the load waits, and may begin anew.
func (l *nodeLoad) step() {
	h, s := l.n.hub, l.n.hub.shard(l.shard)
	switch {
	case l.n.stopped:
	case l.n.leases[l.shard].Epoch() != l.epoch, s.holder.Seq > l.epoch:
		l.done(cluster.ErrNotHeld)
	case l.n.cut || h.silent || l.n.paused || s.holder.Seq < l.epoch: // the store was made anew
		if h.Part > 0 && h.Rand.IntN(40) == 0 {
			l.next = 0
		}
		h.Schedule(loadPause, l.step)
	case h.Part > 0 && h.Rand.IntN(40) == 0:
		l.done(cluster.ErrQueueFull)
	default:
		all := s.keyframes()
		end := len(all)
		if h.Part > 0 {
			end = min(end, l.next+1+h.Rand.IntN(h.Part))
		}
		l.each(all[l.next:end])
		if l.next = end; end == len(all) {
			l.done(nil)
			return
		}
		h.Schedule(h.delay(), l.step)
	}
}

// see brings the records of a shard to the node, as its watch does.
func (n *leaseNode) see(shard int) {
	if n.stopped || n.cut || n.paused || n.hub.silent {
		return
	}
	s := n.hub.shard(shard)
	if s.holder.Seq != 0 {
		n.leases[shard].SeenHolder(n.hub.Now(), s.holder)
	}
	if s.heartbeat.Seq != 0 {
		n.leases[shard].SeenHeartbeat(n.hub.Now(), s.heartbeat)
	}
	n.turn(shard)
}

// turn carries out what a lease wants, and schedules its next turn.
func (n *leaseNode) turn(shard int) {
	if n.stopped || n.paused {
		return
	}
	l := n.leases[shard]
	for _, a := range l.Advance(n.hub.Now()) {
		n.act(shard, l, a)
	}
	l.turns++
	mine := l.turns
	if next, ok := l.NextTimeout(); ok {
		n.hub.Schedule(max(0, next.Sub(n.hub.Now())), func() {
			if mine == l.turns {
				n.turn(shard)
			}
		})
	}
}

func (n *leaseNode) act(shard int, l *nodeLease, a cluster.Action) {
	switch a.Kind {
	case cluster.ActionAcquired:
		n.tell(cluster.LeaseEvent{Kind: cluster.ShardAcquired, Shard: shard, Epoch: a.Epoch, Node: n.name, Former: a.Former, Wiped: a.Wiped, Spare: a.Spare})
	case cluster.ActionLost:
		queue := l.queue
		l.queue, l.storing, l.leaving = nil, false, false
		for _, b := range queue {
			b.done(cluster.ErrNotHeld)
		}
		n.tell(cluster.LeaseEvent{Kind: cluster.ShardLost, Shard: shard, Epoch: a.Epoch, Node: n.name, Reason: a.Reason})
	case cluster.ActionDurable:
		n.tell(cluster.LeaseEvent{Kind: cluster.ShardDurable, Shard: shard, Epoch: a.Epoch, Durable: a.Durable})
	case cluster.ActionStored:
		done := l.queue[0].done
		l.queue, l.storing = l.queue[1:], false
		done(nil)
		n.feed(l)
	default:
		n.ask(shard, l, a)
	}
}

func (n *leaseNode) tell(e cluster.LeaseEvent) {
	if n.handle != nil {
		n.handle(e)
	}
}

// ask asks the store, and gives up after the timeout of the lease.
func (n *leaseNode) ask(shard int, l *nodeLease, a cluster.Action) {
	answered := false
	answer := func(x cluster.Answer) {
		if answered || n.stopped {
			return
		}
		if n.paused { // it gets the answer, or the timeout, when it goes on
			n.hub.Schedule(loadPause, func() { n.later(shard, l, &answered, x) })
			return
		}
		answered = true
		l.Answer(n.hub.Now(), x)
		n.turn(shard)
	}
	var list []cluster.Keyframe
	if a.Kind == cluster.ActionStore {
		list = l.queue[0].list
	}
	n.hub.ask(n, shard, a, list, answer)
	n.hub.Schedule(cluster.LeaseTimeout, func() { answer(cluster.Answer{Verdict: verdict.Unknown}) })
}

// later gives an answer to a paused node when it goes on.
func (n *leaseNode) later(shard int, l *nodeLease, answered *bool, x cluster.Answer) {
	switch {
	case *answered || n.stopped:
	case n.paused:
		n.hub.Schedule(loadPause, func() { n.later(shard, l, answered, x) })
	default:
		*answered = true
		l.Answer(n.hub.Now(), x)
		n.turn(shard)
	}
}
