package replication

import (
	"encoding/binary"

	"github.com/dnprelay/dnprelay/dnp/wire"
)

// HeadBytesMax is the most that a head message should have. A holder with more
// spaces than fit tells the quiet ones in rotation.
const HeadBytesMax = 64 << 10

// A SpaceHead says how far one space is.
type SpaceHead struct {
	Space string
	Seq   uint64
}

// Size returns the bytes that h takes in a head message.
func (h SpaceHead) Size() int { return 1 + len(h.Space) + 8 }

// AppendHead appends a head message, the holder's word on how far its spaces
// are. At most 65,535 spaces fit.
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

// ParseHead calls each for every space of a head message. It checks the whole
// message first, so each is not called for one that is malformed. The bytes of
// space alias p.
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
