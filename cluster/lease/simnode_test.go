package lease_test

import (
	"fmt"
	"maps"
	"time"

	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/cluster/lease"
	"github.com/dnprelay/dnprelay/internal/fence"
	"github.com/dnprelay/dnprelay/internal/simnet"
)

const simStates = 4

// A simNode is a relay: its lease, and a worker that serves the shards.
type simNode struct {
	w     *world
	index int
	start int // ordinal of the process
	lease *lease.Lease
	rate  float64       // of its clock
	skew  time.Duration // of its clock

	alive, paused, cut bool
	hung               bool // the worker stands still
	draining           bool
	asleep             []func()
	armed              bool
	wake               time.Duration

	stalled bool              // the watch brings nothing
	pos     int               // of the watch in the log
	behind  []*entry          // that the watch brings before
	made    int               // the stream that it watches
	knows   int               // the newest stream of which its lease was told
	primed  bool              // the watch has brought the records that there were
	watches int               // begun so far
	epochs  [simShards]uint64 // the highest that it knows

	shards  [simShards]*held
	former  [simShards]*held // what a lost ownership left, if it was complete
	token   uint64
	batches map[uint64]*simBatch
	sending map[uint64][]keyframe // of the write under way, by its number
	okAt    time.Duration         // when the store took its last write
	illAt   time.Duration         // when it last had an excuse
}

// A held is a shard that the relay holds.
type held struct {
	epoch            uint64
	complete, paused bool
	durable          bool
	values           map[int]version
	dirty            map[int]bool // accepted, and not stored
	storing          *simBatch
	leaving          bool
	to               string
	released         bool
	n                uint64
}

type simBatch struct {
	shard     int
	epoch     uint64
	keyframes []keyframe
}

func (n *simNode) name() string { return fmt.Sprintf("relay-%d", n.index) }

func (n *simNode) now() time.Time {
	return simnet.Epoch.Add(n.skew + time.Duration(float64(n.w.net.Elapsed())*n.rate))
}

func draw(node string, shard int) uint64 { return cluster.Draw(node, fmt.Sprint(shard)) }

// boot starts a process of the node.
func (n *simNode) boot() {
	n.start++
	n.alive, n.paused, n.armed, n.hung, n.draining, n.stalled = true, false, false, false, false, false
	n.knows = n.w.store.made
	n.asleep, n.batches, n.sending = nil, map[uint64]*simBatch{}, map[uint64][]keyframe{}
	n.shards, n.former, n.epochs = [simShards]*held{}, [simShards]*held{}, [simShards]uint64{}
	var all []int
	for i := range simShards {
		all = append(all, i)
	}
	n.lease = lease.New(lease.Config{Node: n.name(), Start: fmt.Sprintf("%s/%d", n.name(), n.start), Shards: all, Single: n.w.store.single, Draw: draw})
	n.rewatch()
	n.work(n.start)
}

