package simnet

import (
	"encoding/binary"
	"fmt"
	"hash"
	"hash/fnv"
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/dnprelay/dnprelay/internal/turn/heap"
)

// spinsMax is how often in a row a node may be due again at once. A node that is due
// more often is in an endless loop.
const spinsMax = 1000

// Epoch is the time at which every simulation starts.
var Epoch = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

// A Node is a participant with an address.
type Node interface {
	// Receive takes a datagram, which it may keep.
	Receive(now time.Time, from netip.AddrPort, p []byte)

	// Advance does what is due.
	Advance(now time.Time)

	// NextTimeout returns when to call Advance. The Net calls it after every Receive,
	// Advance and Wake. A time that has passed, also the zero time, means at once.
	NextTimeout() (time.Time, bool)
}

// Stats count datagrams.
type Stats struct {
	Sent, Delivered, Lost, Duplicated, Nowhere int
	Bytes                                      int // of those sent
}

// A Net is a network and its clock.
type Net struct {
	// Lost, if not nil, is called for each datagram that gets lost.
	Lost func(from, to netip.AddrPort, p []byte)

	rng   *rand.Rand
	now   time.Duration
	order uint64
	queue *heap.Heap[*event]
	trace hash.Hash64
	stats Stats

	path  Path
	cuts  map[pair]bool          // partitions
	busy  map[pair]time.Duration // until then the narrow place of a path has datagrams
	nodes map[netip.AddrPort]*attached
}

// An event is a call at a time. Events of the same time happen in the order in which
// they were scheduled.
type event struct {
	at    time.Duration // since the start
	order uint64
	do    func()
	place int // in the queue
}

func (e *event) before(f *event) bool {
	return e.at < f.at || e.at == f.at && e.order < f.order
}

type pair struct{ from, to netip.AddrPort }

type attached struct {
	addr netip.AddrPort
	node Node
	wake time.Duration // of the newest scheduled Advance
	set  bool
	gone bool
}

// New returns an empty network. The seed determines everything that is random.
func New(seed uint64) *Net {
	return &Net{
		rng:   rand.New(rand.NewPCG(seed, 0x73696d6e6574)),
		queue: heap.New((*event).before, func(e *event) *int { return &e.place }),
		trace: fnv.New64a(),
		cuts:  map[pair]bool{},
		busy:  map[pair]time.Duration{},
		nodes: map[netip.AddrPort]*attached{},
	}
}

// Now returns the virtual time.
func (n *Net) Now() time.Time { return Epoch.Add(n.now) }

// Elapsed returns the virtual time since the start.
func (n *Net) Elapsed() time.Duration { return n.now }

// Rand returns the source of everything random, for a test's own choices.
func (n *Net) Rand() *rand.Rand { return n.rng }

// Stats returns the counters so far.
func (n *Net) Stats() Stats { return n.stats }

// Hash returns a hash of all datagrams so far and what became of them. Two runs with
// the same seed and the same code have the same hash.
func (n *Net) Hash() uint64 { return n.trace.Sum64() }

// Schedule calls f after delay. A delay of 0 or less means after everything that
// is due now. It has the signature that package membus needs.
func (n *Net) Schedule(delay time.Duration, f func()) {
	n.order++
	n.queue.Set(&event{at: n.now + max(delay, 0), order: n.order, do: f})
}

// Every calls f now and then once per period, until it reports false.
func (n *Net) Every(period time.Duration, f func() bool) {
	n.Schedule(0, func() {
		if f() {
			n.Schedule(period, func() { n.Every(period, f) })
		}
	})
}

// Attach gives node an address. It detaches the node that has the address.
func (n *Net) Attach(addr netip.AddrPort, node Node) {
	n.Detach(addr)
	n.nodes[addr] = &attached{addr: addr, node: node}
	n.Wake(addr)
}

// Detach removes the node at addr from the network, as if its process died. Datagrams
// under way to it are lost.
func (n *Net) Detach(addr netip.AddrPort) {
	if a := n.nodes[addr]; a != nil {
		a.gone = true
		delete(n.nodes, addr)
	}
}

// SetPath sets the path between all addresses, and heals partitions.
func (n *Net) SetPath(p Path) {
	p.validate()
	n.path = p
	clear(n.cuts)
}

