package dnptest

import (
	"bytes"
	"net/netip"
	"time"

	"github.com/dnprelay/dnprelay/dnp/wire"
)

// inboxMax is the number of datagrams that wait for the next tick, like those in a
// socket buffer. Further ones are lost and counted.
const inboxMax = 1024

// A Phase is a stage in the life of a connection.
type Phase uint8

const (
	Idle Phase = iota
	Connecting
	Connected
	Closed
	Crashed // a datagram would have ended the game
)

var phaseNames = [...]string{"idle", "connecting", "connected", "closed", "crashed"}

// String returns the name of p.
func (p Phase) String() string { return phaseNames[p] }

// A Config configures a Client.
type Config struct {
	Behaviour Behaviour
	App       App
	Server    netip.AddrPort // the peer; only ChecksSource uses it

	// Send takes a datagram for Server. It is valid during the call. Required.
	Send func(p []byte)

	// Listen makes the Client wait for a ConnectionRequest and answer it like the
	// libraries' servers, which do not answer a repeated request.
	Listen bool

	// FirstSend and FirstReceive are the reliable numbers that a connection
	// starts with, so that a test of the wrap need not start at 0.
	FirstSend, FirstReceive int
}

// An App is the application on top of the library. Every field may be nil.
type App struct {
	Offered   func(o Offer) Answer     // nil accepts everything
	Connected func()                   // accepted
	Closed    func(reason string)      // also a failed attempt to connect
	Message   func(m Message)          // nil collects them in Client.Messages
	LinkUp    func(l *Link)            // either side's link is up
	LinkDown  func(l *Link)            // a LinkDown took effect; the libraries do not tell the application
	Updated   func(l *Link, index int) // a value arrived; also for the first values of an offer
}

// A Message is a message that the application received.
type Message struct {
	Data     []byte // its own copy
	Reliable bool
}

// A port is what all parts of a Client share: its behaviour, the time of the call that is
// being served, and the way out.
type port struct {
	b      Behaviour
	now    time.Time
	silent bool
	out    func(p []byte)

	Stats Stats
}

func (o *port) emit(p []byte) {
	if !o.silent {
		o.Stats.Sent++
		o.out(p)
	}
}

// A Client is a model of a reference client. One goroutine owns it. It starts none.
type Client struct {
	port
	cfg Config

	phase  Phase
	reason string // why it is closed or crashed

	base, nextTick time.Time // ticks are at base + k × Tick
	inbox          [][]byte
	requestFirst   time.Time
	requestLast    time.Time

	recv  receiver
	queue sender
	links linkTable

	Messages []Message // when App.Message is nil
}

// Stats are counters for tests.
type Stats struct {
	Received   int // datagrams
	Sent       int // datagrams
	Lost       int // beyond inboxMax
	Acks       int // acknowledgements sent
	Repeats    int // reliable commands received again
	Refused    int // reliable commands outside the window, not acknowledged
	Stale      int // commands of an earlier lap, processed instead of the true one
	Resends    int // reliable commands sent again
	Exceptions int // datagrams and commands at which the library raises; reliable ones leave the stream stuck
	Unknown    int // LinkUpdates cut short at a link that is not up here
	Updates    int // values received
}

// NewClient returns a client that is not connected yet.
func NewClient(cfg Config) *Client {
	c := &Client{port: port{b: cfg.Behaviour, out: cfg.Send}, cfg: cfg}
	c.forget()
	return c
}

// Phase returns the phase of the connection.
func (c *Client) Phase() Phase { return c.phase }

// Reason returns why the connection is closed or crashed.
func (c *Client) Reason() string { return c.reason }

// Behaviour returns the behaviour that the client models.
func (c *Client) Behaviour() Behaviour { return c.b }

// Silence makes the client lose everything in both directions. Its timers go on.
func (c *Client) Silence(on bool) { c.silent = on }

// Connect sends the first ConnectionRequest.
func (c *Client) Connect(now time.Time) {
	c.start(now)
	c.phase = Connecting
	c.requestFirst = now
	c.request()
}

// Close sends ConnectionClose once and forgets the connection.
func (c *Client) Close(now time.Time) {
	c.now = now
	if c.phase == Connected && c.b.FlushesOnClose {
		c.links.flush()
		c.queue.repeat()
	}
	if c.phase == Connected || c.phase == Connecting {
		c.emit(wire.AppendConnectionClose(nil))
		c.closed("closed by the application")
	}
}

// Receive takes a datagram. It does not keep p.
func (c *Client) Receive(now time.Time, from netip.AddrPort, p []byte) {
	c.now = now
	if c.silent || c.phase == Crashed || c.b.ChecksSource && from != c.cfg.Server {
		return
	}
	c.Stats.Received++
	if c.cfg.Listen && c.phase == Idle {
		c.start(now)
	}
	if !c.b.ReadsOnTick {
		c.handle(p)
		return
	}
	c.align(now)
	if len(c.inbox) >= inboxMax {
		c.Stats.Lost++
		return
	}
	c.inbox = append(c.inbox, bytes.Clone(p))
}

// Advance does what is due at now.
func (c *Client) Advance(now time.Time) {
	c.now = now
	if now.Before(c.nextTick) {
		return
	}
	c.nextTick = now
	c.align(now)
	c.readInbox()
	switch c.phase {
	case Connecting:
		c.tickConnecting()
	case Connected:
		c.links.flush()
		if !c.queue.tick() {
			c.giveUp()
		}
	}
}

