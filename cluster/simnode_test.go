package cluster_test

import (
	"fmt"
	"time"

	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/internal/fence"
	"github.com/dnprelay/dnprelay/internal/simnet"
)

const simStates = 5

// A simNode is a relay with a lease of the one shard. While it holds the shard, it stores a batch
// now and then and announces its epoch on the bus.
type simNode struct {
	w     *world
	index int
	start int // ordinal of the process of this node
	lease *cluster.Lease
	rate  float64       // of its clock
	skew  time.Duration // of its clock

	shard      int // by which it places the shard; see world.placing
	candidates cluster.Roster
	announced  cluster.Announced
	rank       int
	hung       bool // its worker stands still
	hungAt     time.Duration
	unableAt   time.Duration // when it last hung or was broken
	commands   []func()      // for the worker, while it hangs
	broken     bool          // what it asks of the store to acquire the shard does not arrive
	before     []string      // the candidates before it when it last asked for the shard
	passedBy   map[string]time.Duration

	cutAt              time.Duration
	alive, paused, cut bool
	stalledAt          time.Duration // when the watch last was stalled
	stalled            bool          // the watch brings nothing
	deaf               bool          // the bus brings nothing
	okAt               time.Duration // when the newest acknowledged write was sent
	missed             []func()      // events of the watch while it is stalled or cut
	asleep             []func()
	wake               time.Duration // of the newest scheduled Advance
	armed              bool

	epoch   uint64 // in which it believes to hold the shard
	durable bool
	n       uint64 // values made
	token   uint64
	batch   map[int]version // waits to be stored
	values  map[int]version // that it serves
	heard   uint64          // highest epoch on the bus
}

func (n *simNode) name() string { return fmt.Sprintf("relay-%d", n.index) }

// now reads this node's monotonic clock.
func (n *simNode) now() time.Time {
	return simnet.Epoch.Add(n.skew + time.Duration(float64(n.w.net.Elapsed())*n.rate))
}

// boot starts a process of the node.
func (n *simNode) boot() {
	n.start++
	n.alive, n.paused, n.armed, n.epoch, n.batch, n.heard = true, false, false, 0, nil, 0
	n.asleep, n.missed, n.commands = nil, nil, nil
	n.hung, n.announced, n.passedBy = false, cluster.Announced{}, map[string]time.Duration{}
	n.lease = cluster.NewLease(cluster.LeaseConfig{Node: n.name(), ID: fmt.Sprintf("%s/%d", n.name(), n.start)})
	n.work(n.start)
}

// work is the turn of the worker: it announces the node and places the shard, twice a second.
func (n *simNode) work(start int) {
	n.run(start, func() {
		if !n.hung {
			n.announce()
			n.place()
		}
		n.w.net.Schedule(time.Duration(float64(cluster.WantInterval)/n.rate), func() { n.work(start) })
	})
}

func (n *simNode) announce() {
	for _, other := range n.w.nodes {
		if other == n || other.deaf || n.deaf {
			continue
		}
		start := other.start
		n.w.net.Schedule(n.w.store.latency(), func() {
			other.run(start, func() {
				other.command(func() {
					if other.announced.Heard(other.now(), n.name()) {
						other.place()
					}
				})
			})
		})
	}
}

// place looks who should hold the shard, as a relay's worker does.
func (n *simNode) place() {
	if n.hung {
		return
	}
	n.candidates = n.announced.Candidates(n.now(), n.w.roster, n.name())
	n.rank = n.candidates.Rank(n.shard, n.name())
	n.lease.Want(n.now(), n.rank)
	if to, _ := n.candidates.Holder(n.shard); n.epoch != 0 && n.rank > 0 {
		n.w.chk.releases(n, to)
		n.lease.Release(to)
	}
}

// command has the worker do something when it turns.
func (n *simNode) command(do func()) {
	if n.hung {
		n.commands = append(n.commands, do)
		return
	}
	do()
}

// resume ends the hang of the worker.
func (n *simNode) resume() {
	n.hung = false
	commands := n.commands
	n.commands = nil
	for _, do := range commands {
		do()
	}
	n.place()
	if !n.paused {
		n.turn()
	}
}

// run runs f in a process of the node if that still exists; if it is paused, when it goes on.
func (n *simNode) run(start int, f func()) {
	switch {
	case !n.alive || n.start != start:
	case n.paused:
		n.asleep = append(n.asleep, func() { n.run(start, f) })
	default:
		f()
		n.turn()
	}
}

