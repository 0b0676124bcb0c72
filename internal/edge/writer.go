package edge

import (
	"slices"
	"time"

	"github.com/dnprelay/dnprelay/dnp"
	"github.com/dnprelay/dnprelay/replication"
)

// Bounds of what clients wrote and the holder has not acknowledged, in bytes. A
// value that does not fit is not taken: the client gets the authoritative one
// back, which is counted. A state has no more than 60,000 bytes of values.
const (
	writtenMax        = 64 << 10 // of one writer; a request must fit into a bus message
	sessionWrittenMax = 1 << 20
	writtenOverhead   = 64 // counted for each value besides its bytes
)

// A writer carries what a client wrote to one state to the holder of the space,
// until the holder has it. It keeps the newest bytes of each value, so it costs
// one value each, never a queue. It belongs to the state and not to the link,
// because a link may be made anew while a request is under way.
//
// Until a value is acknowledged the client is not sent that value: it would see
// its own write undone and made again (dnp.Conn.Hold).
type writer struct {
	session *session
	source  *dnp.Source
	own     *ownState // of a link that the client offered

	values []written // ascending by index
	bytes  int       // of values
	repeat repeater
}

// A written is one value that is not settled.
type written struct {
	index  int
	value  []byte
	number uint32 // of the first request that carried these bytes; 0 if none has

	// The position behind which the holder has it, once it said so. Its answer and the
	// batch come on two subscriptions, so the replica may not be there yet.
	ok         bool
	epoch, seq uint64
}

// writer returns the writer of a state.
func (s *session) writer(source *dnp.Source, own *ownState) *writer {
	wr, ok := s.writers[source]
	if !ok {
		wr = &writer{session: s, source: source, own: own}
		s.writers[source] = wr
		s.space.writers = append(s.space.writers, wr)
		s.space.written[source]++
	}
	return wr
}

// forgetWriter drops what was written to a state that is gone.
func (s *session) forgetWriter(source *dnp.Source) {
	if wr, ok := s.writers[source]; ok {
		wr.values = nil
		s.space.writers = slices.DeleteFunc(s.space.writers, func(x *writer) bool { return x == wr && x.idle() })
	}
}

// forgetWriters does so for all sessions.
func (s *space) forgetWriters(source *dnp.Source) {
	if s.written[source] == 0 {
		return
	}
	s.writers = slices.DeleteFunc(s.writers, func(wr *writer) bool {
		if wr.source == source {
			wr.values = nil
		}
		return wr.idle()
	})
}

// take keeps the values of an update and sends them.
func (wr *writer) take(now time.Time, ev *dnp.Event) {
	conn := wr.session.conn
	for {
		index, value, ok := ev.Update.Next()
		if !ok {
			break
		}
		if !wr.put(index, value) {
			conn.Refuse(ev.Link, index)
			wr.session.space.w.counts.WritesDropped++
			continue
		}
		conn.Hold(ev.Link, index, value)
	}
	if wr.repeat.due.IsZero() {
		wr.repeat.want(now)
	}
}

// again takes what the client wrote while another edge had the session, which the holder
// may not have.
func (wr *writer) again(now time.Time, h dnp.HeldValue) {
	if !wr.put(h.Index, h.Value) {
		wr.session.conn.Refuse(h.Link, h.Index)
		return
	}
	wr.repeat.want(now)
}

// put keeps a value. It reports false if there is no room.
func (wr *writer) put(index int, value []byte) bool {
	i, found := slices.BinarySearchFunc(wr.values, index, func(v written, index int) int { return v.index - index })
	grow := len(value)
	if found {
		grow -= len(wr.values[i].value)
	} else {
		grow += writtenOverhead
	}
	if wr.bytes+grow > writtenMax || wr.session.written+grow > sessionWrittenMax {
		return false
	}
	if !found {
		wr.values = slices.Insert(wr.values, i, written{index: index})
	}
	v := &wr.values[i]
	*v = written{index: index, value: append(v.value[:0], value...)}
	wr.count(grow)
	return true
}

func (wr *writer) count(bytes int) {
	wr.bytes += bytes
	wr.session.written += bytes
}

// advanceWriters sends what is due and returns when there is more to do.
func (s *space) advanceWriters(now time.Time) time.Time {
	next := now.Add(time.Hour)
	for _, wr := range s.writers {
		wr.arrived()
		if wr.repeat.ready(now, &next) {
			wr.send(now)
			wr.repeat.ready(now, &next)
		}
	}
	s.writers = slices.DeleteFunc(s.writers, (*writer).idle)
	return next
}

// idle reports whether everything is settled. Then the session has forgotten wr.
func (wr *writer) idle() bool {
	if len(wr.values) > 0 {
		return false
	}
	s := wr.session
	wr.count(-wr.bytes)
	delete(s.writers, wr.source)
	if s.space.written[wr.source]--; s.space.written[wr.source] == 0 {
		delete(s.space.written, wr.source)
	}
	return true
}

