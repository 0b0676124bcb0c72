package forward

// A DropReason says why a datagram went nowhere.
type DropReason uint8

// The reasons. Up to DropReplay what came did not prove that a peer sent it.
const (
	DropOff           DropReason = iota // no keys
	DropMalformed                       // no cluster datagram, or one that nobody writes
	DropVersion                         // of another version
	DropUnknownSender                   // no process that the roster has or had lately
	DropUnknownKey                      // sealed with a key that is not in the ring
	DropBadSeal                         // forged, damaged, or for another receiver
	DropReplay                          // came before, or is too late to tell
	DropHops                            // would be forwarded a third time
	DropStaleEpoch                      // an answer of a session that another edge has adopted
	DropNoPeer                          // for an edge that is not known, or not heard
	DropTooLarge                        // more than can be sealed
	DropAddress                         // of a client whose address means nothing to other edges

	NumDropReasons
	dropNone = NumDropReasons
)

var dropNames = [NumDropReasons]string{
	"off", "malformed", "version", "unknown_sender", "unknown_key", "bad_seal", "replay", "hops", "stale_epoch", "no_peer", "too_large", "address",
}

// String returns the name of r in metrics.
func (r DropReason) String() string {
	if r < NumDropReasons {
		return dropNames[r]
	}
	return "unknown"
}

// Stats are what a Router counts.
type Stats struct {
	Peers, Suspects, Routes int64 // now

	In       uint64 // datagrams of clients, sealed for the edge that serves them
	Out      uint64 // answers, sealed for the edge that the client knows
	Owner    uint64 // datagrams that came for a client of this edge
	Client   uint64 // answers that came for a client to be sent from here
	Strays   uint64 // datagrams that came for a client that nobody is known to serve
	Relayed  uint64 // datagrams that came and were forwarded on
	NacksIn  uint64
	NacksOut uint64
	BeatsIn  uint64
	BeatsOut uint64

	RoutesForgotten uint64 // to make room
	Stalls          uint64 // times that this process stood still, so that nobody was suspected

	Drops [NumDropReasons]uint64
}
