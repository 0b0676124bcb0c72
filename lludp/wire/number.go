package wire

import "encoding/binary"

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
