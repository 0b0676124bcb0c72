package replication

import (
	"encoding/binary"
	"hash/crc32"
	"math"
	"time"

	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/replication/view"
)

// A RepairKind says what a replica asks for.
type RepairKind uint8

const (
	RepairRange     RepairKind = 1 // the batches that it missed
	RepairKeyframes RepairKind = 2 // every state that differs from the replica's
	RepairStates    RepairKind = 3 // those among some states that differ from the replica's
	RepairSums      RepairKind = 4 // the sums of groups of states, by which it finds those that differ
	RepairStored    RepairKind = 5 // everything that the holder stores of the space, in the form in which it stores it; see Stored
)

// rangeOpen is the end of a range without an end.
const rangeOpen = math.MaxUint64

// A RepairRequest asks the holder for repair.
type RepairRequest struct {
	Kind       RepairKind
	Space      string
	Epoch, Seq uint64 // highest epoch that the replica knows; its position in it, else 0
	From, To   uint64 // of RepairRange

	sums   []byte   // of RepairKeyframes and RepairStates: the encoded list of the replica's views
	groups groupSet // of RepairStates and RepairSums
	refs   []byte   // of RepairStates: encoded RefIds
}

// RequestSpace returns the space of a repair request, by which the holder finds its Store. It
// aliases p.
func RequestSpace(p []byte) (space []byte, ok bool) {
	r := wire.NewReader(p)
	r.Uint16()
	space = r.Bytes(int(r.Uint8()))
	return space, r.Err() == nil
}

// RequestKind returns the kind of a repair request, and 0 if it is too short to have one.
func RequestKind(p []byte) RepairKind {
	if len(p) < 2 {
		return 0
	}
	return RepairKind(p[1])
}

// append appends the request:
//
//	version uint8 = 1, kind uint8, space {length uint8, bytes}, epoch uint64, seq uint64
//	kind 1: from uint64, to uint64
//	kind 2: count uint16, count × {entity uint64, crc uint32, describe crc uint32}
//	kind 3: groups uint16, count uint16, count × group uint16, count uint16, count × ref uint16, then as kind 2
//	kind 4: groups uint16, first uint16, count uint16
//	kind 5: nothing
//
// The list of kind 2 is everything that the replica has. The answer mentions every state of the
// space: an empty list gets all states in whole, and the replica drops a state that the answer
// does not mention. Kinds 3 and 4 are in repairstates.go.
func (q *RepairRequest) append(b []byte) []byte {
	b = append(b, codecVersion, byte(q.Kind))
	b = appendShort(b, q.Space)
	b = binary.LittleEndian.AppendUint64(b, q.Epoch)
	b = binary.LittleEndian.AppendUint64(b, q.Seq)
	switch q.Kind {
	case RepairStored:
		return b
	case RepairRange:
		b = binary.LittleEndian.AppendUint64(b, q.From)
		return binary.LittleEndian.AppendUint64(b, q.To)
	case RepairSums:
		b = binary.LittleEndian.AppendUint16(b, uint16(q.groups.of))
		b = binary.LittleEndian.AppendUint16(b, uint16(q.groups.first))
		return binary.LittleEndian.AppendUint16(b, uint16(q.groups.n))
	case RepairStates:
		b = binary.LittleEndian.AppendUint16(b, uint16(q.groups.of))
		b = appendList(appendList(b, q.groups.list, 2), q.refs, 2)
	}
	return appendList(b, q.sums, sumBytes)
}

// ParseRepairRequest parses a request. The result aliases p.
func ParseRepairRequest(p []byte) (RepairRequest, error) {
	r := wire.NewReader(p)
	if r.Uint8() != codecVersion {
		return RepairRequest{}, errMessage
	}
	q := RepairRequest{Kind: RepairKind(r.Uint8()), Space: readShort(&r)}
	q.Epoch, q.Seq = r.Uint64(), r.Uint64()
	switch q.Kind {
	case RepairStored:
	case RepairRange:
		q.From, q.To = r.Uint64(), r.Uint64()
	case RepairKeyframes:
		q.sums = readList(&r, sumBytes, math.MaxUint16)
	case RepairStates:
		g := &q.groups
		if g.of = int(r.Uint16()); g.of > groupsMax {
			return RepairRequest{}, errMessage
		}
		g.list, q.refs = readList(&r, 2, min(groupsAskedMax, g.of)), readList(&r, 2, refsAskedMax)
		q.sums = readList(&r, sumBytes, sumsAskedMax)
	case RepairSums:
		g := &q.groups
		g.of, g.first, g.n = int(r.Uint16()), int(r.Uint16()), int(r.Uint16())
		if g.of > groupsMax || g.n == 0 || g.n > sumsAnswerMax || g.first+g.n > g.of {
			return RepairRequest{}, errMessage
		}
	default:
		return RepairRequest{}, errMessage
	}
	return finish(q, &r)
}

// sumBytes is the size of one entry of a keyframe request.
const sumBytes = 8 + 4 + 4

