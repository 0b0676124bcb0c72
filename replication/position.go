package replication

import (
	"encoding/binary"

	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/replication/view"
)

// A Position is how far a space is: the epoch of its holder, and the sequence number of a batch.
// The zero value is before all others.
type Position struct{ Epoch, Seq uint64 }

// After reports whether p is later than q.
func (p Position) After(q Position) bool {
	return p.Epoch > q.Epoch || p.Epoch == q.Epoch && p.Seq > q.Seq
}

// A Condition lets an op change only what was not said later than AsOf. A publisher that tells a new holder what
// it knows cannot know what clients and other publishers have said since. The zero value is none.
type Condition struct {
	AsOf  Position
	Given bool
}

// position returns the position of what c lets change; now without a condition.
func (c Condition) position(now Position) Position {
	if c.Given {
		return c.AsOf
	}
	return now
}

// said are the positions at which the parts of a state were said last: its values by index, and behind them its audience with the levels of
// detail, and the rest of its description. nil means that all of them were said by this holder, so that no publisher knows more. Otherwise
// parts is nil until two of them differ: most restored states are not mentioned for long.
type said struct {
	all   Position
	parts []Position
}

// Indexes behind those of the values.
func (st *stored) audiencePart() int { return len(st.schema.defs) }
func (st *stored) detailsPart() int  { return len(st.schema.defs) + 1 }

// allows reports whether a part of st may change under a condition.
func (st *stored) allows(c Condition, part int) bool {
	switch {
	case !c.Given:
		return true
	case st.said == nil:
		return false
	case st.said.parts == nil:
		return c.AsOf.After(st.said.all)
	}
	return c.AsOf.After(st.said.parts[part])
}

// say notes that a part of st is said at a position.
func (st *stored) say(j *journal, part int, p Position) {
	if st.said == nil || st.said.parts == nil && p == st.said.all {
		return
	}
	if st.said.parts == nil {
		st.said.parts = make([]Position, len(st.schema.defs)+2)
		for i := range st.said.parts {
			st.said.parts[i] = st.said.all
		}
	}
	if before := st.said.parts[part]; j.active {
		j.note(func() { st.said.parts[part] = before })
	}
	st.said.parts[part] = p
}

// next returns the position of what is said now: that of the next batch.
func (b *batcher) next() Position { return Position{b.epoch, b.seq + 1} }

// positionBytes is the size of the record with which a stored state ends:
//
//	epoch uint64
//	seq   uint64
//
// The state has everything that was said about it up to that position.
const positionBytes = 16

// last returns the position up to which the values of now are complete. A value that waits for the next batch is newer.
func (b *batcher) last() Position { return Position{b.epoch, b.seq} }

// appendRecord appends the record of a stored state.
func (p Position) appendRecord(b []byte, state uint64) []byte {
	data := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, p.Epoch), p.Seq)
	return view.Record{Ref: view.NoRef, Entity: view.Entity(state, 0), Message: view.StoredAt, Data: data}.Append(b)
}

func readPosition(data []byte) (p Position, ok bool) {
	r := wire.NewReader(data)
	p.Epoch, p.Seq = r.Uint64(), r.Uint64()
	return p, r.Err() == nil && len(data) == positionBytes
}
