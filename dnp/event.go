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

	// EventClosed: the connection ended, or could not be made; Reason says why. It is
	// the last event of this Conn.
	EventClosed

	// EventMessage: Data is a message from the peer. Reliable ones have a Number.
	EventMessage

	// EventLinkOffered: the peer offers Link with the link message Data and the
	// initial Values. The owner answers with [Conn.Accept] or [Conn.Reject], at any time.
	EventLinkOffered

	// EventLinkUp: the peer has Link, which we offered: it sent LinkUp or a LinkUpdate. A link
	// that was only presumed up and that the peer turns out not to have is offered once more under
	// another id, and comes up with that one; there is no EventLinkDown between.
	EventLinkUp

	// EventLinkPresumed: the peer acknowledged the offer of Link and stayed silent for half a
	// second, so it is sent values. Either its LinkUp was lost, or it has no such link.
	// EventLinkUp follows if it shows that it has.
	EventLinkPresumed

	// EventLinkDown: the peer refused Link or took it down. The link no longer exists.
	EventLinkDown

	// EventUpdate: the peer wrote Update to Link, and was allowed to.
	EventUpdate

	// EventSent: the reliable message with this Token was sent for the first time,
	// as Number. Messages with token 0 cause no such event.
	EventSent

	// EventRecycle: nine tenths of the LinkIds of this connection are used up. The
	// peer cannot be told to start again, so the owner should close the connection at
	// a quiet moment; see [Endpoint.Traffic].
	EventRecycle

	// EventUsedUp: all LinkIds of this connection are used up, so it gets no more links.
	EventUsedUp

	// EventLap: the peer may keep commands that were sent three quarters of a lap ago, so the owner
	// should close the connection at a quiet moment; see [LapNear].
	EventLap

	// EventSuspect: more than 50 reliable commands with numbers outside the window
	// arrived within a second, as if somebody forged datagrams of the peer. At most
	// once a minute.
	EventSuspect

	// EventAnswered: the datagram under way answers a question of [Conn.Ask].
	EventAnswered

	// EventUnanswered: the peer of a logged connection acknowledged nothing for half a second, or a second on a slow
	// path, although a command waits for it. It may be unreachable by the present way. Once, until the peer
	// acknowledges something.
	EventUnanswered

	// EventTooLarge: the peer turned out not to take messages of more than 1,357 bytes, so the
	// reliable message with this Token, which may be 0, is not sent. It had no number.
	EventTooLarge

	// EventWriteEnded: the write with this Number has ended, all but the Refused of its values were applied or
	// overtaken. Values of updates whose Order is not below that of the event are not older. It comes
	// before the updates of its datagram.
	EventWriteEnded

	// EventUnstored: a logged connection has something to store; see journal.go.
	EventUnstored
)

// An Event is something that happened to a connection. Its byte slices alias the
// datagram or buffers of the Endpoint and are valid until the next Receive or
// Advance.
type Event struct {
	Kind     EventKind
	Conn     *Conn
	Link     wire.LinkID
	Source   *Source // EventLinkUp, EventLinkPresumed, EventUpdate, EventLinkDown (nil if the peer's offer was not accepted)
	ReadOnly bool    // EventLinkOffered: the peer does not accept writes
	Reliable bool    // EventMessage

	// Number counts the peer's reliable commands (EventMessage) or ours
	// (EventSent) and never wraps. A message that was sent in parts has the number
	// of the last one. Of EventUpdate and EventWriteEnded it is that of the write; 0 for none.
	Number uint64

	Order   wire.Order          // EventUpdate, EventWriteEnded: of the datagram
	Refused []wire.RefusedValue // EventWriteEnded

	Token  uint64
	Data   []byte
	Values wire.Values
	Update Update
	Reason CloseReason
}

