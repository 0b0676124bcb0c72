package client

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/dnprelay/dnprelay/dnp"
	"github.com/dnprelay/dnprelay/dnp/command"
	"github.com/dnprelay/dnprelay/dnp/netstate"
	"github.com/dnprelay/dnprelay/dnp/outbox"
	"github.com/dnprelay/dnprelay/dnp/wire"
)

// TokenMax is the most bytes of [Config.Token].
const TokenMax = 1350

// Limits of what waits in a Client. Beyond them Send returns ErrFull.
const (
	queuedMessagesMax = 256
	queuedBytesMax    = 64 << 10 // a message of any size may wait alone
)

// Errors that callers branch on. Why a connection ended is an [*EndError].
var (
	ErrFull  = errors.New("client: too many reliable messages wait to be sent")
	ErrSize  = errors.New("client: a message has 1 byte to 1 MiB, an unreliable one at most 65,499 bytes")
	ErrLost  = errors.New("client: the edge did not acknowledge all reliable messages before the connection ended")
	ErrNoWay = errors.New("client: no carrier speaks this URL; want udp://, ws://, wss:// or wt:// and HOST:PORT")
)

// A Reason says why a connection ended, or could not be made.
type Reason string

// The reasons that programs ask for. There are others, with the names of [dnp.CloseReason].
const (
	Closed   Reason = "local"    // by Close
	Peer     Reason = "peer"     // the edge ended it
	Timeout  Reason = "timeout"  // the edge does not answer
	Rejected Reason = "rejected" // the edge takes no clients now
	Refused  Reason = "refused"  // the edge ended it and did not acknowledge the login
	Lost     Reason = "lost"     // the socket failed, or the edge does not speak the protocol
	Unknown  Reason = "unknown"  // no edge has the session any more that this client wants to resume
	Replaced Reason = "replaced" // another connection took the place of this one
)

// An EndError says why a connection ended. Err is more about it, if more is known: for example the
// failure of the socket, for Lost.
type EndError struct {
	Address string
	Reason  Reason
	Made    bool // the connection was made before it ended
	Err     error
}

