package cluster_test

import (
	"fmt"
	"slices"
	"time"

	"github.com/dnprelay/dnprelay/cluster"
)

// The bounds that the simulation checks. They have room for the skew of the clocks and for the
// latency of the simulated store.
const (
	gapMax      = 5 * time.Second         // without a holder that serves, while the store answers a relay that is well
	handOverMax = 200 * time.Millisecond  // of a planned hand-over, when no message is lost
	spareLast   = 1500 * time.Millisecond // the longest wait of a spare
	zombieMax   = 2500 * time.Millisecond
	hungMax     = 3600 * time.Millisecond // until a relay whose worker hangs gives the shard up, and gets no more
	passMin     = 58 * time.Second        // in which a relay that let the shard pass is not tried again
	settleMax   = 4 * time.Second         // until the relay that should hold the shard does, without trouble
)

// A checker observes the store and the nodes from outside.
type checker struct {
	w      *world
	errors []string

	owner    map[uint64]*simNode // to which node the store gave an epoch
	ownerRun map[uint64]int
	acquires int
	formers  int // acquisitions by a relay that believes that nothing is newer than what it has
	batches  int
	handed   []time.Duration
	gapLast  time.Duration // when there last was a holder, or an excuse for having none
	gapWorst time.Duration
	ill      map[*simNode]time.Duration // when the node last had an excuse
	waiting  map[*simNode]time.Duration // until when the node may wait for an answer that does not come
	stalled  time.Duration              // when a watch last was stalled
	ownedAt  time.Duration              // when the newest record of a holder was written
	takenAt  time.Duration              // the same, but not of one that released the shard
	faultAt  time.Duration              // when the newest fault began
	wantedAt time.Duration              // when the roster changed
	storeIll time.Duration              // when the store last had an excuse
	release  time.Duration              // when the newest planned hand-over began; 0 if it is done
	releaseT *simNode
}

func (c *checker) failf(format string, v ...any) {
	if len(c.errors) < 5 {
		c.errors = append(c.errors, fmt.Sprintf("at %v: ", c.w.net.Elapsed())+fmt.Sprintf(format, v...))
	}
}

// trouble notes that this node has an excuse.
func (c *checker) trouble(n *simNode) { c.ill[n] = max(c.ill[n], c.w.net.Elapsed()) }

// dropped notes that a message between this node and the store was lost. For the node the store is
// silent until it gives up waiting.
func (c *checker) dropped(n *simNode) { c.ill[n] = c.w.net.Elapsed() + 1200*time.Millisecond }

// waits notes that this node asked a silent store, and will wait for the answer for a while even
// if the store comes back.
func (c *checker) waits(n *simNode) { c.waiting[n] = c.w.net.Elapsed() + 1200*time.Millisecond }

func (c *checker) outageChanged() { c.storeIll = c.w.net.Elapsed() }

// since returns how long ago t was; an hour if it is zero.
func (c *checker) since(t time.Duration) time.Duration {
	if t == 0 {
		return time.Hour
	}
	return c.w.net.Elapsed() - t
}

// newHolder judges a new record that says who holds the shard.
func (c *checker) newHolder(n *simNode, was, is cluster.Holder) {
	if is.Seq <= was.Seq {
		c.failf("epoch %d after %d", is.Seq, was.Seq)
	}
	c.ownedAt = c.w.net.Elapsed()
	if is.Released {
		return
	}
	if was.Released && slices.Contains(n.before, was.To) {
		n.passedBy[was.To] = c.w.net.Elapsed()
	}
	c.takenAt = c.w.net.Elapsed()
	c.owner[is.Seq], c.ownerRun[is.Seq] = n, n.start
	if n.hung && !n.paused && c.since(max(n.hungAt, c.ill[n], c.storeIll)) > hungMax {
		c.failf("%s takes the shard although its worker hangs", n.name())
	}
	old := c.owner[was.Seq]
	if old == nil || old == n || c.ownerRun[was.Seq] != old.start {
		return
	}
	if old.epoch == was.Seq && old.alive && !old.paused && !old.cut && c.since(c.ill[old]) > 15*time.Second {
		c.failf("%s took the shard from %s, which lives, is not cut off and has lost no message", n.name(), old.name())
	}
}