// An Update holds the values that one LinkUpdate has for one link. All of them have
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
	CloseLocal      CloseReason = iota // the owner ended it
	ClosePeer                          // the peer sent ConnectionClose
	CloseTimeout                       // a reliable command stayed unacknowledged, or Connect got no answer
	CloseRestarted                     // the peer asks for a new connection
	CloseRejected                      // Connect: the server rejects us
	CloseNoProtocol                    // Connect: the server knows no protocol that we know
	CloseSlow                          // the reliable backlog was full
	CloseHole                          // the peer skipped a reliable number for good, and later ones were acknowledged
	CloseTooLarge                      // the peer sent a message beyond LongMax
	CloseDrain                         // given by owners: the owner shuts down
	CloseKicked                        // given by owners: a game server expels the client
	CloseMoved                         // given by owners: the session goes on elsewhere; the peer is told nothing
	CloseUncertain                     // the peer contradicts the log
	CloseExpired                       // given by owners: the peer's permission ended
	CloseReplaced                      // given by owners: the same client connected once more
	CloseRecycle                       // the LinkIds or the numbers are used up, or nearly; a new connection has all of them
	CloseStuck                         // a reliable command stayed unacknowledged, although later ones were not

	numCloseReasons = iota
)

var closeNames = [...]string{
	CloseLocal: "local", ClosePeer: "peer", CloseTimeout: "timeout",
	CloseRestarted: "restarted", CloseRejected: "rejected", CloseNoProtocol: "no_protocol",
	CloseSlow: "slow", CloseHole: "hole", CloseTooLarge: "too_large",
	CloseDrain: "drain", CloseKicked: "kicked", CloseMoved: "moved", CloseUncertain: "uncertain",
	CloseExpired: "expired", CloseReplaced: "replaced", CloseRecycle: "recycle", CloseStuck: "stuck",
}

// String returns the name of r in metrics and logs.
func (r CloseReason) String() string { return closeNames[r] }

// A DropReason says why a datagram, or a part of one, was ignored, or what a bound
// cost. Input from the network never causes anything louder than such a counter.
type DropReason uint8

const (
	DropEmpty          DropReason = iota // a datagram without a byte
	DropUnknownCommand                   // a command code outside the profile
	DropTruncated                        // a command that ended inside a field, or an empty message
	DropBadValue                         // a value type, index or kind that the link does not have
	DropStranger                         // not a request, from an address without connection
	DropNotListening                     // a connection request, but we do not listen
	DropUnproven                         // from an unproven address and no proof; a probe without answer, or too large to send
	DropEvicted                          // an unproven peer, evicted by a newer one
	DropRefused                          // a connection request, answered with "rejected" or "no common protocol"
	DropUnexpected                       // a command that has no meaning in this state, such as a late request
	DropOutsideWindow                    // a reliable number too far ahead or behind
	DropEarlyFull                        // a reliable command before its turn, beyond 32 KiB; the peer repeats it
	DropUnfinished                       // a reliable command, or parts of a long message, whose predecessor or rest did not come
	DropRepeat                           // a reliable command received before; it was acknowledged again
	DropUnknownAck                       // acknowledges nothing that is in flight
	DropHastyResend                      // "resend at once" too soon after the last sending
	DropUnknownLink                      // names no link; the rest of a LinkUpdate is dropped with it
	DropLinkNotUp                        // LinkUpdate of a link that is not up
	DropReadOnly                         // LinkUpdate of a link that the peer may not write; it is corrected
	DropCorrection                       // such a correction, or a part of it, that the bounds left to the scrub
	DropLinkTaken                        // an offer of a LinkId that is in use
	DropLinksFull                        // an offer beyond PeerLinksMax, answered with LinkDown
	DropTooManyValues                    // an offer beyond PeerValuesMax, answered with LinkDown
	DropTooLarge                         // a message beyond LongMax; the connection was closed
	DropHoldsFull                        // a client's write beyond the 4,096 or 64 KiB that are held; its value may be sent back to the client
	DropDownsFull                        // a LinkDown that was sent without repeats
	DropCatchUpsFull                     // repeats of values to a link that was behind, left to the scrub
	DropLaneFull                         // our unreliable message: too many waited for the next Advance
	DropAcksFull                         // an acknowledgement of a write beyond those that wait for a Flush; the client repeats the write
	DropBudget                           // our unreliable message to a peer whose budget was overdrawn
	DropOversize                         // our values that no datagram can carry
	DropBadRequest                       // a connection request whose length differs from what it says
	DropAddressRate                      // a request or login beyond the rate of one address
	DropNetworkRate                      // a request or login beyond the rate of one network
	DropConnectRate                      // a request or login beyond the rate of all together
	DropLate                             // a login or the answer to a hello, right after a session of its address ended
	DropRate                             // from a connection that sends more than it may
	DropLoginWaits                       // a login that could not be judged yet; the peer repeats it
	DropLoginRefused                     // a login that was answered with ConnectionClose
	DropLoginTimeout                     // a peer that sent no login in time, and was told with ConnectionClose
	DropClosesFull                       // a ConnectionClose that was sent without repeats
	DropAdmitWaits                       // a connection request that could not be judged yet; the peer repeats it

	NumDropReasons = int(iota)
)

