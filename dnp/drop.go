package dnp

// A DropReason says why a datagram, or a part of one, was ignored, or what a
// bound cost. Input from the network never causes anything louder than such a
// counter.
type DropReason uint8

const (
	DropEmpty          DropReason = iota // a datagram without a byte
	DropUnknownCommand                   // a command code outside the profile
	DropTruncated                        // a command that ended inside a field, or an empty message
	DropBadValue                         // a value type, index or kind that the link does not have
	DropStranger                         // not a request, from an address without connection
	DropNotListening                     // a connection request, but we do not listen
	DropUnproven                         // from an unproven address, and no proof
	DropEvicted                          // unproven peers pushed out by newer ones
	DropRefused                          // connection requests answered with "rejected" or "no common protocol"
	DropUnexpected                       // a command that has no meaning in this state, such as a late request
	DropOutsideWindow                    // a reliable number too far ahead or behind
	DropRepeat                           // a reliable command received before; it was acknowledged again
	DropUnknownAck                       // acknowledges nothing that is in flight
	DropHastyResend                      // "resend at once" too soon after the last sending
	DropUnknownLink                      // names no link; the rest of a LinkUpdate goes with it
	DropLinkNotUp                        // LinkUpdate of a link that is not up
	DropReadOnly                         // LinkUpdate of a link that the peer may not write
	DropLinkTaken                        // offers a LinkId that is in use
	DropLinksFull                        // offers beyond PeerLinksMax, answered with LinkDown
	DropTooManyValues                    // offers beyond PeerValuesMax, answered with LinkDown
	DropTooLarge                         // a message beyond LongMax; the connection was closed
	DropHoldsFull                        // client writes beyond HoldsMax; they may be sent back to the writer
	DropDownsFull                        // LinkDowns that were sent without repeats
	DropCatchUpsFull                     // repeats of values to a link that was behind, left to the scrub
	DropLaneFull                         // our unreliable messages that did not fit before the next Advance
	DropBudget                           // our unreliable messages to a peer whose budget was overdrawn
	DropOversize                         // our values that no datagram can carry
	DropBadRequest                       // a connection request whose length is not what it says
	DropAddressRate                      // requests and logins beyond what one address may
	DropNetworkRate                      // beyond what one network may
	DropConnectRate                      // beyond what all together may
	DropLate                             // a login that arrived after the session it began had ended
	DropBanned                           // from an address that was banned for flooding
	DropRate                             // from a connection that sends more than it may
	DropLoginWaits                       // a login that could not be judged yet; the peer repeats it
	DropLoginRefused                     // a login that was answered with ConnectionClose

	NumDropReasons = int(iota)
)

var dropNames = [...]string{
	DropEmpty: "empty", DropUnknownCommand: "unknown_command", DropTruncated: "truncated", DropBadValue: "bad_value",
	DropStranger: "stranger", DropNotListening: "not_listening", DropUnproven: "unproven", DropEvicted: "evicted",
	DropRefused: "refused", DropUnexpected: "unexpected", DropOutsideWindow: "outside_window", DropRepeat: "repeat",
	DropUnknownAck: "unknown_ack", DropHastyResend: "hasty_resend", DropUnknownLink: "unknown_link",
	DropLinkNotUp: "link_not_up", DropReadOnly: "read_only", DropLinkTaken: "link_taken", DropLinksFull: "links_full",
	DropTooManyValues: "too_many_values", DropTooLarge: "too_large", DropHoldsFull: "holds_full",
	DropDownsFull: "downs_full", DropCatchUpsFull: "catch_ups_full", DropLaneFull: "lane_full", DropBudget: "budget",
	DropOversize: "oversize", DropBadRequest: "bad_request", DropAddressRate: "address_rate", DropNetworkRate: "network_rate",
	DropConnectRate: "connect_rate", DropLate: "late", DropBanned: "banned", DropRate: "session_rate",
	DropLoginWaits: "login_waits", DropLoginRefused: "login_refused",
}

// String returns the name of r as metrics show it.
func (r DropReason) String() string {
	if int(r) < len(dropNames) {
		return dropNames[r]
	}
	return "drop?"
}

// Stats counts what an Endpoint did since it was made. The owner of the Endpoint
// reads it; nobody resets it.
type Stats struct {
	DatagramsIn, BytesIn   uint64
	DatagramsOut, BytesOut uint64
	UpdatesIn              uint64 // links in LinkUpdates received and passed on
	UpdatesOut             uint64 // links in LinkUpdates sent
	Deferred               uint64 // links that began to wait for the budget of their connection
	Resends                uint64 // reliable commands sent again
	Refreshes              uint64 // Sources whose values were made due again because they went quiet
	Scrubs                 uint64 // links whose values were made due again by the scrub or a catch-up
	Inferred               uint64 // commands taken as delivered by the window-edge inference
	Connects               uint64 // EventConnected
	Stateless              uint64 // requests answered without keeping anything
	Alarms                 uint64 // EventSuspect
	Closes                 [numCloseReasons]uint64
	Drops                  [NumDropReasons]uint64
}
