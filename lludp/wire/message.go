package wire

import (
	"encoding/binary"
)

// AppendedMax is the most acknowledgements appended to a packet. Their count is a byte; the
// reference viewer stops at 250.
const AppendedMax = 250

// Acks are the acknowledgements at the end of a packet, or in the body of PacketAck. They are
// a set: implementations write them in different orders.
type Acks struct {
	p     []byte
	order binary.ByteOrder
}

// Len returns the number of acknowledgements.
func (a Acks) Len() int { return len(a.p) / 4 }

// At returns the i-th one in the order on the wire.
func (a Acks) At(i int) Seq { return Seq(a.order.Uint32(a.p[4*i:])) }

// cutAcks removes the acknowledgements from the end of p. What is left must be a packet.
func cutAcks(p []byte) (a Acks, rest []byte, err error) {
	last := len(p) - 1
	begin := last - 4*int(p[last])
	if begin < PacketMin {
		return a, nil, ErrAcks
	}
	return Acks{p[begin:last:last], binary.BigEndian}, p[:begin:begin], nil
}

// AppendAcks adds acknowledgements to a packet that has none and begins at b[0]. It adds as
// many as keep the packet within max bytes, and returns their number.
func AppendAcks(b []byte, acks []Seq, max int) (_ []byte, n int) {
	n = min((max-len(b)-1)/4, len(acks), AppendedMax)
	if n <= 0 {
		return b, 0
	}
	b[0] |= byte(FlagAcks)
	for _, s := range acks[:n] {
		b = binary.BigEndian.AppendUint32(b, uint32(s))
	}
	return append(b, byte(n)), n
}

// AckListMax is the most acknowledgements of a PacketAck message.
const AckListMax = 255

// ParseAckList parses the body of PacketAck, with acknowledgements that no packet carried:
//
//	count uint8
//	ids   count × uint32, little endian, unlike those appended to packets
//
// It ignores bytes behind it.
func ParseAckList(p []byte) (Acks, error) {
	if len(p) < 1 || len(p)-1 < 4*int(p[0]) {
		return Acks{}, ErrTruncated
	}
	return Acks{p[1 : 1+4*int(p[0])], binary.LittleEndian}, nil
}

// AppendAckList appends the body of PacketAck, with at most AckListMax acknowledgements.
func AppendAckList(b []byte, acks []Seq) []byte {
	acks = acks[:min(len(acks), AckListMax)]
	b = append(b, byte(len(acks)))
	for _, s := range acks {
		b = binary.LittleEndian.AppendUint32(b, uint32(s))
	}
	return b
}

// A StartPing is the body of StartPingCheck. The receiver answers at once with a
// CompletePingCheck of the same id:
//
//	id     uint8
//	oldest uint32   sequence number of the oldest packet without an acknowledgement, or
//	                else of the newest packet
type StartPing struct {
	ID     uint8
	Oldest Seq
}

// Append appends the body to b.
func (m StartPing) Append(b []byte) []byte {
	return binary.LittleEndian.AppendUint32(append(b, m.ID), uint32(m.Oldest))
}

// ParseStartPing parses the body. It ignores bytes behind it.
func ParseStartPing(p []byte) (StartPing, error) {
	if len(p) < 5 {
		return StartPing{}, ErrTruncated
	}
	return StartPing{p[0], Seq(binary.LittleEndian.Uint32(p[1:]))}, nil
}

// A CompletePing is the body of CompletePingCheck:
//
//	id uint8
type CompletePing struct{ ID uint8 }

// Append appends the body to b.
func (m CompletePing) Append(b []byte) []byte { return append(b, m.ID) }

// ParseCompletePing parses the body. It ignores bytes behind it.
func ParseCompletePing(p []byte) (CompletePing, error) {
	if len(p) < 1 {
		return CompletePing{}, ErrTruncated
	}
	return CompletePing{p[0]}, nil
}

// A UUID is the 16 bytes of a UUID.
type UUID [16]byte

// An Opening is the body of UseCircuitCode, the only message that a server accepts from an
// unknown address:
//
//	code    uint32
//	session UUID
//	agent   UUID
//
// The login service hands out all three.
type Opening struct {
	Code           uint32
	Session, Agent UUID
}

// Append appends the body to b.
func (m Opening) Append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint32(b, m.Code)
	return append(append(b, m.Session[:]...), m.Agent[:]...)
}

// ParseOpening parses the body. It ignores bytes behind it.
func ParseOpening(p []byte) (m Opening, err error) {
	if len(p) < 36 {
		return m, ErrTruncated
	}
	m.Code = binary.LittleEndian.Uint32(p)
	copy(m.Session[:], p[4:])
	copy(m.Agent[:], p[20:])
	return m, nil
}
