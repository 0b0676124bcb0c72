package lease_test

import (
	"fmt"
	"time"

	"github.com/dnprelay/dnprelay/cluster/lease"
)

// The bounds that the simulation checks, with room for the skew of the clocks and the latency of the simulated store.
const (
	gapMax    = 5 * time.Second         // without a relay that serves a shard, after the last fault
	hungMax   = 3600 * time.Millisecond // until a relay whose worker hangs gives its shards up
	zombieMax = 2500 * time.Millisecond // until a relay that reaches the store notices that it holds a shard no longer
	noticeMax = 6 * time.Second         // until a relay notices that the stream lost what it had
	wellTime  = 15 * time.Second        // after which a relay without trouble has no excuse
)

// A checker observes the store and the nodes from outside.
type checker struct {
	w      *world
	errors []string

	acked    [simShards]map[int]version // reported as stored
	holders  map[uint64]string          // incarnation to which the store gave an epoch
	storeIll time.Duration              // when the store, or a node, last had an excuse
	faultAt  time.Duration
	ownedAt  [simShards]time.Duration
	gap      [simShards]time.Duration // when the shard was last served, or no node could

	worst                                      time.Duration
	acquires, formers, batches, revoked, lives int
}

func (c *checker) failf(format string, v ...any) {
	if len(c.errors) < 5 {
		c.errors = append(c.errors, fmt.Sprintf("at %v: ", c.w.net.Elapsed())+fmt.Sprintf(format, v...))
	}
}

func (c *checker) since(t time.Duration) time.Duration { return c.w.net.Elapsed() - t }

// dropped notes that a message between a node and the store was lost or comes late.
func (c *checker) dropped(n *simNode) { n.illAt = c.w.net.Elapsed() + 1200*time.Millisecond }

func (c *checker) asked(*simNode) { c.w.requests++ }

// forget takes note that the stream was made anew.
func (c *checker) forget() {
	for i := range c.acked {
		c.acked[i] = map[int]version{}
	}
}

// goneBack takes note that the stream lost what it stored lately.
func (c *checker) goneBack() {
	c.storeIll = c.w.net.Elapsed() + noticeMax + 8*c.w.store.slow
	for i, all := range c.acked {
		for k, v := range all {
			if has := c.w.store.values[i][k]; has.before(v) {
				all[k] = has
			}
		}
	}
	for epoch := range c.holders {
		if epoch > c.w.store.seq {
			delete(c.holders, epoch)
		}
	}
}

// stores judges a keyframe that the store accepts.
func (c *checker) stores(n *simNode, k keyframe, was version) {
	o := c.w.store.owner(k.shard)
	known := o.Seq == k.epoch && o.Node == n.name()
	lost := !known && c.w.shardOf(k.epoch) < 0 && c.since(max(n.illAt, c.storeIll)) < noticeMax+8*c.w.store.slow // the record of the holder is, and that of its lease is not
	if !known && !lost {
		c.failf("the store takes a value of shard %d of epoch %d by %s, but the holder is %+v", k.shard, k.epoch, n.name(), o)
	}
	if k.value.before(was) {
		c.failf("a value of shard %d goes back from %v to %v", k.shard, was, k.value)
	}
}

// reported judges the report that a batch is stored.
func (c *checker) reported(n *simNode, b *simBatch) {
	c.batches++
	if n.knows != c.w.store.made {
		return // it was stored in the stream that is gone
	}
	for _, k := range b.keyframes {
		if c.w.store.values[k.shard][k.key].before(k.value) {
			c.failf("%s is told that %v is stored in shard %d, but it is %v", n.name(), k.value, k.shard, c.w.store.values[k.shard][k.key])
		}
		if c.acked[k.shard][k.key].before(k.value) {
			c.acked[k.shard][k.key] = k.value
		}
	}
}

// loaded judges what a relay loaded.
func (c *checker) loaded(n *simNode, i int, values map[int]version) {
	for k, v := range c.acked[i] {
		if values[k].before(v) {
			c.failf("%s loads %v of shard %d, but %v was reported as stored", n.name(), values[k], i, v)
		}
	}
}

// owns judges a new record of who holds a shard.
func (c *checker) owns(by *simNode, i int, was, is lease.Owner) {
	c.ownedAt[i] = c.w.net.Elapsed()
	c.holders[is.Seq] = is.Incarnation
	if was.Node == "" || was.Node == by.name() {
		return
	}
	n, r := c.w.node(was.Node), c.w.store.last[was.Node] // nil if the stream was made anew, and the node does not know
	if h := n.shards[i]; h != nil && h.epoch == was.Seq && !h.released && !n.hung && n.alive && r != nil && r.lease.Revoked == "" && r.lease.Incarnation == was.Incarnation {
		c.failf("%s takes shard %d from %s, whose lease was not revoked", is.Node, i, was.Node)
	}
}

