package wire

import (
	"encoding/binary"
	"errors"

	"github.com/dnprelay/dnprelay/lludp/zerocode"
)

// Sizes in bytes.
const (
	HeaderSize  = 6    // flags, sequence, length of the extra bytes
	PacketMin   = 7    // a header and the shortest message number
	PacketMax   = 1200 // largest sent packet; the reference viewer packs to it
	ReceiveMax  = 2048 // largest received packet; implementations send at most 1,500
	ExpandedMax = 8192 // largest expanded packet, with its header
)

// Static errors, because hostile input must not cost an allocation.
var (
	ErrTruncated = errors.New("lludp/wire: packet ends inside a field")
	ErrTooLarge  = errors.New("lludp/wire: packet of more than 2048 bytes")
	ErrAcks      = errors.New("lludp/wire: more appended acknowledgements than the packet has room for")
	ErrExpansion = errors.New("lludp/wire: zero-coded packet expands beyond 8192 bytes")
	ErrNumber    = errors.New("lludp/wire: message number 0 of its frequency")
)

// Flags are the first byte of a packet. The four lowest bits are unused: ignored when read and
// written as 0.
type Flags uint8

const (
	FlagZeroCoded Flags = 0x80 // number and body are zero-coded
	FlagReliable  Flags = 0x40 // wants an acknowledgement
	FlagResent    Flags = 0x20 // was sent before under this sequence number
	FlagAcks      Flags = 0x10 // acknowledgements follow the body
)

const flagsKnown = FlagZeroCoded | FlagReliable | FlagResent | FlagAcks

// SetFlags replaces the flags of an encoded packet.
func SetFlags(packet []byte, f Flags) { packet[0] = byte(f) }

// A Seq is the sequence number of a packet. Each direction of a circuit counts all of its
// packets, reliable or not.
//
// The reference viewer and libomv count modulo 2^24, OpenSim up to 2^32. So every number is
// accepted, and Next counts modulo 2^24.
type Seq uint32

// SeqModulus is where sequence numbers wrap to 0.
const SeqModulus = 1 << 24

// Next returns the number after s. The first packet of a circuit has Seq(0).Next().
func (s Seq) Next() Seq { return (s + 1) % SeqModulus }

// Since returns how many packets after t the packet s was sent, if both were numbered modulo
// 2^24 and s is less than one round ahead.
func (s Seq) Since(t Seq) uint32 { return uint32(s-t) % SeqModulus }

// appendHeader appends a header without extra bytes.
func appendHeader(b []byte, f Flags, s Seq) []byte {
	b = append(b, byte(f&flagsKnown))
	b = binary.BigEndian.AppendUint32(b, uint32(s))
	return append(b, 0)
}

// A Scratch is the buffer in which Parse expands a zero-coded packet. One serves all circuits
// of an owner, because the result of Parse is used before the next packet.
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

// Parse parses a packet of at most ReceiveMax bytes. It expands a zero-coded packet into the
// scratch, which the result then aliases; FlagZeroCoded stays set.
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

// Append appends the packet. If FlagZeroCoded is set but coding does not shrink number and
// body, Append clears the flag. FlagAcks depends on m.Acks only.
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

// A Number identifies the message in a packet. It has 1, 2 or 4 bytes on the wire; frequent
// messages have short numbers:
//
//	high    01 … FE
//	medium  FF 01 … FF FE
//	low     FF FF 00 01 … FF FF FF F9
//	fixed   FF FF FF FA … FF FF FF FF
//
// The Number is the value of those bytes, most significant first.
type Number uint32

// The messages of a circuit.
const (
	StartPingCheck    Number = 0x01
	CompletePingCheck Number = 0x02
	UseCircuitCode    Number = 0xFFFF0003
	PacketAck         Number = 0xFFFFFFFB
	OpenCircuit       Number = 0xFFFFFFFC
	CloseCircuit      Number = 0xFFFFFFFD
)

// Messages that every viewer and simulator exchange, with their names in the template.
const (
	AgentUpdate               Number = 0x04
	ObjectUpdate              Number = 0x0C
	ImprovedTerseObjectUpdate Number = 0x0F
	KillObject                Number = 0x10
	CoarseLocationUpdate      Number = 0xFF06
	ChatFromSimulator         Number = 0xFFFF008B
	RegionHandshake           Number = 0xFFFF0094
	CompleteAgentMovement     Number = 0xFFFF00F9
	GenericMessage            Number = 0xFFFF0105
)

// A Frequency is the expected frequency of a message. It determines the length of the number.
type Frequency uint8

const (
	NoFrequency Frequency = iota // not the number of a message
	High
	Medium
	Low
	Fixed
)

// Frequency returns the frequency of n, or NoFrequency if n is not a number of a message.
func (n Number) Frequency() Frequency {
	switch {
	case n >= 0xFFFFFFFA:
		return Fixed
	case n >= 0xFFFF0001:
		return Low
	case n >= 0xFF01 && n <= 0xFFFE:
		return Medium
	case n >= 0x01 && n <= 0xFE:
		return High
	}
	return NoFrequency
}

// Append appends n, which must have a frequency.
func (n Number) Append(b []byte) []byte {
	switch n.Frequency() {
	case High:
		return append(b, byte(n))
	case Medium:
		return binary.BigEndian.AppendUint16(b, uint16(n))
	case Low, Fixed:
		return binary.BigEndian.AppendUint32(b, uint32(n))
	}
	panic("lludp/wire: message number without a frequency")
}

// cutNumber reads a number. It refuses number 0 of a frequency, which no template defines.
func cutNumber(p []byte) (n Number, rest []byte, err error) {
	size := 1
	switch {
	case len(p) >= 2 && p[0] == 0xFF && p[1] == 0xFF:
		size = 4
	case len(p) >= 1 && p[0] == 0xFF:
		size = 2
	}
	if len(p) < size {
		return 0, nil, ErrTruncated
	}
	for _, c := range p[:size] {
		n = n<<8 | Number(c)
	}
	if n.Frequency() == NoFrequency {
		return 0, nil, ErrNumber
	}
	return n, p[size:], nil
}
