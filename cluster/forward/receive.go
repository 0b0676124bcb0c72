package forward

import "time"

// A Kind says what has to be done with what came from another edge.
type Kind uint8

// The kinds.
const (
	Nothing  Kind = iota // it was for the router
	ToOwner              // Data is a datagram of a client that this edge serves
	ToClient             // Data is to be sent to the client, from the socket of its listener
	Stray                // Data is a datagram of a client that nobody is known to serve: find out, or adopt
	Misled               // Via, which got a datagram of the client from this edge, does not serve it: find out again
)

// A Delivery is what came from another edge.
type Delivery struct {
	Kind   Kind
	Client Client

	// Via is the node by which answers to the client have to leave (ToOwner, Stray),
	// until a datagram of the client comes to a socket of this edge; empty if this one did,
	// and went around. Or the node that is not to be sent datagrams of the client (Misled).
	Via string

	// Epoch is the highest of the session that the sender knows, or this edge (Stray); 0
	// for none.
	Epoch uint64

	// Overtaken says that the sender knows a later epoch of the session than that in
	// which this edge serves it. The session's log has to be read.
	Overtaken bool

	// Suspect is the node that serves the client and is suspected (Stray); empty if none
	// is known.
	Suspect string

	// Hops is how often Data was forwarded (ToOwner, Stray).
	Hops uint8

	Data []byte // aliases what was received
}

// Receive takes a datagram of another edge, which it decrypts in place. It answers and
// forwards by itself what it can.
func (r *Router) Receive(now time.Time, p []byte, out Sender) Delivery {
	from, kind, body, drop := r.open(p)
	if drop != dropNone {
		r.stats.Drops[drop]++
		return Delivery{}
	}
	at := r.since(now)
	from.heard = at
	if kind == TypeBeat {
		r.stats.BeatsIn++
		return Delivery{}
	}
	m, ok := parseMessage(kind, body)
	if !ok {
		r.stats.Drops[DropMalformed]++
		return Delivery{}
	}
	d := Delivery{Client: m.client, Epoch: m.epoch, Data: m.data}
	own, owned := r.serves(m.client)
	d.Overtaken = owned && own != 0 && m.epoch > own
	switch kind {
	case TypeIn:
		r.receiveIn(at, from, &m, owned, &d, out)
	case TypeOut:
		r.receiveOut(at, from, &m, own, &d, out)
	case TypeNack:
		r.receiveNack(at, from, &m, owned, &d)
	}
	return d
}

// serves asks the edge.
func (r *Router) serves(c Client) (epoch uint64, ok bool) {
	if r.cfg.Serves == nil {
		return 0, false
	}
	return r.cfg.Serves(c)
}

// receiveIn takes a datagram of a client that another edge has from its socket.
func (r *Router) receiveIn(now time.Duration, from *peer, m *message, owned bool, d *Delivery, out Sender) {
	if m.hops > HopsMax {
		r.stats.Drops[DropHops]++
		return
	}
	d.Via, d.Hops = r.via(from, m.origin), m.hops
	if owned {
		d.Kind = ToOwner
		r.stats.Owner++
		return
	}
	e := r.table.touch(m.client.key())
	e.observe(now, m.epoch)
	m.epoch = e.highest(now)
	r.refuse(from, m, out) // whoever sent it here has to look again
	if to := r.onward(now, e, from, m); to != nil {
		r.relay(to, m, out)
		return
	}
	e.origin = m.origin
	d.Kind, d.Epoch, d.Suspect = Stray, m.epoch, r.suspected(now, e)
	r.stats.Strays++
}

// via returns the node by which answers to a client leave whose datagram from sent on. It is
// empty if the datagram came to a socket of this edge, and went around: what leaves by
// another socket a balancer may not let through, or take for another client later.
func (r *Router) via(from *peer, origin uint64) string {
	if origin == r.cfg.ID {
		return ""
	}
	if p := r.byID[origin]; p != nil {
		return p.Name
	}
	return from.Name
}

// suspected returns the node that serves a client, if it is known and suspected.
func (r *Router) suspected(now time.Duration, e *entry) string {
	if p := r.byID[e.route(now)]; p != nil {
		return p.Name
	}
	return ""
}

// onward returns who serves the client instead. A route back is a mistake of this
// table or of the sender's, and forgotten.
func (r *Router) onward(now time.Duration, e *entry, from *peer, m *message) *peer {
	to := r.byID[e.route(now)]
	if to == from || to != nil && to.ID == m.origin {
		e.node = 0
		return nil
	}
	if to == nil || !r.reachable(now, to) {
		return nil
	}
	return to
}

// relay forwards a datagram once more.
func (r *Router) relay(to *peer, m *message, out Sender) {
	if m.hops++; m.hops > HopsMax {
		r.stats.Drops[DropHops]++
		return
	}
	r.seal(to, TypeIn, m, out)
	r.stats.Relayed++
}

// receiveOut takes an answer to a client that speaks to a socket of this edge. An answer
// from before an adoption is fenced: the edge that was replaced does not know it yet.
func (r *Router) receiveOut(now time.Duration, from *peer, m *message, own uint64, d *Delivery, out Sender) {
	k := m.client.key()
	e := r.table.touch(k)
	if highest := max(own, e.highest(now)); m.epoch < highest {
		r.stats.Drops[DropStaleEpoch]++
		m.epoch, m.refusesOut = highest, true
		r.refuse(from, m, out)
		return
	}
	r.learn(now, k, from, m.epoch)
	d.Kind = ToClient
	r.stats.Client++
}

// refuse answers a datagram with what this edge knows.
func (r *Router) refuse(to *peer, m *message, out Sender) {
	nack := message{refusesOut: m.refusesOut, epoch: m.epoch, client: m.client}
	r.seal(to, TypeNack, &nack, out)
	r.stats.NacksOut++
}

// receiveNack takes the word that a datagram was not right.
func (r *Router) receiveNack(now time.Duration, from *peer, m *message, owned bool, d *Delivery) {
	r.stats.NacksIn++
	if owned {
		return // Delivery.Overtaken says what there is to say
	}
	e := r.table.touch(m.client.key())
	e.observe(now, m.epoch)
	if m.refusesOut {
		return
	}
	d.Kind, d.Via = Misled, from.Name
	if e.node == from.ID {
		e.node = 0
	}
}
