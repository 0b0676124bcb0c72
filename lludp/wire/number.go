package wire

import "encoding/binary"

// A Number says which message a packet has. It is 1, 2 or 4 bytes long on the
// wire, the frequent ones short:
//
//	high    01 … FE
//	medium  FF 01 … FF FE
//	low     FF FF 00 01 … FF FF FF F9
//	fixed   FF FF FF FA … FF FF FF FF
//
// and the Number is the value of those bytes, most significant first.
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

// Messages that every viewer and simulator exchange, by the names of the template.
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

// A Frequency is how often a message was thought to be sent. It decides the length
// of its number.
type Frequency uint8

const (
	NoFrequency Frequency = iota // no message has such a number
	High
	Medium
	Low
	Fixed
)

// Frequency returns the frequency of n, or NoFrequency for what is no number.
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

// cutNumber reads a number. Number 0 of a frequency is in no template, and the
// reference implementations have nobody to give it to.
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
