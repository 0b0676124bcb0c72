package forward

import "time"

// A Kind says what the edge has to do with what came from another edge.
type Kind uint8

// The kinds.
const (
	Nothing  Kind = iota // the router has handled it
	ToOwner              // Data is a datagram of a client that this edge serves
	ToClient             // Data is to be sent to the client, from the socket of its listener
	Orphan               // Data is a datagram of a client that this edge does not serve: forward it, or adopt the session
	Misled               // Via, which got a datagram of the client from this edge, does not serve it: look again
)

// A Delivery is what came from another edge.
type Delivery struct {
	Kind   Kind
	Client Client

	// Via is the node by which answers to the client have to leave (ToOwner, Orphan), until
	// a datagram of the client comes to a socket of this edge. It is empty if this datagram
	// did, and went around. Of Misled it is the node that does not serve the client.
	Via string

	// Epoch is the highest epoch of the session that the sender knows, or this edge
	// (Orphan); 0 for none.
	Epoch uint64

	// Overtaken says that the sender knows a later epoch of the session than the one in
	// which this edge serves it. The edge has to read the session's log.
	Overtaken bool

	// Hops is how often Data was forwarded (ToOwner, Orphan).
	Hops uint8

	Data []byte // aliases what was received
}

// Receive takes a datagram of another edge, which it decrypts in place. It sends the nacks
// that the datagram calls for.
func (r *Router) Receive(now time.Time, p []byte, out Sender) Delivery {
	from, kind, body, drop := r.open(p)
	if drop != dropNone {
		r.stats.Drops[drop]++
		return Delivery{}
	}
	at := r.since(now)
	from.heard = at
	if kind == TypeHeartbeat {
		r.stats.HeartbeatsIn++
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

// serves asks the edge whether it serves a client.
func (r *Router) serves(c Client) (epoch uint64, ok bool) {
	if r.cfg.Serves == nil {
		return 0, false
	}
	return r.cfg.Serves(c)
}

// receiveIn takes a datagram of a client that came to a socket of another edge.
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
	e := r.fence.touch(m.client.key())
	e.observe(now, m.epoch)
	e.origin, m.epoch = m.origin, e.highest(now)
	r.refuse(from, m, out) // the edge that sent it here has to look again
	d.Kind, d.Epoch = Orphan, m.epoch
	r.stats.Orphans++
}

// via returns the node by which answers to a client leave, given the peer that forwarded
// its datagram. It is empty if the datagram came to a socket of this edge, and went around:
// a balancer may not let an answer through that leaves by another socket, or may take the
// client for another one later.
func (r *Router) via(from *peer, origin uint64) string {
	if origin == r.cfg.ID {
		return ""
	}
	if p := r.byID[origin]; p != nil {
		return p.Name
	}
	return from.Name
}

// receiveOut takes an answer to a client that speaks to a socket of this edge. It fences
// answers from before an adoption: the edge that was replaced does not know it yet.
func (r *Router) receiveOut(now time.Duration, from *peer, m *message, own uint64, d *Delivery, out Sender) {
	e := r.fence.touch(m.client.key())
	if highest := max(own, e.highest(now)); m.epoch < highest {
		r.stats.Drops[DropStaleEpoch]++
		m.epoch, m.refusesOut = highest, true
		r.refuse(from, m, out)
		return
	}
	e.observe(now, m.epoch)
	d.Kind = ToClient
	r.stats.Client++
}

// refuse answers a datagram with a nack, which has the highest epoch that this edge knows.
func (r *Router) refuse(to *peer, m *message, out Sender) {
	nack := message{refusesOut: m.refusesOut, epoch: m.epoch, client: m.client}
	r.seal(to, TypeNack, &nack, out)
	r.stats.NacksOut++
}

// receiveNack takes the answer that a datagram of this edge was not right.
func (r *Router) receiveNack(now time.Duration, from *peer, m *message, owned bool, d *Delivery) {
	r.stats.NacksIn++
	if owned {
		return // Delivery.Overtaken is all that matters
	}
	r.fence.touch(m.client.key()).observe(now, m.epoch)
	if !m.refusesOut {
		d.Kind, d.Via = Misled, from.Name
	}
}
