package dnp

// A peer that joins is offered hundreds of links, each in a datagram of its own. So
// that many who join do not disturb those who are there, the offers of all
// connections go through one lane of limited width, in turn, one at a time.

// joinBurst is how many bytes of offers go at once at most, 0.6 ms of one core.
const joinBurst = 16 << 10

// A joinLane is the connections that have an offer to send and room for it.
type joinLane struct {
	tariff tariff
	spent  instant // like budget.spent
	ring   []*Conn // in the order of their turns
}

func newJoinLane(bytesPerSecond int) joinLane {
	if bytesPerSecond < 0 {
		return joinLane{}
	}
	var l joinLane
	l.tariff = newTariff(bytesPerSecond, 0)
	l.tariff.burst = l.tariff.cost(joinBurst)
	l.spent = instant(-l.tariff.burst)
	return l
}

// open reports whether an offer may be sent.
func (l *joinLane) open(now instant) bool { return l.spent <= now }

// pay takes the price of an offer.
func (l *joinLane) pay(bytes int, now instant) {
	l.spent = max(l.spent, now.add(-l.tariff.burst)).add(l.tariff.cost(bytes))
}

// nextTimeout returns when an offer may be sent that waits.
func (l *joinLane) nextTimeout() instant {
	if len(l.ring) == 0 {
		return never
	}
	return l.spent
}

// join puts c into the lane.
func (c *Conn) join() {
	if !c.joining {
		c.joining = true
		c.e.joins.ring = append(c.e.joins.ring, c)
	}
}

// offerSome sends offers while the lane is open, one of each connection in turn.
func (e *Endpoint) offerSome(now instant, out Sender) {
	l := &e.joins
	done := 0
	for done < len(l.ring) && l.open(now) {
		c := l.ring[done]
		l.ring[done] = nil
		done++
		c.joining = false
		if c.state == connEstablished && !c.closing && !c.muted() {
			c.fill(now, 1, out)
			c.settle(now)
		}
	}
	n := copy(l.ring, l.ring[done:])
	clear(l.ring[n:])
	l.ring = l.ring[:n]
}

// A choice is what the send window takes next.
type choice uint8

const (
	takeNothing choice = iota
	takeOther          // a message, a part of one, a probe
	takeOffer
)

// choose says what the window takes next. Messages and offers take turns, so that
// neither waits for the other's backlog; the parts of a message stay together.
// Messages do not wait for the lane, but leave half the window to offers that do.
func (c *Conn) choose(now instant) choice {
	w := &c.send
	switch {
	case !w.room():
		return takeNothing
	case w.partAt > 0 || w.noops > 0:
		return takeOther
	case len(w.offers) == 0 || w.offered && len(w.queue) > 0:
		if len(w.queue) > 0 {
			return takeOther
		}
		return takeNothing
	case !c.mayOffer(now):
		if len(w.queue) > 0 {
			return takeOther
		}
		return takeNothing
	case len(w.queue) > 0 && !c.e.joins.open(now) && len(w.flight) < sendWindowSize/2:
		return takeOther
	}
	return takeOffer
}

// take takes the next command of the window, an offer only if there may be more, and
// pays for it.
func (c *Conn) take(now instant, offers *int) (o outgoing, ok bool) {
	switch c.choose(now) {
	case takeOther:
		return c.send.takeOther(c), true
	case takeOffer:
		if *offers == 0 {
			return o, false
		}
		*offers--
		o = c.send.takeOffer(c)
		size := c.outgoingSize(&o) + c.budget.headers
		c.e.joins.pay(size, now)
		c.budget.offerAt = now.add(offerShare * c.e.tariff.cost(size))
		return o, true
	}
	return o, false
}

// mayOffer reports whether the budget lets an offer go. Where values wait for it,
// offers get a part, and the window is never idle.
func (c *Conn) mayOffer(now instant) bool {
	return !c.strained(now) || len(c.send.flight) == 0 || now >= c.budget.offerAt
}

// offersAt returns when mayOffer will be true of an offer that waits for it.
func (c *Conn) offersAt(now instant) instant {
	if len(c.send.offers) == 0 || !c.send.room() || c.joining || c.mayOffer(now) {
		return never
	}
	return c.budget.offerAt
}