// send asks the holder to apply all that it has not acknowledged. A repetition has the
// number of the request that it repeats, so that the holder applies it once: others
// may have written the same value since.
func (wr *writer) send(now time.Time) {
	state, known := wr.stateNumber()
	if !known {
		wr.repeat.done() // an assert under way tells the state number
		return
	}
	w := replication.Write{Kind: replication.WriteValues, State: state, Number: wr.number()}
	layout := wr.source.State().Layout()
	for i := range wr.values {
		v := &wr.values[i]
		if v.ok {
			continue
		}
		if v.number == 0 {
			v.number = w.Number
		}
		w.Values = append(w.Values, replication.WriteValue{Index: v.index, Type: layout.Type(v.index), Value: v.value})
	}
	if len(w.Values) == 0 {
		wr.repeat.done()
		return
	}
	if wr.repeat.sent(now) {
		wr.session.space.w.counts.WritesRepeated++
	}
	wr.session.request(&w, func(now time.Time, r replication.WriteResult, err error) { wr.answered(now, &w, r, err) })
}

// number returns the number of the next request: a new one if a value is new, else
// that of the newest value.
func (wr *writer) number() (newest uint32) {
	for i := range wr.values {
		switch v := &wr.values[i]; {
		case v.ok:
		case v.number == 0:
			return wr.session.nextWrite()
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

// answered takes the holder's verdict on a request. "Try again" needs nothing
// done: the repetition is planned.
func (wr *writer) answered(now time.Time, w *replication.Write, r replication.WriteResult, err error) {
	switch {
	case wr.session.writers[wr.source] != wr || tryAgain(r, err):
		return
	case r.Code == replication.WriteOK:
		wr.settle(w.Number, func(v *written) bool { return wr.okay(v, r) })
	case r.Code == replication.WritePartly:
		wr.settle(w.Number, func(v *written) bool {
			if slices.Contains(r.Refused, uint16(v.index)) {
				return wr.refused(v)
			}
			return wr.okay(v, r)
		})
		wr.session.space.w.counts.WritesRefused++
	case r.Code == replication.WriteNoState && wr.own != nil:
		wr.own.assert(now) // the holder is another one, or has forgotten it
		return
	default:
		wr.settle(w.Number, wr.refused)
		wr.session.space.w.counts.WritesRefused++
	}
	if slices.ContainsFunc(wr.values, func(v written) bool { return v.number == 0 }) {
		wr.repeat.want(now) // written while the request was under way
	}
}

// settle gives the values that request number carried to end, which says whether
// they are to be forgotten.
func (wr *writer) settle(number uint32, end func(*written) bool) {
	open := false
	for i := 0; i < len(wr.values); {
		v := &wr.values[i]
		carried := v.number != 0 && int32(v.number-number) <= 0
		if carried && !v.ok && end(v) {
			wr.forget(i)
			continue
		}
		open = open || !carried
		i++
	}
	if !open {
		wr.repeat.done()
	}
}

func (wr *writer) forget(i int) {
	wr.count(-len(wr.values[i].value) - writtenOverhead)
	wr.values = slices.Delete(wr.values, i, i+1)
}

// okay ends a value that the holder has, if the replica has it too. Otherwise the
// client would be sent the value from before.
func (wr *writer) okay(v *written, r replication.WriteResult) bool {
	v.ok, v.epoch, v.seq = true, r.Epoch, r.Seq
	if !wr.here(v) {
		return false
	}
	wr.release(v)
	return true
}

// here reports whether the replica is behind the position at which the holder has v.
func (wr *writer) here(v *written) bool {
	epoch, seq := wr.session.space.replica.Position()
	return epoch > v.epoch || epoch == v.epoch && seq >= v.seq
}

func (wr *writer) release(v *written) {
	if link, ok := wr.link(v.index); ok {
		wr.session.conn.Release(link.ID, v.index)
	}
}

// refused gives the client the authoritative value.
func (wr *writer) refused(v *written) bool {
	if link, ok := wr.link(v.index); ok {
		wr.session.conn.Refuse(link.ID, v.index)
	}
	return true
}

// link returns the link by which the client wrote. If it is told less than
// everything, what it is told of this value is made exact: it must not see its write
// undone by an older value.
func (wr *writer) link(index int) (dnp.LinkInfo, bool) {
	st, ok := stateOf(wr.source)
	if !ok {
		return wr.session.conn.LinkOf(wr.source)
	}
	link, src, l := wr.session.linkTo(st)
	if l != nil {
		l.exact(index)
	}
	return link, src != nil
}

// arrived ends the values that the holder has and the replica by now.
func (wr *writer) arrived() {
	for i := 0; i < len(wr.values); {
		if v := &wr.values[i]; v.ok && wr.here(v) {
			wr.release(v)
			wr.forget(i)
			continue
		}
		i++
	}
}
