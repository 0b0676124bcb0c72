package dnp

import (
	"math"
	"net/netip"
	"slices"
	"time"
)

// A connection has an income of bytes per second. Every datagram to the peer is paid
// from it, but only values, offers of links and unreliable messages wait or are dropped:
// acknowledgements and reliable commands are sent in any case.

const (
	headersIPv4 = 28 // bytes of IP and UDP headers, paid for each datagram
	headersIPv6 = 48

	// budgetBurst is how long an unused income is saved, and the most that is owed:
	// commands that cannot wait must not cost seconds of old values.
	budgetBurst = 250 * time.Millisecond

	// budgetPace is the income that a connection with waiting links saves before it
	// sends values, at least a datagram, so that datagrams are full. Choosing the most
	// urgent means a look at all links that wait, which has to be worth waitingStep
	// bytes for each, if twice as much can be saved.
	budgetPace  = 10 * time.Millisecond
	waitingStep = 8
	batchLeast  = 1200 // bytes, on a crowded path

	// updateShare is the part of the income that values get even if commands that
	// cannot wait take all of it: an eighth.
	updateShare = 8

	// offerShare is the part of the income that offers get while values wait: a
	// quarter, so that a peer whose values always wait gets its links all the same.
	offerShare = 4
)

// A rate turns bytes into the time in which they are earned.
type rate struct {
	perByte  float64       // nanoseconds; 0 if there is no limit
	burst    time.Duration // the most that is saved or owed
	step     int           // least bytes that a connection with waiting links sends together
	stepMax  int
	priceMax float32 // of a byte on a crowded path
}

func newRate(bytesPerSecond, datagramMax int) rate {
	if bytesPerSecond < 0 {
		return rate{}
	}
	r := rate{perByte: float64(time.Second) / float64(bytesPerSecond)}
	r.step = max(datagramMax, int(float64(budgetPace)/r.perByte))
	r.burst = max(budgetBurst, r.cost(4*(datagramMax+headersIPv6)))
	r.stepMax = int(float64(r.burst)/r.perByte) / 2
	r.priceMax = float32(r.burst) / float32(r.cost(4*(datagramMax+headersIPv6)))
	return r
}

func (r *rate) cost(bytes int) time.Duration { return time.Duration(float64(bytes) * r.perByte) }

// A budget is what a connection has saved or owes. It is stored as a time: the one up to
// which the income is spent.
type budget struct {
	spent   instant // before now if something is saved, after now if something is owed
	updated instant // when values were sent last
	offerAt instant // when an offer may be sent although values wait
	crowd   crowding
}

func newBudget(r *rate, now instant) budget {
	return budget{spent: now.add(-r.burst), updated: now, crowd: crowding{price: 1, room: roomless}}
}

// headersTo returns the bytes of headers that each datagram to an address has.
func headersTo(peer netip.AddrPort) int {
	if a := peer.Addr(); a.Is4() || a.Is4In6() {
		return headersIPv4
	}
	return headersIPv6
}

// cost returns the time in which bytes are earned.
func (b *budget) cost(r *rate, bytes int) time.Duration {
	return time.Duration(float64(bytes) * r.perByte * float64(b.crowd.price))
}

// pay takes the price of bytes that are sent.
func (b *budget) pay(r *rate, bytes int, now instant) {
	b.spent = min(max(b.spent, now.add(-r.burst)).add(b.cost(r, bytes)), now.add(r.burst))
}

func (b *budget) overdrawn(now instant) bool { return b.crowd.room == 0 || b.spent > now }

// affords reports whether so many bytes are saved, and have room on the path.
func (b *budget) affords(r *rate, bytes int, now instant) bool {
	return bytes <= b.crowd.left() && b.saved(r, bytes, now)
}

func (b *budget) saved(r *rate, bytes int, now instant) bool {
	return max(b.spent, now.add(-r.burst)).add(b.cost(r, bytes)) <= now
}

// batch returns how many bytes have to be saved before links that wait are sent.
func (b *budget) batch(r *rate, waiting int) int {
	most := max(r.step, min(waitingStep*waiting, r.stepMax))
	return max(int(float32(most)/b.crowd.price), min(most, batchLeast))
}

// allowance returns how many bytes of values a connection with waiting links may send:
// all that is saved if that is at least a batch, or else a datagram if none was sent for
// long; and no more than the path has room for.
func (b *budget) allowance(r *rate, batch, datagramMax int, now instant) int {
	return min(b.earned(r, batch, datagramMax, now), b.crowd.left())
}

func (b *budget) earned(r *rate, batch, datagramMax int, now instant) int {
	switch {
	case r.perByte == 0:
		return math.MaxInt
	case b.saved(r, batch, now):
		return int(float64(now.sub(max(b.spent, now.add(-r.burst)))) / r.perByte / float64(b.crowd.price))
	case now >= b.updated.add(updateShare*b.cost(r, datagramMax)):
		return datagramMax
	}
	return 0
}

// allowedAt returns when allowance will be more than nothing.
func (b *budget) allowedAt(r *rate, batch, datagramMax int) instant {
	if b.crowd.room == 0 {
		return never
	}
	return min(b.spent.add(b.cost(r, batch)), b.updated.add(updateShare*b.cost(r, datagramMax)))
}

// When the budget of a connection does not suffice for all that changed, its links wait,
// each at most once, and the most urgent are sent first. No values are queued: a link
// that waits is sent the newest values when its turn comes.

