package fanout

import (
	"slices"
	"time"

	"github.com/dnprelay/dnprelay/dnp"
	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/replication"
)

// Bounds of what clients wrote and the holder has not acknowledged, in bytes. The edge
// refuses a value that does not fit and counts it: the client gets the authoritative
// value back. A state has no more than 60,000 bytes of values.
const (
	writerBytesMax  = 64 << 10 // of one writer; a request must fit into a bus message
	sessionBytesMax = 1 << 20

	// writtenOverhead is counted for each value besides its bytes, so a writer has room for
	// fewer than 1,024 values, however short they are.
	writtenOverhead = 64
)

// writes are what the client of a session wrote and the holder has not acknowledged.
type writes struct {
	*peer
	list     []*writer // in the order in which they began
	bySource map[*dnp.Source]*writer
	total    int // size of all writers

	// open are the client's numbered writes with values that are not settled. At most one for each of those values.
	open  map[uint32]*openWrite
	ended []uint32 // of open, without values that are not settled, unless more of the write followed
}

// An openWrite is a numbered write of the client that has not ended.
type openWrite struct {
	values  int // of all writers that are not settled
	applied int // values that the holder and the replica have
	refused []wire.RefusedValue
	awaited bool // the client may wait for the acknowledgement: it does not write these values all the time
}

// A writer carries what a client wrote to one state to the holder of the space, until
// the holder has it. It keeps the newest bytes of each value, so it costs one value each,
// never a queue. It belongs to the state and not to the link, because a link may be made
// anew while a request is under way.
//
// Until a value is acknowledged the client is not sent that value: it would see its own
// write undone and made again (dnp.Conn.Hold).
//
// A client that numbers its writes (command.Writes) repeats one until it hears that the write has ended. The writer does not
// remember what has: it asks the holder again, which does (replication.WriteValue), also after a takeover.
type writer struct {
	*writes
	source *dnp.Source
	own    *ownState // nil unless the client itself offered the state

	values []written // ascending by index
	size   int       // of values, in bytes
	repeat repeater
}

// A written is one value that is not settled.
type written struct {
	index  int
	value  []byte
	link   wire.LinkID // through which the client wrote it, by which the client knows it; it may have ended
	write  uint32      // number of the client's write; 0 for none
	number uint32      // of the first request that carried these bytes; 0 if none has

	// The position behind which the holder has the value, once it said so. Its answer and
	// the batch come on two subscriptions, so the replica may not be there yet.
	acknowledged bool
	epoch, seq   uint64
}

// writer returns the writer of a state, and makes it if there is none.
func (w *writes) writer(source *dnp.Source, own *ownState) *writer {
	wr, ok := w.bySource[source]
	if !ok {
		wr = &writer{writes: w, source: source, own: own}
		w.bySource[source] = wr
		w.list = append(w.list, wr)
	}
	return wr
}

// discard forgets what was written to a state that has ended.
func (w *writes) discard(source *dnp.Source) {
	if _, ok := w.bySource[source]; ok {
		w.end(func(wr *writer) bool { return wr.source == source })
	}
}

func (w *writes) discardAll() { w.end(func(*writer) bool { return true }) }

// end ends the writers for which over holds.
func (w *writes) end(over func(*writer) bool) {
	w.list = slices.DeleteFunc(w.list, func(wr *writer) bool {
		if !over(wr) {
			return false
		}
		wr.grow(-wr.size)
		for i := range wr.values {
			if v := &wr.values[i]; v.acknowledged {
				w.applied(v.write)
			} else { // the state has ended, or the session
				w.close(v.write, v.refusal(wire.RefusedNoState))
			}
		}
		wr.values = nil
		delete(w.bySource, wr.source)
		return true
	})
}

// count counts a value of a numbered write that is not settled.
func (w *writes) count(write uint32) {
	if write == 0 {
		return
	}
	o := w.open[write]
	if o == nil {
		if w.open == nil {
			w.open = map[uint32]*openWrite{}
		}
		o = &openWrite{}
		w.open[write] = o
	}
	o.values++
}

// close notes that a value of a numbered write is settled, refused unless refused is nil.
func (w *writes) close(write uint32, refused *wire.RefusedValue) {
	o := w.open[write]
	if o == nil {
		return
	}
	if refused != nil && len(o.refused) < wire.WriteValuesMax {
		o.refused = append(o.refused, *refused)
	}
	if o.values--; o.values == 0 {
		w.ended = append(w.ended, write)
	}
}

// applied notes that the holder and the replica have a value of a numbered write.
func (w *writes) applied(write uint32) {
	if o := w.open[write]; o != nil {
		o.applied++
	}
	w.close(write, nil)
}

// await has the client told of the end of a write at once.
func (w *writes) await(write uint32) {
	if o := w.open[write]; o != nil {
		o.awaited = true
	}
}

