package forward

import (
	"bytes"
	"errors"
	"net/netip"
	"slices"
	"time"

	"github.com/dnprelay/dnprelay/dnp/admit"
)

// Config is what a Router is made of.
type Config struct {
	// Node is the name of this edge. It must not be empty.
	Node string

	// ID names this process: random, not zero, and never used by another process. The other
	// edges learn it by gossip (cluster.Member.Sender).
	ID uint64

	// Serves reports whether this edge serves a client, and in which epoch of its session;
	// 0 if that is not known. The router calls it for what comes from other edges; it must
	// not call the router. It must not be nil.
	Serves func(Client) (epoch uint64, ok bool)

	// Rate is how much of each client that other edges serve this edge forwards: as much
	// as such an edge takes from a client itself.
	Rate admit.Rate
}

// Bounds.
const (
	// clientsMax is for how many clients of other edges the router remembers the highest
	// epoch, and what they may still send. When there are more, it forgets the one that was
	// longest not used.
	clientsMax = 65_536

	// PeersMax is how many edges there can be: as many as gossip takes notice of.
	PeersMax = 4096

	// departedMax is how many processes that left the roster the router remembers, with
	// the counters that came from them. It refuses datagrams of older ones.
	departedMax = 1024
)

func (c *Config) validate() error {
	var errs []error
	if c.Node == "" {
		errs = append(errs, errors.New("forward: no node name"))
	}
	if c.ID == 0 {
		errs = append(errs, errors.New("forward: no id of the process"))
	}
	if c.Serves == nil {
		errs = append(errs, errors.New("forward: no function that says which clients are served"))
	}
	return errors.Join(errs...)
}

// A Router carries datagrams of clients to other edges and takes them from there. It
// belongs to one goroutine.
type Router struct {
	cfg   Config
	start time.Time // durations count from here
	ring  []ringKey
	stats Stats

	peers    []*peer // that the roster has, in the order of names
	departed []*peer // that it had, in the order of leaving
	byID     map[uint64]*peer
	byName   map[string]*peer // the newest process of each node

	fence fence

	nextHeartbeat time.Duration
	changes       []Change
	counterMax    uint64 // of all peers: what a new one starts with
	nonceBytes    [nonceSize]byte
	scratch       []byte
}

// New returns a router that knows no other edge. The error names every problem of cfg.
func New(now time.Time, cfg Config) (*Router, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	return &Router{
		cfg: cfg, start: now, byID: map[uint64]*peer{}, byName: map[string]*peer{},
		fence: newFence(clientsMax),
	}, nil
}

// SetKeys sets the keys: the first seals, all open. It copies them. Without a key the
// router sends nothing and takes nothing. On ErrKeys the keys stay as they were.
func (r *Router) SetKeys(secrets [][]byte) error {
	if slices.EqualFunc(r.ring, secrets, func(k ringKey, s []byte) bool { return bytes.Equal(k.secret, s) }) {
		return nil
	}
	ring, err := newRing(secrets)
	if err != nil {
		return err
	}
	r.ring = ring
	for _, p := range r.byID {
		p.seals = nil
	}
	return nil
}

// In forwards a datagram of a client to the edge node, which serves the client. hops is how
// often it was forwarded before: 0 if it came to a socket of this edge, and 1 if it came as
// an Orphan. It reports whether it was sent.
func (r *Router) In(now time.Time, node string, c Client, hops uint8, data []byte, out Sender) bool {
	if !r.fits(c, data) {
		return false
	}
	if hops >= HopsMax {
		r.stats.Drops[DropHops]++
		return false
	}
	at, p := r.since(now), r.byName[node]
	if p == nil || !r.reachable(at, p) {
		r.stats.Drops[DropNoPeer]++
		return false
	}
	e := r.fence.touch(c.key())
	if hops == 0 && !e.allow(r.cfg.Rate, at, data) {
		r.stats.Drops[DropRate]++
		return false
	}
	m := message{hops: hops + 1, epoch: e.highest(at), origin: r.cfg.ID, client: c, data: data}
	if hops > 0 && e.origin != 0 {
		m.origin = e.origin
	}
	r.seal(p, TypeIn, &m, out)
	if hops > 0 {
		r.stats.Relayed++
	} else {
		r.stats.In++
	}
	return true
}

