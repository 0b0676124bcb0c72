package lease_test

import (
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/internal/simnet"
)

var (
	seed       = flag.Uint64("seed", 0, "the one seed to simulate; 0 means -seeds of them from -from on")
	from       = flag.Uint64("from", 1, "the first seed")
	story      = flag.Bool("story", false, "print the state of the nodes ten times a second")
	seeds      = flag.Int("seeds", 100, "how many seeds to simulate")
	breakFence = flag.Bool("break-fence", false, "a deliberate fault: the store takes keyframes of relays whose leases were revoked; the simulation must fail")
)

const (
	simTime   = time.Minute
	simNodes  = 3
	simShards = 4
)

// A world is relays that share the shards of a stream.
type world struct {
	net      *simnet.Net
	store    *simStore
	nodes    []*simNode
	chk      *checker
	idle     int // a holder changes a value in one of so many turns
	requests int
}

func newWorld(seed uint64, calm bool) *world {
	w := &world{net: simnet.New(seed)}
	w.chk = &checker{w: w, holders: map[uint64]string{}}
	w.chk.forget()
	rnd := w.net.Rand()
	w.store = newSimStore(w)
	w.store.single = rnd.IntN(2) == 0
	w.idle = []int{2, 10, 500}[rnd.IntN(3)]
	if !calm {
		q := rnd.IntN(4)
		w.store.loss, w.store.late = []float64{0, 0, 0.01, 0.05}[q], []float64{0, 0.01, 0.01, 0.01}[q]
		w.store.old = []float64{0, 0.02}[rnd.IntN(2)]
		w.store.slow = []time.Duration{0, 0, 300 * time.Millisecond, 3 * time.Second}[rnd.IntN(4)]
		w.store.busy = 0.02
		w.store.lag = []float64{0, 0.3}[rnd.IntN(2)]
	}
	for i := range simNodes {
		n := &simNode{w: w, index: i, rate: 0.98 + 0.04*rnd.Float64(), skew: time.Duration(rnd.IntN(1e6)) * time.Second}
		w.nodes = append(w.nodes, n)
	}
	for _, n := range w.nodes {
		n.boot()
	}
	return w
}

func (w *world) node(name string) *simNode {
	return w.nodes[slices.IndexFunc(w.nodes, func(n *simNode) bool { return n.name() == name })]
}

// nodeOf returns the node of an incarnation.
func (w *world) nodeOf(incarnation string) string {
	node, _, _ := strings.Cut(incarnation, "/")
	return node
}

// shardOf returns the shard whose holder's record has a sequence; -1 if there is none.
func (w *world) shardOf(epoch uint64) int {
	for _, e := range w.store.log {
		if e.seq == epoch && e.node == "" {
			return e.shard
		}
	}
	return -1
}

// trouble causes one fault, and schedules its end.
func (w *world) trouble() {
	rnd := w.net.Rand()
	n := w.nodes[rnd.IntN(len(w.nodes))]
	start := n.start
	for_ := func(most time.Duration) time.Duration {
		return 100*time.Millisecond + time.Duration(rnd.Int64N(int64(most)))
	}
	end := func(after time.Duration, f func()) {
		w.net.Schedule(after, func() {
			if n.start == start && n.alive {
				f()
			}
			w.chk.faultAt = w.net.Elapsed()
		})
	}
	w.chk.faultAt = w.net.Elapsed()
	switch rnd.IntN(10) {
	case 0, 1:
		if w.store.outage == healthy {
			w.store.setOutage(outage(1 + rnd.IntN(int(outages)-1)))
			w.net.Schedule(4*time.Second+for_(20*time.Second), func() { w.store.setOutage(healthy) })
		}
	case 2, 3: // pause
		n.paused = true
		if rnd.IntN(2) == 0 {
			n.stalled = true // the server drops its slow subscription
		}
		end(for_(20*time.Second), func() {
			n.paused = false
			asleep := n.asleep
			n.asleep = nil
			for _, f := range asleep {
				f()
			}
			n.turn()
			end(3*time.Second, func() { n.unstall() })
		})
	case 4: // crash
		n.crash()
		w.net.Schedule(for_(10*time.Second), func() {
			if !n.alive {
				n.boot()
			}
			w.chk.faultAt = w.net.Elapsed()
		})
	case 5: // cut off from the store
		n.cut = true
		w.net.Schedule(for_(20*time.Second), func() {
			n.cut = false
			w.chk.faultAt = w.net.Elapsed()
			n.rewatch()
		})
	case 6: // the watch stalls
		n.stalled = true
		end(for_(5*time.Second), n.unstall)
	case 7: // the worker hangs, the lease goes on
		n.hung = true
		end(for_(10*time.Second), func() { n.hung = false })
	case 8: // drain
		n.draining = true
		end(for_(10*time.Second), func() { n.draining = false })
	case 9:
		switch rnd.IntN(3) {
		case 0: // the stream is deleted and made anew
			w.wipe()
		case 1: // all servers lose power, and what they had not written to their disks
			if w.store.outage == healthy {
				w.losePower(for_(5 * time.Second))
			}
		}
	}
}

