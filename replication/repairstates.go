package replication

import (
	"encoding/binary"
	"hash/crc32"

	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/replication/view"
)

// Repair of few states. A replica that knows which views are wrong asks for those (RepairStates).
// One that only knows that something is wrong compares sums of groups of states first
// (RepairSums), and asks for the groups that differ. The original protocol has the same two lists
// in its keyframe request, of entities with checksums and of RefIds.

// Bounds of a request, and thereby of the work that it makes and of its answer, which is one
// message.
const (
	groupsMax      = 4096 // into which a space is divided
	groupViews     = 32   // views in a group, on average; a list of a group's checksums costs as much as the sums of 128 groups
	groupsAskedMax = 16   // groups in a RepairStates request
	refsAskedMax   = 64
	sumsAskedMax   = 2048 // views in a RepairStates request
	sumsAnswerMax  = 256  // groups in a RepairSums request
)

// A groupSet is some of the groups into which a space is divided: a state belongs to the group
// "its number modulo of".
type groupSet struct {
	of       int
	first, n int    // of RepairSums: the groups from first on
	list     []byte // of RepairStates: encoded groups
}

// groupsOf returns into how many groups a space with so many views is divided.
func groupsOf(views int) int { return min(max(1, (views+groupViews-1)/groupViews), groupsMax) }

// appendList appends encoded entries of a size behind their number.
func appendList(b, entries []byte, size int) []byte {
	return append(binary.LittleEndian.AppendUint16(b, uint16(len(entries)/size)), entries...)
}

// readList reads what appendList appends, if it has at most so many entries.
func readList(r *wire.Reader, size, most int) []byte {
	n := int(r.Uint16())
	if n > most {
		r.Fail(errMessage)
	}
	return r.Bytes(n * size)
}

// has reports whether a state belongs to one of the listed groups.
func (g *groupSet) has(number uint64) bool {
	if len(g.list) == 0 {
		return false
	}
	group := uint16(number % uint64(g.of))
	for p := g.list; len(p) >= 2; p = p[2:] {
		if binary.LittleEndian.Uint16(p) == group {
			return true
		}
	}
	return false
}

// groupSums returns the sums of groups. The sum of a group is that of its states' checksums, which
// cover the number, the Describe and the values of a state.
func groupSums[S interface{ state() *State }](t *table[S], scratch *[]byte, g groupSet) []uint32 {
	sums := make([]uint32, g.n)
	for _, x := range t.all {
		st := x.state()
		if at := int(st.Number%uint64(g.of)) - g.first; !st.dead && at >= 0 && at < g.n {
			sums[at] += st.sumOf(scratch)
		}
	}
	return sums
}

// sumOf returns a checksum of everything that a state is: the CRC-32 of its keyframes, which begins with FNV-1a of its number
// and the checksum of its Describe. CRC is linear, so that a CRC of all would not notice equal changes of number and
// Describe.
func (s *State) sumOf(scratch *[]byte) uint32 {
	var b [12]byte
	binary.LittleEndian.PutUint64(b[:], s.Number)
	binary.LittleEndian.PutUint32(b[8:], s.sum)
	sum := uint32(2166136261)
	for _, c := range b {
		sum = (sum ^ uint32(c)) * 16777619
	}
	for _, r := range s.schema.ranges {
		*scratch = s.appendKeyframe((*scratch)[:0], r)
		sum = crc32.Update(sum, crc32.IEEETable, *scratch)
	}
	return sum
}

// A sumCache is the last answer with sums: all edges ask for the same ones at about the same time.
type sumCache struct {
	seq    uint64
	groups groupSet
	sums   []uint32
}

// repairSums answers with the sums of groups:
//
//	groups uint16, first uint16, count × uint32
//
// They are true at the position in the header, and the replica compares them with its own there.
func (s *Store) repairSums(q *RepairRequest, id uint64) [][]byte {
	c, g := &s.sums, q.groups
	if s.states.views*g.n > 2*sumsAnswerMax*groupViews*g.of {
		return s.nothingMissing() // no replica divides a space into so few groups
	}
	if c.sums == nil || c.seq != s.batch.seq || c.groups.of != g.of || c.groups.first != g.first || c.groups.n != g.n {
		*c = sumCache{seq: s.batch.seq, groups: g, sums: groupSums(&s.states, &s.scratch, g)}
	}
	b := s.batch.replyHeader(view.FlagSums|view.FlagLast, id).Append(make([]byte, 0, view.HeaderMax+4+4*g.n))
	b = binary.LittleEndian.AppendUint16(b, uint16(g.of))
	b = binary.LittleEndian.AppendUint16(b, uint16(g.first))
	for _, sum := range c.sums {
		b = binary.LittleEndian.AppendUint32(b, sum)
	}
	return [][]byte{b}
}