// written judges a durable write that the store accepts.
func (c *checker) written(n *simNode, a cluster.Action, holder cluster.Holder) {
	if a.Heartbeat.Epoch != holder.Seq {
		c.failf("a write of epoch %d by %s is accepted in epoch %d", a.Heartbeat.Epoch, n.name(), holder.Seq)
	}
	if c.owner[a.Heartbeat.Epoch] != n {
		c.failf("the store accepts a write of epoch %d by %s, which never had that epoch", a.Heartbeat.Epoch, n.name())
	}
}

// stored judges a value that replaces another.
func (c *checker) stored(k int, was, is version) {
	if is.before(was) {
		c.failf("stored state %d goes back from %v to %v", k, was, is)
	}
}

// reported judges the report that a batch is stored.
func (c *checker) reported(n *simNode, a cluster.Action, batch map[int]version) {
	c.batches++
	for k, v := range batch {
		if c.w.store.states[k].before(v) {
			c.failf("%s is told that state %d is stored as %v, but it is %v", n.name(), k, v, c.w.store.states[k])
		}
	}
	if a.Token != n.token {
		c.failf("%s is told that batch %d is stored, but its batch is %d", n.name(), a.Token, n.token)
	}
}

// acquired judges a relay that believes to hold the shard, and that no other relay held it since the epoch former, unless
// that is 0.
func (c *checker) acquired(n *simNode, epoch, former uint64) {
	c.acquires++
	if former != 0 {
		c.formers++
		for e := former; e < epoch; e++ {
			if owner := c.owner[e]; owner != nil && (owner != n || c.ownerRun[e] != n.start) {
				c.failf("%s believes that nothing is newer than its epoch %d, but %s held the shard in epoch %d", n.name(), former, owner.name(), e)
			}
		}
	}
	if c.owner[epoch] != n {
		c.failf("%s believes to hold the shard in epoch %d, which the store never gave it", n.name(), epoch)
	}
	if c.release == 0 {
		return
	}
	took := c.w.net.Elapsed() - c.release
	if n != c.releaseT && c.calm(took) {
		c.failf("%s takes the shard that was released to %s %v ago", n.name(), c.releaseT.name(), took)
	}
	if n == c.releaseT && c.calm(took) {
		c.handed = append(c.handed, took)
		if took > handOverMax {
			c.failf("the hand-over to %s took %v", n.name(), took)
		}
	}
	c.release = 0
}

// calm reports whether no message was lost and all nodes were well for the last d and 3 s more.
func (c *checker) calm(d time.Duration) bool {
	d += 3 * time.Second
	for _, n := range c.w.nodes {
		if c.since(c.ill[n]) < d || n.hung || n.broken || !n.alive || n.paused || n.cut || n.stalled {
			return false
		}
	}
	return c.since(max(c.storeIll, c.stalled)) > d && c.w.store.outage == healthy && c.w.store.loss == 0
}

func (c *checker) lost(n *simNode, a cluster.Action) {
	if a.Epoch != n.epoch {
		c.failf("%s loses epoch %d, but its epoch is %d", n.name(), a.Epoch, n.epoch)
	}
	if away := now(c) - n.okAt; a.Reason == cluster.ReasonSilence && away < 10*time.Second {
		c.failf("%s gives the shard up after %v of silence", n.name(), away)
	}
	if a.Reason == cluster.ReasonHung && !n.hung && c.since(max(c.ill[n], n.unableAt, c.storeIll)) > 4*time.Second {
		c.failf("%s gives the shard up although its worker turns", n.name())
	}
}

// passed notes that a node took the shard because those that rank before it did not.
func (c *checker) passed(n *simNode) {
	for _, name := range n.candidates.Ranking(n.shard) {
		if name == n.name() {
			return
		}
		n.passedBy[name] = c.w.net.Elapsed()
		if c.w.calm && !c.w.greedy && c.since(c.storeIll) > 10*time.Second {
			c.failf("%s takes the shard instead of %s without need", n.name(), name)
		}
	}
}

// releases judges to whom a node gives the shard.
func (c *checker) releases(n *simNode, to string) {
	i := slices.IndexFunc(c.w.nodes, func(x *simNode) bool { return x.name() == to })
	if i < 0 {
		c.failf("%s gives the shard to %s, which is in gossip only", n.name(), to)
		return
	}
	if t := c.w.nodes[i]; t.hung && !t.paused && c.since(max(t.hungAt, n.unableAt, c.ill[n])) > hungMax { // n turned all the time
		c.failf("%s gives the shard to %s, whose worker hangs", n.name(), to)
	}
	if at, ok := n.passedBy[to]; ok && c.since(at) < passMin {
		c.failf("%s gives the shard to %s, which let it pass %v ago", n.name(), to, c.since(at))
	}
}

