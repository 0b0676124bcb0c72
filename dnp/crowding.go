package dnp

import (
	"math"
	"time"
)

// A path may carry less than the budget of a connection. Then datagrams wait before its narrow place, and
// some get lost, those of others too. So the price of a byte rises while acknowledgements show
// such a queue, and falls a little at a time while there is none. Loss alone shows nothing: radio
// loses datagrams at any rate.
const (
	// crowdedQueue is how much longer than the shortest round trip the others take on a crowded path.
	// Peers acknowledge once per frame, so the shortest of several counts.
	crowdedQueue   = 20 * time.Millisecond
	crowdedSamples = 4

	// crowdedRound is how long a price stands at least, so that its effect can be judged.
	crowdedRound = 100 * time.Millisecond

	// crowdedDatagrams is after how many datagrams a peer that acknowledges nothing is asked for a sample: 0.2 % more.
	crowdedDatagrams = 512

	// The price rises by priceRise for a queue of priceQueue or more, by less for a shorter one. It falls by
	// priceFall if there is no queue.
	priceRise  = 0.5
	priceQueue = 80 * time.Millisecond
	priceFall  = 0.1

	// Where nothing arrives, nothing says how long the queue is. The price rises all the same each time that a command is
	// sent again for the fourth time or more and nothing was acknowledged since its last copy, up to starvedMost: the
	// peer may only pause.
	starvedSends = 4
	starvedRise  = 0.25
	starvedMost  = 4

	// A longer way looks like a queue. So the shortest round trip takes on a part of what the others take
	// longer, in each round: more of it without loss, and all where the price can rise no further.
	driftLossy = 1.0 / 64
	driftCalm  = 1.0 / 8
)

// A crowding finds out whether datagrams to the peer wait before a narrow place. Times are in units of
// crowdingUnit.
type crowding struct {
	round    instant // when the round began
	price    float32 // of a byte, in those of the rate: 1, or up to rate.priceMax
	least    uint16  // the shortest round trip; 0 before the first
	shortest uint16  // of this round
	longest  uint16  // of this round
	sent     uint16  // datagrams since the last sample, up to crowdedDatagrams
	samples  uint8   // of this round, up to crowdedSamples
	room     uint16  // bytes that the path takes now (Endpoint.SetRoom), or roomless
}

// roomless is the room of a path of which it is not known.
const roomless = 1<<16 - 1

// left returns the bytes that the path takes now.
func (c *crowding) left() int {
	if c.room == roomless {
		return math.MaxInt
	}
	return int(c.room)
}

// used takes room for bytes that are sent.
func (c *crowding) used(bytes int) {
	if c.room != roomless {
		c.room -= uint16(min(bytes, int(c.room)))
	}
}

const crowdingUnit = 250 * time.Microsecond

// acknowledged takes the acknowledgement of a command as a sample of the round trip, and ends the round if it has
// shown enough. It reports whether the path is crowded.
func (c *crowding) acknowledged(o *outgoing, lossy bool, priceMax float32, now instant) (crowded bool) {
	c.sent = 0
	c.sample(o, now)
	if c.samples < crowdedSamples || now.sub(c.round) < crowdedRound {
		return false
	}
	queue, spread := c.queue(), time.Duration(c.longest-c.shortest)*crowdingUnit
	crowded = queue > max(crowdedQueue, spread/2) // frames spread more than a queue, which lasts
	switch {
	case crowded:
		c.raise(priceRise*min(1, float32(queue)/float32(priceQueue)), priceMax)
	case queue < crowdedQueue:
		c.price = max(1, c.price*(1-priceFall*(1-float32(queue)/float32(crowdedQueue))))
	}
	drift := float32(driftCalm)
	switch {
	case c.price == priceMax:
		drift = 1
	case lossy:
		drift = driftLossy
	}
	c.least += uint16(drift * float32(c.shortest-c.least))
	c.round, c.samples = now, 0
	return crowded
}

// starved notes that a command was sent so often, and that nothing was acknowledged since the last time.
func (c *crowding) starved(sends uint16, priceMax float32) {
	if sends >= starvedSends && c.price < starvedMost {
		c.raise(starvedRise, priceMax)
	}
}

func (c *crowding) raise(part, priceMax float32) { c.price = min(c.price*(1+part), max(1, priceMax)) }

// sample counts a command that was sent in this round. The acknowledgement of one that was sent several times may be
// that of any copy that is old enough, so the round trip takes as long as from the latest of those, or longer.
func (c *crowding) sample(o *outgoing, now instant) {
	d := inUnits(now.sub(o.last))
	if o.sends == 2 && d < c.least {
		d = inUnits(now.sub(o.first))
	}
	switch {
	case o.last < c.round, !o.timed && (c.least == 0 || d < c.least):
		return
	case c.least == 0, d < c.least:
		c.least = d
	}
	if c.samples == 0 {
		c.shortest, c.longest = d, d
	}
	c.shortest, c.longest = min(c.shortest, d), max(c.longest, d)
	c.samples = min(c.samples+1, crowdedSamples)
}

// early reports whether an acknowledgement that comes d after a repeat is that of an earlier copy: it takes less than half of
// the shortest round trip. Half of the mean would not do. On a short path with loss the mean is mostly frames of the peer,
// and each repeat that was taken for needless would make it longer.
func (c *crowding) early(d time.Duration) bool { return inUnits(d) < c.least/2 }

func inUnits(d time.Duration) uint16 { return uint16(max(1, min(d/crowdingUnit, 1<<16-1))) }

// queue returns how long datagrams wait on the path, as far as this round has shown.
func (c *crowding) queue() time.Duration {
	if c.samples == 0 {
		return 0
	}
	return time.Duration(c.shortest-c.least) * crowdingUnit
}

// sampleAt returns when to ask the peer, which acknowledged something last at an instant, for a sample. It is asked only
// where values are sent, and more often where something waits or gets lost. The pause varies, or else it could keep
// step with the frames of the peer.
func (p *path) sampleAt(last instant) instant {
	c := &p.budget.crowd
	calm := c.price == 1 && p.loss.seen < ackLoss && c.queue() <= crowdedQueue
	if p.core.rate.perByte == 0 || calm && c.sent < crowdedDatagrams || p.budget.updated.add(time.Second) < last {
		return never
	}
	return last.add(crowdedRound/2 + time.Duration(uint64(last)*0x9e3779b97f4a7c15>>32)%crowdedRound)
}