func (b *batcher) replyHeader(flags view.Flags, id uint64) view.Header {
	return view.Header{Flags: view.FlagReply | flags, Epoch: b.epoch, Seq: b.seq, Prev: id}
}

// repairStates answers with one message, which has, as far as there is room:
//
//   - for each state in the list, nothing if it is equal; Remove, addressed by entity, if there is
//     no such state; otherwise the views that differ, or the whole state if its description does
//   - for each RefId, the state that it means, or only its RefIds if the state is in the list
//   - each state in the groups that the list does not have
//
// FlagLast says that all of it had room. Without it, the replica asks again for the rest.
func (s *Store) repairStates(q *RepairRequest, id uint64) [][]byte {
	a := statesAnswer{store: s, has: q.has(), listed: make(map[uint64]bool)}
	for p := q.sums; len(p) >= sumBytes && !a.full; p = p[sumBytes:] {
		a.listedState(view.EntityID(binary.LittleEndian.Uint64(p)).State())
	}
	a.byRef(q)
	a.byGroup(q)
	flags := view.FlagStates
	if !a.full {
		flags |= view.FlagLast
	}
	part := s.batch.replyHeader(flags, id).Append(make([]byte, 0, view.HeaderMax+len(a.records)))
	return [][]byte{append(part, a.records...)}
}

// A statesAnswer is the answer to a RepairStates request as it grows.
type statesAnswer struct {
	store   *Store
	has     map[view.EntityID]sums
	listed  map[uint64]bool // numbers of states
	records []byte
	full    bool
}

// add appends what write appends, if there is room.
func (a *statesAnswer) add(write func(b []byte) []byte) {
	if a.full {
		return
	}
	begin := len(a.records)
	if a.records = write(a.records); len(a.records) > recordsMax {
		a.records, a.full = a.records[:begin], true
	}
}

func (a *statesAnswer) listedState(number uint64) {
	if a.listed[number] {
		return
	}
	a.listed[number] = true
	st, ok := a.store.states.byNumber[number]
	if !ok {
		a.add(view.Record{Ref: view.NoRef, Entity: view.Entity(number, 0), Message: view.Remove}.Append)
		return
	}
	a.add(func(b []byte) []byte { return a.appendDiffering(b, st) })
}

// appendDiffering appends what a replica with the listed views lacks of a state. It appends the
// whole state unless the replica lists exactly its views with the same description: otherwise the
// layouts may differ.
func (a *statesAnswer) appendDiffering(b []byte, st *stored) []byte {
	var differ []int
	for i, r := range st.schema.ranges {
		have, ok := a.has[view.Entity(st.Number, i)]
		if !ok || have.describe != st.sum {
			return a.appendWhole(b, st)
		}
		if have.keyframe != st.crc(&a.store.scratch, r) {
			differ = append(differ, i)
		}
	}
	next := view.Entity(st.Number, len(st.schema.ranges))
	if _, more := a.has[next]; more && next.View() > 0 {
		return a.appendWhole(b, st)
	}
	for _, i := range differ {
		a.store.stats.RepairWhole++
		b = view.AppendAssign(b, view.Entity(st.Number, i), st.refs[i])
		var start int
		b, start = view.Begin(b, st.refs[i], 0, view.Keyframe)
		b = view.End(st.appendKeyframe(b, st.schema.ranges[i]), start)
	}
	return b
}

func (a *statesAnswer) appendWhole(b []byte, st *stored) []byte {
	a.store.stats.RepairWhole++
	return a.store.appendWhole(b, st)
}

// byRef adds the states that the request names by RefIds.
func (a *statesAnswer) byRef(q *RepairRequest) {
	told := make(map[uint64]bool)
	for p := q.refs; len(p) >= 2; p = p[2:] {
		st := a.store.refs.state(view.RefID(binary.LittleEndian.Uint16(p)))
		switch {
		case st == nil || st.dead || told[st.Number]:
			continue
		case a.listed[st.Number]:
			a.add(st.appendAssigns)
		default:
			a.listed[st.Number] = true
			a.add(func(b []byte) []byte { return a.appendWhole(b, st) })
		}
		told[st.Number] = true
	}
}

// byGroup adds the states in the groups that the request does not list.
func (a *statesAnswer) byGroup(q *RepairRequest) {
	if len(q.groups.list) == 0 {
		return
	}
	for _, st := range a.store.states.all {
		if a.full {
			return
		}
		if !st.dead && !a.listed[st.Number] && q.groups.has(st.Number) {
			a.add(func(b []byte) []byte { return a.appendWhole(b, st) })
		}
	}
}
