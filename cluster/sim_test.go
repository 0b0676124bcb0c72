package cluster_test

import (
	"flag"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/internal/simnet"
)

var (
	seed  = flag.Uint64("seed", 0, "the one seed to simulate; 0 means -seeds of them from 1 on")
	story = flag.Bool("story", false, "print the state of the nodes ten times a second")
	seeds = flag.Int("seeds", 200, "how many seeds to simulate")
)

// simTime is the virtual time that one seed takes.
const simTime = 2 * time.Minute

// A world is some relays that share a shard, and their store.
type world struct {
	net   *simnet.Net
	store *simStore
	nodes []*simNode
	chk   *checker

	outageAt time.Duration
	idle     int  // a holder stores a batch in one of so many calls of play
	greedy   bool // the roster wants every relay to hold the shard, so that there always is a challenger
	calm     bool // this seed has only outages of the store and planned hand-overs
}

func newWorld(seed uint64) *world {
	w := &world{net: simnet.New(seed)}
	w.chk = &checker{w: w, owner: map[uint64]*simNode{}, ownerRun: map[uint64]int{}, ill: map[*simNode]time.Duration{}, waiting: map[*simNode]time.Duration{}}
	w.store = &simStore{net: w.net, chk: w.chk, seq: 1_000_000, states: map[int]version{}}
	w.calm = seed%3 == 0
	rnd := w.net.Rand()
	w.idle = []int{3, 500}[rnd.IntN(2)]
	w.greedy = rnd.IntN(3) == 0
	for i := range 3 {
		n := &simNode{w: w, index: i, rate: 0.98 + 0.04*rnd.Float64(), skew: time.Duration(rnd.IntN(1e6)) * time.Second}
		w.nodes = append(w.nodes, n)
		n.boot()
	}
	w.store.watchers = w.nodes
	if !w.calm {
		q := rnd.IntN(4)
		w.store.loss, w.store.late = []float64{0, 0, 0.01, 0.05}[q], []float64{0, 0.01, 0.01, 0.01}[q]
		w.store.old = []float64{0, 0.02}[rnd.IntN(2)]
	}
	w.store.busy = 0.02
	w.want(rnd.IntN(3))
	return w
}

// want makes the roster want node i to hold the shard. The nodes may have different rosters for a
// while.
func (w *world) want(i int) {
	for j, n := range w.nodes {
		delay := time.Duration(0)
		if !w.calm {
			delay = time.Duration(w.net.Rand().IntN(800)) * time.Millisecond
		}
		want, start := j == i || w.greedy, n.start
		w.net.Schedule(delay, func() {
			n.run(start, func() {
				if n.wants != want {
					n.wants, n.wantedAt = want, w.net.Elapsed()
				}
				n.lease.Want(n.now(), want)
			})
		})
	}
}

// silentSince returns since when the store does not answer the node.
func (w *world) silentSince(n *simNode) time.Duration {
	since := w.net.Elapsed()
	if n.cut {
		since = n.cutAt
	}
	if w.store.outage != healthy {
		since = min(since, w.outageAt)
	}
	return since
}