// acknowledge tells the client of the writes all of whose values are settled. It is not done before the turn is over,
// because the values of a write come link by link. What the client gets in the same datagram and later is not older.
func (w *writes) acknowledge() {
	for _, write := range w.ended {
		o := w.open[write]
		if o == nil || o.values > 0 {
			continue
		}
		delete(w.open, write)
		if o.applied > 0 || len(o.refused) > 0 { // otherwise later writes have replaced all of its values
			w.conn.Writes().Acknowledge(wire.WriteAck{Number: write, Refused: o.refused}, o.applied, !o.awaited && len(o.refused) == 0)
		}
	}
	w.ended = w.ended[:0]
}

func (w *writes) repeatAll(now time.Time) {
	for _, wr := range w.list {
		wr.repeat.renew(now)
	}
}

// advance sends what is due and returns when there is more to do.
func (w *writes) advance(now, next time.Time) time.Time {
	if len(w.list) == 0 {
		w.acknowledge() // those that were refused at once
		return next
	}
	for _, wr := range w.list {
		wr.releaseArrived()
		if wr.repeat.ready(now, &next) {
			wr.send(now, &next)
		}
	}
	w.end(func(wr *writer) bool { return len(wr.values) == 0 })
	w.acknowledge()
	return next
}

// update stores the values that a client wrote, and has them sent.
func (wr *writer) update(now time.Time, ev *dnp.Event) {
	write := uint32(ev.Number)
	wr.count(write) // until all values were looked at
	for index, value, ok := ev.Update.Next(); ok; index, value, ok = ev.Update.Next() {
		switch {
		case write != 0 && wr.overtakes(index, write):
		case wr.store(index, ev.Link, write, value):
			if again := wr.conn.Writes().Hold(ev.Link, index, write, value); !again {
				wr.await(write)
			}
		default:
			wr.conn.Writes().Refuse(ev.Link, index)
			wr.counts.WritesDropped++
			wr.refuse(write, ev.Link, index, wire.RefusedBusy)
		}
	}
	wr.close(write, nil)
	if !wr.repeat.pending() { // otherwise a request is under way, and the next one carries this value
		wr.repeat.want(now)
	}
}

// restore stores what the client wrote while another edge had the session, because the
// holder may not have it.
func (wr *writer) restore(now time.Time, h dnp.HeldValue) {
	if !wr.store(h.Index, h.Link, h.Write, h.Value) {
		wr.conn.Writes().Refuse(h.Link, h.Index)
		return
	}
	wr.await(h.Write)
	wr.repeat.want(now)
}

// overtakes reports whether this write of the client to a value, or a later one, is not settled: the client repeats
// writes, and datagrams overtake each other.
func (wr *writer) overtakes(index int, write uint32) bool {
	i, found := wr.find(index)
	return found && wr.values[i].write >= write
}

// refuse tells the client that a value of its numbered write will never be applied.
func (w *writes) refuse(write uint32, link wire.LinkID, index int, code wire.RefusalCode) {
	if write != 0 {
		w.count(write)
		w.close(write, &wire.RefusedValue{Link: link, Index: uint16(index), Code: code})
	}
}

// store keeps a value, which it copies. It reports false if there is no room.
func (wr *writer) store(index int, link wire.LinkID, write uint32, value []byte) bool {
	i, found := wr.find(index)
	delta := len(value)
	if found {
		delta -= len(wr.values[i].value)
	} else {
		delta += writtenOverhead
	}
	if wr.size+delta > writerBytesMax || wr.total+delta > sessionBytesMax {
		return false
	}
	if !found {
		wr.values = slices.Insert(wr.values, i, written{index: index})
	}
	v := &wr.values[i]
	overwritten := v.write
	*v = written{index: index, link: link, write: write, value: append(v.value[:0], value...)}
	wr.count(write)
	wr.close(overwritten, nil)
	wr.grow(delta)
	return true
}

// newest returns the bytes of a value that are not settled.
func (wr *writer) newest(index int) ([]byte, bool) {
	i, found := wr.find(index)
	if !found {
		return nil, false
	}
	return wr.values[i].value, true
}

func (wr *writer) find(index int) (i int, found bool) {
	return slices.BinarySearchFunc(wr.values, index, func(v written, index int) int { return v.index - index })
}

func (wr *writer) grow(delta int) {
	wr.size += delta
	wr.total += delta
}

// send asks the holder to apply all that it has not acknowledged, and makes next early
// enough for the repetition. A repetition has the number of the request that it repeats, so
// that the holder applies it once: others may have written the same value since.
func (wr *writer) send(now time.Time, next *time.Time) {
	state, known := wr.stateNumber()
	if !known {
		wr.repeat.stop() // the answer to the assert tells the state number
		return
	}
	w := replication.Write{Kind: replication.WriteValues, State: state, Number: wr.number()}
	layout := wr.source.State().Layout()
	for i := range wr.values {
		v := &wr.values[i]
		if v.acknowledged {
			continue
		}
		if v.number == 0 {
			v.number = w.Number
		}
		w.Values = append(w.Values, replication.WriteValue{Index: v.index, Type: layout.Type(v.index), Value: v.value, Number: v.write})
	}
	if len(w.Values) == 0 {
		wr.repeat.stop()
		return
	}
	if wr.repeat.again() {
		wr.counts.WritesRepeated++
	}
	wr.repeat.sent(now, next)
	wr.request(&w, func(now time.Time, r replication.WriteResult, err error) { wr.answered(now, &w, r, err) })
}

