package natsbus

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dnprelay/dnprelay/bus"
	"github.com/dnprelay/dnprelay/internal/turn"
	"github.com/nats-io/nats.go"
)

// ErrCredentials says that the credentials cannot be read or that the server refused them, so
// that a retry does not help.
var ErrCredentials = errors.New("bad NATS credentials")

// A Bus is one connection to NATS.
type Bus struct {
	cfg  Config
	nc   *nats.Conn
	out  outbox
	sent chan struct{} // closed when the sender has ended

	connected  atomic.Bool
	payloadMax atomic.Int64
	moved      atomic.Int64 // Unix nanoseconds of the last Move
	refusedAt  atomic.Int64 // Unix nanoseconds of the last refusal of the credentials that OnError heard of
	counters   counters
	requests   requests
	shared     chan *nats.Msg // of the shared subscriptions

	// Different goroutines may add and call handlers at the same time, and none of them owns
	// the lists.
	mu       sync.Mutex
	onChange []func(bool)
	subs     map[*nats.Subscription]*subscription
	starting sync.Mutex     // held while the sender starts a shared subscription; dispatch waits for it
	handlers sync.WaitGroup // one for each subscription that the library may still call
}

// Connect makes one attempt to connect. Its error wraps ErrCredentials if the credentials
// cannot be read or the server refuses them.
func Connect(cfg Config) (*Bus, error) {
	cfg = cfg.withDefaults()
	if cfg.Credentials != "" {
		if _, err := os.ReadFile(cfg.Credentials); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrCredentials, err)
		}
	}
	b := &Bus{
		cfg: cfg, out: outbox{bytesMax: cfg.OutgoingBytes, wake: turn.NewWake()}, sent: make(chan struct{}),
		shared: make(chan *nats.Msg, sharedMessages), subs: map[*nats.Subscription]*subscription{},
	}
	b.connected.Store(true) // before nats.Connect, whose connection may already report its end
	opts := append(cfg.options(),
		nats.ReconnectHandler(b.reconnected),
		nats.DisconnectErrHandler(func(*nats.Conn, error) { b.changed(false) }),
		nats.ErrorHandler(b.asyncError),
	)
	nc, err := nats.Connect(cfg.URL, opts...)
	if err != nil {
		if refused(err) {
			err = fmt.Errorf("%w: %w", ErrCredentials, err)
		}
		return nil, fmt.Errorf("connect to NATS at %s: %w", Redacted(cfg.URL), err)
	}
	b.nc = nc
	b.payloadMax.Store(nc.MaxPayload())
	go b.send() // until Close
	b.handlers.Add(1)
	go b.dispatch() // until Close
	b.requests = requests{inbox: nc.NewInbox() + ".", waiting: map[uint64]*request{}, max: cfg.RequestsMax}
	inboxes := []string{b.requests.inbox}
	if cfg.PeerInbox != "" {
		own := nc.NewInbox()
		b.requests.peers = cfg.PeerInbox + own[strings.LastIndexByte(own, '.'):] + "."
		inboxes = append(inboxes, b.requests.peers)
	}
	for _, inbox := range inboxes {
		if _, err := b.Subscribe(inbox+"*", b.requests.answered); err != nil {
			b.Close()
			return nil, fmt.Errorf("subscribe to answers: %w", err)
		}
	}
	return b, nil
}

// Redacted returns addresses, joined by commas, without the users, passwords and tokens in
// them.
func Redacted(urls string) string {
	all := strings.Split(urls, ",")
	for i, u := range all {
		scheme, rest, ok := strings.Cut(u, "://")
		if !ok {
			scheme, rest = "", u
		}
		if at := strings.LastIndexByte(rest, '@'); at >= 0 {
			rest = "***" + rest[at:]
		}
		if all[i] = rest; ok {
			all[i] = scheme + "://" + rest
		}
	}
	return strings.Join(all, ",")
}

func refused(err error) bool {
	return slices.ContainsFunc([]error{
		nats.ErrAuthorization, nats.ErrAuthExpired, nats.ErrAuthRevoked, nats.ErrAccountAuthExpired,
		nats.ErrNkeysNotSupported, nats.ErrNoUserCB,
	}, func(target error) bool { return errors.Is(err, target) })
}

// closePatience is how long Close waits until the server has read everything. It is arbitrary: a node that ends has to end.
const closePatience = 2 * time.Second

// Close sends what was published, waits until the server has read it, two seconds at most, ends the connection, and
// waits until no handler runs. A handler must not call it. Waiting requests end with ErrClosed.
func (b *Bus) Close() {
	b.out.close()
	<-b.sent
	if b.nc.IsConnected() { // the kernel resets a connection that is closed with unread bytes, and the server then drops what it has not read
		_ = b.nc.FlushTimeout(closePatience)
	}
	b.connected.Store(false)
	b.nc.Close()
	b.handlers.Wait()
	b.requests.close()
}

// Conn returns the connection, for adapters over JetStream.
func (b *Bus) Conn() *nats.Conn { return b.nc }

// Publish implements bus.Bus.
func (b *Bus) Publish(m bus.Msg) error { return b.enqueue(op{msg: m}) }

