//go:build linux

package nearby

import (
	"math"
	"time"

	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/internal/latency"
	"github.com/dnprelay/dnprelay/testbed/bench"
)

// settled is for how long a pair has to be in its band before its latency, its age or its silence counts: a crossing shows
// after up to crossingMax, which is measured by itself.
const settled = 600 * time.Millisecond

// udpHeaders are the bytes of the UDP and IPv4 headers of a datagram.
const udpHeaders = 28

// sampleTicks is how many ticks lie between two looks at what a client shows.
const sampleTicks = 10

// Slots of links that are not to an object.
const (
	noObject = -1
	ownLink  = -2 // tells a client which object it is
)

// A watch compares what clients receive with the truth. It is used under the lock of the swarm.
type watch struct {
	load    *Load
	world   *world
	line    timeline
	tick    uint32 // the newest that the publisher has begun
	counts  bool   // in a window
	clients []client
	ids     int // LinkIds that offers of objects have used
	offered int // pairs that were ever offered
	figures window
	motion  motion
	waits   waits
}

// A client is what one client knows.
type client struct {
	eye      int      // the object that it is; -1 until it is told
	links    []int32  // the pair of each link, by the order of LinkIds
	pairs    []pair   // of the objects that have been around the client, or were offered to it
	pairOf   []uint16 // of each object, its pair, counted from 1; 0 for none
	around   []around // at most one for each object
	searchAt uint32   // the tick of the next search for more of them
	bytes    uint64   // received in this window, with headers
}

// A pair is an object as one client sees it. Pairs of a client lie together, so that they are in the caches of the processor while a
// datagram is read: one entry for each object and client would be a miss for each of a million updates a second.
type pair struct {
	seen    uint32 // the newest tick that the client shows
	since   uint32 // the tick with which it came into its band by truth
	crossed uint32 // the tick of a crossing inwards that does not show yet, or withdrawn; 0 for none
	object  uint16
	part    uint8 // in which the object changes
	band    uint8 // by truth
	linked  bool
	offered bool // ever
	around  bool // it is in the list of the client
}

// Waits are times of a load, in ticks.
type waits struct {
	settled uint32           // a pair that has been in its band for more than these counts
	unseen  uint32           // and beyond all bands, for more than these
	sample  [bandsMax]uint32 // at least these before what is shown counts, by band
	fresh   [bandsMax]uint32 // see Load.fresh
}

func newWaits(l *Load) (w waits) {
	slowest := time.Duration(0)
	for i := range l.Bands {
		age := l.ageMax(i)
		slowest = max(slowest, age)
		w.sample[i] = uint32((settled + age + l.period() - 1) / l.period())
		w.fresh[i] = l.fresh(uint8(i))
	}
	w.settled, w.unseen = uint32(settled/l.period()), uint32((settled+slowest)/l.period())
	return w
}

// A window is what a watch counts.
type window struct {
	updates   uint64 // links in LinkUpdates that brought a newer tick
	repeats   uint64 // that did not
	unseen    uint64 // of objects that are out of sight
	bytes     uint64 // with headers
	again     uint64 // of these, the share of repeats in LinkUpdates
	offers    uint64 // of these, in offers of links
	rest      uint64 // of these, in what is neither a LinkUpdate nor an offer
	latency   latency.Histogram
	crossings []latency.Histogram // by the band that was entered
	ages      []latency.Histogram // by band
	samples   uint64              // of pairs in a band
	missing   uint64              // of these, without a link
}

func newWatch(l *Load, w *world) *watch {
	v := &watch{load: l, world: w, clients: make([]client, l.Clients), motion: newMotion(l), waits: newWaits(l)}
	for i := range v.clients {
		v.clients[i] = client{eye: -1, pairOf: make([]uint16, l.States)}
	}
	v.reset()
	return v
}

func (v *watch) reset() {
	n := len(v.load.Bands)
	v.figures = window{crossings: make([]latency.Histogram, n), ages: make([]latency.Histogram, n)}
	for i := range v.clients {
		v.clients[i].bytes = 0
	}
}

// pair returns what a client has of an object. The result is valid until the client meets another object.
func (v *watch) pair(client, object int) *pair {
	c := &v.clients[client]
	return &c.pairs[v.pairIndex(c, object)]
}