var dropNames = [...]string{
	DropEmpty: "empty", DropUnknownCommand: "unknown_command", DropTruncated: "truncated", DropBadValue: "bad_value",
	DropStranger: "stranger", DropNotListening: "not_listening", DropUnproven: "unproven", DropEvicted: "evicted",
	DropRefused: "refused", DropUnexpected: "unexpected", DropOutsideWindow: "outside_window", DropEarlyFull: "early_full", DropRepeat: "repeat",
	DropUnfinished: "unfinished",
	DropUnknownAck: "unknown_ack", DropHastyResend: "hasty_resend", DropUnknownLink: "unknown_link",
	DropLinkNotUp: "link_not_up", DropReadOnly: "read_only", DropCorrection: "correction", DropLinkTaken: "link_taken", DropLinksFull: "links_full",
	DropTooManyValues: "too_many_values", DropTooLarge: "too_large", DropHoldsFull: "holds_full",
	DropDownsFull: "downs_full", DropCatchUpsFull: "catch_ups_full", DropLaneFull: "lane_full", DropAcksFull: "acks_full", DropBudget: "budget",
	DropOversize: "oversize", DropBadRequest: "bad_request", DropAddressRate: "address_rate", DropNetworkRate: "network_rate",
	DropConnectRate: "connect_rate", DropLate: "late", DropRate: "session_rate",
	DropLoginWaits: "login_waits", DropLoginRefused: "login_refused", DropLoginTimeout: "login_timeout",
	DropAdmitWaits: "admit_waits", DropClosesFull: "closes_full",
}

// String returns the name of r in metrics.
func (r DropReason) String() string { return dropNames[r] }

// Stats counts what an Endpoint did since it was made. The owner of the Endpoint
// reads it. The counters are never reset.
type Stats struct {
	DatagramsIn, BytesIn   uint64
	DatagramsOut, BytesOut uint64
	UpdatesIn              uint64 // links in LinkUpdates received and passed on
	UpdatesOut             uint64 // links in LinkUpdates sent
	Deferred               uint64 // links that began to wait for the budget of their connection
	Resends                uint64 // reliable commands sent again
	Crowded                uint64 // times that a connection lowered its rate, because datagrams wait on the path
	AckRepeats             uint64 // acknowledgements sent again because the path loses some
	Refreshes              uint64 // Sources whose values became due again because they stopped changing
	Scrubs                 uint64 // links whose values became due again by the scrub or a catch-up
	Inferred               uint64 // commands taken as delivered by the window-edge inference
	Silent                 int64  // links to Silent sources at present
	Connects               uint64 // EventConnected
	Stateless              uint64 // requests answered without a slot in the table of unproven peers
	Alarms                 uint64 // EventSuspect
	Closes                 [numCloseReasons]uint64
	Drops                  [NumDropReasons]uint64
}
