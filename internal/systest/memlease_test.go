package systest

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/cluster/lease"
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

	// OnAcquire, if set, is called with what is stored when the store names a node as the holder of a shard in an epoch, and OnLoad
	// when it begins to load the shard.
	OnAcquire func(n *leaseNode, shard int, epoch uint64, stored []cluster.Keyframe)
	OnLoad    func()

	// OnStore, if set, is called for each keyframe that the holder of epoch stores.
	OnStore func(epoch uint64, k cluster.Keyframe)
}

// A leaseHub is [cluster.Leases] over a stream in memory, with all nodes that use it.
//
//	hub := newLeaseHub(leaseConfig{Schedule: net.Schedule, Now: net.Now, Rand: rnd, Loss: 0.01})
//	leases := hub.Node("relay1", "start1", 64)
//	...
//	hub.SetSilent(true) // the store elects a leader
//	hub.Cut("relay1", true)
//
// The leases are the product's (package lease); only the store is a model: linearizable like a
// JetStream stream, with a latency, answers that are lost, writes that are applied late, and outages in
// which it does not answer.
//
// It belongs to the goroutine that runs the scheduled functions.
type leaseHub struct {
	leaseConfig
	seq    uint64
	made   int // how often the stream was made
	leases map[string]lease.Record
	shards map[int]*leaseShard
	log    []func(now time.Time, l *lease.Lease) // what the watches bring
	nodes  map[string]*leaseNode
	order  []*leaseNode
	silent bool
	held   []func() // writes to apply when the store answers again

	// Violations are the broken invariants.
	Violations []string
}

// A leaseShard is the content of the store for one shard.
type leaseShard struct {
	owner  lease.Owner
	states map[stateKey]cluster.Keyframe
}

type stateKey struct {
	space  string
	number uint64
}

// newLeaseHub returns an empty store.
func newLeaseHub(cfg leaseConfig) *leaseHub {
	cfg.Latency = cmp.Or(cfg.Latency, 500*time.Microsecond)
	return &leaseHub{leaseConfig: cfg, seq: firstSeq, leases: make(map[string]lease.Record), shards: make(map[int]*leaseShard), nodes: make(map[string]*leaseNode)}
}

// Cut separates a node from the store, or heals that.
func (h *leaseHub) Cut(name string, cut bool) {
	n := h.nodes[name]
	n.cut = cut
	n.pullSoon()
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
	for _, n := range h.order {
		n.pullSoon()
	}
}

