package socket

import (
	"crypto/rand"
	"encoding/binary"
)

// NewID returns a name for a process that none had before.
func NewID() uint64 {
	var b [8]byte
	for {
		rand.Read(b[:]) // never fails
		if id := binary.LittleEndian.Uint64(b[:]); id != 0 {
			return id
		}
	}
}
