package dnptest_test

import (
	"encoding/binary"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/dnp"
	"github.com/dnprelay/dnprelay/dnp/dnptest"
	"github.com/dnprelay/dnprelay/dnp/netstate"
	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/internal/simnet"
)

var seed = flag.Uint64("seed", 1, "first seed of the runs in a simulated network")

var serverAddr = netip.MustParseAddrPort("10.0.0.1:3413")

// ownRef names the state that a client offered; there is at most one.
const ownRef = 1 << 40

// flushInterval is the flush interval of the server in these tests.
const flushInterval = 5 * time.Millisecond

// A world is one Endpoint as server and model clients, in a simulated network.
type world struct {
	testing.TB
	net     *simnet.Net
	server  *server
	players []*player
}

func newWorld(t testing.TB, seed uint64, path simnet.Path, cfg dnp.Config) *world {
	t.Helper()
	w := &world{TB: t, net: simnet.New(seed)}
	w.net.SetPath(path)
	cfg.Listen = true
	cfg.Rand = rand.New(rand.NewPCG(seed, 1))
	e, err := dnp.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	w.server = &server{w: w, e: e, profile: cfg.Profile, remotes: map[netip.AddrPort]*remote{}}
	w.net.Attach(serverAddr, w.server)
	return w
}

// A server is an Endpoint with a minimal application.
type server struct {
	w           *world
	e           *dnp.Endpoint
	buf         []byte
	nextFlush   time.Time
	profile     wire.Profile
	sources     []*dnp.Source
	writable    bool // clients may write the sources
	names       []string
	remotes     map[netip.AddrPort]*remote
	peerForgets bool                // the server says so of its peers
	lose        func(p []byte) bool // reports datagrams to drop instead of sending; may be nil
}

// A remote is what the server knows about one connection.
type remote struct {
	conn   *dnp.Conn
	want   counter // messages of the client
	give   counter // messages to the client
	room   int     // messages that may be queued
	closed bool
	reason dnp.CloseReason
	ups    int
	own    *dnp.Source // the state that the client offered
	lost   int         // connections before this one at the address

	refused int // long messages to the client, which is Java
}

// A counter makes or checks numbered messages, some of them long if the receiver can
// receive those.
type counter struct {
	next  int
	limit int
	long  bool
	skips bool // the receiver is Java, so the long ones are refused
	more  int  // bytes that each message has besides its number
}

func isLong(n int) bool { return n%50 == 7 }

func (c *counter) message() []byte {
	p := append(binary.LittleEndian.AppendUint32(nil, uint32(c.next)), make([]byte, c.more)...)
	if c.long && isLong(c.next) {
		p = append(p, make([]byte, 3000)...)
	}
	c.next++
	return p
}

// take checks that p is the next message and complete.
func (c *counter) take(p []byte) error {
	if len(p) < 4 {
		return fmt.Errorf("message of %d bytes", len(p))
	}
	if c.skips && isLong(c.next) {
		c.next++
	}
	n, size := int(binary.LittleEndian.Uint32(p)), 4+c.more
	if c.long && isLong(n) {
		size += 3000
	}
	if n != c.next || len(p) != size {
		return fmt.Errorf("message %d of %d bytes, want message %d", n, len(p), c.next)
	}
	c.next++
	return nil
}

func (s *server) Datagram(size int) []byte {
	if cap(s.buf) < size {
		s.buf = make([]byte, 0, size)
	}
	return s.buf[:0]
}

func (s *server) Send(to netip.AddrPort, p []byte) {
	if s.lose == nil || !s.lose(p) {
		s.w.net.Send(serverAddr, to, p)
	}
}

func (s *server) Receive(now time.Time, from netip.AddrPort, p []byte) {
	s.handle(now, s.e.Receive(now, from, p, s))
}

func (s *server) Advance(now time.Time) {
	s.handle(now, s.e.Advance(now, s))
	if s.e.Pending() && !now.Before(s.nextFlush) {
		s.e.Flush(now, s)
		s.nextFlush = now.Add(flushInterval)
	}
}

