package cluster_test

import (
	"fmt"
	"time"

	"github.com/dnprelay/dnprelay/cluster"
)

// The bounds that the simulation checks. They have room for the skew of the clocks and for the
// latency of the simulated store.
const (
	gapMax      = 4 * time.Second        // without a holder while the store answers
	handOverMax = 200 * time.Millisecond // of a planned hand-over, when no message is lost
	zombieMax   = 2500 * time.Millisecond
)

// A checker observes the store and the nodes from outside.
type checker struct {
	w      *world
	errors []string

	owner    map[uint64]*simNode // to which node the store gave an epoch
	ownerRun map[uint64]int
	acquires int
	batches  int
	handed   []time.Duration
	gapLast  time.Duration // when there last was a holder, or an excuse for having none
	gapWorst time.Duration
	ill      map[*simNode]time.Duration // when the node last had an excuse
	waiting  map[*simNode]time.Duration // until when the node may wait for an answer that does not come
	stalled  time.Duration              // when a watch last was stalled
	ownedAt  time.Duration              // when the newest record of a holder was written
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
	c.owner[is.Seq], c.ownerRun[is.Seq] = n, n.start
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

func (c *checker) acquired(n *simNode, epoch uint64) {
	c.acquires++
	if c.owner[epoch] != n {
		c.failf("%s believes to hold the shard in epoch %d, which the store never gave it", n.name(), epoch)
	}
	if c.release == 0 {
		return
	}
	took := c.w.net.Elapsed() - c.release
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
		if c.since(c.ill[n]) < d || !n.alive || n.paused || n.cut || n.stalled {
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
		if n.stalled {
			c.stalled, n.stalledAt = now, now
		}
		if n.alive && !n.paused && n.epoch != 0 && n.epoch == s.holder.Seq {
			served = true
		}
		c.lookAt(n)
		// The node wanted the shard and could have asked for it all the time.
		able = able || n.wants && c.since(max(c.ill[n], c.waiting[n], c.storeIll, n.wantedAt, n.stalledAt, c.ownedAt)) >= c.since(c.gapLast)
	}
	if served || !able {
		c.gapLast = now
	}
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
		well := c.since(max(c.ill[n], c.waiting[n], c.storeIll, c.ownedAt, n.wantedAt, c.stalled))
		if n.wants && c.owner[holder.Seq] == n && c.ownerRun[holder.Seq] == n.start && well > 1500*time.Millisecond {
			c.failf("%s does not know that it acquired epoch %d", n.name(), holder.Seq)
		}
		return
	}
	quiet := c.since(max(c.ill[n], c.storeIll))
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

func now(c *checker) time.Duration { return c.w.net.Elapsed() }