// Wipe deletes the stream and makes it anew; the sequences go on far behind. Nodes notice after a
// while, each for itself.
func (h *leaseHub) Wipe() {
	clear(h.shards)
	clear(h.leases)
	h.log = nil
	h.made++
	h.seq += 1 << 20
	for _, n := range h.order {
		h.Schedule(time.Duration(h.Rand.Int64N(int64(2*time.Second))), n.noticeWipe)
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

// ask brings a request to the store and the answer back.
func (h *leaseHub) ask(n *leaseNode, do func() lease.Answer, answer func(lease.Answer)) {
	made := h.made
	apply := func() (a lease.Answer, ok bool) {
		if ok = h.made == made; ok {
			a = do()
		}
		return a, ok
	}
	h.Schedule(h.delay(), func() {
		switch {
		case n.cut:
		case h.silent:
			if h.Rand.IntN(2) == 0 {
				h.held = append(h.held, func() { apply() })
			}
		case h.lost():
			if h.Rand.Float64() < h.Late {
				h.Schedule(time.Duration(h.Rand.Int64N(int64(8*time.Second))), func() { apply() })
			}
		default:
			if x, ok := apply(); ok && !h.lost() {
				h.Schedule(h.delay(), func() {
					if !n.cut {
						n.when(func() { answer(x) })
					}
				})
			}
		}
	})
}

// put stores a record if the last one has a sequence.
func (h *leaseHub) put(last, expect uint64, store func(seq uint64), see func(time.Time, *lease.Lease)) lease.Answer {
	if last != expect {
		return lease.Answer{Verdict: verdict.Stale}
	}
	h.seq++
	store(h.seq)
	h.log = append(h.log, see)
	for _, n := range h.order {
		n.pullSoon()
	}
	return lease.Answer{Verdict: verdict.OK, Seq: h.seq}
}

func (h *leaseHub) putLease(node string, expect uint64, r lease.Record) lease.Answer {
	return h.put(h.leases[node].Seq, expect, func(seq uint64) {
		r.Seq = seq
		h.leases[node] = r
	}, func(now time.Time, l *lease.Lease) { l.Saw(now, node, r) })
}

func (h *leaseHub) putOwner(shard int, expect uint64, o lease.Owner) lease.Answer {
	s := h.shard(shard)
	a := h.put(s.owner.Seq, expect, func(seq uint64) {
		o.Seq = seq
		s.owner = o
	}, func(now time.Time, l *lease.Lease) { l.SawOwner(now, shard, o) })
	if a.Verdict == verdict.OK && o.Node != "" && h.OnAcquire != nil {
		h.OnAcquire(h.nodes[o.Node], shard, o.Seq, s.keyframes())
	}
	return a
}

// store stores a keyframe of a batch, and checks that its writer holds the shard.
func (h *leaseHub) store(by *leaseNode, incarnation string, b *leaseBatch, k cluster.Keyframe) {
	s := h.shard(b.shard)
	if o := s.owner; o.Seq != b.epoch || o.Node != by.name || o.Incarnation != incarnation {
		h.Violations = append(h.Violations, fmt.Sprintf("%s wrote in epoch %d of shard %d, but %s holds epoch %d", by.name, b.epoch, b.shard, o.Node, o.Seq))
	}
	h.seq++
	s.states[stateKey{k.Space, k.Number}] = k
	if h.OnStore != nil {
		h.OnStore(b.epoch, k)
	}
}

// Holder returns the node that holds a shard, as the store has it.
func (h *leaseHub) Holder(shard int) string { return h.shard(shard).owner.Node }

// Epoch returns the epoch of the newest record of a holder.
func (h *leaseHub) Epoch(shard int) uint64 { return h.shard(shard).owner.Seq }

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

// errSilent is what a list ends with that the store does not answer.
var errSilent = errors.New("the store does not answer")

// Stored lists the keyframes of a shard. It takes no time and no randomness.
func (n *leaseNode) Stored(shard int) ([]cluster.Keyframe, error) {
	if n.cut || n.hub.silent {
		return nil, errSilent
	}
	return n.hub.shard(shard).keyframes(), nil
}

// queueMax is how many batches of a shard may wait.
const queueMax = 16

// loadPause is how long a load waits for a store that does not answer.
const loadPause = 100 * time.Millisecond

// A leaseNode is the cluster.Leases of one relay.
type leaseNode struct {
	hub     *leaseHub
	name    string
	lease   *lease.Lease
	handle  func(cluster.LeaseEvent)
	cut     bool
	stopped bool
	paused  bool
	asleep  []func() // what comes while the node is paused

	pos    int // of the watch in the log
	made   int // the stream that it watches
	primed bool

	token   uint64
	batches map[uint64]*leaseBatch
	sending map[uint64][]leasePart // by number of the write
	turning bool
	turns   uint64 // a timer of an older turn is outdated
}

type leaseBatch struct {
	shard int
	epoch uint64
	list  []cluster.Keyframe
	done  func(error)
}

// A leasePart is a part of a batch on its way.
type leasePart struct {
	*leaseBatch
	list []cluster.Keyframe
}

// Node returns the leases of a relay that has just started. A former relay with this name is dead.
func (h *leaseHub) Node(name, id string, shards int) *leaseNode {
	n := &leaseNode{hub: h, name: name, made: h.made, batches: make(map[uint64]*leaseBatch), sending: make(map[uint64][]leasePart)}
	var all []int
	for i := range shards {
		all = append(all, i)
	}
	n.lease = lease.New(lease.Config{Node: name, Start: id, Shards: all, Draw: cluster.DrawShard})
	if old, ok := h.nodes[name]; ok {
		old.stopped = true
	}
	h.nodes[name] = n
	h.order = append(h.order, n)
	n.pullSoon()
	return n
}

// Stop ends the node as kill -9 does.
func (n *leaseNode) Stop() { n.stopped = true }

// Pause stops the node, or lets it go on, like SIGSTOP and SIGCONT.
func (n *leaseNode) Pause(paused bool) {
	if n.paused = paused; paused {
		return
	}
	asleep := n.asleep
	n.asleep = nil
	for _, f := range asleep {
		n.when(f)
	}
	n.pullSoon()
	n.turnSoon()
}

// when does something unless the node has ended; if it is paused, when it goes on.
func (n *leaseNode) when(do func()) {
	switch {
	case n.stopped:
	case n.paused:
		n.asleep = append(n.asleep, do)
	default:
		do()
		n.turnSoon()
	}
}

// pullSoon has the watch bring the next records, in order.
func (n *leaseNode) pullSoon() {
	n.hub.Schedule(n.hub.delay(), func() {
		h := n.hub
		if n.stopped || n.cut || n.paused || h.silent || n.made != h.made {
			return
		}
		for ; n.pos < len(h.log); n.pos++ {
			h.log[n.pos](h.Now(), n.lease)
		}
		if !n.primed {
			n.primed = true
			n.lease.Primed()
		}
		n.turnSoon()
	})
}

func (n *leaseNode) noticeWipe() {
	if n.cut && !n.stopped {
		n.hub.Schedule(loadPause, n.noticeWipe)
		return
	}
	n.when(func() {
		n.lease.Wiped(n.hub.Now())
		n.made, n.pos, n.primed = n.hub.made, 0, false
		n.pullSoon()
	})
}

// OnEvent implements cluster.Leases.
func (n *leaseNode) OnEvent(handle func(cluster.LeaseEvent)) { n.handle = handle }

// Alive implements cluster.Leases.
func (n *leaseNode) Alive(shard int, open bool) {
	n.lease.Alive(n.hub.Now(), shard, open)
	n.turnSoon()
}

// Release implements cluster.Leases.
func (n *leaseNode) Release(shard int, epoch uint64, to string) {
	n.lease.Release(shard, epoch, to)
	n.turnSoon()
}

// Fence implements cluster.Leases.
func (n *leaseNode) Fence(shard int, epoch uint64) {
	n.lease.Fence(n.hub.Now(), shard, epoch)
	n.turnSoon()
}

// Store implements cluster.Leases.
func (n *leaseNode) Store(shard int, epoch uint64, list []cluster.Keyframe, done func(error)) {
	waiting := 0
	for _, b := range n.batches {
		if b.shard == shard {
			waiting++
		}
	}
	if waiting >= queueMax {
		n.hub.Schedule(0, func() { done(cluster.ErrQueueFull) })
		return
	}
	n.token++
	if !n.lease.Store(n.hub.Now(), shard, epoch, n.token, make([]int, len(list))) {
		n.hub.Schedule(0, func() { done(cluster.ErrNotHeld) })
		return
	}
	n.batches[n.token] = &leaseBatch{shard, epoch, list, done}
	n.turnSoon()
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
	case l.n.lease.Epoch(l.shard) != l.epoch, s.owner.Seq > l.epoch:
		l.done(cluster.ErrNotHeld)
	case l.n.cut || h.silent || l.n.paused || s.owner.Seq < l.epoch: // the store was made anew
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

// turnSoon has the lease do what is due, behind what is happening.
func (n *leaseNode) turnSoon() {
	if !n.turning {
		n.turning = true
		n.hub.Schedule(0, n.turn)
	}
}

// turn carries out what the lease wants, and schedules its next turn.
func (n *leaseNode) turn() {
	n.turning = false
	if n.stopped || n.paused {
		return
	}
	for _, a := range n.lease.Advance(n.hub.Now()) {
		n.act(a)
	}
	n.turns++
	mine := n.turns
	if next, ok := n.lease.NextTimeout(); ok {
		n.hub.Schedule(max(0, next.Sub(n.hub.Now())), func() {
			if mine == n.turns {
				n.turn()
			}
		})
	}
}

func (n *leaseNode) act(a lease.Action) {
	h := n.hub
	switch a.Kind {
	case lease.ActionWrite:
		n.write(a)
	case lease.ActionReadLease:
		var r lease.Record
		h.ask(n, func() lease.Answer { r = h.leases[a.Node]; return lease.Answer{Verdict: verdict.OK} },
			func(x lease.Answer) { n.lease.ReadLease(h.Now(), a.Asked, a.Node, r, x.Verdict) })
	case lease.ActionReadOwner:
		var o lease.Owner
		h.ask(n, func() lease.Answer { o = h.shard(a.Shard).owner; return lease.Answer{Verdict: verdict.OK} },
			func(x lease.Answer) { n.lease.ReadOwner(h.Now(), a.Shard, o, x.Verdict) })
	case lease.ActionRevoke:
		h.ask(n, func() lease.Answer { return h.putLease(a.Node, a.Expect, a.Record) },
			func(x lease.Answer) { n.lease.Revoked(h.Now(), a.Node, a.Record, x) })
	case lease.ActionOwn:
		h.ask(n, func() lease.Answer { return h.putOwner(a.Shard, a.Expect, a.Owner) },
			func(x lease.Answer) { n.lease.WroteOwner(h.Now(), a.Shard, a.Expect, a.Owner, x) })
	case lease.ActionStored, lease.ActionFailed:
		b := n.batches[a.Token]
		delete(n.batches, a.Token)
		var err error
		if a.Kind == lease.ActionFailed {
			err = cluster.ErrNotHeld
		}
		b.done(err)
	default:
		n.report(a)
	}
}

// write stores the parts of batches and the lease, all or none.
func (n *leaseNode) write(a lease.Action) {
	h := n.hub
	if !a.Again {
		clear(n.sending)
		var parts []leasePart
		for _, p := range a.Parts {
			b := n.batches[p.Token]
			parts = append(parts, leasePart{b, b.list[p.From:p.To]})
		}
		n.sending[a.Record.Write] = parts
	}
	parts := n.sending[a.Record.Write]
	h.ask(n, func() lease.Answer {
		if h.leases[n.name].Seq != a.Expect {
			return lease.Answer{Verdict: verdict.Stale}
		}
		for _, p := range parts {
			for _, k := range p.list {
				h.store(n, a.Record.Incarnation, p.leaseBatch, k)
			}
		}
		return h.putLease(n.name, a.Expect, a.Record)
	}, func(x lease.Answer) { n.lease.Wrote(h.Now(), a.Asked, a.Record, x) })
}

var eventKinds = map[lease.ActionKind]cluster.LeaseEventKind{
	lease.ActionAcquired: cluster.ShardAcquired, lease.ActionLost: cluster.ShardLost, lease.ActionPaused: cluster.ShardPaused, lease.ActionResumed: cluster.ShardResumed,
	lease.ActionDurable: cluster.ShardDurable, lease.ActionPlaced: cluster.ShardPlaced, lease.ActionSeen: cluster.ShardSeen,
}

func (n *leaseNode) report(a lease.Action) {
	if kind, ok := eventKinds[a.Kind]; ok && n.handle != nil {
		n.handle(cluster.LeaseEvent{Kind: kind, Shard: a.Shard, Epoch: a.Epoch, Node: a.Node, Reason: a.Reason, Durable: a.Durable, Former: a.Former, Wiped: a.Wiped})
	}
}
