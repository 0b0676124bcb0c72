//go:build linux

package nearby

import (
	"math"
	"slices"
	"time"

	"github.com/x448/float16"
)

// searchTicks is how many ticks lie between two searches for objects that come near a client. More of them find more objects
// that then do not come.
const searchTicks = 20

// An around is an object that is in a band of a client by truth, or may come into one before the next search.
type around struct {
	pair int32
	due  uint32 // the first tick in which it may be in another band: until then it is not looked at
}

// A motion bounds how much the distance between what two objects show may change.
type motion struct {
	perTick  float64
	rounding float64 // at most, however little they move
}

// newMotion returns the motion of objects of a load. Places are half floats, so each axis of an object may show as much more or
// less as two neighbours among these differ at the edge of the field.
func newMotion(l *Load) motion {
	edge := half(l.Side / 2)
	next := float16.Frombits(float16.Fromfloat32(edge).Bits() + 1).Float32()
	return motion{2 * max(objectSpeed, playerSpeed) / float64(l.Hz), 2 * math.Sqrt2 * float64(next-edge)}
}

// ticks returns in how many ticks at the earliest, at least one, a distance may have changed by this much.
func (m motion) ticks(change float64) uint32 {
	return uint32(min(max(1, math.Floor((change-m.rounding)/m.perTick)), cycle))
}

// toBorder returns how far an object in a band is from the nearest border beyond which band would say another one.
func (l *Load) toBorder(band uint8, distance float64) float64 {
	inner, change := int(band), math.Inf(1)
	if band == beyond {
		inner = len(l.Bands)
	} else {
		change = l.Bands[band].Within*(1+hysteresis) - distance
	}
	if inner > 0 {
		change = min(change, distance-l.Bands[inner-1].Within)
	}
	return change
}

// compare works out the bands of some clients by truth, in the newest tick, and looks at what they show. It looks only at objects
// that may have crossed a border: there are millions of pairs, and each that it touches costs as much as an update.
func (v *watch) compare(now time.Time, first, end int) {
	for i := first; i < end; i++ {
		c := &v.clients[i]
		if c.eye < 0 {
			continue
		}
		eye := v.world.at(v.tick, c.eye)
		if v.tick >= c.searchAt {
			v.search(c, eye)
		}
		gone := false
		for j := range c.around {
			if a := &c.around[j]; a.due <= v.tick && !v.look(c, eye, a) {
				gone = true
			}
		}
		if gone {
			c.around = slices.DeleteFunc(c.around, func(a around) bool { return !c.pairs[a.pair].around })
		}
		if v.counts && (v.tick+uint32(i))%sampleTicks == 0 {
			v.sample(now.Sub(v.line.start), c)
		}
	}
}

// search finds what is not around a client yet and may come into its sight before the next search.
func (v *watch) search(c *client, eye point) {
	c.searchAt = v.tick + searchTicks
	reach := v.load.Bands[len(v.load.Bands)-1].Within + v.motion.rounding + searchTicks*v.motion.perTick
	v.world.near(eye, reach, func(object int, square float64) {
		if square > reach*reach {
			return
		}
		if at := v.pairIndex(c, object); !c.pairs[at].around {
			c.pairs[at].around = true
			c.around = append(c.around, around{pair: at, due: v.tick})
		}
	})
}

// look works out the band of an object, and reports whether it stays around the client.
func (v *watch) look(c *client, eye point, a *around) bool {
	p := &c.pairs[a.pair]
	s := square(eye, v.world.at(v.tick, int(p.object)))
	v.place(p, s)
	ticks := v.motion.ticks(v.load.toBorder(p.band, math.Sqrt(s)))
	p.around = p.band != beyond || ticks <= searchTicks
	if p.crossed > 0 { // it matters whether it is inside of its border
		ticks = 1
	}
	a.due = v.tick + ticks
	return p.around
}

// seen calls visit for the objects that are in a band of the client by truth.
func (c *client) seen(visit func(p *pair)) {
	for i := range c.around {
		if p := &c.pairs[c.around[i].pair]; p.band != beyond {
			visit(p)
		}
	}
}
