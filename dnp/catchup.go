package dnp

// catchUpsMax bounds the catch-ups of a connection; beyond it those end that got furthest.
const catchUpsMax = 4096

// startCatchUp has the values of a link repeated at the times of Config.Refresh, beside
// the values that it is sent now. They may be the only ones on this path: a link that
// came up behind its offer, or was bound to another Source, lacks changes whose own
// repeats are over, and without this one lost datagram would leave them to the scrub.
func (c *Conn) startCatchUp(slot int) {
	if c.catchUps.n >= catchUpsMax {
		c.e.drop(DropCatchUpsFull)
		c.catchUps.dropOldest()
	}
	l := &c.links.l[slot]
	c.catchUps.start(climber{link: l.id, version: c.e.sources[l.source].version, start: c.e.clock.now})
	c.wake()
}

// catchUp repeats the values of a link once, unless all have changed since: what
// changes has repeats of its own.
func (c *Conn) catchUp(m climber, now instant) {
	slot, ok := c.slotOf(m.link)
	if !ok || c.links.l[slot].source == noSource {
		return
	}
	for _, version := range c.e.sources[c.links.l[slot].source].changed {
		if version <= m.version {
			c.scrubLink(slot, now)
			return
		}
	}
}
