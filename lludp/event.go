package lludp

import "github.com/dnprelay/dnprelay/lludp/wire"

// An EventKind says what happened.
type EventKind uint8

const (
	EventPacket    EventKind = iota + 1 // a packet arrived
	EventDelivered                      // the reliable message with Token was acknowledged
	EventLost                           // the reliable message with Token was given up
	EventClosed                         // the circuit ended; packets in flight get no event of their own
)

// An Event reports to the owner of a circuit. It is valid until the next Receive or Advance.
type Event struct {
	Kind   EventKind
	Packet wire.Packet // its slices alias the datagram, or the scratch
	Token  uint64
	Reason Reason
}

// A Reason says why a circuit ended.
type Reason uint8

const (
	ClosedByPeer Reason = iota + 1
	ClosedByOwner
	ClosedByTimeout // the peer was silent
)

// A DropReason says why a datagram, or a part of one, was ignored, or which bound took effect.
// Input from the network is counted by reason, and never logged.
type DropReason uint8

const (
	DropTruncated   DropReason = iota // the datagram ends inside a field
	DropTooLarge                      // more than wire.ReceiveMax
	DropAcks                          // more appended acknowledgements than the packet has room for
	DropExpansion                     // zero-coding beyond wire.ExpandedMax
	DropNumber                        // message number 0
	DropClosed                        // the circuit had ended
	DropRepeat                        // a reliable packet received before; it was acknowledged again
	DropDuplicate                     // an unreliable packet received before
	DropUnknownAck                    // acknowledges no packet in flight
	DropUnknownPing                   // answers no ping in flight
	DropBacklog                       // a reliable message that found no room in the window

	NumDropReasons = int(iota)
)

var dropNames = [...]string{
	DropTruncated: "truncated", DropTooLarge: "too_large", DropAcks: "acks", DropExpansion: "expansion",
	DropNumber: "number", DropClosed: "closed", DropRepeat: "repeat", DropDuplicate: "duplicate",
	DropUnknownAck: "unknown_ack", DropUnknownPing: "unknown_ping", DropBacklog: "backlog",
}

// String returns the name of r in metrics.
func (r DropReason) String() string {
	if int(r) < len(dropNames) {
		return dropNames[r]
	}
	return "drop?"
}

// parseReason returns the reason for an error of the parser.
func parseReason(err error) DropReason {
	switch err {
	case wire.ErrTooLarge:
		return DropTooLarge
	case wire.ErrAcks:
		return DropAcks
	case wire.ErrExpansion:
		return DropExpansion
	case wire.ErrNumber:
		return DropNumber
	}
	return DropTruncated
}

// Stats are the counters of a Circuit.
type Stats struct {
	PacketsIn, BytesIn   uint64
	PacketsOut, BytesOut uint64
	Resends              uint64 // reliable packets sent again
	Delivered            uint64 // reliable packets that were acknowledged
	Lost                 uint64 // reliable packets that were given up
	AcksAppended         uint64
	AcksAlone            uint64 // acknowledgements in PacketAck messages
	Drops                [NumDropReasons]uint64
}