// Error says what happened.
func (e *EndError) Error() string {
	var text string
	switch {
	case e.Made && e.Reason == Lost && e.Err != nil:
		text = fmt.Sprintf("the connection to %s ended", e.Address)
	case e.Made:
		text = fmt.Sprintf("the connection to %s ended: %s", e.Address, e.Reason)
	case e.Reason == Lost:
		text = fmt.Sprintf("no connection to %s", e.Address)
	case e.Reason == Timeout:
		text = fmt.Sprintf("no edge answers at %s", e.Address)
	case e.Reason == Refused:
		text = fmt.Sprintf("%s refused the login", e.Address)
	default:
		text = fmt.Sprintf("%s refused the connection: %s", e.Address, e.Reason)
	}
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

// Unwrap returns Err.
func (e *EndError) Unwrap() error { return e.Err }

// Config says how a client behaves, and what it hears. The zero value of each field stands for its
// default. The functions may be nil; they may call everything but [Client.Close] (`go c.Close()`
// does), [Client.Until], [Client.Await] and [Client.Flush], which wait for what only their own goroutine
// can do.
type Config struct {
	// Token logs the client in at edges with --auth token. It has at most TokenMax bytes.
	Token string

	// Login is the whole login message instead, for edges with --auth callout. It has at most
	// 1,357 bytes.
	Login []byte

	// Profile is the dialect of the edge. The default is denetwork.
	Profile wire.Profile

	// TLS is the configuration for wss:// and wt://. nil trusts the certificate authorities of the
	// system.
	TLS *tls.Config

	// CertificateHashes are the only certificates that the client trusts, if there are any: SHA-256 in
	// 64 hex digits, as /dnp/info of an edge tells them.
	CertificateHashes []string

	// Timeout is how long Dial waits for an answer of the edge; default 5 s. With ws://, wss:// and
	// wt:// it waits as long for the connection before. A login takes longer, until ctx of Dial
	// ends.
	Timeout time.Duration

	// UpdateInterval is the least time between two sendings of values that this client sets;
	// default 30 ms. What is set meanwhile goes with the next one, as the newest value.
	UpdateInterval time.Duration

	// BytesPerSecond is how much the client sends at most, with headers. The default is 56 KiB,
	// because edges drop what is beyond 64 KiB or 200 datagrams a second.
	BytesPerSecond int

	// StatesMax is how many states of the edge the client takes; default 4,096. It declines
	// others.
	StatesMax int

	// Plain says that the server is no edge of dnprelay. The client says nothing then but what DNP has: values that it sets are
	// sent once, as by other libraries, and may get lost.
	Plain bool

	// Link tells of a state that came, Unlink of one that ended: the game removed it, this
	// client may not see it any more, the edge refuses a state that this client offers, or the
	// connection ends.
	Link, Unlink func(*Client, *State)

	// Change tells which values of a state the edge changed, by index in order. The list is valid
	// during the call. A value that arrives again is no change.
	Change func(c *Client, s *State, changed []int)

	// Refused tells that the edge or the game refused a value that this client set, and why. The state has the true value
	// already, or soon.
	Refused func(*Client, *State, *WriteError)

	// Message tells of a message to this client. Its data are valid during the call.
	Message func(*Client, Message)

	// End tells why the connection ended. It is the last event, and there is none if Dial
	// returns an error.
	End func(*Client, error)
}

// A Message is what a game server sent.
type Message struct {
	Data     []byte
	Reliable bool
	Number   uint64 // of a reliable one: it counts the commands of the edge, with gaps
}

// A Client is a connection to an edge. All methods may be called from any goroutine.
type Client struct {
	cfg     Config
	carrier carrier
	done    chan struct{} // closed when run ends
	calls   []call        // of the goroutine of run, which uses both again for each datagram
	indices []int

	// mu guards the rest. Its goroutine, which runs the endpoint, holds it for one datagram at a
	// time; a program holds it in methods, which read states and queue what the goroutine sends.
	// Ownership by that goroutine alone would make each read of a value a message to it.
	mu       sync.Mutex
	endpoint *dnp.Endpoint
	conn     *dnp.Conn
	hello    hello
	made     bool
	ready    bool // made, and logged in if there is a login
	ended    error
	closing  bool
	idle     bool          // run waits, or will, so that it has to be woken
	turned   chan struct{} // closed at the end of the next turn; nil if no call waits for it

	states   map[wire.LinkID]*State
	linkings uint64 // of states so far
	own      map[*dnp.Source]*State
	outbox   outbox.Outbox[valueKey] // values that this client set and the edge has not acknowledged
	flushAt  time.Time               // no first sending of values before

	keys      []valueKey     // scratch of sendWrites
	valueRefs []dnp.ValueRef // scratch of refs

	queued      []int // sizes of reliable messages that were not sent yet
	queuedBytes int
	sent        bool // Send took a message
	commands    commands
}

// Dial connects to the edge at an address and logs in. It returns when the edge accepted the client. The
// address is one of
//
//	udp://127.0.0.1:3413         without a port it is 3413
//	ws://127.0.0.1:3480/dnp      WebSocket; without a port it is 3480, without a path /dnp
//	wss://edge.example:3480/dnp  WebSocket with TLS
//	wt://edge.example:3480/dnp   WebTransport
//
// The error is that of ctx, an [*EndError], or says what is wrong with an argument.
//
// ctx bounds Dial only: the connection lasts until Close, or until it ends by itself.
//
// What is sent with Send from now on arrives. An edge without logins knows the client a round trip later, when that has
// shown that it receives: until then the edge drops unreliable messages, and what game servers send to everyone does not reach the client.
func Dial(ctx context.Context, url string, cfg Config) (*Client, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	way, err := open(ctx, url, &cfg)
	if err != nil {
		return nil, err
	}
	return dial(ctx, way, cfg)
}

func (cfg *Config) validate() error {
	switch {
	case len(cfg.Token) > TokenMax:
		return fmt.Errorf("client: the token has %d bytes, at most %d", len(cfg.Token), TokenMax)
	case len(cfg.Login) > wholeMax:
		return fmt.Errorf("client: the login has %d bytes, at most %d", len(cfg.Login), wholeMax)
	case cfg.Token != "" && len(cfg.Login) > 0:
		return errors.New("client: Token and Login are both set")
	case cfg.StatesMax < 0 || cfg.StatesMax > dnp.LinksPossible:
		return fmt.Errorf("client: StatesMax is %d, want 0 to %d", cfg.StatesMax, dnp.LinksPossible)
	case cfg.UpdateInterval < 0 || cfg.Timeout < 0 || cfg.BytesPerSecond < 0:
		return errors.New("client: UpdateInterval, Timeout or BytesPerSecond is less than zero")
	}
	_, err := cfg.pins()
	return err
}

// wholeMax is the most bytes of a message that is never cut (dnp/PROTOCOL.md, Long messages).
const wholeMax = 1357

// dial connects by a carrier, which it closes at the end.
func dial(ctx context.Context, way carrier, cfg Config) (*Client, error) {
	c := &Client{
		cfg: cfg.withDefaults(), carrier: way, done: make(chan struct{}),
		states: map[wire.LinkID]*State{}, own: map[*dnp.Source]*State{},
	}
	c.outbox.Reliable = way.status().reliable
	var err error
	if c.endpoint, err = dnp.New(c.cfg.endpoint(way.size())); err == nil {
		c.conn, err = c.endpoint.Connect(time.Now(), way.peer())
	}
	if err != nil {
		return nil, errors.Join(err, way.close())
	}
	go c.run() // ends with the connection; Close waits for it
	if err := c.Until(ctx, c.isReady); err != nil {
		_ = c.Close()
		return nil, err
	}
	return c, nil
}

func (cfg Config) withDefaults() Config {
	cfg.Timeout = cmp.Or(cfg.Timeout, 5*time.Second)
	cfg.UpdateInterval = cmp.Or(cfg.UpdateInterval, 30*time.Millisecond)
	cfg.BytesPerSecond = cmp.Or(cfg.BytesPerSecond, 56<<10)
	cfg.StatesMax = cmp.Or(cfg.StatesMax, 4096)
	return cfg
}

// endpoint returns the configuration of the protocol. The client itself repeats the values that it set, until the edge
// acknowledges them.
func (cfg *Config) endpoint(datagramMax int) dnp.Config {
	return dnp.Config{
		Profile:        cfg.Profile,
		ConnectTimeout: cfg.Timeout,
		ConnectResend:  min(300*time.Millisecond, cfg.Timeout), // a person may be waiting
		DatagramMax:    datagramMax,
		BytesPerSecond: cfg.BytesPerSecond,
		PeerLinksMax:   cfg.StatesMax,
		PeerValuesMax:  netstate.ValuesMax,
		Refresh:        []time.Duration{},
		ScrubInterval:  -1,
	}
}

// Address returns the address of the edge. A session that resumed may have another edge by then.
func (c *Client) Address() netip.AddrPort { return c.carrier.peer() }

// Done returns a channel that is closed when the connection has ended and the last event was told.
func (c *Client) Done() <-chan struct{} { return c.done }

// Err returns why the connection ended; nil while it lasts.
func (c *Client) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ended
}

