package carrier

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dnprelay/dnprelay/dnp/admit"
	"github.com/dnprelay/dnprelay/internal/auth"
	"github.com/dnprelay/dnprelay/internal/turn"
)

// Times of a connection.
const (
	// FirstTimeout is how long a client may say nothing after it connected, and take for its handshake.
	FirstTimeout = 5 * time.Second

	// quietTimeout is how long a connection lasts to which the edge sends nothing. A session asks its client for a sign
	// of life more often, so there is none.
	quietTimeout = 60 * time.Second

	// SweepPause is the time between two calls of Sweep.
	SweepPause = 5 * time.Second
)

// A Receiver is the worker of a client. Its methods do not block, and any goroutine may call them.
type Receiver interface {
	// Arrived takes a datagram and calls Conn.Taken once it is handled or lost.
	Arrived(c *Conn, p []byte)

	// Opened tells that the client with this address is connected. Ended tells that it is not any more.
	Opened(c *Conn)
	Ended(c *Conn, r Reason)

	// Writable tells that a connection for which Output reported that it is full takes datagrams again.
	Writable(c *Conn)
}

// Config is what a Hub is made of.
type Config struct {
	// Tokens are those of the deployment.
	Tokens Tokens

	// ConnsMax bounds the connections, PerNetworkMax those of one IPv4 address or IPv6 /64; 0 is no bound for a network.
	ConnsMax, PerNetworkMax int

	// Admission bounds how fast the clients of a network make connections that do not resume a session.
	Admission admit.Config

	// Ready reports whether the edge takes clients.
	Ready func() bool

	// Receiver returns the worker for a client.
	Receiver func(client netip.AddrPort) Receiver

	// Now is the clock.
	Now func() time.Time

	// Start starts the writer of a connection. nil means that a goroutine runs it; a simulation calls Conn.Step instead.
	Start func(c *Conn)
}

// A Hub holds the carried connections of an edge.
type Hub struct {
	cfg    Config
	counts counters

	// mu guards the rest. Listeners, workers and writers meet here, when connections begin and end, and once for each
	// flush to a client.
	mu     sync.RWMutex
	gate   *admit.Gate // under the lock of writers
	conns  map[netip.AddrPort]*Conn
	seats  auth.Places // taken, by connections and those that are being made
	asked  uint64      // seats so far
	closed bool
}

// Counts are the counters of a Hub.
type Counts struct {
	Conns     [Kinds]int         // by Kind
	Opened    uint64             // connections
	Resumed   uint64             // those with the token of an earlier one
	Ended     [NumReasons]uint64 // by Reason
	Refused   [NumReasons]uint64 // by Reason
	OutLost   uint64             // datagrams to clients that did not fit, or whose client is not connected here
	Full      uint64             // times that a connection took nothing more
	Displaced uint64             // connections without a request that were closed because there were too many
}

type counters struct {
	opened, resumed, outLost, full, displaced atomic.Uint64
	ended, refused                            [NumReasons]atomic.Uint64
}

// NewHub returns a Hub without connections. The error is that of the admission.
func NewHub(cfg Config) (*Hub, error) {
	gate, err := admit.New(cfg.Admission)
	if err != nil {
		return nil, fmt.Errorf("carrier: %w", err)
	}
	return &Hub{cfg: cfg, gate: gate, conns: make(map[netip.AddrPort]*Conn)}, nil
}

// A Seat is a place for a connection that is being made. Open or Release ends it.
type Seat struct {
	hub     *Hub
	kind    Kind
	home    netip.Addr
	token   string
	resumed bool
	order   uint64 // of the client's requests
}

// Reserve takes a place for a client that comes from the real address home. token is what it presented, or empty. It reports false
// with the reason if there is none.
func (h *Hub) Reserve(k Kind, home netip.Addr, token string) (s *Seat, r Reason, ok bool) {
	resumed := h.cfg.Tokens.Valid(k, token)
	if !resumed {
		token = h.cfg.Tokens.New(k)
	}
	order, r, ok := h.admit(home, resumed)
	if !ok {
		h.Refused(r)
		return nil, r, false
	}
	return &Seat{hub: h, kind: k, home: home, token: token, resumed: resumed, order: order}, 0, true
}

