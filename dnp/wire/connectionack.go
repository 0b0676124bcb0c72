package wire

import "encoding/binary"

// An AckResult is the answer to a connection request.
type AckResult uint8

const (
	Accepted         AckResult = 0
	Rejected         AckResult = 1 // busy, full or restricted
	NoCommonProtocol AckResult = 2 // no protocol that both speak
)

// A ConnectionAck answers a connection request:
//
//	command  uint8 = 1
//	result   uint8
//	protocol uint16   only if result is 0
//
// Results above 2 hang the Java and Python libraries, so they are not sent.
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

// ParseConnectionAck parses a ConnectionAck after its command byte. An unknown
// result is to be treated as Rejected.
func ParseConnectionAck(p []byte) (ConnectionAck, error) {
	r := NewReader(p)
	m := ConnectionAck{Result: AckResult(r.Uint8())}
	if m.Result == Accepted {
		m.Protocol = r.Uint16()
	}
	return m, r.Err()
}