// heard judges a node after it was told of an epoch on the bus.
func (c *checker) heard(n *simNode) {
	if e := n.lease.Epoch(); e != 0 && e < n.heard {
		c.failf("%s goes on in epoch %d although it heard %d", n.name(), e, n.heard)
	}
}

// look judges store and nodes, ten times a second.
func (c *checker) look() {
	s, now := c.w.store, c.w.net.Elapsed()
	if s.outage != healthy {
		c.storeIll = now
	}
	served, able := false, false
	for _, n := range c.w.nodes {
		if !n.alive || n.paused || n.cut {
			c.trouble(n)
		}
		if n.hung || n.broken {
			n.unableAt = now
		}
		if n.hung && n.epoch != 0 { // the record that releases the shard may get lost
			c.faultAt = max(c.faultAt, min(now, c.ill[n]))
		}
		if n.stalled {
			c.stalled, n.stalledAt = now, now
		}
		if n.alive && !n.paused && !n.hung && n.epoch != 0 && n.epoch == s.holder.Seq {
			served = true
		}
		c.lookAt(n)
		// The node could have asked for the shard all the time.
		able = able || c.since(max(c.ill[n], c.waiting[n], c.storeIll, n.unableAt, n.stalledAt, c.takenAt, c.faultAt)) >= c.since(c.gapLast)
	}
	if served || !able {
		c.gapLast = now
	}
	c.lookPlaced()
	if gap := now - c.gapLast; gap > c.gapWorst {
		c.gapWorst = gap
		if gap > gapMax {
			c.failf("no holder for %v although the store answers", gap)
			c.gapLast = now
		}
	}
}

// lookAt judges one node.
func (c *checker) lookAt(n *simNode) {
	holder := c.w.store.holder
	if !n.alive || n.paused {
		return
	}
	if n.epoch == 0 {
		well := c.since(max(c.ill[n], c.waiting[n], c.storeIll, c.ownedAt, n.unableAt, c.stalled))
		if c.owner[holder.Seq] == n && c.ownerRun[holder.Seq] == n.start && well > 1500*time.Millisecond+2*spareLast { // a stale read may hide it, and a spare reads late
			c.failf("%s does not know that it acquired epoch %d", n.name(), holder.Seq)
		}
		return
	}
	quiet := c.since(max(c.ill[n], c.storeIll))
	if n.hung && min(quiet, c.since(n.hungAt)) > hungMax {
		c.failf("%s keeps the shard although its worker hangs", n.name())
	}
	if n.epoch != c.w.store.holder.Seq && min(quiet, c.since(c.ownedAt)) > zombieMax {
		c.failf("%s goes on in epoch %d while the store, which answers it, has %d", n.name(), n.epoch, c.w.store.holder.Seq)
	}
	if n.cut || c.w.store.outage == silent || c.w.store.outage == refused {
		away := now(c) - c.w.silentSince(n)
		if n.durable && away > 3*time.Second {
			c.failf("%s calls itself durable after %v of silence", n.name(), away)
		}
		if away > 13*time.Second {
			c.failf("%s goes on after %v of silence", n.name(), away)
		}
	} else if !n.durable && quiet > zombieMax {
		c.failf("%s calls itself not durable although it has had no trouble for %v", n.name(), quiet)
	}
}

// lookPlaced wants a world without trouble to have the shard where it should be.
func (c *checker) lookPlaced() {
	w := c.w
	if !w.calm || w.greedy || c.since(max(c.storeIll, c.wantedAt)) < settleMax || c.w.net.Elapsed() < settleMax {
		return
	}
	for _, n := range w.nodes {
		top, _ := w.real.Holder(n.shard)
		if at, ok := n.passedBy[top]; n.epoch == w.store.holder.Seq && n.name() != top && (!ok || c.since(at) > passMin+4*time.Second) {
			c.failf("%s should hold the shard, but %s does", top, n.name())
		}
	}
}

func now(c *checker) time.Duration { return c.w.net.Elapsed() }