// Out sends an answer to a client by the node via, in the epoch of the client's session. It
// reports whether it was sent.
func (r *Router) Out(now time.Time, via string, c Client, epoch uint64, data []byte, out Sender) bool {
	if !r.fits(c, data) {
		return false
	}
	p := r.byName[via]
	if p == nil || r.liveness(r.since(now), p) == Gone {
		r.stats.Drops[DropNoPeer]++
		return false
	}
	r.seal(p, TypeOut, &message{epoch: epoch, client: c, data: data}, out)
	r.stats.Out++
	return true
}

// fits reports whether a datagram can be forwarded at all.
func (r *Router) fits(c Client, data []byte) bool {
	switch {
	case len(r.ring) == 0:
		r.stats.Drops[DropOff]++
	case !c.routable():
		r.stats.Drops[DropAddress]++
	case len(data) > DatagramMax:
		r.stats.Drops[DropTooLarge]++
	case len(data) == 0:
		r.stats.Drops[DropMalformed]++
	default:
		return true
	}
	return false
}

// A Sender takes datagrams. udp.Writer is one.
type Sender interface {
	Datagram(size int) []byte         // returns an empty buffer of capacity >= size, valid until Send
	Send(to netip.AddrPort, b []byte) // b was built in that buffer; the Sender may transmit it later in a batch
}

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
	// did, and went around. Of ToClient it is the node that serves the client, of Misled one
	// that does not.
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
	own, owned := r.cfg.Serves(m.client)
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
	e.returned(m.data)
	d.Kind, d.Via = ToClient, from.Name
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

// Stats returns the counters.
func (r *Router) Stats(now time.Time) Stats {
	s := r.stats
	s.Peers, s.Clients, s.ClientsForgotten = int64(len(r.peers)), int64(len(r.fence.index)), r.fence.evicted
	for _, p := range r.peers {
		if r.liveness(r.since(now), p) == Suspect {
			s.Suspects++
		}
	}
	return s
}

func (r *Router) since(now time.Time) time.Duration { return now.Sub(r.start) }

// A DropReason says why the router dropped a datagram.
type DropReason uint8

// The reasons. Up to DropReplay, a datagram did not prove that a peer sent it.
const (
	DropOff           DropReason = iota // no keys
	DropMalformed                       // not a cluster datagram, or one that no router writes
	DropVersion                         // of another version
	DropUnknownSender                   // the sender is no process that the roster has, or had lately
	DropUnknownKey                      // sealed with a key that is not in the ring
	DropBadSeal                         // forged, damaged, or for another receiver
	DropReplay                          // came before, or is too late to tell
	DropHops                            // forwarded twice before
	DropStaleEpoch                      // an answer of an owner that was replaced
	DropNoPeer                          // for an edge that is not known, or silent
	DropTooLarge                        // more than fits into a cluster datagram
	DropAddress                         // the client has an address that means nothing to other edges
	DropRate                            // of a client, or in its name, beyond the rate

	NumDropReasons
	dropNone = NumDropReasons
)

var dropNames = [...]string{
	"off", "malformed", "version", "unknown_sender", "unknown_key", "bad_seal", "replay", "hops", "stale_epoch", "no_peer", "too_large", "address", "rate", "none",
}

// String returns the name of r in metrics.
func (r DropReason) String() string { return dropNames[r] }

// Stats are what a Router counts.
type Stats struct {
	Peers, Suspects, Clients int64 // at present; Clients is the size of the fence

	In            uint64 // datagrams of clients that came to this edge, sent to the one that serves them
	Out           uint64 // answers, sent to the edge whose address the client knows
	Owner         uint64 // datagrams that came for a client of this edge
	Client        uint64 // answers that came, to be sent to the client from here
	Orphans       uint64 // datagrams that came for a client that this edge does not serve
	Relayed       uint64 // those of them that this edge forwarded
	NacksIn       uint64
	NacksOut      uint64
	HeartbeatsIn  uint64
	HeartbeatsOut uint64

	ClientsForgotten uint64 // by the fence, to make room
	Stalls           uint64 // times that this process was stopped, so that it suspected no peer

	Drops [NumDropReasons]uint64
}
