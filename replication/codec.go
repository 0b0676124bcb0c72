package replication

import (
	"encoding/binary"
	"errors"
	"math"

	"github.com/dnprelay/dnprelay/dnp/wire"
)

// codecVersion is the first byte of every message of this package.
const codecVersion = 1

// errMessage reports a malformed message. It is a static value, because input from the network
// must not cost an allocation.
var errMessage = errors.New("replication: malformed message")

// HeadBytesMax is the most that a head message should have. A holder with more spaces reports
// the quiet ones in rotation.
const HeadBytesMax = 64 << 10

// A SpaceHead is the last sequence number of one space.
type SpaceHead struct {
	Space string
	Seq   uint64
}

// Size returns the bytes that h takes in a head message.
func (h SpaceHead) Size() int { return 1 + len(h.Space) + 8 }

// AppendHead appends a head message, in which the holder reports the last sequence numbers of
// its spaces. At most 65,535 spaces fit.
//
//	version uint8 = 1, epoch uint64, count uint16
//	count × {space {length uint8, bytes}, seq uint64}
func AppendHead(b []byte, epoch uint64, spaces []SpaceHead) []byte {
	b = append(b, codecVersion)
	b = binary.LittleEndian.AppendUint64(b, epoch)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(spaces)))
	for _, s := range spaces {
		b = appendShort(b, s.Space)
		b = binary.LittleEndian.AppendUint64(b, s.Seq)
	}
	return b
}

// ParseHead calls each for every space of a head message. It checks the whole message first and
// calls each for no space of a malformed one. The bytes of space alias p.
func ParseHead(p []byte, each func(epoch uint64, space []byte, seq uint64)) error {
	if err := walkHead(p, func(uint64, []byte, uint64) {}); err != nil {
		return err
	}
	return walkHead(p, each)
}

func walkHead(p []byte, each func(epoch uint64, space []byte, seq uint64)) error {
	r := wire.NewReader(p)
	if r.Uint8() != codecVersion {
		return errMessage
	}
	epoch, n := readUint64(&r), int(r.Uint16())
	for range n {
		space, seq := r.Bytes(int(r.Uint8())), readUint64(&r)
		if r.Err() != nil {
			return errMessage
		}
		each(epoch, space, seq)
	}
	_, err := finish(0, &r)
	return err
}

// HeadEpoch returns the epoch of a head message.
func HeadEpoch(p []byte) (epoch uint64, ok bool) {
	r := wire.NewReader(p)
	if r.Uint8() != codecVersion {
		return 0, false
	}
	epoch = readUint64(&r)
	return epoch, r.Err() == nil
}

// finish returns m if the reader reached the end without an error.
func finish[T any](m T, r *wire.Reader) (T, error) {
	if r.Err() != nil || len(r.Rest()) > 0 {
		var none T
		return none, errMessage
	}
	return m, nil
}

func appendShort(b []byte, s string) []byte {
	return append(append(b, byte(len(s))), s...)
}

func appendLong(b, s []byte) []byte {
	b = binary.LittleEndian.AppendUint16(b, uint16(len(s)))
	return append(b, s...)
}

func readShort(r *wire.Reader) string { return string(r.Bytes(int(r.Uint8()))) }

func readUint64(r *wire.Reader) uint64 {
	if p := r.Bytes(8); p != nil {
		return binary.LittleEndian.Uint64(p)
	}
	return 0
}

func readUint32(r *wire.Reader) uint32 {
	if p := r.Bytes(4); p != nil {
		return binary.LittleEndian.Uint32(p)
	}
	return 0
}

func readFloat(r *wire.Reader) float64 { return math.Float64frombits(readUint64(r)) }

// readCount reads a count of elements that take at least size bytes each. A count that the
// message cannot hold fails the reader, so that it costs no memory.
func readCount(r *wire.Reader, size int) int {
	n := int(r.Uint16())
	if n*size > len(r.Rest()) {
		r.Bytes(len(r.Rest()) + 1)
		return 0
	}
	return n
}
