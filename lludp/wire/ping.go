package wire

import "encoding/binary"

// A StartPing is the body of StartPingCheck, which wants a CompletePingCheck with
// the same id at once:
//
//	id     uint8
//	oldest uint32   sequence number of the oldest packet that waits for its
//	                acknowledgement, else of the newest packet
type StartPing struct {
	ID     uint8
	Oldest Seq
}

// Append appends the body to b.
func (m StartPing) Append(b []byte) []byte {
	return binary.LittleEndian.AppendUint32(append(b, m.ID), uint32(m.Oldest))
}

// ParseStartPing reads the body. Bytes behind it are ignored.
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

// ParseCompletePing reads the body. Bytes behind it are ignored.
func ParseCompletePing(p []byte) (CompletePing, error) {
	if len(p) < 1 {
		return CompletePing{}, ErrTruncated
	}
	return CompletePing{p[0]}, nil
}
