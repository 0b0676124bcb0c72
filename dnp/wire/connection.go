package wire

import (
	"encoding/binary"
)

// ProtocolDNP1 is the only protocol that exists.
const ProtocolDNP1 = 0

// A ConnectionRequest asks for a connection:
//
//	command   uint8 = 0
//	count     uint16
//	protocols uint16 × count
//
// In practice it is always 00 0100 0000.
type ConnectionRequest struct {
	protocols []byte // count × uint16
}

// AppendConnectionRequest appends the request that every client sends.
func AppendConnectionRequest(b []byte) []byte {
	return append(b, byte(CommandConnectionRequest), 1, 0, ProtocolDNP1, 0)
}

// Offers reports whether the request names protocol.
func (m ConnectionRequest) Offers(protocol uint16) bool {
	for p := m.protocols; len(p) >= 2; p = p[2:] {
		if binary.LittleEndian.Uint16(p) == protocol {
			return true
		}
	}
	return false
}

// ParseConnectionRequest parses a ConnectionRequest after its command byte.
func ParseConnectionRequest(p []byte) (ConnectionRequest, error) {
	r := NewReader(p)
	n := int(r.Uint16())
	m := ConnectionRequest{protocols: r.Bytes(2 * n)}
	return m, r.Err()
}

// An AckResult is the answer to a connection request.
type AckResult uint8

const (
	Accepted         AckResult = 0
	Rejected         AckResult = 1 // busy, full or restricted
	NoCommonProtocol AckResult = 2 // the peers have no protocol in common
)

// A ConnectionAck answers a connection request:
//
//	command  uint8 = 1
//	result   uint8
//	protocol uint16   only if result is 0
//
// Results above 2 hang the Java and Python libraries, so they must not be sent.
type ConnectionAck struct {
	Result   AckResult
	Protocol uint16
}

// Append appends the datagram to b.
func (m ConnectionAck) Append(b []byte) []byte {
	b = append(b, byte(CommandConnectionAck), byte(m.Result))
	if m.Result != Accepted {
		return b
	}
	return binary.LittleEndian.AppendUint16(b, m.Protocol)
}

// ParseConnectionAck parses a ConnectionAck after its command byte. The caller treats
// an unknown result as Rejected.
func ParseConnectionAck(p []byte) (ConnectionAck, error) {
	r := NewReader(p)
	m := ConnectionAck{Result: AckResult(r.Uint8())}
	if m.Result == Accepted {
		m.Protocol = r.Uint16()
	}
	return m, r.Err()
}

// AppendConnectionClose appends a ConnectionClose, which has no fields:
//
//	command uint8 = 2
func AppendConnectionClose(b []byte) []byte { return append(b, byte(CommandConnectionClose)) }
