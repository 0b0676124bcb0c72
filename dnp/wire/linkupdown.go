package wire

import "encoding/binary"

// A LinkID names a link within its connection.
type LinkID uint16

// A LinkUp tells the peer that the state it asked to link is linked:
//
//	command uint8 = 7
//	link    uint16
type LinkUp struct{ Link LinkID }

// Append appends the datagram to b.
func (m LinkUp) Append(b []byte) []byte {
	b = append(b, byte(CommandLinkUp))
	return binary.LittleEndian.AppendUint16(b, uint16(m.Link))
}

// ParseLinkUp parses a LinkUp after its command byte.
func ParseLinkUp(p []byte) (LinkUp, error) {
	r := NewReader(p)
	m := LinkUp{Link: LinkID(r.Uint16())}
	return m, r.Err()
}

// A LinkDown refuses a link or takes it down:
//
//	command uint8 = 8
//	link    uint16
type LinkDown struct{ Link LinkID }

// Append appends the datagram to b.
func (m LinkDown) Append(b []byte) []byte {
	b = append(b, byte(CommandLinkDown))
	return binary.LittleEndian.AppendUint16(b, uint16(m.Link))
}

// ParseLinkDown parses a LinkDown after its command byte.
func ParseLinkDown(p []byte) (LinkDown, error) {
	r := NewReader(p)
	m := LinkDown{Link: LinkID(r.Uint16())}
	return m, r.Err()
}
