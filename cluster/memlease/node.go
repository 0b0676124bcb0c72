package memlease

import (
	"time"

	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/internal/fence"
)

// queueMax is how many batches of a shard may wait.
const queueMax = 16

// loadPause is how long a load waits for a store that does not answer.
const loadPause = 100 * time.Millisecond

// A Node is the cluster.Leases of one relay.
type Node struct {
	hub     *Hub
	name    string
	cfg     cluster.LeaseConfig
	leases  []*lease
	handle  func(cluster.LeaseEvent)
	cut     bool
	stopped bool
	paused  bool
}

// A lease is one shard of a node.
type lease struct {
	*cluster.Lease
	queue []batch // the first is with the lease
	token uint64
	turns uint64 // of the lease; a timer of an older turn is outdated
}

type batch struct {
	list []cluster.Keyframe
	done func(error)
}

// Node returns the leases of a relay that has just started. A former relay with this name is dead.
func (h *Hub) Node(name, id string, shards int) *Node {
	n := &Node{hub: h, name: name, cfg: cluster.LeaseConfig{Node: name, ID: id}}
	for range shards {
		n.leases = append(n.leases, &lease{Lease: cluster.NewLease(n.cfg)})
	}
	if old, ok := h.nodes[name]; ok {
		old.stopped = true
	}
	h.nodes[name] = n
	h.order = append(h.order, n)
	return n
}

// Stop ends the node as kill -9 does.
func (n *Node) Stop() { n.stopped = true }

// Pause stops the node, or lets it go on, like SIGSTOP and SIGCONT.
func (n *Node) Pause(paused bool) {
	n.paused = paused
	if !paused {
		for s := range n.leases {
			n.see(s)
		}
	}
}

// OnEvent implements cluster.Leases.
func (n *Node) OnEvent(handle func(cluster.LeaseEvent)) { n.handle = handle }

// Want implements cluster.Leases.
func (n *Node) Want(shard int, want bool) {
	n.leases[shard].Want(n.hub.Now(), want)
	n.turn(shard)
}

// Release implements cluster.Leases.
func (n *Node) Release(shard int, epoch uint64, to string) {
	if l := n.leases[shard]; l.Epoch() == epoch {
		l.Release(to)
		n.turn(shard)
	}
}

// Fence implements cluster.Leases.
func (n *Node) Fence(shard int, epoch uint64) {
	n.leases[shard].Fence(n.hub.Now(), epoch)
	n.turn(shard)
}

// Store implements cluster.Leases.
func (n *Node) Store(shard int, epoch uint64, list []cluster.Keyframe, done func(error)) {
	l := n.leases[shard]
	switch {
	case l.Epoch() != epoch:
		n.hub.Schedule(0, func() { done(cluster.ErrNotHeld) })
		return
	case len(l.queue) >= queueMax:
		n.hub.Schedule(0, func() { done(cluster.ErrQueueFull) })
		return
	}
	l.queue = append(l.queue, batch{list, done})
	n.feed(l)
	n.turn(shard)
}

// feed gives the lease the first batch that waits.
func (n *Node) feed(l *lease) {
	if len(l.queue) == 1 {
		l.token++
		l.Lease.Store(n.hub.Now(), l.token)
	}
}

// Load implements cluster.Leases.
func (n *Node) Load(shard int, epoch uint64, each func([]cluster.Keyframe), done func(error)) {
	n.hub.Schedule(n.hub.Latency, func() {
		switch {
		case n.stopped:
		case n.leases[shard].Epoch() != epoch:
			done(cluster.ErrNotHeld)
		case n.cut || n.hub.silent || n.paused:
			n.hub.Schedule(loadPause, func() { n.Load(shard, epoch, each, done) })
		default:
			each(n.hub.shard(shard).keyframes())
			done(nil)
		}
	})
}

// see brings the records of a shard to the node, as its watch does.
func (n *Node) see(shard int) {
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
func (n *Node) turn(shard int) {
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

func (n *Node) act(shard int, l *lease, a cluster.Action) {
	switch a.Kind {
	case cluster.ActionAcquired:
		n.tell(cluster.LeaseEvent{Kind: cluster.ShardAcquired, Shard: shard, Epoch: a.Epoch, Node: n.name})
	case cluster.ActionLost:
		queue := l.queue
		l.queue = nil
		for _, b := range queue {
			b.done(cluster.ErrNotHeld)
		}
		n.tell(cluster.LeaseEvent{Kind: cluster.ShardLost, Shard: shard, Epoch: a.Epoch, Node: n.name, Reason: a.Reason})
	case cluster.ActionDurable:
		n.tell(cluster.LeaseEvent{Kind: cluster.ShardDurable, Shard: shard, Epoch: a.Epoch, Durable: a.Durable})
	case cluster.ActionStored:
		done := l.queue[0].done
		l.queue = l.queue[1:]
		done(nil)
		if len(l.queue) > 0 {
			l.token++
			l.Lease.Store(n.hub.Now(), l.token)
		}
	default:
		n.ask(shard, l, a)
	}
}

func (n *Node) tell(e cluster.LeaseEvent) {
	if n.handle != nil {
		n.handle(e)
	}
}

// ask asks the store, and gives up after the timeout of the lease.
func (n *Node) ask(shard int, l *lease, a cluster.Action) {
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
	n.hub.Schedule(cluster.LeaseTimeout, func() { answer(cluster.Answer{Verdict: fence.Unknown}) })
}

// later gives an answer to a paused node when it goes on.
func (n *Node) later(shard int, l *lease, answered *bool, x cluster.Answer) {
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
