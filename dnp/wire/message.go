package wire

import (
	"encoding/binary"
)

// AppendMessage appends an unreliable message:
//
//	command uint8 = 3
//	data    *
//
// Everything after the command byte is the message, so there is nothing to parse.
// An empty message must not be sent: Python raises and the engine throws.
func AppendMessage(b, data []byte) []byte {
	return append(append(b, byte(CommandMessage)), data...)
}

// A ReliableMessage carries a message that is delivered once and in order:
//
//	command uint8 = 4
//	number  uint16
//	data    *
type ReliableMessage struct {
	Seq  Seq
	Data []byte
}

// Append appends the datagram to b.
func (m ReliableMessage) Append(b []byte) []byte {
	b = append(b, byte(CommandReliableMessage))
	b = binary.LittleEndian.AppendUint16(b, uint16(m.Seq))
	return append(b, m.Data...)
}

// ParseReliableMessage parses a ReliableMessage after its command byte.
func ParseReliableMessage(p []byte) (ReliableMessage, error) {
	r := NewReader(p)
	m := ReliableMessage{Seq: Seq(r.Uint16()), Data: r.Rest()}
	return m, r.Err()
}

// PartFlags mark the first and the last part of a long message.
type PartFlags uint8

const (
	PartFirst PartFlags = 1
	PartLast  PartFlags = 2
)

// A ReliableMessageLong carries one part of a long message, in profile
// denetwork. The parts of a message have consecutive numbers:
//
//	command uint8 = 10
//	number  uint16
//	flags   uint8   1 first, 2 last
//	data    *
//
// Without flags and data, while no long message is open, it is acknowledged and
// has no other effect in any library: an invisible probe.
type ReliableMessageLong struct {
	Seq   Seq
	Flags PartFlags
	Data  []byte
}

// Append appends the datagram to b.
func (m ReliableMessageLong) Append(b []byte) []byte {
	b = append(b, byte(CommandReliableMessageLong))
	b = binary.LittleEndian.AppendUint16(b, uint16(m.Seq))
	return append(append(b, byte(m.Flags)), m.Data...)
}

// ParseReliableMessageLong parses a ReliableMessageLong after its command byte.
func ParseReliableMessageLong(p []byte) (ReliableMessageLong, error) {
	r := NewReader(p)
	m := ReliableMessageLong{Seq: Seq(r.Uint16()), Flags: PartFlags(r.Uint8()), Data: r.Rest()}
	return m, r.Err()
}

// An AckCode says how a reliable message was received.
type AckCode uint8

const (
	AckSuccess AckCode = 0 // received
	AckFailed  AckCode = 1 // invalid; the sender resends
)

// A ReliableAck acknowledges one reliable message:
//
//	command uint8 = 6
//	number  uint16
//	code    uint8
type ReliableAck struct {
	Seq  Seq
	Code AckCode
}

// Append appends the datagram to b.
func (m ReliableAck) Append(b []byte) []byte {
	b = append(b, byte(CommandReliableAck))
	b = binary.LittleEndian.AppendUint16(b, uint16(m.Seq))
	return append(b, byte(m.Code))
}

// ParseReliableAck parses a ReliableAck after its command byte.
func ParseReliableAck(p []byte) (ReliableAck, error) {
	r := NewReader(p)
	m := ReliableAck{Seq: Seq(r.Uint16()), Code: AckCode(r.Uint8())}
	return m, r.Err()
}