func (b *Bus) enqueue(o op) (err error) {
	switch {
	case int64(len(o.msg.Data)) > b.payloadMax.Load():
		err = bus.ErrMessageSize
	case !b.connected.Load():
		err = bus.ErrDisconnected
	default:
		err = b.out.push(o)
	}
	if err != nil {
		b.counters.dropped(err)
	}
	return err
}

// Connected implements bus.Bus.
func (b *Bus) Connected() bool { return b.connected.Load() }

// OnChange implements bus.Bus.
func (b *Bus) OnChange(f func(connected bool)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.onChange = append(b.onChange, f)
}

// movePause is the shortest time between two forced moves of a connection.
const movePause = time.Second

// Server returns the name of the server of the connection; empty for none.
func (b *Bus) Server() string { return b.nc.ConnectedServerName() }

// Move leaves the server with this name for the next one, and reports whether it does. It is for a server
// that answers and yet is useless, because it is cut off from the others. A connection to another server stays,
// and none moves more often than once a second. Move may wait for natsconn.WriteTimeout.
func (b *Bus) Move(server string) bool {
	last, now := b.moved.Load(), time.Now().UnixNano()
	if !b.connected.Load() || b.Server() != server || now-last < int64(movePause) || !b.moved.CompareAndSwap(last, now) {
		return false
	}
	b.counters.moves.Add(1)
	return b.nc.ForceReconnect() == nil
}

// Flush waits until the server has processed everything that was published and subscribed
// before. Later messages wait in the queue meanwhile.
func (b *Bus) Flush(timeout time.Duration) error {
	done := make(chan error, 1)
	_ = b.out.push(op{do: func() { done <- b.nc.FlushTimeout(timeout) }})
	select {
	case err := <-done:
		return err
	case <-b.sent:
		return bus.ErrClosed
	}
}

func (b *Bus) reconnected(nc *nats.Conn) {
	b.payloadMax.Store(nc.MaxPayload())
	b.counters.reconnects.Add(1)
	b.changed(true)
}

// changed runs on the library's goroutine for callbacks, which makes one call at a time.
func (b *Bus) changed(connected bool) {
	if b.connected.Swap(connected) == connected {
		return
	}
	b.mu.Lock()
	handlers := b.onChange[:len(b.onChange):len(b.onChange)]
	b.mu.Unlock()
	for _, f := range handlers {
		f(connected)
	}
}

func (b *Bus) asyncError(_ *nats.Conn, sub *nats.Subscription, err error) {
	if errors.Is(err, nats.ErrSlowConsumer) {
		b.counters.slow.Add(1)
	} else {
		b.counters.errors.Add(1)
	}
	if sub != nil {
		err = fmt.Errorf("subscription %s: %w", sub.Subject, err)
	}
	if refused(err) { // as at each attempt from now on
		now := time.Now().UnixNano()
		if last := b.refusedAt.Load(); last != 0 && now-last < int64(dialReport) {
			return
		}
		b.refusedAt.Store(now)
	}
	b.cfg.OnError(err)
}

// Stats are the counters since Connect.
type Stats struct {
	Published, PublishedBytes uint64 // messages handed to the connection, and their data
	Received, ReceivedBytes   uint64 // messages handed to handlers, and their data

	DroppedDisconnected uint64 // published without a connection
	DroppedBusy         uint64 // published while the outgoing queue or the list of requests was full
	DroppedSize         uint64 // larger than the server takes
	DroppedOther        uint64 // bad subject, closed

	Missed        uint64 // received, but dropped because a handler was too slow
	SlowConsumers uint64 // how often a handler became too slow
	Errors        uint64 // errors without a caller, such as refused subscriptions, answers that MayAnswer forbids, and messages from consumers of JetStream
	Reconnects    uint64
	Moves         uint64 // of the reconnects, those that Move forced
}

// Several goroutines increment the counters.
type counters struct {
	published, publishedBytes, received, receivedBytes atomic.Uint64
	disconnected, busy, size, other                    atomic.Uint64
	missed, slow, errors, reconnects, moves            atomic.Uint64
}

func (c *counters) dropped(err error) {
	switch {
	case errors.Is(err, bus.ErrDisconnected):
		c.disconnected.Add(1)
	case errors.Is(err, bus.ErrBusy):
		c.busy.Add(1)
	case errors.Is(err, bus.ErrMessageSize):
		c.size.Add(1)
	default:
		c.other.Add(1)
	}
}

// Stats returns the counters.
func (b *Bus) Stats() Stats {
	c := &b.counters
	s := Stats{
		Published: c.published.Load(), PublishedBytes: c.publishedBytes.Load(),
		Received: c.received.Load(), ReceivedBytes: c.receivedBytes.Load(),
		DroppedDisconnected: c.disconnected.Load(), DroppedBusy: c.busy.Load(),
		DroppedSize: c.size.Load(), DroppedOther: c.other.Load(),
		SlowConsumers: c.slow.Load(), Errors: c.errors.Load(), Reconnects: c.reconnects.Load(), Moves: c.moves.Load(),
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	s.Missed = c.missed.Load()
	for sub := range b.subs {
		s.Missed += missed(sub)
	}
	return s
}