// A waiter is a link that lacks something and could not be sent it.
type waiter struct {
	since   instant // when it began to wait
	urgency float32 // when it was ranked last
	slot    uint16
}

// stalenessUnit is how long a link waits to become as stale as by one version that
// it lacks: the period of a state that changes 20 times a second.
const stalenessUnit = 50 * time.Millisecond

// repeatWeight is the weight of a repeat of values that the peer most likely has: a
// sixteenth of a change.
const repeatWeight = 1.0 / 16

// PriorityMax is the highest priority of a Source.
const PriorityMax = 16

// urgency returns weight × staleness. The versions that a link lacks are the steps of
// precision by which its values are wrong at least, the age lets a state that changed only
// once have its turn. Why no link waits for ever: DESIGN.md, Budget, urgency, joining.
func urgency(weight float32, versions uint32, age time.Duration, repeat bool) float32 {
	u := weight * (float32(versions) + float32(age)/float32(stalenessUnit))
	if repeat {
		u *= repeatWeight
	}
	return u
}

// versionsMax bounds the versions that count, so that a link that is sent seldom
// does not outweigh every priority; its age goes on counting.
const versionsMax = 1 << 12

// deferPending makes the links in pending wait.
func (t *linkTable) deferPending(now instant) {
	alive := t.waiting[:0]
	for _, w := range t.waiting {
		if t.slots[w.slot].has(linkWaiting) { // the link was not taken down
			alive = append(alive, w)
		}
	}
	t.waiting = alive
	for _, slot := range t.pending {
		l := &t.slots[slot]
		l.flags &^= linkMarked
		if !t.core.sends(l) {
			continue
		}
		s := t.core.sources[l.source]
		if l.sent == s.version {
			l.flags &^= linkChanged
			continue
		}
		// After sent = 0 only a change of this Flush is known to be one.
		if l.sent != 0 && l.sent < s.changedVersion || s.changedAt == now {
			l.flags |= linkChanged
		}
		if !l.has(linkWaiting) {
			l.flags |= linkWaiting
			t.waiting = append(t.waiting, waiter{since: now, slot: slot})
			t.core.stats.Deferred++
		}
	}
	t.pending, t.pendingBytes = t.pending[:0], 0
}

// rank computes how urgent each waiter is and puts the most urgent on top of a heap.
func (t *linkTable) rank(now instant) {
	for i := range t.waiting {
		w := &t.waiting[i]
		l := &t.slots[w.slot]
		s := t.core.sources[l.source]
		versions := uint32(1) // for all values; how many versions it lacks is unknown
		if l.sent != 0 {
			versions = min(s.version-l.sent, versionsMax)
		}
		w.urgency = urgency(s.weight, versions, now.sub(w.since), !l.has(linkChanged))
	}
	for i := len(t.waiting)/2 - 1; i >= 0; i-- {
		t.sink(i)
	}
}

func (t *linkTable) mostUrgent() (slot uint16) {
	slot, last := t.waiting[0].slot, len(t.waiting)-1
	t.waiting[0] = t.waiting[last]
	t.waiting = t.waiting[:last]
	t.sink(0)
	return slot
}

// sink moves a waiter down to its place in the heap.
func (t *linkTable) sink(i int) {
	h := t.waiting
	for {
		child := 2*i + 1
		if child >= len(h) {
			return
		}
		if right := child + 1; right < len(h) && h[right].urgency > h[child].urgency {
			child = right
		}
		if h[i].urgency >= h[child].urgency {
			return
		}
		h[i], h[child] = h[child], h[i]
		i = child
	}
}

// offerBurst is how many bytes of offers are sent at once at most, which take 0.6 ms of
// one core.
const offerBurst = 16 << 10

// An offerQueue holds the connections that have an offer to send and room for it. A peer
// that joins is offered hundreds of links, each in a datagram of its own. So that many
// peers that join do not disturb those that are there, the offers of all connections
// share a limited rate, in turn, one at a time.
type offerQueue struct {
	rate  rate
	spent instant // like budget.spent
	conns []*Conn // in the order of their turns
}

func newOfferQueue(bytesPerSecond int) offerQueue {
	q := offerQueue{rate: newRate(bytesPerSecond, 0)}
	q.rate.burst = q.rate.cost(offerBurst)
	q.spent = instant(-q.rate.burst)
	return q
}

// mayOffer reports whether an offer may be sent.
func (q *offerQueue) mayOffer(now instant) bool { return q.spent <= now }

// pay takes the price of an offer.
func (q *offerQueue) pay(bytes int, now instant) {
	q.spent = max(q.spent, now.add(-q.rate.burst)).add(q.rate.cost(bytes))
}

// nextTimeout returns when the next offer in the queue may be sent.
func (q *offerQueue) nextTimeout() instant {
	if len(q.conns) == 0 {
		return never
	}
	return q.spent
}

func (q *offerQueue) add(c *Conn) {
	if !c.inOffers {
		c.inOffers = true
		q.conns = append(q.conns, c)
	}
}

// sendOffers sends offers while the rate allows, one of each connection in turn.
func (e *Endpoint) sendOffers(now instant, out Sender) {
	q := &e.offers
	done := 0
	for done < len(q.conns) && q.mayOffer(now) {
		c := q.conns[done]
		done++
		c.inOffers = false
		if c.state == connEstablished && !c.closing && !c.log.isMuted() {
			c.fill(now, 1, out)
			c.settle(now)
		}
	}
	q.conns = slices.Delete(q.conns, 0, done)
}
