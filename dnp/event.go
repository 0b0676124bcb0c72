package dnp

import (
	"github.com/dnprelay/dnprelay/dnp/netstate"
	"github.com/dnprelay/dnprelay/dnp/wire"
)

// An EventKind says what happened.
type EventKind uint8

const (
	// EventConnected: the peer accepted our request, or proved its address.
	EventConnected EventKind = iota + 1

	// EventClosed: the connection is over, or could not be made; Reason says why.
	// Nothing of this Conn follows.
	EventClosed

	// EventMessage: Data is a message from the peer. Reliable ones have a Number.
	EventMessage

	// EventLinkOffered: the peer offers Link with the link message Data and the
	// initial Values. Answer with [Conn.Accept] or [Conn.Reject], also later.
	EventLinkOffered

	// EventLinkUp: the peer accepted Link, which we offered, or is presumed to
	// have, because it acknowledged the offer and half a second went by.
	EventLinkUp

	// EventLinkDown: the peer refused or took down Link. It does not exist any more.
	EventLinkDown

	// EventUpdate: the peer wrote Update to Link, and was allowed to.
	EventUpdate

	// EventSent: the reliable message with this Token was sent for the first time,
	// as Number. Messages with token 0 have no such event.
	EventSent

	// EventRecycle: nine tenths of the LinkIds of this connection are used up. The
	// peer cannot be told to take new ones, so it should be closed at a quiet moment.
	EventRecycle

	// EventSuspect: so many reliable commands with numbers outside the window arrived
	// that somebody seems to forge datagrams of the peer. At most once a minute.
	EventSuspect

	// EventUnstored: a logged connection has something that is to be stored.
	EventUnstored
)

var eventNames = [...]string{
	EventConnected: "connected", EventClosed: "closed", EventMessage: "message",
	EventLinkOffered: "link offered", EventLinkUp: "link up", EventLinkDown: "link down",
	EventUpdate: "update", EventSent: "sent", EventRecycle: "recycle", EventSuspect: "suspect",
	EventUnstored: "unstored",
}

// String returns a name of k for people.
func (k EventKind) String() string {
	if k > 0 && int(k) < len(eventNames) {
		return eventNames[k]
	}
	return "event?"
}

// An Event is something that happened to a connection. Its byte slices alias the
// datagram or buffers of the Endpoint and are valid until the next Receive or
// Advance.
type Event struct {
	Kind     EventKind
	Conn     *Conn
	Link     wire.LinkID
	Source   *Source // EventLinkUp, EventUpdate, EventLinkDown (nil if the peer's offer was not accepted)
	ReadOnly bool    // EventLinkOffered: the offerer does not want writes
	Reliable bool    // EventMessage

	// Number counts the peer's reliable commands (EventMessage) or ours
	// (EventSent) and never wraps. A message that went in parts has the number of
	// the last one.
	Number uint64

	Token  uint64
	Data   []byte
	Values wire.Values
	Update Update
	Reason CloseReason
}

// An Update is the values that one LinkUpdate has for one link. All of them have
// been checked against the link's layout.
type Update struct {
	r      wire.UpdateReader
	layout *netstate.Layout
}

// Next returns the next value, which is valid as long as the event. It reports
// false after the last one.
func (u *Update) Next() (index int, value []byte, ok bool) {
	if u.layout == nil {
		return 0, nil, false
	}
	return u.r.NextValue(u.layout.Types())
}

// A CloseReason says why a connection ended.
type CloseReason uint8

const (
	CloseLocal      CloseReason = iota // the owner wanted it
	ClosePeer                          // the peer sent ConnectionClose
	CloseTimeout                       // a reliable command stayed unacknowledged, or no answer to Connect
	CloseIdle                          // nothing was heard for IdleTimeout
	CloseRestarted                     // the peer asks for a new connection
	CloseRejected                      // Connect: the server does not want us
	CloseNoProtocol                    // Connect: no protocol that both speak
	CloseSlow                          // the reliable backlog was full
	CloseHole                          // the peer skipped a reliable number for good
	CloseTooLarge                      // the peer sent a message beyond LongMax
	CloseAbuse                         // the owner found the peer to misbehave
	CloseDrain                         // the owner goes away
	CloseKicked                        // a game server does not want the client
	CloseMoved                         // the session lives on elsewhere; nothing is sent to the peer
	CloseUncertain                     // what the peer says contradicts the log
	CloseExpired                       // the peer's permission to be here ended
	CloseReplaced                      // the same client connected once more

	numCloseReasons = iota
)

var closeNames = [...]string{
	CloseLocal: "local", ClosePeer: "peer", CloseTimeout: "timeout", CloseIdle: "idle",
	CloseRestarted: "restarted", CloseRejected: "rejected", CloseNoProtocol: "no_protocol",
	CloseSlow: "slow", CloseHole: "hole", CloseTooLarge: "too_large", CloseAbuse: "abuse",
	CloseDrain: "drain", CloseKicked: "kicked", CloseMoved: "moved", CloseUncertain: "uncertain",
	CloseExpired: "expired", CloseReplaced: "replaced",
}

// String returns the name of r as metrics and events show it.
func (r CloseReason) String() string {
	if int(r) < len(closeNames) {
		return closeNames[r]
	}
	return "reason?"
}