// turn carries out what the lease wants and arms a timer for its next deadline.
func (n *simNode) turn() {
	for range 100 {
		for _, a := range n.lease.Advance(n.now()) {
			n.act(a)
		}
		next, ok := n.lease.NextTimeout()
		if !ok {
			return
		}
		if wait := next.Sub(n.now()); wait > 0 {
			n.arm(time.Duration(float64(wait)/n.rate) + time.Microsecond)
			return
		}
	}
	panic("the lease is due again and again")
}

func (n *simNode) arm(wait time.Duration) {
	at := n.w.net.Elapsed() + wait
	if n.armed && n.wake <= at && n.wake > n.w.net.Elapsed() {
		return
	}
	n.armed, n.wake = true, at
	start := n.start
	n.w.net.Schedule(wait, func() { n.run(start, func() {}) })
}

func (n *simNode) act(a cluster.Action) {
	switch a.Kind {
	case cluster.ActionAcquired:
		n.epoch, n.durable, n.batch, n.heard = a.Epoch, true, nil, max(n.heard, a.Epoch)
		n.values = map[int]version{}
		for k, v := range n.w.store.states {
			n.values[k] = v
		}
		n.w.chk.acquired(n, a.Epoch, a.Former)
		n.command(func() {
			if a.Spare {
				n.w.chk.passed(n)
				n.announced.Passed(n.now(), n.candidates, n.shard, n.name())
			}
			n.place()
		})
	case cluster.ActionLost:
		n.w.chk.lost(n, a)
		n.epoch, n.batch = 0, nil
	case cluster.ActionDurable:
		n.durable = a.Durable
	case cluster.ActionStored:
		n.w.chk.reported(n, a, n.batch)
		n.batch = nil
	default:
		n.ask(a)
	}
}

// ask asks the store, and gives up after a second of its own clock.
func (n *simNode) ask(a cluster.Action) {
	start, sent, answered := n.start, n.w.net.Elapsed(), false
	answer := func(x cluster.Answer) {
		n.run(start, func() {
			if !answered {
				answered = true
				if x.Verdict == fence.OK && a.Kind != cluster.ActionRead {
					n.okAt = sent
				}
				n.lease.Answer(n.now(), x)
			}
		})
	}
	if a.Kind == cluster.ActionAcquire {
		n.before = n.candidates.Ranking(n.shard)[:n.rank]
	}
	var values map[int]version
	if a.Kind == cluster.ActionStore {
		values = n.batch
	}
	n.w.store.ask(n, a, values, answer)
	n.w.net.Schedule(time.Duration(float64(time.Second)/n.rate), func() { answer(cluster.Answer{Verdict: fence.Unknown}) })
}

// watch brings the records; if the watch is stalled or cut, when that ends.
func (n *simNode) watch(delay time.Duration, holder cluster.Holder, heartbeat cluster.Heartbeat) {
	start := n.start
	see := func() {
		n.run(start, func() {
			if holder.Seq != 0 {
				n.lease.SeenHolder(n.now(), holder)
			}
			if heartbeat.Seq != 0 {
				n.lease.SeenHeartbeat(n.now(), heartbeat)
			}
		})
	}
	if n.stalled || n.cut {
		n.missed = append(n.missed, see)
		return
	}
	n.w.net.Schedule(delay, see)
}

func (n *simNode) catchUp() {
	for _, f := range n.missed {
		n.w.net.Schedule(0, f)
	}
	n.missed = nil
}

// play is the work of a holder: it changes values, has some stored, and announces its epoch to all
// others.
func (n *simNode) play() {
	if !n.alive || n.paused || n.hung || n.epoch == 0 {
		return
	}
	for _, other := range n.w.nodes {
		if epoch := n.epoch; other != n && !other.deaf && !n.deaf {
			start := other.start
			n.w.net.Schedule(n.w.store.latency(), func() { other.run(start, func() { other.hear(epoch) }) })
		}
	}
	if n.batch != nil || n.w.net.Rand().IntN(n.w.idle) > 0 {
		return
	}
	n.token++
	if !n.lease.Store(n.now(), n.token) {
		return
	}
	n.batch = map[int]version{}
	for range 1 + n.w.net.Rand().IntN(simStates) {
		n.n++
		k := n.w.net.Rand().IntN(simStates)
		n.batch[k] = version{n.epoch, n.n}
		n.values[k] = n.batch[k]
	}
	n.turn()
}

func (n *simNode) hear(epoch uint64) {
	n.heard = max(n.heard, epoch)
	n.lease.Fence(n.now(), epoch)
	n.w.chk.heard(n)
}
