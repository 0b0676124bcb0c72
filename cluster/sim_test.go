package cluster_test

import (
	"flag"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/internal/simnet"
)

var (
	seed  = flag.Uint64("seed", 0, "the one seed to simulate; 0 means -seeds of them from 1 on")
	story = flag.Bool("story", false, "print the state of the nodes ten times a second")
	seeds = flag.Int("seeds", 100, "how many seeds to simulate")
)

// simTime is the virtual time that one seed takes.
const simTime = 2 * time.Minute

// A world is some relays that share a shard, their store, and members that are only in gossip.
type world struct {
	net    *simnet.Net
	store  *simStore
	nodes  []*simNode
	chk    *checker
	roster cluster.Roster // what gossip says: all nodes, and ghosts that pretend to be relays
	real   cluster.Roster // the nodes

	outageAt time.Duration
	idle     int  // a holder stores a batch in one of so many calls of play
	greedy   bool // every relay believes that it should hold the shard, so that there always is a challenger
	calm     bool // this seed has only outages of the store and planned hand-overs
}

const (
	simNodes  = 3
	ghostsMax = 20
)

// rosters makes the rosters of a world.
func (w *world) rosters(ghosts int) {
	var members []cluster.Member
	for i := range simNodes + ghosts {
		m := cluster.Member{Name: fmt.Sprintf("relay-%d", i), Role: cluster.RoleRelay, Phase: cluster.PhaseReady}
		if i >= simNodes {
			m.Name = fmt.Sprintf("ghost-%d", i)
		}
		members = append(members, m)
	}
	w.roster, w.real = cluster.NewRoster(members), cluster.NewRoster(members[:simNodes])
}

// placing returns a shard that the node with this name should hold, if there are no ghosts. A change
// of the roster is a change of the shard by which the nodes place the one shard that they share.
func (w *world) placing(name string) (shard int) {
	for {
		shard = w.net.Rand().IntN(1 << 20)
		if top, _ := w.real.Holder(shard); top == name {
			return shard
		}
	}
}