func (v *watch) pairIndex(c *client, object int) int32 {
	at := c.pairOf[object]
	if at == 0 {
		c.pairs = append(c.pairs, pair{object: uint16(object), part: uint8(v.load.partOf(object)), band: beyond})
		at = uint16(len(c.pairs))
		c.pairOf[object] = at
	}
	return int32(at) - 1
}

// Received counts bytes, and ends links that the edge takes down.
func (v *watch) Received(_ time.Time, client int, data []byte) {
	c := &v.clients[client]
	if v.counts {
		v.weigh(c, wire.Command(data[0]), uint64(len(data))+udpHeaders)
	}
	if wire.Command(data[0]) != wire.CommandLinkDown {
		return
	}
	m, err := wire.ParseLinkDown(data[1:])
	if slot := bench.SlotOf(m.Link); err == nil && slot < len(c.links) {
		if at := c.links[slot]; at >= 0 {
			c.pairs[at].linked = false
		}
		c.links[slot] = noObject
	}
}

// weigh counts the bytes of a datagram.
func (v *watch) weigh(c *client, what wire.Command, n uint64) {
	c.bytes += n
	v.figures.bytes += n
	switch what {
	case wire.CommandLinkUpdate:
	case wire.CommandReliableLinkState:
		v.figures.offers += n
	default:
		v.figures.rest += n
	}
}

// Linked notes which object a link is to.
func (v *watch) Linked(now time.Time, client int, m wire.LinkState) {
	c := &v.clients[client]
	n, own, ok := parseKey(m.Message)
	if !ok || n < 0 || n >= v.load.States {
		return
	}
	slot := bench.SlotOf(m.Link)
	for slot >= len(c.links) {
		c.links = append(c.links, noObject)
	}
	if own {
		c.eye, c.links[slot] = n, ownLink
		return
	}
	at := v.pairIndex(c, n)
	if c.links[slot] == at {
		return // the offer is repeated
	}
	c.links[slot] = at
	p := &c.pairs[at]
	v.ids++
	if !p.offered {
		v.offered++
	}
	p.linked, p.offered = true, true
	for index, rest := 0, m.Values; rest.Len() > 0; index++ {
		var value []byte
		if _, value, rest = rest.Next(); index == rotation {
			v.show(now.Sub(v.line.start), c, p, value)
		}
	}
}

// Updated reads a LinkUpdate.
func (v *watch) Updated(now time.Time, client int, data []byte) {
	c, f := &v.clients[client], &v.figures
	updates, repeats := f.updates, f.repeats
	v.read(now.Sub(v.line.start), c, data)
	if updates, repeats = f.updates-updates, f.repeats-repeats; repeats > 0 {
		f.again += (uint64(len(data)) + 1 + udpHeaders) * repeats / (updates + repeats)
	}
}

func (v *watch) read(now time.Duration, c *client, data []byte) {
	r := wire.Denetwork.UpdateReader(data)
	for id, ok := r.NextLink(); ok; id, ok = r.NextLink() {
		slot := bench.SlotOf(id)
		if slot >= len(c.links) || c.links[slot] < 0 {
			return // it has values of other types
		}
		p := &c.pairs[c.links[slot]]
		for index, value, ok := r.NextValue(valueTypes); ok; index, value, ok = r.NextValue(valueTypes) {
			if index == rotation {
				v.show(now, c, p, value)
			}
		}
	}
}

// show notes that a client shows the tick in a rotation, at a time since the begin of the timeline.
func (v *watch) show(now time.Duration, c *client, p *pair, value []byte) {
	n, ok := tickOf(value, v.tick)
	if !ok {
		return
	}
	newer := n > p.seen
	p.seen = max(p.seen, n)
	if p.crossed > 0 && p.crossed != withdrawn && p.band != beyond && n+v.waits.fresh[p.band] >= p.crossed {
		v.crossing(now, c, p)
	}
	if !v.counts {
		return
	}
	switch {
	case !newer:
		v.figures.repeats++
		return
	case p.band == beyond && v.tick-p.since > v.waits.unseen:
		v.figures.unseen++
	case p.band == 0 && v.tick-p.since > v.waits.settled && n >= v.line.counted:
		v.figures.latency.Add(now - v.line.offset(n, int(p.part)))
	}
	v.figures.updates++
}

