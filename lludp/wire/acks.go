package wire

import "encoding/binary"

// AppendedMax is the most acknowledgements that are appended to a packet. The
// count is a byte; the reference viewer stops at 250.
const AppendedMax = 250

// Acks are the acknowledgements at the end of a packet. They are a set:
// implementations write them in different orders.
type Acks struct{ p []byte }

// Len returns the number of acknowledgements.
func (a Acks) Len() int { return len(a.p) / 4 }

// At returns the i-th one as it stands on the wire.
func (a Acks) At(i int) Seq { return Seq(binary.BigEndian.Uint32(a.p[4*i:])) }

// cutAcks takes the acknowledgements off the end of p. A packet must be left.
func cutAcks(p []byte) (a Acks, rest []byte, err error) {
	last := len(p) - 1
	begin := last - 4*int(p[last])
	if begin < PacketMin {
		return a, nil, ErrAcks
	}
	return Acks{p[begin:last:last]}, p[:begin:begin], nil
}

// AppendAcks adds as many of the acknowledgements to a packet without any as keep
// it within max bytes, and returns how many those were. The packet is one that
// begins at b[0].
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

// An AckList is the body of PacketAck, acknowledgements that found no packet to
// travel with:
//
//	count uint8
//	ids   count × uint32, little endian, unlike those appended to packets
type AckList struct{ p []byte }

// ParseAckList reads the body of PacketAck. Bytes behind it are ignored.
func ParseAckList(p []byte) (AckList, error) {
	if len(p) < 1 || len(p)-1 < 4*int(p[0]) {
		return AckList{}, ErrTruncated
	}
	return AckList{p[1 : 1+4*int(p[0])]}, nil
}

// Len returns the number of acknowledgements.
func (a AckList) Len() int { return len(a.p) / 4 }

// At returns the i-th one.
func (a AckList) At(i int) Seq { return Seq(binary.LittleEndian.Uint32(a.p[4*i:])) }

// AppendAckList appends the body of PacketAck; at most AckListMax are written.
func AppendAckList(b []byte, acks []Seq) []byte {
	acks = acks[:min(len(acks), AckListMax)]
	b = append(b, byte(len(acks)))
	for _, s := range acks {
		b = binary.LittleEndian.AppendUint32(b, uint32(s))
	}
	return b
}