// crash ends the process.
func (n *simNode) crash() {
	n.alive, n.shards, n.former = false, [simShards]*held{}, [simShards]*held{}
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

// rewatch begins the watch anew.
func (n *simNode) rewatch() {
	n.watches++
	start, made, watch := n.start, n.w.store.made, n.watches
	n.made, n.pos, n.primed = made, len(n.w.store.log), false
	records, behind := n.w.store.watch()
	n.lease.Rewatch()
	n.w.net.Schedule(n.w.store.latency(), func() {
		n.run(start, func() {
			if n.watches != watch || n.w.store.made != made {
				return
			}
			for _, e := range records {
				n.see(e)
			}
			n.lease.Primed()
			n.primed = true
			n.catchUp(behind)
			n.pullSoon()
		})
	})
}

// catchUp brings records that the server of the watch did not have yet, one after the other; what is newer waits behind them.
func (n *simNode) catchUp(behind []*entry) {
	n.behind = behind
	if len(behind) == 0 {
		return
	}
	start, watch := n.start, n.watches
	n.w.net.Schedule(n.w.store.latency(), func() {
		n.run(start, func() {
			switch {
			case n.watches != watch:
			case n.stalled || n.cut:
				n.catchUp(behind)
			default:
				n.see(behind[0])
				n.catchUp(behind[1:])
				n.pullSoon()
			}
		})
	})
}

// wiped tells the lease that the stream is another one, or lacks what it had.
func (n *simNode) wiped() {
	n.knows = n.w.store.made
	n.lease.Wiped(n.now())
	n.rewatch()
}

func (n *simNode) see(e *entry) {
	if e.node != "" {
		n.lease.Saw(n.now(), e.node, e.lease)
	} else {
		n.epochs[e.shard] = max(n.epochs[e.shard], e.owner.Seq)
		n.lease.SawOwner(n.now(), e.shard, e.owner)
	}
}

// pullSoon has the watch bring the next records.
func (n *simNode) pullSoon() {
	start := n.start
	n.w.net.Schedule(n.w.store.latency(), func() {
		n.run(start, func() {
			for n.primed && len(n.behind) == 0 && !n.stalled && !n.cut && n.made == n.w.store.made && n.pos < len(n.w.store.log) {
				n.see(n.w.store.log[n.pos])
				n.pos++
			}
		})
	})
}

// work is the turn of the worker, every 20 ms: it says that it lives, accepts changes, and has them stored.
func (n *simNode) work(start int) {
	n.run(start, func() {
		if !n.hung {
			n.play()
		}
		n.w.net.Schedule(20*time.Millisecond, func() { n.work(start) })
	})
}

func (n *simNode) play() {
	for i := range simShards {
		n.lease.Alive(n.now(), i, !n.draining)
		if h := n.shards[i]; h != nil {
			n.playShard(i, h)
		}
	}
}

func (n *simNode) playShard(i int, h *held) {
	if h.complete && !h.paused && !h.leaving && n.w.net.Rand().IntN(n.w.idle) == 0 {
		k := n.w.net.Rand().IntN(simStates)
		h.n++
		h.values[k] = version{h.epoch, h.n}
		h.dirty[k] = true
	}
	if h.storing == nil && len(h.dirty) > 0 && !h.released && n.w.net.Rand().IntN(3) == 0 {
		n.store(i, h)
	}
	if h.leaving && !h.released && h.storing == nil && len(h.dirty) == 0 {
		h.released = true
		n.w.chk.releases(n, i, h.to)
		n.lease.Release(i, h.epoch, h.to)
	}
}

func (n *simNode) store(i int, h *held) {
	b := &simBatch{shard: i, epoch: h.epoch}
	var sizes []int
	for k := range simStates {
		if h.dirty[k] {
			b.keyframes = append(b.keyframes, keyframe{i, h.epoch, k, h.values[k]})
			sizes = append(sizes, 100_000+n.w.net.Rand().IntN(400_000))
		}
	}
	n.token++
	if !n.lease.Store(n.now(), i, h.epoch, n.token, sizes) {
		return
	}
	n.batches[n.token], h.storing, h.dirty = b, b, map[int]bool{}
}

// turn carries out what the lease wants and arms a timer for its next deadline.
func (n *simNode) turn() {
	for range 1000 {
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

func (n *simNode) act(a lease.Action) {
	s, start := n.w.store, n.start
	answer := func(f func(lease.Answer)) func(lease.Answer) {
		return func(x lease.Answer) { n.run(start, func() { f(x) }) }
	}
	switch a.Kind {
	case lease.ActionWrite:
		n.w.chk.asked(n)
		n.write(a)
	case lease.ActionReadLease, lease.ActionReadOwner:
		n.w.chk.asked(n)
		var e *entry
		s.request(n, false, s.latency(), func() lease.Answer {
			if e = s.read(a.Node); a.Kind == lease.ActionReadOwner {
				e = s.read(a.Shard)
			}
			return lease.Answer{Verdict: fence.OK}
		}, answer(func(x lease.Answer) {
			if e == nil {
				e = &entry{}
			}
			if a.Kind == lease.ActionReadOwner {
				n.lease.ReadOwner(n.now(), a.Shard, e.owner, x.Verdict)
			} else {
				n.lease.ReadLease(n.now(), a.Asked, a.Node, e.lease, x.Verdict)
			}
		}))
	case lease.ActionRevoke:
		n.w.chk.asked(n)
		s.request(n, true, s.latency(), func() lease.Answer {
			x := s.put(a.Expect, &entry{node: a.Node, lease: a.Record})
			if x.Verdict == fence.OK {
				n.w.chk.revokes(n, a.Node)
			}
			return x
		}, answer(func(x lease.Answer) { n.lease.Revoked(n.now(), a.Node, a.Record, x) }))
	case lease.ActionOwn:
		n.w.chk.asked(n)
		s.request(n, true, s.latency(), func() lease.Answer {
			was := s.owner(a.Shard)
			x := s.put(a.Expect, &entry{shard: a.Shard, owner: a.Owner})
			if x.Verdict == fence.OK {
				n.w.chk.owns(n, a.Shard, was, s.owner(a.Shard))
			}
			return x
		}, answer(func(x lease.Answer) { n.lease.WroteOwner(n.now(), a.Shard, a.Expect, a.Owner, x) }))
	default:
		n.report(a)
	}
}

// write carries out ActionWrite: all or none, or one after the other.
func (n *simNode) write(a lease.Action) {
	s, start, number := n.w.store, n.start, a.Record.Write
	all := n.sending[number]
	if !a.Again {
		clear(n.sending)
		for _, p := range a.Parts {
			all = append(all, n.batches[p.Token].keyframes[p.From:p.To]...)
		}
		n.sending[number] = all
	}
	record := func(before func()) func() lease.Answer {
		return func() lease.Answer {
			if s.lastSeq(n.name()) != a.Expect {
				return lease.Answer{Verdict: fence.Stale}
			}
			before()
			n.okAt = n.w.net.Elapsed()
			return s.put(a.Expect, &entry{node: n.name(), lease: a.Record})
		}
	}
	missing := 0
	wrote := func(x lease.Answer) {
		n.run(start, func() {
			x.Partly = missing > 0
			n.lease.Wrote(n.now(), a.Asked, a.Record, x)
		})
	}
	there := s.latency() // messages of one connection stay in order
	if !s.single {
		s.request(n, true, there, record(func() {
			for _, k := range all {
				s.store(n, a.Expect, k)
			}
		}), wrote)
		return
	}
	missing = len(all)
	for _, k := range all {
		s.request(n, true, there, func() lease.Answer { return s.store(n, a.Expect, k) }, func(x lease.Answer) {
			if x.Verdict == fence.OK {
				missing--
			}
		})
	}
	s.request(n, true, there, record(func() {}), wrote)
}

// report takes what the lease reports.
func (n *simNode) report(a lease.Action) {
	h := n.shards[max(a.Shard, 0)]
	switch a.Kind {
	case lease.ActionAcquired:
		n.w.chk.acquired(n, a)
		h = &held{epoch: a.Epoch, durable: true, values: map[int]version{}, dirty: map[int]bool{}}
		n.shards[a.Shard] = h
		f := n.former[a.Shard]
		n.former[a.Shard] = nil
		if a.Former != 0 && f != nil && f.epoch == a.Former {
			n.inherit(h, f, a.Wiped)
		} else {
			n.load(a.Shard, h)
		}
	case lease.ActionLost:
		n.w.chk.lost(n, h, a)
		n.shards[a.Shard] = nil
		if h.complete && (a.Reason == lease.ReasonRevoked || a.Reason == lease.ReasonWiped) {
			n.former[a.Shard] = h
		}
	case lease.ActionPaused, lease.ActionResumed:
		h.paused = a.Kind == lease.ActionPaused
	case lease.ActionDurable:
		h.durable = a.Durable
	case lease.ActionStored:
		b := n.batches[a.Token]
		delete(n.batches, a.Token)
		n.w.chk.reported(n, b)
		if h != nil && h.storing == b {
			h.storing = nil
		}
	case lease.ActionFailed:
		delete(n.batches, a.Token)
	case lease.ActionPlaced:
		if n.hung {
			return
		}
		switch {
		case a.Node == n.name():
			h.leaving = h.released
		case a.Node != "" || n.draining:
			h.leaving, h.to = true, a.Node
		}
	case lease.ActionSeen:
		n.former[a.Shard] = nil
	case lease.ActionForgot:
		n.wiped()
	case lease.ActionReplaced:
		n.w.chk.failf("%s believes that another process has its name", n.name())
	}
}

// inherit goes on with the values of a former ownership.
func (n *simNode) inherit(h, f *held, wiped bool) {
	h.values, h.complete, h.n = maps.Clone(f.values), true, f.n
	for k := range f.values {
		if wiped || f.dirty[k] {
			h.dirty[k] = true
		}
	}
	if f.storing != nil {
		for _, k := range f.storing.keyframes {
			h.dirty[k.key] = true
		}
	}
	for k := range h.values {
		if h.dirty[k] { // it is stored in this epoch
			h.n++
			h.values[k] = version{h.epoch, h.n}
		}
	}
}

// load brings what is stored, with the proof that it is not older than the epoch.
func (n *simNode) load(i int, h *held) {
	s, start := n.w.store, n.start
	if n.shards[i] != h || !n.alive || n.start != start {
		return
	}
	var values map[int]version
	s.request(n, false, s.latency(), func() lease.Answer {
		if s.owner(i).Seq == h.epoch {
			values = maps.Clone(s.values[i])
			n.w.chk.loaded(n, i, values)
		}
		return lease.Answer{Verdict: fence.OK}
	}, func(x lease.Answer) {
		n.run(start, func() {
			if h.complete || x.Verdict != fence.OK || values == nil || n.shards[i] != h {
				return
			}
			h.values, h.complete = values, true
		})
	})
	n.w.net.Schedule(time.Second, func() {
		n.run(start, func() {
			if !h.complete && n.shards[i] == h {
				n.load(i, h)
			}
		})
	})
}