// Close ends the connection, tells the edge, and waits until the edge knows, a second at most. It does not wait for messages; see
// Flush. It returns ErrLost if the edge has not acknowledged all that Send took: what is missing may have arrived, or not.
// A function of Config must not call it.
func (c *Client) Close() error {
	c.mu.Lock()
	c.closing = true
	c.conn.Close(dnp.CloseLocal)
	c.wake()
	c.mu.Unlock()
	<-c.done
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sent && c.endpoint.Undelivered(c.conn) > 0 {
		return ErrLost
	}
	return nil
}

// Send sends a message reliably and in order to the game server. It copies data, 1 byte to 1 MiB, and
// returns before the edge has them. It returns ErrFull if 256 messages or 64 KiB wait to be sent, and
// the reason if the connection has ended. See Flush.
func (c *Client) Send(data []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.over(); err != nil {
		return err
	}
	if c.hello.said {
		data = command.AppendRaw(nil, data)
	}
	err := c.send(data)
	c.sent = c.sent || err == nil
	return err
}

// send queues a reliable message. mu is held.
func (c *Client) send(data []byte) error {
	if len(c.queued) > 0 && (len(c.queued) >= queuedMessagesMax || c.queuedBytes+len(data) > queuedBytesMax) {
		return ErrFull
	}
	if err := c.conn.Send(data, sendToken); err != nil {
		return sizeError(err)
	}
	c.queued = append(c.queued, len(data))
	c.queuedBytes += len(data)
	c.wake()
	return nil
}