// revokes judges the end of a lease.
func (c *checker) revokes(by *simNode, name string) {
	c.revoked++
	n := c.w.node(name)
	if c.w.store.slow == 0 && n.alive && !n.paused && !n.cut && c.since(n.illAt) > wellTime && c.since(c.storeIll) > wellTime {
		c.failf("%s revokes the lease of %s, which lives, is not cut off and has lost no message", by.name(), name)
	}
	if n.alive && !n.paused {
		c.lives++
	}
}

// acquired judges a relay that believes to hold a shard.
func (c *checker) acquired(n *simNode, a lease.Action) {
	c.acquires++
	if a.Former != 0 && !a.Wiped {
		c.formers++
		for epoch, inc := range c.holders {
			if epoch > a.Former && epoch < a.Epoch && c.w.shardOf(epoch) == a.Shard && c.w.nodeOf(inc) != n.name() {
				c.failf("%s believes that nothing is newer than its epoch %d of shard %d, but %s held it in epoch %d", n.name(), a.Former, a.Shard, inc, epoch)
			}
		}
	}
	if known := n.epochs[a.Shard]; a.Epoch < known && n.lease.Epoch(a.Shard) == a.Epoch { // otherwise it has lost it again
		c.failf("%s acquires shard %d in epoch %d, and knew %d", n.name(), a.Shard, a.Epoch, known)
	}
	n.epochs[a.Shard] = max(n.epochs[a.Shard], a.Epoch)
	if n.shards[a.Shard] != nil {
		c.failf("%s acquires shard %d twice", n.name(), a.Shard)
	}
}

func (c *checker) lost(n *simNode, h *held, a lease.Action) {
	if h == nil || h.epoch != a.Epoch {
		c.failf("%s loses epoch %d of shard %d, and has %+v", n.name(), a.Epoch, a.Shard, h)
	}
	if a.Reason == lease.ReasonHung && !n.hung && c.since(max(n.illAt, c.storeIll)) > wellTime {
		c.failf("%s gives shard %d up although its worker turns", n.name(), a.Shard)
	}
}

// releases judges to whom a node gives a shard.
func (c *checker) releases(n *simNode, i int, to string) {
	if to == n.name() {
		c.failf("%s gives shard %d to itself", n.name(), i)
	}
}

// look judges store and nodes, ten times a second.
func (c *checker) look() {
	s, now := c.w.store, c.w.net.Elapsed()
	if s.outage != healthy {
		c.storeIll = max(c.storeIll, now)
	}
	able := false
	for _, n := range c.w.nodes {
		if !n.alive || n.paused || n.cut || n.stalled || n.hung || n.draining {
			n.illAt = max(n.illAt, now)
		}
		able = able || c.since(n.illAt) > gapMax
	}
	for i := range simShards {
		served := false
		for _, n := range c.w.nodes {
			h := n.shards[i]
			if h == nil || n.paused || !n.alive {
				continue
			}
			served = served || h.complete && !h.paused && !n.hung && h.epoch == s.owner(i).Seq
			c.lookAt(n, i, h)
		}
		if served || !able || c.since(max(c.storeIll, c.faultAt)) < gapMax {
			c.gap[i] = now
		}
		if gap := now - c.gap[i]; gap > c.worst {
			c.worst = gap
			if gap > gapMax+s.slow*8 {
				c.failf("no node serves shard %d for %v although the store answers; the holder is %+v", i, gap+gapMax, s.owner(i))
			}
		}
	}
}

// lookAt judges a node that believes to hold a shard.
func (c *checker) lookAt(n *simNode, i int, h *held) {
	quiet := c.since(max(n.illAt, c.storeIll, c.faultAt)) - c.w.store.slow*8
	o, most := c.w.store.owner(i), zombieMax
	if h.epoch > o.Seq { // the stream lost the record
		most = noticeMax
	}
	if h.epoch != o.Seq && min(quiet, c.since(c.ownedAt[i])) > most {
		c.failf("%s goes on in epoch %d of shard %d, while the store, which answers it, has %d", n.name(), h.epoch, i, o.Seq)
	}
	if away := c.since(n.okAt); h.durable && away > 1100*time.Millisecond {
		c.failf("%s calls shard %d durable after %v of silence", n.name(), i, away)
	} else if !h.paused && away > 12500*time.Millisecond {
		c.failf("%s serves shard %d after %v of silence", n.name(), i, away)
	}
	if !h.durable && quiet > wellTime && c.w.store.slow == 0 {
		c.failf("%s calls shard %d not durable without reason", n.name(), i)
	}
}
