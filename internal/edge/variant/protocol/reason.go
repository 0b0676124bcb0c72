package protocol

import "strings"

// A Reason says why an edge ends a connection. The client gets the word.
type Reason string

// The reasons. INTERFACES.md says what a client does about each.
const (
	Over      Reason = "over"      // the session ended, for example because the game ended it or the client logged in elsewhere
	Leaving   Reason = "leaving"   // the edge leaves, or lost the connection inside
	Refused   Reason = "refused"   // the login
	Full      Reason = "full"      // the edge has as many clients as it may
	TooMany   Reason = "too many"  // the client's network has as many as it may, or makes them too fast
	NotReady  Reason = "not ready" // the edge takes no clients now
	Silent    Reason = "silent"    // nothing was heard of the client
	Slow      Reason = "slow"      // the client does not take what it has to get
	Malformed Reason = "malformed" // the client broke the rules
	Version   Reason = "version"   // the edge does not speak the version that the client wants
	Gone      Reason = "gone"      // the client said bye, or closed the connection; it is told nothing
)

// Reasons are all reasons.
var Reasons = []Reason{Over, Leaving, Refused, Full, TooMany, NotReady, Silent, Slow, Malformed, Version, Gone}

// Name returns the name of r in metrics.
func (r Reason) Name() string { return strings.ReplaceAll(string(r), " ", "_") }

// Again reports whether the client may come again, a second later.
func (r Reason) Again() bool {
	switch r {
	case Leaving, Full, TooMany, NotReady, Silent, Slow:
		return true
	}
	return false
}

// A Drop is a kind of input or output that was dropped.
type Drop uint8

const (
	DropRate         Drop = iota // more from the client than it may send
	DropUnknownState             // a value for a state that the client does not have, or has no longer
	DropRefused                  // a value that does not fit, or is read-only
	DropStale                    // an unnumbered datagram that another one overtook
	DropRepeat                   // a numbered message that arrived before
	DropGap                      // a numbered message whose predecessor has not arrived
	DropBusy                     // a message that the edge cannot take yet; a numbered one comes again
	DropUnreliable               // an unreliable message to the client that did not fit

	NumDrops = int(iota)
)

// String returns the name of d in metrics.
func (d Drop) String() string {
	return [NumDrops]string{"rate", "unknown_state", "refused", "stale", "repeat", "gap", "busy", "unreliable"}[d]
}

// Counts are what a Core and its carrier counted.
type Counts struct {
	In, Out uint64 // messages
	Values  uint64 // to the client
	Repeats uint64 // numbered messages that were sent again
	Drops   [NumDrops]uint64
}