// number returns the number of the next request: a new one if it carries a new value,
// else that of the newest value.
func (wr *writer) number() (newest uint32) {
	for i := range wr.values {
		switch v := &wr.values[i]; {
		case v.acknowledged:
		case v.number == 0:
			return wr.nextWrite()
		case newest == 0 || int32(v.number-newest) > 0:
			newest = v.number
		}
	}
	return newest
}

func (wr *writer) stateNumber() (uint64, bool) {
	if wr.own != nil {
		return wr.own.number, wr.own.number != 0
	}
	st := wr.source.Data().(*replication.State)
	return st.Number, true
}

// answered handles the holder's verdict on a request. An answer that settles nothing
// needs nothing done: the repetition is planned.
func (wr *writer) answered(now time.Time, w *replication.Write, r replication.WriteResult, err error) {
	switch {
	case wr.bySource[wr.source] != wr || mustRepeat(r, err):
		return
	case r.Code == replication.WriteOK:
		wr.settle(w.Number, r, func(int) (wire.RefusalCode, bool) { return 0, false })
	case r.Code == replication.WritePartly:
		wr.settle(w.Number, r, r.Refusal)
		wr.counts.WritesRefused++
	case r.Code == replication.WriteNoState && wr.own != nil:
		wr.own.assertNow(now) // another relay became the holder, or the holder forgot the state
		return
	default:
		code := wire.RefusedWrite
		if r.Code == replication.WriteNoState {
			code = wire.RefusedNoState
		}
		wr.settle(w.Number, r, func(int) (wire.RefusalCode, bool) { return code, true })
		wr.counts.WritesRefused++
	}
	if slices.ContainsFunc(wr.values, func(v written) bool { return v.number == 0 }) {
		wr.repeat.want(now) // written while the request was under way
	}
}

// settle handles the verdict on the values that request number or an earlier one carried: the
// client gets the authoritative value of those that are refused.
func (wr *writer) settle(number uint32, r replication.WriteResult, refusal func(index int) (wire.RefusalCode, bool)) {
	open := false
	for i := 0; i < len(wr.values); {
		v := &wr.values[i]
		carried := v.number != 0 && int32(v.number-number) <= 0
		open = open || !carried
		if !carried || v.acknowledged {
			i++
			continue
		}
		code, refused := refusal(v.index)
		if !refused {
			v.acknowledged, v.epoch, v.seq = true, r.Epoch, r.Seq
			i++
			continue
		}
		if link, ok := wr.linkExact(v.index); ok {
			wr.conn.Writes().Refuse(link.ID, v.index)
		}
		wr.forget(i, v.refusal(code))
	}
	if !open {
		wr.repeat.stop()
	}
}

// forget ends a value, which is refused unless refused is nil.
func (wr *writer) forget(i int, refused *wire.RefusedValue) {
	write := wr.values[i].write
	wr.grow(-len(wr.values[i].value) - writtenOverhead)
	wr.values = slices.Delete(wr.values, i, i+1)
	if refused == nil {
		wr.applied(write)
	} else {
		wr.close(write, refused)
	}
}

// refusal returns what the client hears of a value that is refused.
func (v *written) refusal(code wire.RefusalCode) *wire.RefusedValue {
	return &wire.RefusedValue{Link: v.link, Index: uint16(v.index), Code: code}
}

// arrived reports whether the replica is behind the position at which the holder has v.
func (wr *writer) arrived(v *written) bool {
	epoch, seq := wr.replica.Position()
	return epoch > v.epoch || epoch == v.epoch && seq >= v.seq
}

// releaseArrived ends the values that both the holder and the replica have: the client is sent
// them again. Before the replica has a value, the client would be sent the one from before.
func (wr *writer) releaseArrived() {
	for i := 0; i < len(wr.values); {
		v := &wr.values[i]
		if !v.acknowledged || !wr.arrived(v) {
			i++
			continue
		}
		if link, ok := wr.linkExact(v.index); ok {
			wr.conn.Writes().Release(link.ID, v.index)
		}
		wr.forget(i, nil)
	}
}

// linkExact returns the link through which the client wrote. If the client sees the state
// in less detail, linkExact makes the value of its level exact: the client must not see its
// write undone by an older value.
func (wr *writer) linkExact(index int) (dnp.LinkInfo, bool) {
	st, ok := stateOf(wr.source)
	if !ok {
		return wr.conn.LinkOf(wr.source)
	}
	link, src, l := linkTo(wr.conn, st)
	if l != nil {
		l.copyValue(index)
	}
	return link, src != nil
}
