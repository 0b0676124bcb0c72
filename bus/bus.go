package bus

import (
	"errors"
	"time"
)

// Errors of Bus that callers tell apart.
var (
	// ErrNoResponders says that nobody was subscribed to a request's subject.
	ErrNoResponders = errors.New("no responders")
	// ErrTimeout says that no answer came in time. The request may have been
	// received and obeyed all the same.
	ErrTimeout = errors.New("no answer in time")
	// ErrDisconnected says that the message was dropped because there is no
	// connection to the bus.
	ErrDisconnected = errors.New("not connected to the bus")
	// ErrBusClosed says that the bus was closed by its owner.
	ErrClosed = errors.New("the bus is closed")
	// ErrBusBusy says that the message was dropped because the outgoing queue
	// is full.
	ErrBusy = errors.New("the outgoing queue of the bus is full")
	// ErrMessageSize says that the message is larger than the bus carries.
	ErrMessageSize = errors.New("the message is larger than the bus carries")
)

// Headers that the bus itself gives a meaning. They are those of NATS.
const (
	// HeaderStatus with the value StatusNoResponders marks the empty message
	// that arrives at a reply subject when nobody listens to the request's.
	HeaderStatus       = "Status"
	StatusNoResponders = "503"
)

// A Msg is one message on the bus.
type Msg struct {
	Subject string
	Reply   string            // where answers go; empty if none is wanted
	Header  map[string]string // nil if there is none; it costs far more than the same bytes in Data
	Data    []byte
}

// NoResponders reports whether m is the bus's word that nobody is subscribed to
// the subject of a message that wanted an answer.
func (m *Msg) NoResponders() bool {
	return len(m.Data) == 0 && m.Header[HeaderStatus] == StatusNoResponders
}

// A Bus carries messages between the nodes of a cluster. It is what the shells
// drive; the packages that hold the rules never see it.
//
// A message arrives at most once. Messages of one publisher arrive at one
// subscription in the order in which they were published. Whoever cannot bear
// a loss numbers its messages and asks for what is missing.
//
// All methods may be called from any goroutine. No method blocks on the network.
type Bus interface {
	// Publish sends m to all that are subscribed to its subject, this node
	// included. Data and Header belong to the bus from then on and must not be
	// changed. An error means that the message was dropped, and was counted; no
	// error does not mean that anybody has it.
	Publish(m Msg) error

	// Subscribe calls handle for each message whose subject matches, which may
	// hold the wildcards of NATS: * for one token, a last > for one or more. The
	// calls for one subscription come one after the other. handle must not block,
	// because others wait in a bounded queue, whose overflow is dropped and
	// counted. It shares the message with others and must not change it, but may
	// keep it. After unsubscribe returns no new call begins, except for one that
	// was under way at that moment.
	Subscribe(subject string, handle func(Msg)) (unsubscribe func(), err error)

	// SubscribeShared is Subscribe for those who need thousands, with little to
	// hear each: all of them in a node share one queue and wait for each other, so
	// that one more costs no goroutine.
	SubscribeShared(subject string, handle func(Msg)) (unsubscribe func(), err error)

	// Request publishes m with a reply subject of its own and calls handle
	// exactly once: with the first answer, or with ErrNoResponders, ErrTimeout,
	// ErrBusClosed or an error of Publish. The call may come before Request
	// returns, and from any goroutine.
	Request(m Msg, timeout time.Duration, handle func(Msg, error))

	// Connected reports whether messages reach the bus.
	Connected() bool

	// OnChange calls f each time Connected changes. What was sent by others in
	// between is lost, so f is the moment to ask for it. f must not block.
	OnChange(f func(connected bool))
}
