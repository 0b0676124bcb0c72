package replication

import (
	"time"

	"github.com/dnprelay/dnprelay/replication/view"
)

// Repair answers a repair request with 1 to n messages, to be sent in order. A
// nil answer means that the request is malformed or meant for a later holder.
// It emits what is pending first, so that the answer is exactly true at its
// position; call Advance afterwards, and send that first or last as you like.
func (s *Store) Repair(now time.Time, request []byte) (parts [][]byte) {
	q, err := ParseRepairRequest(request)
	switch {
	case err != nil || q.Space != s.cfg.Space:
		s.stats.RepairMalformed++
		return nil
	case q.Epoch > s.cfg.Epoch:
		s.stats.RepairForeign++
		return nil
	}
	if s.Pending() {
		s.emit(now)
	}
	if q.Kind == RepairRange && q.Epoch == s.cfg.Epoch {
		if parts, ok := s.repairRange(&q); ok {
			s.stats.Ranges++
			return parts
		}
	}
	s.stats.Keyframes++
	return s.repairKeyframes(&q, requestID(request))
}

// repairRange repeats batches, each as one part behind a header that says so.
// An answer without batches says that there is nothing to repair.
func (s *Store) repairRange(q *RepairRequest) (parts [][]byte, ok bool) {
	if q.From > s.seq {
		h := view.Header{Flags: view.FlagReply | view.FlagLast, Epoch: s.cfg.Epoch, Seq: s.seq, Prev: s.seq}
		return [][]byte{h.Append(nil)}, true
	}
	batches, ok := s.ring.from(q.From)
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

// repairKeyframes tells every state: in whole if the request does not list it
// as it is, else only its RefIds and checksums. The order is that of the state
// numbers, so equal requests at one position get equal answers.
func (s *Store) repairKeyframes(q *RepairRequest, id uint64) [][]byte {
	p := partition{header: view.Header{
		Flags: view.FlagReply | view.FlagKeyframes,
		Epoch: s.cfg.Epoch, Seq: s.seq, Prev: id,
	}}
	has := q.has()
	for _, st := range s.all {
		if st.dead {
			continue
		}
		begin := len(p.records)
		if s.equal(st, has) {
			p.records = st.appendAssigns(p.records)
			p.records = s.appendChecksums(p.records, st)
		} else {
			p.records = s.appendWhole(p.records, st)
		}
		if len(p.records) > recordsMax {
			p.cut(begin, 0)
		}
	}
	p.cut(len(p.records), view.FlagLast)
	return p.parts
}

// equal reports whether a replica that has these views has st as it is.
func (s *Store) equal(st *stored, has map[view.EntityID]sums) bool {
	for i, r := range st.schema.ranges {
		have, ok := has[view.Entity(st.number, i)]
		if !ok || have.describe != st.sum || have.keyframe != s.sum(st, r) {
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