// sendToken makes the endpoint tell when a message was sent. Messages are sent in order, so they need no
// tokens of their own.
const sendToken = 1

// SendUnreliable sends a message of 1 to 65,499 bytes once. It may get lost.
func (c *Client) SendUnreliable(data []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.over(); err != nil {
		return err
	}
	c.wake()
	return sizeError(c.conn.SendUnreliable(data))
}

func sizeError(err error) error {
	if errors.Is(err, dnp.ErrEmpty) || errors.Is(err, dnp.ErrTooLarge) {
		return ErrSize
	}
	return err
}

// over returns why nothing can be sent any more. mu is held.
func (c *Client) over() error {
	switch {
	case c.ended != nil:
		return c.ended
	case c.closing:
		return c.endError(Closed, nil)
	}
	return nil
}

// Undelivered returns how many bytes of reliable messages the edge has not acknowledged, and after the end of the
// connection, how many it had not.
func (c *Client) Undelivered() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.endpoint.Undelivered(c.conn)
}

// Flush waits until the edge has acknowledged all reliable messages. If the connection ends before, it returns why,
// and Undelivered what is missing.
func (c *Client) Flush(ctx context.Context) error {
	return c.Until(ctx, func() bool { return c.Undelivered() == 0 })
}

// Until waits until reached returns true. It calls reached at once, and again whenever something
// arrived. The error is that of ctx, or why the connection ended. A function of Config must not call it.
func (c *Client) Until(ctx context.Context, reached func() bool) error {
	for {
		turned := c.nextTurn()
		if reached() {
			return nil
		}
		select {
		case <-turned:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-c.done:
			if reached() {
				return nil
			}
			return c.Err()
		}
	}
}

// nextTurn returns a channel that is closed at the end of the next turn.
func (c *Client) nextTurn() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.turned == nil {
		c.turned = make(chan struct{})
	}
	return c.turned
}

func (c *Client) isReady() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ready
}

// States returns the states that are linked, those of this client too, in no order.
func (c *Client) States() []*State {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := slices.Collect(maps.Values(c.states))
	for _, s := range c.own {
		if s.linked {
			list = append(list, s)
		}
	}
	return list
}

// State returns the linked state of the edge with this key, or nil. While a game server replaces a state, both may be linked for a moment: it returns
// the one that was linked last.
func (c *Client) State(key string) (last *State) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.states {
		if s.key == key && (last == nil || s.linking > last.linking) {
			last = s
		}
	}
	return last
}

// Await waits until a state with this key is linked. The error is that of ctx, or why the connection
// ended.
func (c *Client) Await(ctx context.Context, key string) (s *State, err error) {
	err = c.Until(ctx, func() bool { s = c.State(key); return s != nil })
	return s, err
}

// Stats returns the counters of the protocol.
func (c *Client) Stats() dnp.Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return *c.endpoint.Stats()
}

// CarrierStats returns the counters of what brings the datagrams.
func (c *Client) CarrierStats() CarrierStats { return c.carrier.status().stats }

// wake makes run look at what was queued. mu is held.
func (c *Client) wake() {
	if c.idle {
		c.idle = false
		c.carrier.wake()
	}
}

func (c *Client) endError(reason Reason, err error) error {
	return &EndError{Address: c.carrier.name(), Reason: reason, Made: c.made && reason != Refused, Err: err}
}

// dequeue forgets the messages that were sent.
func (c *Client) dequeue() {
	if len(c.queued) > 0 {
		c.queuedBytes -= c.queued[0]
		c.queued = slices.Delete(c.queued, 0, 1)
	}
}