func (h *Hub) admit(home netip.Addr, resumed bool) (order uint64, r Reason, ok bool) {
	if !h.cfg.Ready() {
		return 0, NotReady, false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.closed:
		return 0, NotReady, false
	case h.seats.All() >= h.cfg.ConnsMax:
		return 0, Full, false
	case h.cfg.PerNetworkMax > 0 && h.seats.Of(home) >= h.cfg.PerNetworkMax:
		return 0, TooMany, false
	case !resumed && h.gate.Judge(h.cfg.Now(), netip.AddrPortFrom(home, 0), admit.Request) > admit.Stateless:
		return 0, TooMany, false
	}
	h.seats.Enter(home)
	h.asked++
	return h.asked, 0, true
}

// Ready reports whether the edge takes clients; it does not when it drains.
func (h *Hub) Ready() bool { return h.cfg.Ready() }

// Refused counts a connection that a listener refuses.
func (h *Hub) Refused(r Reason) { h.counts.refused[r].Add(1) }

// Release gives the place back.
func (s *Seat) Release() { s.hub.leave(s.home) }

func (h *Hub) leave(home netip.Addr) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.seats.Leave(home)
}

// Greeting returns the first message to the client, JSON of less than 256 bytes.
func (s *Seat) Greeting() []byte {
	return fmt.Appendf(nil, `{"token":%q,"resumed":%t}`, s.token, s.resumed)
}

// Open begins the connection, in the place of an older one of the same client. The greeting must have been sent, so the client may
// have come again by now: what counts is the order of its requests.
func (s *Seat) Open(t Transport) *Conn {
	h := s.hub
	addr := h.cfg.Tokens.Address(s.kind, s.token)
	c := &Conn{
		hub: h, kind: s.kind, addr: addr, home: s.home, order: s.order, resumes: s.resumed, transport: t, receiver: h.cfg.Receiver(addr), sent: h.cfg.Now(),
		ready: turn.NewWake(), taken: turn.NewWake(), done: make(chan struct{}),
	}
	if m, ok := t.(Marker); ok {
		c.marker, c.flow.window = m, windowFirst
	}
	h.mu.Lock()
	old, closed := h.conns[addr], h.closed
	late := old != nil && old.order > c.order
	if !late {
		h.conns[addr] = c
	}
	h.mu.Unlock()
	h.counts.opened.Add(1)
	if s.resumed {
		h.counts.resumed.Add(1)
	}
	if old != nil && !late {
		old.End(Replaced)
	}
	c.receiver.Opened(c)
	if h.cfg.Start != nil {
		h.cfg.Start(c)
	} else {
		go c.write() // ends with the connection; Conn.Lost waits for it
	}
	switch {
	case late:
		c.End(Replaced)
	case closed:
		c.End(Leaving)
	}
	return c
}

// remove forgets a connection that has ended.
func (h *Hub) remove(c *Conn, r Reason) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.counts.ended[r].Add(1)
	if h.conns[c.addr] == c {
		delete(h.conns, c.addr)
	}
}

// Conn returns the connection of the client with this address, or nil.
func (h *Hub) Conn(addr netip.AddrPort) *Conn {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return h.conns[addr]
}

// End ends the connection of a client, if it is connected here.
func (h *Hub) End(addr netip.AddrPort, r Reason) {
	if c := h.Conn(addr); c != nil {
		c.End(r)
	}
}

// Sweep ends connections that no session needs, and those whose clients take nothing. Somebody has to call it each SweepPause.
func (h *Hub) Sweep() {
	now := h.cfg.Now()
	for _, c := range h.all() {
		switch {
		case c.quiet(now) >= quietTimeout:
			c.End(Silent)
		case c.stuck(now):
			c.End(Slow)
		}
	}
}

// Close ends all connections, and those that are made later.
func (h *Hub) Close() {
	h.mu.Lock()
	h.closed = true
	h.mu.Unlock()
	for _, c := range h.all() {
		c.End(Leaving)
	}
}

func (h *Hub) all() []*Conn {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return slices.Collect(maps.Values(h.conns))
}

// Stats returns the counters.
func (h *Hub) Stats() Counts {
	s := Counts{
		Opened: h.counts.opened.Load(), Resumed: h.counts.resumed.Load(), OutLost: h.counts.outLost.Load(), Full: h.counts.full.Load(),
		Displaced: h.counts.displaced.Load(),
	}
	for r := range NumReasons {
		s.Ended[r], s.Refused[r] = h.counts.ended[r].Load(), h.counts.refused[r].Load()
	}
	for _, c := range h.all() {
		s.Conns[c.kind]++
	}
	return s
}