// sumsMax is the most views in a keyframe request, which keeps it below half a megabyte. A
// replica with more views asks for everything.
const sumsMax = 32_000

// sums are the checksums of one view and of the description of its state.
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

// RequestID identifies a request in the keyframes that answer it. Without it, a replica could
// take parts of answers to two requests at one position for one answer, and remove states that
// only the other part mentions.
func RequestID(request []byte) uint64 { return uint64(crc32.ChecksumIEEE(request)) }

// Views returns how many views a request lists.
func (q *RepairRequest) Views() int { return len(q.sums) / sumBytes }

// Repair answers a repair request with one or more messages, to be sent in order. It returns
// nil if the request is malformed or meant for a later holder. It emits pending changes first,
// so that the answer is true at its position; the caller calls Advance afterwards, and may send
// those outputs before or behind the answer.
func (s *Store) Repair(now time.Time, request []byte) (parts [][]byte) {
	q, err := ParseRepairRequest(request)
	switch {
	case err != nil || q.Space != s.cfg.Space:
		s.stats.RepairMalformed++
		return nil
	case q.Epoch > s.batch.epoch:
		s.stats.RepairForeign++
		return nil
	}
	if s.Pending() {
		s.emit(now)
	}
	return s.answer(&q, RequestID(request))
}

func (s *Store) answer(q *RepairRequest, id uint64) [][]byte {
	switch {
	case q.Kind == RepairRange && q.Epoch == s.batch.epoch:
		if parts, ok := s.repairRange(q); ok {
			return parts
		}
	case q.Kind == RepairStates && q.Epoch == s.batch.epoch:
		return s.repairStates(q, id)
	case q.Kind == RepairSums && q.Epoch == s.batch.epoch:
		return s.repairSums(q, id)
	case q.Kind == RepairSums || q.Kind == RepairStates:
		return s.nothingMissing() // which tells the epoch, and the replica asks for everything
	}
	return s.repairKeyframes(q, id)
}

// nothingMissing is an answer without batches, which only reports the position.
func (s *Store) nothingMissing() [][]byte {
	return [][]byte{s.batch.replyHeader(view.FlagLast, s.batch.seq).Append(nil)}
}

// repairRange repeats batches, each as one part of the answer. An answer without batches says
// that nothing is missing.
func (s *Store) repairRange(q *RepairRequest) (parts [][]byte, ok bool) {
	if q.From > s.batch.seq {
		return s.nothingMissing(), true
	}
	batches, ok := s.batch.ring.from(q.From)
	if !ok {
		return nil, false
	}
	for i, b := range batches {
		h, records, err := view.Parse(b.data)
		if err != nil {
			panic("replication: a batch in the ring is malformed")
		}
		h.Flags, h.Part = view.FlagReply, uint16(i)
		last := i == len(batches)-1 || b.seq >= q.To
		if last {
			h.Flags |= view.FlagLast
		}
		part := make([]byte, 0, view.HeaderMax+len(records))
		parts = append(parts, append(h.Append(part), records...))
		if last {
			break
		}
	}
	return parts, true
}

// repairKeyframes answers with every state: in whole if the request does not list it with equal
// checksums, otherwise only its RefIds and checksums. The order is that of the state numbers,
// so that equal requests at one position get equal answers. For RepairStored it has what is stored of each.
func (s *Store) repairKeyframes(q *RepairRequest, id uint64) [][]byte {
	p := partition{header: s.batch.replyHeader(view.FlagKeyframes, id)}
	has := q.has()
	for _, st := range s.states.all {
		if st.dead {
			continue
		}
		begin := len(p.records)
		switch {
		case q.Kind == RepairStored:
			if st.owned == nil {
				p.records = st.appendStored(p.records)
			}
		case st.equal(&s.scratch, has):
			p.records = st.appendAssigns(p.records)
			p.records = s.appendChecksums(p.records, st)
		default:
			p.records = s.appendWhole(p.records, st)
			s.stats.RepairWhole++
		}
		if len(p.records) > recordsMax {
			p.cut(begin, 0)
		}
	}
	p.cut(len(p.records), view.FlagLast)
	return p.parts
}

// equal reports whether a replica with these views has st in its current form.
func (st *stored) equal(scratch *[]byte, has map[view.EntityID]sums) bool {
	for i, r := range st.schema.ranges {
		have, ok := has[view.Entity(st.Number, i)]
		if !ok || have.describe != st.sum || have.keyframe != st.crc(scratch, r) {
			return false
		}
	}
	return true
}

// A partition cuts an answer into parts.
type partition struct {
	header  view.Header
	records []byte
	parts   [][]byte
}

// cut makes a part of the first n bytes.
func (p *partition) cut(n int, last view.Flags) {
	h := p.header
	h.Flags |= last
	h.Part = uint16(len(p.parts))
	part := make([]byte, 0, view.HeaderMax+n)
	p.parts = append(p.parts, append(h.Append(part), p.records[:n]...))
	p.records = p.records[:copy(p.records, p.records[n:])]
}
