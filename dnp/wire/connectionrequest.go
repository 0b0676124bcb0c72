package wire

import "encoding/binary"

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
