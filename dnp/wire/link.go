package wire

import (
	"encoding/binary"
)

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
	m, err := ParseLinkUp(p) // which has the same fields
	return LinkDown(m), err
}

// LinkReadOnly is the only value of the flags that makes a link read-only: all
// implementations compare the byte with 1, so 3 is read-write.
const LinkReadOnly = 1

// A LinkState offers a link to a state, with the state's values:
//
//	command uint8 = 5
//	number  uint16
//	link    uint16
//	flags   uint8    1 read-only
//	length  uint16
//	message uint8 × length
//	count   uint16
//	values  {type uint8, data} × count
type LinkState struct {
	Seq      Seq
	Link     LinkID
	ReadOnly bool
	Message  []byte
	Values   Values
}

// AppendLinkStateHead appends a LinkState up to and including its count. The
// caller appends count values with [AppendTypedValue].
func AppendLinkStateHead(b []byte, m LinkState, count int) []byte {
	flags := byte(0)
	if m.ReadOnly {
		flags = LinkReadOnly
	}
	b = append(b, byte(CommandReliableLinkState))
	b = binary.LittleEndian.AppendUint16(b, uint16(m.Seq))
	b = binary.LittleEndian.AppendUint16(b, uint16(m.Link))
	b = append(b, flags)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(m.Message)))
	b = append(b, m.Message...)
	return binary.LittleEndian.AppendUint16(b, uint16(count))
}

// AppendTypedValue appends the type byte and the encoded value.
func AppendTypedValue(b []byte, t ValueType, value []byte) []byte {
	return append(append(b, byte(t)), value...)
}

// Append appends the datagram to b.
func (m LinkState) Append(b []byte) []byte {
	b = AppendLinkStateHead(b, m, m.Values.n)
	return append(b, m.Values.p...)
}

// ParseLinkState parses a LinkState after its command byte. Without an error, all
// values are valid.
func ParseLinkState(p []byte) (LinkState, error) {
	r := NewReader(p)
	m := LinkState{Seq: Seq(r.Uint16()), Link: LinkID(r.Uint16()), ReadOnly: r.Uint8() == LinkReadOnly}
	m.Message = r.Bytes(int(r.Uint16()))
	m.Values = readValues(&r)
	return m, r.Err()
}

// LinkStateFlags mark the parts of a LinkStateLong.
type LinkStateFlags uint8

const (
	LinkStateReadOnly LinkStateFlags = 1
	LinkStateFirst    LinkStateFlags = 2
	LinkStateLast     LinkStateFlags = 4
)

// A LinkStateLong carries one part of a long LinkState, in profile denetwork:
//
//	command uint8 = 11
//	number  uint16
//	link    uint16
//	flags   uint8    1 read-only, 2 first, 4 last
//	length  uint16
//	message uint8 × length   a part of the message
//	values  *                a part of count and values as in LinkState
//
// No implementation sends it, and only the engine receives it as intended.
type LinkStateLong struct {
	Seq     Seq
	Link    LinkID
	Flags   LinkStateFlags
	Message []byte
	Values  []byte
}

// Append appends the datagram to b.
func (m LinkStateLong) Append(b []byte) []byte {
	b = append(b, byte(CommandReliableLinkStateLong))
	b = binary.LittleEndian.AppendUint16(b, uint16(m.Seq))
	b = binary.LittleEndian.AppendUint16(b, uint16(m.Link))
	b = append(b, byte(m.Flags))
	b = binary.LittleEndian.AppendUint16(b, uint16(len(m.Message)))
	return append(append(b, m.Message...), m.Values...)
}

// ParseLinkStateLong parses a LinkStateLong after its command byte.
func ParseLinkStateLong(p []byte) (LinkStateLong, error) {
	r := NewReader(p)
	m := LinkStateLong{Seq: Seq(r.Uint16()), Link: LinkID(r.Uint16()), Flags: LinkStateFlags(r.Uint8())}
	m.Message = r.Bytes(int(r.Uint16()))
	m.Values = r.Rest()
	return m, r.Err()
}