// unstall ends a stall of the watch, which begins anew or goes on.
func (n *simNode) unstall() {
	n.stalled = false
	if n.w.net.Rand().IntN(2) == 0 {
		n.rewatch()
	} else {
		n.pullSoon()
	}
}

// wipe makes the stream anew. Nodes notice at different times.
func (w *world) wipe() {
	w.store.wipe()
	w.chk.forget()
	for _, n := range w.nodes {
		var notice func()
		start, made := n.start, w.store.made
		notice = func() {
			n.run(start, func() {
				if n.cut { // it cannot know
					w.net.Schedule(500*time.Millisecond, notice)
				} else if n.knows < made {
					n.wiped()
				}
			})
		}
		w.net.Schedule(time.Duration(w.net.Rand().IntN(1500))*time.Millisecond, notice)
	}
}

// losePower has the store silent for a time, and then without what it stored in the last seconds. All watches begin anew, as their
// connections do.
func (w *world) losePower(d time.Duration) {
	s := w.store
	s.setOutage(silent)
	w.net.Schedule(d, func() {
		before, made := maps.Clone(s.last), s.made
		s.goBack()
		w.chk.goneBack()
		for _, n := range w.nodes {
			if n.knows == made && before[n.name()] == s.last[n.name()] {
				n.knows = s.made // it has nothing to notice
			}
			start := n.start
			n.run(start, n.rewatch)
		}
		s.setOutage(healthy)
	})
}

// start has the checker look, and the store remember what it may go back to.
func (w *world) start() {
	w.net.Every(time.Second, func() bool {
		w.store.save()
		return true
	})
	w.net.Every(100*time.Millisecond, func() bool {
		w.chk.look()
		if *story {
			w.print()
		}
		return true
	})
}

func (w *world) print() {
	fmt.Printf("%v outage %d, seq %d\n", w.net.Elapsed(), w.store.outage, w.store.seq)
	for i := range simShards {
		fmt.Printf("   shard %d: %+v\n", i, w.store.owner(i))
	}
	for _, n := range w.nodes {
		fmt.Printf("   %s: alive %v paused %v cut %v stalled %v hung %v draining %v lease %+v:", n.name(), n.alive, n.paused, n.cut, n.stalled, n.hung, n.draining, w.store.last[n.name()])
		for i, h := range n.shards {
			if h != nil {
				fmt.Printf(" %d@%d complete %v durable %v paused %v leaving %v/%v dirty %d", i, h.epoch, h.complete, h.durable, h.paused, h.leaving, h.released, len(h.dirty))
			}
		}
		fmt.Println()
	}
}

func TestSimulation(t *testing.T) {
	first, count := *from, uint64(*seeds)
	if *seed != 0 {
		first, count = *seed, 1
	}
	var sum checker
	for s := first; s < first+count; s++ {
		w := newWorld(s, s%4 == 0)
		w.start()
		var next func()
		next = func() {
			w.trouble()
			w.net.Schedule(time.Duration(500+w.net.Rand().IntN(9_000))*time.Millisecond, next)
		}
		w.net.Schedule(5*time.Second, next)
		w.net.Run(simTime)
		for _, e := range w.chk.errors {
			t.Errorf("seed %d: %s", s, e)
		}
		sum.acquires += w.chk.acquires
		sum.formers += w.chk.formers
		sum.batches += w.chk.batches
		sum.revoked += w.chk.revoked
		sum.lives += w.chk.lives
		sum.worst = max(sum.worst, w.chk.worst)
		if t.Failed() && s > first+20 {
			break
		}
	}
	t.Logf("%d acquisitions, %d of them with what the relay had, %d batches stored, %d leases revoked, %d of them of relays that ran, longest gap %v", sum.acquires, sum.formers, sum.batches, sum.revoked, sum.lives, gapMax+sum.worst)
}