// crossing counts a crossing that shows, or is overdue.
func (v *watch) crossing(now time.Duration, c *client, p *pair) {
	if v.counts && p.crossed >= v.line.counted && p.band != beyond {
		v.figures.crossings[p.band].Add(now - v.line.offset(p.crossed, max(int(p.part), v.load.partOf(c.eye))))
	}
	p.crossed = 0
}

// begin begins the ticks of a window. What was to show before will show while nothing counts.
func (v *watch) begin(line timeline) {
	v.line, v.counts = line, false
	for i := range v.clients {
		v.clients[i].seen(func(p *pair) { p.crossed = 0 })
	}
}

// count begins or ends to count. In the end, crossings that do not show yet count with their present age, if that is more than what is asked for.
func (v *watch) count(now time.Time, on bool) {
	if on {
		v.reset()
		v.counts = true
		return
	}
	since := now.Sub(v.line.start)
	for i := range v.clients {
		c := &v.clients[i]
		c.seen(func(p *pair) {
			if p.crossed > 0 && p.crossed != withdrawn && since-v.line.offset(p.crossed, 0) > crossingMax+v.load.period() {
				v.crossing(since, c, p)
			}
		})
	}
	v.counts = false
}

// place puts a pair into the band of a distance.
func (v *watch) place(p *pair, square float64) {
	was := p.band
	p.band = v.load.band(was, square)
	if p.band != was {
		p.since = v.tick
	}
	inside := p.band != beyond && square <= v.load.Bands[p.band].Within*v.load.Bands[p.band].Within
	switch {
	case p.band > was:
		p.crossed = 0 // it came back before it showed
	case p.crossed == withdrawn && inside, p.band < was && p.crossed == 0:
		p.crossed = 0
		if !p.linked || p.seen+v.waits.fresh[p.band] < v.tick { // a link that slept for a moment only has a value that is fresh enough
			p.crossed = v.tick
		}
	case p.crossed > 0 && !inside:
		p.crossed = withdrawn
	}
}

// withdrawn is the crossing of an object that was outside of the border again before it showed, and is in the gap behind it. An
// edge that looks at it there has not seen it inside, and has promised nothing. When it is inside again, it crosses anew.
const withdrawn = math.MaxUint32

// sample looks at what a client shows.
func (v *watch) sample(now time.Duration, c *client) {
	c.seen(func(p *pair) {
		if v.tick-p.since < v.waits.sample[p.band] {
			return
		}
		v.figures.samples++
		if !p.linked {
			v.figures.missing++
		}
		v.figures.ages[p.band].Add(now - v.line.offset(max(p.seen, v.line.first), int(p.part)))
	})
}

// lacks returns how many of the objects in sight of clients have no link, and how many there are.
func (v *watch) lacks() (missing, all int) {
	for i := range v.clients {
		v.clients[i].seen(func(p *pair) {
			all++
			if !p.linked {
				missing++
			}
		})
	}
	return missing, all
}

// eyes returns how many clients know which object they are.
func (v *watch) eyes() (n int) {
	for i := range v.clients {
		if v.clients[i].eye >= 0 {
			n++
		}
	}
	return n
}

// A timeline has the times of the ticks of a window.
type timeline struct {
	start   time.Time
	period  time.Duration
	after   [partsMax]time.Duration // when in a tick its parts are due
	first   uint32                  // tick that is due at start
	counted uint32                  // the first tick that counts
	end     uint32                  // the first one that is not played any more
}

// newTimeline returns the timeline of a window that lets some ticks pass before those that count.
func newTimeline(l *Load, start time.Time, first, warm, counted uint32) timeline {
	t := timeline{start: start, period: l.period(), first: first, counted: first + warm, end: first + warm + counted}
	for part := range l.parts() {
		t.after[part] = l.after(part)
	}
	return t
}

// due returns when a part of a tick is to be published.
func (t *timeline) due(n uint32, part int) time.Time { return t.start.Add(t.offset(n, part)) }

// offset is due, since the start.
func (t *timeline) offset(n uint32, part int) time.Duration {
	return time.Duration(int32(n-t.first))*t.period + t.after[part]
}