func (s *server) NextTimeout() (time.Time, bool) {
	at, ok := s.e.NextTimeout()
	if s.e.Pending() && (!ok || s.nextFlush.Before(at)) {
		return s.nextFlush, true
	}
	return at, ok
}

func (s *server) handle(now time.Time, events []dnp.Event) {
	for i := range events {
		s.event(now, &events[i])
	}
}

func (s *server) event(now time.Time, ev *dnp.Event) {
	addr := ev.Conn.Addr()
	r := s.remotes[addr]
	switch ev.Kind {
	case dnp.EventConnected:
		s.connected(addr, ev.Conn)
	case dnp.EventClosed:
		if r != nil && r.conn == ev.Conn {
			r.closed, r.reason = true, ev.Reason
		}
	case dnp.EventMessage:
		if !ev.Reliable {
			return
		}
		if err := r.want.take(ev.Data); err != nil {
			s.w.Fatalf("%v: the server got %v from %v", s.w.net.Elapsed(), err, addr)
		}
	case dnp.EventTooLarge:
		if !r.give.skips {
			s.w.Fatalf("%v: a long message is refused, but the client takes it", s.w.net.Elapsed())
		}
		r.refused++
		r.room++
		s.feed(r)
	case dnp.EventSent:
		r.room++
		s.feed(r)
	case dnp.EventLinkUp:
		r.ups++
	case dnp.EventLinkOffered:
		s.acceptOwn(r, ev)
	case dnp.EventUpdate:
		s.update(r, ev)
	}
}

func (s *server) connected(addr netip.AddrPort, c *dnp.Conn) {
	p := s.w.player(addr)
	old := s.remotes[addr]
	r := &remote{conn: c, room: 20, give: p.toClient, want: p.toServer}
	if old != nil {
		r.lost = old.lost + 1
	}
	s.remotes[addr] = r
	if s.peerForgets {
		dnp.PeerForgets(c)
	}
	for _, src := range s.sources {
		if err := c.Link(src, !s.writable); err != nil {
			s.w.Fatalf("link: %v", err)
		}
	}
	s.feed(r)
}

// feed keeps up to 20 messages queued.
func (s *server) feed(r *remote) {
	for r.room > 0 && r.give.next < r.give.limit && !r.closed {
		switch err := r.conn.Send(r.give.message(), 1); {
		case err == dnp.ErrTooLarge && r.give.skips && isLong(r.give.next-1):
			r.refused++
		case err != nil:
			s.w.Fatalf("%v: send message %d: %v", s.w.net.Elapsed(), r.give.next, err)
		default:
			r.room--
		}
	}
}

func (s *server) acceptOwn(r *remote, ev *dnp.Event) {
	var types []netstate.Value
	for v := ev.Values; v.Len() > 0; {
		var t wire.ValueType
		t, _, v = v.Next()
		types = append(types, netstate.Value{Type: t})
	}
	layout, err := netstate.NewLayout(types)
	if err != nil {
		s.w.Fatal(err)
	}
	st := netstate.NewState(layout)
	st.SetAll(ev.Values)
	r.own = s.e.NewSource(dnp.SourceConfig{State: st, Message: []byte("own"), Ref: ownRef})
	if err := ev.Conn.Accept(ev.Link, r.own); err != nil {
		s.w.Fatalf("accept: %v", err)
	}
}

func (s *server) update(r *remote, ev *dnp.Event) {
	src, ok := ev.Conn.SourceOf(ev.Link)
	if !ok {
		s.w.Fatalf("update of link %#x, which has no source", ev.Link)
	}
	for {
		i, v, ok := ev.Update.Next()
		if !ok {
			return
		}
		ev.Conn.Writes().Hold(ev.Link, i, uint32(ev.Number), v)
		src.State().Set(i, v)
		src.Changed(i)
		ev.Conn.Writes().Release(ev.Link, i)
	}
}

// addSource adds a state of three uint32 values.
func (s *server) addSource(name string) *dnp.Source {
	src := s.e.NewSource(dnp.SourceConfig{State: newState(s.w, 5, 5, 5), Message: []byte(name), Ref: uint64(len(s.sources))})
	s.names = append(s.names, name)
	s.sources = append(s.sources, src)
	return src
}