// held returns the nodes that serve the shards.
func (w *world) held() (n int) {
	for i := range simShards {
		if w.serves(i) != nil {
			n++
		}
	}
	return n
}

// serves returns the node that serves a shard, or nil.
func (w *world) serves(i int) *simNode {
	for _, n := range w.nodes {
		if h := n.shards[i]; n.alive && !n.paused && !n.hung && h != nil && h.complete && !h.paused && h.epoch == w.store.owner(i).Seq {
			return n
		}
	}
	return nil
}

// epochs returns those of all shards.
func (w *world) epochs() (all [simShards]uint64) {
	for i := range all {
		all[i] = w.store.owner(i).Seq
	}
	return all
}

// until runs the world until all shards are served, and returns how long that takes.
func (w *world) until(t *testing.T, what string, is func() bool) time.Duration {
	t.Helper()
	begin := w.net.Elapsed()
	if !w.net.RunUntil(time.Minute, is) {
		t.Fatalf("%s: not within a minute", what)
	}
	return w.net.Elapsed() - begin
}

func (w *world) all() bool { return w.held() == simShards }

// TestTimes says how long shards are without a relay that serves them, for one fault at a time.
func TestTimes(t *testing.T) {
	for what, c := range map[string]struct {
		fault func(w *world, n *simNode)
		most  time.Duration
	}{
		"the holder dies":            {func(_ *world, n *simNode) { n.crash() }, 2 * time.Second},
		"the holder stands still":    {func(_ *world, n *simNode) { n.paused = true }, 2 * time.Second},
		"the holder is cut off":      {func(_ *world, n *simNode) { n.cut = true }, 2 * time.Second},
		"the holder's worker hangs":  {func(_ *world, n *simNode) { n.hung = true }, hungMax},
		"the holder leaves":          {func(_ *world, n *simNode) { n.draining = true }, time.Second},
		"the stream is made anew":    {func(w *world, _ *simNode) { w.wipe() }, 3 * time.Second},
		"all servers lose power":     {func(w *world, _ *simNode) { w.losePower(2 * time.Second) }, 10 * time.Second},
		"no answers for 16 s":        {func(w *world, _ *simNode) { w.outageFor(silent, 16*time.Second) }, 20 * time.Second},
		"no writes for 60 s":         {func(w *world, _ *simNode) { w.outageFor(quorum, time.Minute) }, 64 * time.Second},
		"an election of 9 s":         {func(w *world, _ *simNode) { w.outageFor(refused, 9*time.Second) }, 0},
		"the watch of all is silent": {func(w *world, _ *simNode) { w.stall(9 * time.Second) }, 0},
	} {
		worst := time.Duration(0)
		for s := uint64(1); s <= 10; s++ {
			w := newWorld(s, true)
			w.start()
			w.until(t, what, w.all)
			w.net.Run(3 * time.Second) // until each shard is where it should be
			if !w.all() {
				t.Fatalf("seed %d: shards are not served without trouble", s)
			}
			begin, epochs, n := w.net.Elapsed(), w.epochs(), w.serves(0)
			w.chk.faultAt = begin + time.Minute
			c.fault(w, n)
			served := begin
			w.net.RunUntil(90*time.Second, func() bool {
				if !w.all() {
					served = w.net.Elapsed()
				}
				return w.net.Elapsed()-begin > c.most+10*time.Second
			})
			took := served - begin
			worst = max(worst, took)
			if took > c.most {
				t.Errorf("seed %d: %s: a shard is not served for %v, at most %v", s, what, took, c.most)
			}
			if kept := w.epochs() == epochs; c.most == 0 && !kept || strings.HasSuffix(what, " s") && !kept {
				t.Errorf("seed %d: %s: epochs %v become %v", s, what, epochs, w.epochs())
			}
			for _, e := range w.chk.errors {
				t.Errorf("seed %d: %s: %s", s, what, e)
			}
		}
		t.Logf("%s: served again after at most %v", what, worst)
	}
}

func (w *world) outageFor(o outage, d time.Duration) {
	w.store.setOutage(o)
	w.net.Schedule(d, func() { w.store.setOutage(healthy) })
}

func (w *world) stall(d time.Duration) {
	for _, n := range w.nodes {
		n.stalled = true
		w.net.Schedule(d, n.unstall)
	}
}