// trouble causes one fault, or a planned hand-over, and schedules its end.
func (w *world) trouble() {
	rnd := w.net.Rand()
	n := w.nodes[rnd.IntN(len(w.nodes))]
	start := n.start
	kind := rnd.IntN(7)
	if w.calm {
		kind = []int{0, 1, 1}[rnd.IntN(3)]
	}
	switch kind {
	case 0:
		if w.store.outage == healthy {
			w.outageAt = w.net.Elapsed()
			w.store.setOutage(outage(1 + rnd.IntN(3)))
			w.net.Schedule(time.Duration(4000+rnd.IntN(5000))*time.Millisecond, func() { w.store.setOutage(healthy) })
		}
	case 1, 2:
		w.handOver()
	case 3: // pause
		n.paused = true
		if rnd.IntN(2) == 0 { // the servers drop its slow subscriptions, and it notices late
			n.stalled, n.deaf = true, true
		}
		w.net.Schedule(time.Duration(100+rnd.IntN(15_000))*time.Millisecond, func() {
			if n.start == start && n.alive {
				n.paused = false
				w.net.Schedule(5*time.Second, func() { n.stalled, n.deaf = false, false; n.catchUp() })
				asleep := n.asleep
				n.asleep = nil
				for _, f := range asleep {
					f()
				}
				n.turn()
			}
		})
	case 4: // crash
		n.alive, n.epoch, n.wants = false, 0, false
		w.want((n.index + 1) % len(w.nodes))
		w.net.Schedule(time.Duration(100+rnd.IntN(10_000))*time.Millisecond, func() {
			if !n.alive {
				n.boot()
				n.turn()
			}
		})
	case 5: // cut off from the store, and from the bus or not
		if !n.cut {
			n.cut, n.cutAt, n.deaf = true, w.net.Elapsed(), rnd.IntN(2) == 0
		}
		w.net.Schedule(time.Duration(500+rnd.IntN(15_000))*time.Millisecond, func() { n.cut, n.deaf = false, false; n.catchUp() })
	case 6: // subscriptions stall: the watch, the bus, or both
		n.stalled, n.deaf = rnd.IntN(3) > 0, rnd.IntN(3) > 0
		w.net.Schedule(time.Duration(500+rnd.IntN(10_000))*time.Millisecond, func() { n.stalled, n.deaf = false, false; n.catchUp() })
	}
}

// handOver lets the holder release the shard to another node, as a new roster does.
func (w *world) handOver() {
	for _, n := range w.nodes {
		if n.alive && !n.paused && n.epoch != 0 && n.epoch == w.store.holder.Seq {
			to := w.nodes[(n.index+1+w.net.Rand().IntN(len(w.nodes)-1))%len(w.nodes)]
			w.want(to.index)
			w.chk.release, w.chk.releaseT = w.net.Elapsed(), to
			if !w.calm {
				w.chk.release = 0 // the roster is delayed, so the time is not bounded
			}
			n.lease.Release(to.name())
			n.turn()
			return
		}
	}
}

// run simulates the whole seed and returns the violations.
func (w *world) run() []string {
	rnd := w.net.Rand()
	w.net.Every(20*time.Millisecond, func() bool {
		for _, n := range w.nodes {
			n.play()
		}
		return true
	})
	w.net.Every(100*time.Millisecond, func() bool {
		w.chk.look()
		if *story {
			w.print()
		}
		return true
	})
	var next func()
	next = func() {
		w.trouble()
		w.net.Schedule(time.Duration(1000+rnd.IntN(14_000))*time.Millisecond, next)
	}
	w.net.Schedule(5*time.Second, next)
	w.net.Run(simTime)
	return w.chk.errors
}

// print prints the state of the store and the nodes.
func (w *world) print() {
	fmt.Printf("%v store: outage %d, holder %+v, heartbeat %+v\n", w.net.Elapsed(), w.store.outage, w.store.holder, w.store.heartbeat)
	for _, n := range w.nodes {
		fmt.Printf("   %s: %v in %d, alive %v, paused %v, cut %v, watch stalled %v, wants %v, durable %v, ill %v\n", n.name(), n.lease.Phase(),
			n.epoch, n.alive, n.paused, n.cut, n.stalled, n.wants, n.durable, w.chk.ill[n])
	}
}

func TestSimulation(t *testing.T) {
	first, count := uint64(1), uint64(*seeds)
	if *seed != 0 {
		first, count = *seed, 1
	}
	var handed []time.Duration
	var acquires, batches int
	var worst time.Duration
	for s := first; s < first+count; s++ {
		w := newWorld(s)
		for _, e := range w.run() {
			t.Errorf("seed %d: %s", s, e)
		}
		handed = append(handed, w.chk.handed...)
		acquires += w.chk.acquires
		batches += w.chk.batches
		worst = max(worst, w.chk.gapWorst)
		if t.Failed() && s > first+20 {
			break
		}
	}
	slices.Sort(handed)
	summary := "no planned hand-over"
	if len(handed) > 0 {
		summary = fmt.Sprintf("%d hand-overs: median %v, longest %v", len(handed), handed[len(handed)/2], handed[len(handed)-1])
	}
	t.Logf("%d acquisitions, %d batches stored, longest gap %v, %s", acquires, batches, worst, summary)
}
