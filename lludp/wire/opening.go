package wire

import "encoding/binary"

// A UUID is the 16 raw bytes of one.
type UUID [16]byte

// An Opening is the body of UseCircuitCode, the only message that a server takes
// from an address that it does not know:
//
//	code    uint32
//	session UUID
//	agent   UUID
//
// All three were handed out at login.
type Opening struct {
	Code           uint32
	Session, Agent UUID
}

// Append appends the body to b.
func (m Opening) Append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint32(b, m.Code)
	return append(append(b, m.Session[:]...), m.Agent[:]...)
}

// ParseOpening reads the body. Bytes behind it are ignored.
func ParseOpening(p []byte) (m Opening, err error) {
	if len(p) < 36 {
		return m, ErrTruncated
	}
	m.Code = binary.LittleEndian.Uint32(p)
	copy(m.Session[:], p[4:])
	copy(m.Agent[:], p[20:])
	return m, nil
}
