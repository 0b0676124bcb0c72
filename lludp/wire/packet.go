package wire

import (
	"encoding/binary"

	"github.com/dnprelay/dnprelay/lludp/zerocode"
)

// A Scratch is where Parse expands a zero-coded packet. One serves all circuits of
// an owner, because what Parse returns is used up before the next packet.
type Scratch [ExpandedMax - HeaderSize]byte

// A Packet is one datagram:
//
//	flags    uint8
//	sequence uint32
//	n        uint8
//	extra    n bytes   of no known meaning; part of what is zero-coded
//	number   1, 2 or 4 bytes
//	body
//	acks     count × uint32, and count uint8, if FlagAcks; never zero-coded
type Packet struct {
	Flags  Flags
	Seq    Seq
	Extra  []byte // never written
	Number Number
	Body   []byte
	Acks   Acks
}

// Parse reads a packet of at most ReceiveMax bytes. A zero-coded one is expanded
// into the scratch, which the result then aliases; FlagZeroCoded stays set.
func Parse(p []byte, scratch *Scratch) (m Packet, err error) {
	switch {
	case len(p) < PacketMin:
		return m, ErrTruncated
	case len(p) > ReceiveMax:
		return m, ErrTooLarge
	}
	m.Flags = Flags(p[0]) & flagsKnown
	m.Seq = Seq(binary.BigEndian.Uint32(p[1:]))
	extra := int(p[5])
	if m.Flags&FlagAcks != 0 {
		if m.Acks, p, err = cutAcks(p); err != nil {
			return Packet{}, err
		}
	}
	content := p[HeaderSize:]
	if m.Flags&FlagZeroCoded != 0 {
		if content, err = zerocode.AppendExpanded(scratch[:0], content, len(scratch)); err != nil {
			return Packet{}, ErrExpansion
		}
	}
	if len(content) < extra {
		return Packet{}, ErrTruncated
	}
	m.Extra, content = content[:extra:extra], content[extra:]
	if m.Number, m.Body, err = cutNumber(content); err != nil {
		return Packet{}, err
	}
	return m, nil
}

// Append appends the packet. If FlagZeroCoded is set but coding does not shrink
// number and body, the flag is cleared instead. FlagAcks goes by m.Acks.
func (m Packet) Append(b []byte) []byte {
	start := len(b)
	b = appendHeader(b, m.Flags&^FlagAcks, m.Seq)
	at := len(b)
	b = append(m.Number.Append(b), m.Body...)
	if m.Flags&FlagZeroCoded != 0 {
		end := len(b)
		coded, ok := zerocode.AppendShorter(b, b[at:])
		if ok {
			b = coded[:at+copy(coded[at:], coded[end:])]
		} else {
			b[start] &^= byte(FlagZeroCoded)
		}
	}
	if m.Acks.Len() > 0 {
		b[start] |= byte(FlagAcks)
		b = append(append(b, m.Acks.p...), byte(m.Acks.Len()))
	}
	return b
}
