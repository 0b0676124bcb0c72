package forward

import (
	"errors"
	"fmt"
	"time"
)

// Config is what a Router is made of.
type Config struct {
	// Node is the name of this edge. It must not be empty.
	Node string

	// ID names this process, for ever: random, not zero, and never used by another one.
	// The others learn it by gossip (cluster.Member.Sender).
	ID uint64

	// Clients is how many clients of other edges are remembered: who serves them, and
	// the highest epoch. 0 means 65,536. Then the one that was longest not spoken of is
	// forgotten.
	Clients int

	// Serves reports whether this edge serves a client, and in which epoch of its session;
	// 0 if that is not known. It is asked for what comes from other edges, and must not
	// call the router. nil means that it serves nobody.
	Serves func(Client) (epoch uint64, ok bool)
}

// Bounds of the peers.
const (
	// PeersMax is how many edges there can be, as many as gossip takes notice of.
	PeersMax = 4096

	// departedMax is how many processes that the roster does not have any more are
	// remembered, with what came from them. What an older one sent is refused.
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
	if c.Clients < 0 || c.Clients > 1<<24 {
		errs = append(errs, fmt.Errorf("forward: %d clients, want 1 to 16,777,216", c.Clients))
	}
	return errors.Join(errs...)
}

// A Router is the part of an edge that carries datagrams of clients to other edges and
// takes them from there. It belongs to one goroutine.
type Router struct {
	cfg   Config
	start time.Time // durations count from here
	ring  []ringKey
	stats Stats

	peers    []*peer // that the roster has, in the order of names
	departed []*peer // that it had, in the order of leaving
	byID     map[uint64]*peer
	byName   map[string]*peer // the newest process of each node

	table table

	nextBeat   time.Duration
	changes    []Change
	counterMax uint64 // of all peers: what a new one starts with
	nonceBytes [nonceSize]byte
	scratch    []byte
}

// New returns a router that knows nobody. The error names every problem of cfg.
func New(now time.Time, cfg Config) (*Router, error) {
	if cfg.Clients == 0 {
		cfg.Clients = 65_536
	}
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	return &Router{
		cfg: cfg, start: now, byID: map[uint64]*peer{}, byName: map[string]*peer{},
		table: newTable(cfg.Clients),
	}, nil
}

// SetKeys sets the keys: the first seals, all open. They are copied. Without one,
// nothing is sent and nothing is taken. ErrKeys changes nothing.
func (r *Router) SetKeys(secrets [][]byte) error {
	if sameSecrets(r.ring, secrets) {
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

// On reports whether there are keys.
func (r *Router) On() bool { return len(r.ring) > 0 }

// Learn says that somebody who should know, the claims or the edge itself, has seen
// that a node serves a client, in an epoch or, with 0, in one that is not known. What is
// older than what is known is ignored.
func (r *Router) Learn(now time.Time, c Client, node string, epoch uint64) {
	p := r.byName[node]
	if p == nil || !c.routable() {
		return
	}
	r.learn(r.since(now), c.key(), p, epoch)
}

// learn notes who serves a client, unless a later epoch is known.
func (r *Router) learn(now time.Duration, k clientKey, p *peer, epoch uint64) {
	e := r.table.touch(k)
	if epoch != 0 && !e.observe(now, epoch) {
		return
	}
	e.node, e.confirmed = p.ID, now
}

// Forget says that a client is not where it was thought to be.
func (r *Router) Forget(c Client) {
	if e := r.table.find(c.key()); e != nil {
		e.node = 0
	}
}

// Route returns which node serves a client and the highest epoch that is known of its
// session. The name is empty if nobody is known, or not since lately.
func (r *Router) Route(now time.Time, c Client) (node string, epoch uint64) {
	e := r.table.find(c.key())
	if e == nil {
		return "", 0
	}
	if p := r.byID[e.route(r.since(now))]; p != nil {
		node = p.Name
	}
	return node, e.highest(r.since(now))
}

// A Verdict says what became of a datagram of a client.
type Verdict uint8

// The verdicts.
const (
	Sent    Verdict = iota // to the edge that serves the client
	Unknown                // nobody is known to serve the client: ask the claims
	Dead                   // the edge that serves it is suspected: adopt
	Dropped                // it cannot be forwarded; Stats says why
)

// In forwards a datagram of a client to the edge that serves the client. If that is not
// known, or that edge is suspected, nothing is sent. hops is how often it was forwarded
// before: 0 if it came to a socket of this edge, and 1 if it came as a Stray.
func (r *Router) In(now time.Time, c Client, hops uint8, data []byte, out Sender) Verdict {
	if !r.fits(c, data) {
		return Dropped
	}
	if hops >= HopsMax {
		r.stats.Drops[DropHops]++
		return Dropped
	}
	e := r.table.find(c.key())
	if e == nil {
		return Unknown
	}
	at := r.since(now)
	p := r.byID[e.route(at)]
	switch {
	case p == nil:
		return Unknown
	case !r.reachable(at, p):
		return Dead
	}
	m := message{hops: hops + 1, epoch: e.highest(at), origin: r.cfg.ID, client: c, data: data}
	if hops > 0 && e.origin != 0 {
		m.origin = e.origin
	}
	r.seal(p, TypeIn, &m, out)
	r.stats.In++
	return Sent
}

// InTo is Learn without an epoch, and In.
func (r *Router) InTo(now time.Time, node string, c Client, hops uint8, data []byte, out Sender) Verdict {
	if r.byName[node] == nil {
		r.stats.Drops[DropNoPeer]++
		return Dropped
	}
	r.Learn(now, c, node, 0)
	return r.In(now, c, hops, data, out)
}

// Out sends an answer to a client by the node via, in the epoch of its session. It reports
// whether it was sent.
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

// Stats returns the counters.
func (r *Router) Stats(now time.Time) Stats {
	s := r.stats
	s.Peers, s.Routes, s.RoutesForgotten = int64(len(r.peers)), int64(len(r.table.index)), r.table.evicted
	for _, p := range r.peers {
		if r.liveness(r.since(now), p) == Suspect {
			s.Suspects++
		}
	}
	return s
}

func (r *Router) since(now time.Time) time.Duration { return now.Sub(r.start) }