func newState(t testing.TB, types ...wire.ValueType) *netstate.State {
	t.Helper()
	values := make([]netstate.Value, len(types))
	for i, v := range types {
		values[i].Type = v
	}
	l, err := netstate.NewLayout(values)
	if err != nil {
		t.Fatal(err)
	}
	return netstate.NewState(l)
}

// change sets a value of src to n.
func change(src *dnp.Source, i int, n uint32) {
	if src.State().Set(i, binary.LittleEndian.AppendUint32(nil, n)) {
		src.Changed(i)
	}
}

// A player is a model client and its application.
type player struct {
	*dnptest.Client
	w                  *world
	addr               netip.AddrPort
	toServer, toClient counter // how they start
	give, want         counter
	closed             bool
	wrong              string // the first message that was not the next one
}

// addPlayer attaches a client. It starts when Connect is called.
func (w *world) addPlayer(b dnptest.Behaviour) *player {
	addr := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 1, byte(len(w.players))}), 4000)
	p := &player{w: w, addr: addr}
	p.Client = dnptest.NewClient(dnptest.Config{
		Behaviour: b,
		Server:    serverAddr,
		Send:      func(d []byte) { w.net.Send(addr, serverAddr, d) },
		App: dnptest.App{
			Message: p.message,
			Closed:  func(string) { p.closed = true },
		},
	})
	w.players = append(w.players, p)
	w.net.Attach(addr, p.Client)
	return p
}

func (w *world) player(addr netip.AddrPort) *player {
	for _, p := range w.players {
		if p.addr == addr {
			return p
		}
	}
	w.Fatalf("no player at %v", addr)
	return nil
}

// messages sets how many reliable messages are sent each way, some of them long. Java
// cannot receive long ones, so the server refuses them. Python loses parts of its own when a datagram is lost,
// because after the first acknowledgement it repeats none of the others.
func (p *player) messages(toServer, toClient int) {
	long := p.Behaviour().LongMessage
	p.toServer = counter{limit: toServer, long: !p.Behaviour().DropsTail}
	p.toClient = counter{limit: toClient, long: true, skips: long == dnptest.LongSticks}
	p.give, p.want = p.toServer, p.toClient
	p.toServer.next, p.toClient.next = 0, 0
}

func (p *player) message(m dnptest.Message) {
	if !m.Reliable {
		return
	}
	if err := p.want.take(m.Data); err != nil && p.wrong == "" {
		p.wrong = fmt.Sprintf("%v: %s got %v", p.w.net.Elapsed(), p.Behaviour().Name, err)
	}
}

// start connects, and from then on sends while fewer than busy messages wait. A client
// with DropsTail sends one at a time.
func (p *player) start(busy int) {
	if p.Behaviour().DropsTail {
		busy = min(busy, 1)
	}
	p.Connect(p.w.net.Now())
	p.w.net.Wake(p.addr)
	p.w.net.Every(7*time.Millisecond, func() bool {
		for p.Phase() == dnptest.Connected && p.give.next < p.give.limit && p.Queued() < busy {
			if err := p.Send(p.w.net.Now(), p.give.message()); err != nil {
				p.w.Fatal(err)
			}
		}
		p.w.net.Wake(p.addr)
		return p.Phase() < dnptest.Closed && p.give.next < p.give.limit
	})
}

// remote returns what the server knows about p; nil before p proved its address.
func (p *player) remote() *remote { return p.w.server.remotes[p.addr] }

// done reports whether all messages arrived on both sides.
func (p *player) done() bool {
	r := p.remote()
	return r != nil && p.want.next == p.want.limit && r.want.next == r.want.limit
}

// ended reports whether the connection is over for one of the sides.
func (p *player) ended() bool {
	r := p.remote()
	return p.Phase() >= dnptest.Closed || r != nil && r.closed
}

// equal reports whether p shows the values of src.
func (p *player) equal(src *dnp.Source, name string) bool {
	for i := range src.State().Layout().Len() {
		if v := p.Value(name, i); v == nil || string(v) != string(src.State().Value(i)) {
			return false
		}
	}
	return true
}