// NextTimeout returns when to call Advance.
func (c *Client) NextTimeout() (time.Time, bool) {
	busy := len(c.inbox) > 0 || c.phase == Connecting ||
		c.phase == Connected && (c.Queued() > 0 || c.links.due())
	return c.nextTick, busy
}

// forget drops the state of an ended connection, except for the counter of LinkIDs.
func (c *Client) forget() {
	send, receive := c.cfg.FirstSend, c.cfg.FirstReceive
	if c.b.KeepsNumbers && c.phase != Idle {
		send, receive = c.queue.next, c.recv.next
	}
	c.recv = receiver{next: receive, count: receive}
	c.queue = sender{port: &c.port, next: send}
	c.links = linkTable{port: &c.port, byID: map[wire.LinkID]*Link{}, nextID: c.links.nextID}
}

func (c *Client) start(now time.Time) {
	c.now, c.base, c.nextTick = now, now, now.Add(c.b.Tick)
}

// align moves nextTick to the first tick after now if it has passed.
func (c *Client) align(now time.Time) {
	if c.b.Tick > 0 && !c.nextTick.After(now) {
		c.nextTick = c.base.Add((now.Sub(c.base)/c.b.Tick + 1) * c.b.Tick)
	}
}

func (c *Client) readInbox() {
	for len(c.inbox) > 0 && c.phase != Crashed {
		p := c.inbox[0]
		c.inbox = c.inbox[1:]
		c.handle(p)
		if len(p) == 0 && c.b.EmptyEndsTick {
			return
		}
	}
}

func (c *Client) closed(reason string) {
	c.phase, c.reason = Closed, reason
	c.forget()
	if c.cfg.App.Closed != nil {
		c.cfg.App.Closed(reason)
	}
}

// bad handles a datagram that does not parse. The libraries log it.
func (c *Client) bad(reason string) {
	c.Stats.Exceptions++
	if c.b.CrashesOnBadData {
		c.phase, c.reason = Crashed, reason
	}
}

// handle dispatches a datagram. All implementations ignore unknown commands.
func (c *Client) handle(p []byte) {
	if len(p) == 0 {
		return
	}
	cmd, body := wire.Command(p[0]), p[1:]
	switch c.phase {
	case Idle, Closed:
		if c.cfg.Listen && cmd == wire.CommandConnectionRequest {
			c.handleRequest(body)
		}
	case Connecting:
		c.handleConnecting(cmd, body)
	case Connected:
		c.handleConnected(cmd, body)
	}
}

func (c *Client) handleConnecting(cmd wire.Command, body []byte) {
	switch {
	case cmd == wire.CommandConnectionAck:
		c.handleConnectionAck(body)
	case cmd == wire.CommandConnectionClose && c.b.CloseAnyTime:
		c.closed("closed by the peer")
	case cmd == wire.CommandMessage && c.b.MessagesAnyTime:
		c.handleMessage(body)
	}
}

func (c *Client) handleConnected(cmd wire.Command, body []byte) {
	switch cmd {
	case wire.CommandConnectionClose:
		c.closed("closed by the peer")
	case wire.CommandMessage:
		c.handleMessage(body)
	case wire.CommandReliableMessage, wire.CommandReliableLinkState,
		wire.CommandReliableMessageLong, wire.CommandReliableLinkStateLong:
		c.handleReliable(cmd, body)
	case wire.CommandReliableAck:
		c.handleReliableAck(body)
	case wire.CommandLinkUp:
		c.handleLinkUp(body)
	case wire.CommandLinkDown:
		c.handleLinkDown(body)
	case wire.CommandLinkUpdate:
		c.handleLinkUpdate(body)
	}
}

// handleRequest answers like the libraries' servers.
func (c *Client) handleRequest(body []byte) {
	r, err := wire.ParseConnectionRequest(body)
	if err != nil {
		c.bad("truncated ConnectionRequest")
		return
	}
	if !r.Offers(wire.ProtocolDNP1) {
		c.emit(wire.ConnectionAck{Result: wire.NoCommonProtocol}.Append(nil))
		return
	}
	c.forget()
	c.emit(wire.ConnectionAck{}.Append(nil))
	c.connected()
}

func (c *Client) handleConnectionAck(body []byte) {
	m, err := wire.ParseConnectionAck(body)
	if err != nil {
		c.bad("truncated ConnectionAck")
		return
	}
	switch {
	case m.Result == wire.Accepted && c.b.ChecksProtocol && m.Protocol != wire.ProtocolDNP1:
		c.Stats.Exceptions++
	case m.Result == wire.Accepted:
		c.connected()
	case m.Result > wire.NoCommonProtocol && c.b.IgnoresUnknown:
		c.Stats.Exceptions++
	case m.Result == wire.NoCommonProtocol:
		c.closed("no common protocol")
	default:
		c.closed("rejected")
	}
}

func (c *Client) connected() {
	c.phase = Connected
	if c.cfg.App.Connected != nil {
		c.cfg.App.Connected()
	}
}

func (c *Client) handleMessage(data []byte) {
	if len(data) == 0 && c.b.ThrowsOnEmpty {
		c.bad("empty message")
		return
	}
	c.deliver(data, false)
}

func (c *Client) request() {
	c.requestLast = c.now
	c.emit(wire.AppendConnectionRequest(nil))
}

// tickConnecting repeats the request: at 0, 1, 2, 3 and 4 s, and gives up at 5
// (vectors, connect_resend_schedule).
func (c *Client) tickConnecting() {
	switch {
	case c.now.Sub(c.requestFirst) >= connectTimeout:
		c.closed("no answer")
	case c.now.Sub(c.requestLast) >= connectResend:
		c.request()
	}
}