// Backlog returns how long a datagram would wait now on the way from one address to another.
func (n *Net) Backlog(from, to netip.AddrPort) time.Duration {
	return max(n.busy[pair{from, to}]-n.now, 0)
}

// Partition cuts both directions between a and b, or heals them.
func (n *Net) Partition(a, b netip.AddrPort, cut bool) {
	n.cuts[pair{a, b}] = cut
	n.cuts[pair{b, a}] = cut
}

// Send sends a datagram. It copies p.
func (n *Net) Send(from, to netip.AddrPort, p []byte) {
	n.stats.Sent++
	n.stats.Bytes += len(p)
	way := pair{from, to}
	queued, busy, fits := n.path.wait(n.now, n.busy[way], len(p))
	if n.path.Rate > 0 {
		n.busy[way] = busy
	}
	if n.cuts[way] || !fits || happens(n.rng, n.path.Loss) {
		n.stats.Lost++
		n.note('x', from, to, p)
		if n.Lost != nil {
			n.Lost(from, to, p)
		}
		return
	}
	copies := 1
	if happens(n.rng, n.path.Duplicate) {
		copies = 2
		n.stats.Duplicated++
	}
	for range copies {
		q := append([]byte(nil), p...)
		n.path.damage(n.rng, q)
		n.Schedule(queued+n.path.delay(n.rng), func() { n.deliver(from, to, q) })
	}
}

func (n *Net) deliver(from, to netip.AddrPort, p []byte) {
	a := n.nodes[to]
	if a == nil {
		n.stats.Nowhere++
		n.note('?', from, to, p)
		return
	}
	n.stats.Delivered++
	n.note('>', from, to, p)
	a.node.Receive(n.Now(), from, p)
	n.arm(a)
}

// Wake asks the node at addr for its deadline again. A test calls it after it acted on
// the node directly.
func (n *Net) Wake(addr netip.AddrPort) {
	if a := n.nodes[addr]; a != nil {
		n.arm(a)
	}
}

// arm schedules Advance for the node's deadline, if it is not scheduled yet.
func (n *Net) arm(a *attached) {
	t, ok := a.node.NextTimeout()
	if !ok || a.gone {
		a.set = false
		return
	}
	at := max(t.Sub(Epoch), n.now)
	if t.IsZero() {
		at = n.now
	}
	if a.set && a.wake == at {
		return
	}
	a.set, a.wake = true, at
	n.Schedule(at-n.now, func() { n.fire(a, at) })
}

// fire calls Advance until the node's deadline is in the future.
func (n *Net) fire(a *attached, at time.Duration) {
	if a.gone || !a.set || a.wake != at {
		return // the deadline moved meanwhile
	}
	a.set = false
	for range spinsMax {
		a.node.Advance(n.Now())
		t, ok := a.node.NextTimeout()
		if a.gone || !ok || t.After(n.Now()) {
			n.arm(a)
			return
		}
	}
	panic(fmt.Sprintf("simnet: node %v is due again at once, %d times at %v", a.addr, spinsMax, n.now))
}

// Step executes the next event. It reports false if there is none.
func (n *Net) Step() bool {
	if n.queue.Len() == 0 {
		return false
	}
	e := n.queue.Pop()
	n.now = e.at
	e.do()
	return true
}

// Run simulates for d.
func (n *Net) Run(d time.Duration) { n.RunUntil(d, func() bool { return false }) }

// RunUntil simulates until done reports true, for d at most. It returns the last result
// of done, which it calls before each event.
func (n *Net) RunUntil(d time.Duration, done func() bool) bool {
	end := n.now + d
	for {
		if done() {
			return true
		}
		if next, ok := n.queue.First(); !ok || next.at > end {
			n.now = end
			return false
		}
		n.Step()
	}
}

func (n *Net) note(verdict byte, from, to netip.AddrPort, p []byte) {
	var b [64]byte
	h := binary.LittleEndian.AppendUint64(append(b[:0], verdict), uint64(n.now))
	h, _ = from.AppendBinary(h) // cannot fail
	h, _ = to.AppendBinary(h)
	n.trace.Write(h)
	n.trace.Write(p)
}
