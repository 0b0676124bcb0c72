//go:build linux

package nearby

import (
	"math"
	"time"

	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/internal/bench"
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
	pairs   []pair // client × States + object
	ids     int    // LinkIds that offers of objects have used
	offered int    // pairs that were ever offered
	figures window
	motion  motion
}

// A client is what one client knows.
type client struct {
	eye      int      // the object that it is; -1 until it is told
	links    []int32  // the object of each link, by the order of LinkIds
	around   []around // at most one for each object
	searchAt uint32   // the tick of the next search for more of them
	bytes    uint64   // received in this window, with headers
}

// A pair is an object as one client sees it.
type pair struct {
	seen    uint32 // the newest tick that the client shows
	since   uint32 // the tick with which it came into its band by truth
	crossed uint32 // the tick of a crossing inwards that does not show yet, or withdrawn; 0 for none
	band    uint8  // by truth
	linked  bool
	offered bool // ever
	around  bool // it is in the list of the client
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
	latency   bench.Histogram
	crossings []bench.Histogram // by the band that was entered
	ages      []bench.Histogram // by band
	samples   uint64            // of pairs in a band
	missing   uint64            // of these, without a link
}

func newWatch(l *Load, w *world) *watch {
	v := &watch{load: l, world: w, clients: make([]client, l.Clients), pairs: make([]pair, l.Clients*l.States), motion: newMotion(l)}
	for i := range v.clients {
		v.clients[i].eye = -1
	}
	for i := range v.pairs {
		v.pairs[i].band = beyond
	}
	v.reset()
	return v
}

func (v *watch) reset() {
	n := len(v.load.Bands)
	v.figures = window{crossings: make([]bench.Histogram, n), ages: make([]bench.Histogram, n)}
	for i := range v.clients {
		v.clients[i].bytes = 0
	}
}

func (v *watch) pair(client, object int) *pair { return &v.pairs[client*v.load.States+object] }

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
		if object := c.links[slot]; object >= 0 {
			v.pair(client, int(object)).linked = false
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
	if c.links[slot] == int32(n) {
		return // the offer is repeated
	}
	c.links[slot] = int32(n)
	p := v.pair(client, n)
	v.ids++
	if !p.offered {
		v.offered++
	}
	p.linked, p.offered = true, true
	for index, rest := 0, m.Values; rest.Len() > 0; index++ {
		var value []byte
		if _, value, rest = rest.Next(); index == rotation {
			v.show(now, client, n, value)
		}
	}
}

// Updated reads a LinkUpdate.
func (v *watch) Updated(now time.Time, client int, data []byte) {
	c, f := &v.clients[client], &v.figures
	updates, repeats := f.updates, f.repeats
	defer func() {
		if updates, repeats = f.updates-updates, f.repeats-repeats; repeats > 0 {
			f.again += (uint64(len(data)) + 1 + udpHeaders) * repeats / (updates + repeats)
		}
	}()
	r := wire.Denetwork.UpdateReader(data)
	for id, ok := r.NextLink(); ok; id, ok = r.NextLink() {
		object, slot := int32(noObject), bench.SlotOf(id)
		if slot < len(c.links) {
			object = c.links[slot]
		}
		if object < 0 {
			return // it has values of other types
		}
		for index, value, ok := r.NextValue(valueTypes); ok; index, value, ok = r.NextValue(valueTypes) {
			if index == rotation {
				v.show(now, client, int(object), value)
			}
		}
	}
}

// show notes that a client shows the tick in a rotation.
func (v *watch) show(now time.Time, client, object int, value []byte) {
	n, ok := tickOf(value, v.tick)
	if !ok {
		return
	}
	p := v.pair(client, object)
	newer := n > p.seen
	p.seen = max(p.seen, n)
	if p.crossed > 0 && p.crossed != withdrawn && p.band != beyond && n+v.load.fresh(p.band) >= p.crossed {
		v.crossing(now, client, object, p)
	}
	if !v.counts {
		return
	}
	switch {
	case !newer:
		v.figures.repeats++
		return
	case p.band == beyond && v.inBandFor(p) > settled+v.slowest():
		v.figures.unseen++
	case p.band == 0 && v.inBandFor(p) > settled && n >= v.line.counted:
		v.figures.latency.Add(now.Sub(v.line.due(n, v.load.partOf(object))))
	}
	v.figures.updates++
}

// slowest returns the longest period of all bands.
func (v *watch) slowest() (d time.Duration) {
	for i := range v.load.Bands {
		d = max(d, v.load.ageMax(i))
	}
	return d
}

func (v *watch) inBandFor(p *pair) time.Duration {
	return time.Duration(v.tick-p.since) * v.load.period()
}

// crossing counts a crossing that shows, or is overdue.
func (v *watch) crossing(now time.Time, client, object int, p *pair) {
	due := v.line.due(p.crossed, max(v.load.partOf(object), v.load.partOf(v.clients[client].eye)))
	if v.counts && p.crossed >= v.line.counted && p.band != beyond {
		v.figures.crossings[p.band].Add(now.Sub(due))
	}
	p.crossed = 0
}

// begin begins the ticks of a window. What was to show before will show while nothing counts.
func (v *watch) begin(line timeline) {
	v.line, v.counts = line, false
	for i := range v.clients {
		v.seen(i, func(_ int, p *pair) { p.crossed = 0 })
	}
}

// count begins or ends to count. In the end, crossings that do not show yet count with their present age, if that is more than what is asked for.
func (v *watch) count(now time.Time, on bool) {
	if on {
		v.reset()
		v.counts = true
		return
	}
	for i := range v.clients {
		v.seen(i, func(object int, p *pair) {
			if p.crossed > 0 && p.crossed != withdrawn && now.Sub(v.line.due(p.crossed, 0)) > crossingMax+v.load.period() {
				v.crossing(now, i, object, p)
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
		if !p.linked || p.seen+v.load.fresh(p.band) < v.tick { // a link that slept for a moment only has a value that is fresh enough
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
func (v *watch) sample(now time.Time, client int) {
	v.seen(client, func(object int, p *pair) {
		if v.inBandFor(p) < settled+v.load.ageMax(int(p.band)) {
			return
		}
		v.figures.samples++
		if !p.linked {
			v.figures.missing++
		}
		shown := max(p.seen, v.line.first)
		v.figures.ages[p.band].Add(now.Sub(v.line.due(shown, v.load.partOf(object))))
	})
}

// lacks returns how many of the objects in sight of clients have no link, and how many there are.
func (v *watch) lacks() (missing, all int) {
	for i := range v.clients {
		v.seen(i, func(_ int, p *pair) {
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
	load    *Load
	start   time.Time
	first   uint32 // tick that is due at start
	counted uint32 // the first tick that counts
	end     uint32 // the first one that is not played any more
}

// due returns when a part of a tick is to be published.
func (t *timeline) due(n uint32, part int) time.Time {
	return t.start.Add(time.Duration(int32(n-t.first))*t.load.period() + t.load.after(part))
}
