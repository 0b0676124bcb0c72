package replication

import (
	"encoding/binary"
	"hash/crc32"
	"math"

	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/replication/view"
)

// A RepairKind is how a replica wants to be brought up to date.
type RepairKind uint8

const (
	RepairRange     RepairKind = 1 // the batches that it missed
	RepairKeyframes RepairKind = 2 // whatever differs from what it has
)

// rangeOpen as the end of a range means: whatever there is.
const rangeOpen = math.MaxUint64

// A RepairRequest asks the holder for repair.
type RepairRequest struct {
	Kind       RepairKind
	Space      string
	Epoch, Seq uint64 // highest epoch that the replica knows; its position
	From, To   uint64 // of RepairRange

	sums []byte // of RepairKeyframes: the encoded list of what the replica has
}

// RequestSpace returns the space that a repair request is for, so that the
// holder can find its Store. It aliases p.
func RequestSpace(p []byte) (space []byte, ok bool) {
	r := wire.NewReader(p)
	r.Uint16()
	space = r.Bytes(int(r.Uint8()))
	return space, r.Err() == nil
}

// append appends the request:
//
//	version uint8 = 1, kind uint8, space {length uint8, bytes}, epoch uint64, seq uint64
//	kind 1: from uint64, to uint64
//	kind 2: count uint16, count × {entity uint64, crc uint32, describe crc uint32}
//
// The list of kind 2 is all that the replica has. The answer mentions every
// state, so an empty list gets everything, and what is not mentioned is gone.
func (q *RepairRequest) append(b []byte) []byte {
	b = append(b, codecVersion, byte(q.Kind))
	b = appendShort(b, q.Space)
	b = binary.LittleEndian.AppendUint64(b, q.Epoch)
	b = binary.LittleEndian.AppendUint64(b, q.Seq)
	if q.Kind == RepairRange {
		b = binary.LittleEndian.AppendUint64(b, q.From)
		return binary.LittleEndian.AppendUint64(b, q.To)
	}
	b = binary.LittleEndian.AppendUint16(b, uint16(len(q.sums)/sumBytes))
	return append(b, q.sums...)
}

// ParseRepairRequest parses a request. The result aliases p.
func ParseRepairRequest(p []byte) (RepairRequest, error) {
	r := wire.NewReader(p)
	if r.Uint8() != codecVersion {
		return RepairRequest{}, errMessage
	}
	q := RepairRequest{Kind: RepairKind(r.Uint8()), Space: readShort(&r)}
	q.Epoch, q.Seq = readUint64(&r), readUint64(&r)
	switch q.Kind {
	case RepairRange:
		q.From, q.To = readUint64(&r), readUint64(&r)
	case RepairKeyframes:
		q.sums = r.Bytes(int(r.Uint16()) * sumBytes)
	default:
		return RepairRequest{}, errMessage
	}
	return finish(q, &r)
}

// sumBytes is the size of one entry of a keyframe request.
const sumBytes = 8 + 4 + 4

// sumsMax is how many views a keyframe request lists at most, to stay below
// half a megabyte. A replica that has more asks for everything.
const sumsMax = 32_000

// sums are the checksums of one view and of its state's description.
type sums struct{ keyframe, describe uint32 }

func appendSums(b []byte, e view.EntityID, s sums) []byte {
	b = binary.LittleEndian.AppendUint64(b, uint64(e))
	b = binary.LittleEndian.AppendUint32(b, s.keyframe)
	return binary.LittleEndian.AppendUint32(b, s.describe)
}

// has returns the views that the request lists.
func (q *RepairRequest) has() map[view.EntityID]sums {
	m := make(map[view.EntityID]sums, len(q.sums)/sumBytes)
	for p := q.sums; len(p) >= sumBytes; p = p[sumBytes:] {
		m[view.EntityID(binary.LittleEndian.Uint64(p))] = sums{
			keyframe: binary.LittleEndian.Uint32(p[8:]),
			describe: binary.LittleEndian.Uint32(p[12:]),
		}
	}
	return m
}

// requestID names a request in the keyframes that answer it. Without it, parts
// of answers to two requests at one position could be taken for one answer, and
// states that only the other part mentions for removed.
func requestID(request []byte) uint64 { return uint64(crc32.ChecksumIEEE(request)) }