func newWorld(seed uint64) *world {
	w := &world{net: simnet.New(seed)}
	w.chk = &checker{w: w, owner: map[uint64]*simNode{}, ownerRun: map[uint64]int{}, ill: map[*simNode]time.Duration{}, waiting: map[*simNode]time.Duration{}}
	w.store = &simStore{net: w.net, chk: w.chk, seq: 1_000_000, states: map[int]version{}}
	w.calm = seed%3 == 0
	rnd := w.net.Rand()
	w.idle = []int{3, 500}[rnd.IntN(2)]
	w.greedy = rnd.IntN(3) == 0
	w.rosters([]int{0, ghostsMax}[rnd.IntN(2)])
	for i := range simNodes {
		n := &simNode{w: w, index: i, rate: 0.98 + 0.04*rnd.Float64(), skew: time.Duration(rnd.IntN(1e6)) * time.Second}
		n.shard = w.placing(n.name())
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
	shard := w.placing(w.nodes[i].name())
	w.chk.wantedAt = w.net.Elapsed()
	for _, n := range w.nodes {
		delay := time.Duration(0)
		if !w.calm {
			delay = time.Duration(w.net.Rand().IntN(800)) * time.Millisecond
		}
		start := n.start
		w.net.Schedule(delay, func() {
			n.run(start, func() {
				if !w.greedy {
					n.shard = shard
				}
				n.place()
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
	kind := rnd.IntN(10)
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
		n.alive, n.epoch = false, 0
		if rnd.IntN(2) == 0 { // otherwise its place stays empty
			w.want((n.index + 1) % len(w.nodes))
		}
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
	case 7: // the worker hangs; the lease and gossip go on
		n.hung, n.hungAt = true, w.net.Elapsed()
		w.net.Schedule(time.Duration(100+rnd.IntN(15_000))*time.Millisecond, func() {
			if n.start == start && n.hung {
				n.resume()
			}
		})
	case 8: // it announces itself, but acquires nothing
		n.broken = true
		w.net.Schedule(time.Duration(5_000+rnd.IntN(40_000))*time.Millisecond, func() { n.broken = false })
	case 9: // a relay that believes gossip releases the shard to whoever is there
		if n.alive && !n.paused && n.epoch != 0 {
			names := w.roster.Ranking(0)
			w.chk.release = 0
			n.lease.Release(names[rnd.IntN(len(names))])
			n.turn()
		}
	}
	if kind > 2 {
		w.chk.faultAt = w.net.Elapsed()
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
			if w.greedy { // it would keep the shard
				n.lease.Release(to.name())
				n.turn()
			}
			return
		}
	}
}

// start has the nodes play, and the checker look at them.
func (w *world) start() {
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
}

// run simulates the whole seed and returns the violations.
func (w *world) run() []string {
	w.start()
	rnd := w.net.Rand()
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
		fmt.Printf("   %s: %v in %d, alive %v, paused %v, cut %v, watch stalled %v, hung %v, broken %v, rank %d, durable %v, ill %v\n", n.name(), n.lease.Phase(),
			n.epoch, n.alive, n.paused, n.cut, n.stalled, n.hung, n.broken, n.rank, n.durable, w.chk.ill[n])
	}
}

func TestSimulation(t *testing.T) {
	first, count := uint64(1), uint64(*seeds)
	if *seed != 0 {
		first, count = *seed, 1
	}
	var handed []time.Duration
	var acquires, formers, batches int
	var worst time.Duration
	for s := first; s < first+count; s++ {
		w := newWorld(s)
		for _, e := range w.run() {
			t.Errorf("seed %d: %s", s, e)
		}
		handed = append(handed, w.chk.handed...)
		acquires += w.chk.acquires
		formers += w.chk.formers
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
	t.Logf("%d acquisitions, %d of them with what the relay had, %d batches stored, longest gap %v, %s", acquires, formers, batches, worst, summary)
}

// TestGap has the holder of a shard die, hang while its lease and gossip go on, or release the
// shard to whoever is in gossip, without and with 20 ghosts. A relay serves the shard again within 5 s.
func TestGap(t *testing.T) {
	for what, fault := range map[string]func(w *world, n *simNode){
		"dies":  func(_ *world, n *simNode) { n.alive, n.epoch = false, 0 },
		"hangs": func(w *world, n *simNode) { n.hung, n.hungAt = true, w.net.Elapsed() },
		"releases": func(w *world, n *simNode) {
			n.lease.Release(w.roster.Ranking(0)[w.net.Rand().IntN(w.roster.Len())])
			n.turn()
		},
	} {
		for _, ghosts := range []int{0, ghostsMax} {
			worst := time.Duration(0)
			for s := uint64(3); s <= 90; s += 3 { // seeds without loss
				w := newWorld(s)
				w.greedy = false
				w.rosters(ghosts)
				w.start()
				w.net.Run(10 * time.Second)
				n, epoch := w.serving()
				if n == nil {
					t.Fatalf("seed %d: no relay serves the shard after 10 s with %d ghosts", s, ghosts)
				}
				begin := w.net.Elapsed()
				w.chk.faultAt, w.chk.release = begin, 0
				fault(w, n)
				w.net.RunUntil(time.Minute, func() bool { n, now := w.serving(); return n != nil && now > epoch })
				worst = max(worst, w.net.Elapsed()-begin)
				for _, e := range w.chk.errors {
					t.Errorf("seed %d: the holder %s with %d ghosts: %s", s, what, ghosts, e)
				}
			}
			t.Logf("the holder %s with %d ghosts: served again after at most %v", what, ghosts, worst)
			if worst > gapMax {
				t.Errorf("the holder %s with %d ghosts: no relay serves the shard for %v", what, ghosts, worst)
			}
		}
	}
}

// serving returns the node that serves the shard, and its epoch.
func (w *world) serving() (*simNode, uint64) {
	for _, n := range w.nodes {
		if n.alive && !n.hung && n.epoch != 0 && n.epoch == w.store.holder.Seq {
			return n, n.epoch
		}
	}
	return nil, 0
}
