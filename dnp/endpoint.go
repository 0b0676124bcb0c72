package dnp

import (
	"errors"
	"net/netip"
	"time"
)

// A Sender takes datagrams. It must not call the Endpoint.
type Sender interface {
	// Datagram returns an empty buffer with room for size bytes, which belongs to
	// the caller until Send.
	Datagram(size int) []byte

	// Send sends b, built in the buffer that Datagram returned last, or forgets
	// it. It may be transmitted later, in a batch.
	Send(to netip.AddrPort, b []byte)
}

// Errors that callers branch on.
var (
	ErrClosed    = errors.New("dnp: connection is closed")
	ErrBacklog   = errors.New("dnp: reliable backlog is full")
	ErrEmpty     = errors.New("dnp: empty message")
	ErrTooLarge  = errors.New("dnp: message is too large")
	ErrLinks     = errors.New("dnp: no more links")
	ErrLinked    = errors.New("dnp: source is linked already")
	ErrNoLink    = errors.New("dnp: no such link was offered")
	ErrConnected = errors.New("dnp: address has a connection already")
	ErrConns     = errors.New("dnp: no more connections")
	ErrSnapshot  = errors.New("dnp: snapshot is damaged")
)

// An Endpoint is the connections of one UDP socket. One goroutine owns it.
type Endpoint struct {
	cfg   Config
	stats Stats
}

// New returns an Endpoint, or an error that names every problem of cfg.
func New(cfg Config) (*Endpoint, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	return &Endpoint{cfg: cfg}, nil
}

// Receive handles one datagram. Acknowledgements are sent at once; all else that
// it causes is sent by the next Advance. The events, and the slices in them, are
// valid until the next Receive or Advance; they may alias p.
func (e *Endpoint) Receive(now time.Time, from netip.AddrPort, p []byte, out Sender) []Event {
	return nil
}

// Advance sends what is ready (messages, offers, LinkUp and LinkDown, repeats,
// probes) and does what is due. The events are valid until the next Receive or
// Advance.
func (e *Endpoint) Advance(now time.Time, out Sender) []Event { return nil }

// Flush sends changed values to the peers that are linked to them.
func (e *Endpoint) Flush(now time.Time, out Sender) {}

// Pending reports whether Flush has something to look at.
func (e *Endpoint) Pending() bool { return false }

// NextTimeout returns when Advance must be called next: the zero time for at
// once. It reports false if nothing is due ever. It is to be asked after every
// other call, because sending a message makes something due.
func (e *Endpoint) NextTimeout() (time.Time, bool) { return time.Time{}, false }

// Connect asks the server at this address for a connection. EventConnected or
// EventClosed follows.
func (e *Endpoint) Connect(now time.Time, to netip.AddrPort) (*Conn, error) { return nil, nil }

// NewSource adds a network state that connections can be linked to.
func (e *Endpoint) NewSource(cfg SourceConfig) *Source { return nil }

// Conns returns the number of connections, including those that Connect is
// working on.
func (e *Endpoint) Conns() int { return 0 }

// All yields every connection, in an order that depends only on what happened
// before. Connections may be closed meanwhile.
func (e *Endpoint) All(yield func(*Conn) bool) {}

// Conn returns the connection with the peer at this address.
func (e *Endpoint) Conn(addr netip.AddrPort) (*Conn, bool) { return nil, false }

// Stats returns the counters, which go on counting.
func (e *Endpoint) Stats() *Stats { return &e.stats }

// Restore makes the connection that a snapshot describes, with the peer at addr.
// resolve finds the Source with a SourceConfig.Ref; nil takes that link down. The
// peer is sent all values of its links anew, and what was in flight.
// The error is ErrSnapshot, ErrConnected or ErrConns.
func (e *Endpoint) Restore(now time.Time, addr netip.AddrPort, snapshot []byte, resolve func(ref uint64) *Source) (*Conn, error) {
	return nil, nil
}
