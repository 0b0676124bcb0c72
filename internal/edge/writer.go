package edge

import (
	"slices"
	"time"

	"github.com/dnprelay/dnprelay/dnp"
	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/replication"
)

// writeRepeat is how long the holder has to acknowledge a write, and how long
// after a failure it is tried again. (DESIGN: sent again after 100 ms.)
const writeRepeat = 100 * time.Millisecond

// A writer carries what a client wrote to one link to the holder of the space,
// until the holder has it. It keeps the newest bytes of each value and has one
// request under way at most, so it costs one value each, never a queue.
//
// Until a value is acknowledged the client is not sent that value: it would see
// its own write undone and made again (dnp.Conn.Hold).
type writer struct {
	session *session
	link    wire.LinkID
	source  *dnp.Source
	own     *ownState // of a link that the client offered

	values  []written // ascending by index
	number  uint32    // of the request sent last
	waiting bool      // for its answer
	due     time.Time // when to send; zero when there is nothing to send
}

// A written is one value that is not acknowledged.
type written struct {
	index  int
	value  []byte
	number uint32 // of the first request that carried these bytes; 0 if none has
}

// writer returns the writer of a link.
func (s *session) writer(link wire.LinkID, source *dnp.Source) *writer {
	wr, ok := s.writers[link]
	if !ok {
		wr = &writer{session: s, link: link, source: source, own: s.own[link]}
		s.writers[link] = wr
		s.space.writers = append(s.space.writers, wr)
	}
	return wr
}

// forgetWriter drops what was written to a link that is gone.
func (s *session) forgetWriter(link wire.LinkID) {
	if wr, ok := s.writers[link]; ok {
		delete(s.writers, link)
		s.space.writers = slices.DeleteFunc(s.space.writers, func(x *writer) bool { return x == wr })
	}
}

// take keeps the values of an update and sends them.
func (wr *writer) take(now time.Time, ev *dnp.Event) {
	for {
		index, value, ok := ev.Update.Next()
		if !ok {
			break
		}
		wr.session.conn.Hold(wr.link, index, value)
		wr.put(index, value)
	}
	if wr.due.IsZero() {
		wr.due = now
	}
}

func (wr *writer) put(index int, value []byte) {
	i, found := slices.BinarySearchFunc(wr.values, index, func(v written, index int) int { return v.index - index })
	if !found {
		wr.values = slices.Insert(wr.values, i, written{index: index})
	}
	v := &wr.values[i]
	v.value = append(v.value[:0], value...)
	v.number = 0
}

// advanceWriters sends what is due and returns when there is more to do.
func (s *space) advanceWriters(now time.Time) time.Time {
	next := now.Add(time.Hour)
	for _, wr := range s.writers {
		if wr.waiting || wr.due.IsZero() {
			continue
		}
		if wr.due.After(now) {
			next = earlier(next, wr.due)
			continue
		}
		wr.send(now)
	}
	s.writers = slices.DeleteFunc(s.writers, (*writer).idle)
	return next
}

// idle reports whether everything is acknowledged.
func (wr *writer) idle() bool {
	if len(wr.values) > 0 || wr.waiting {
		return false
	}
	delete(wr.session.writers, wr.link)
	return true
}

// send asks the holder to apply all that is not acknowledged.
func (wr *writer) send(now time.Time) {
	number, ok := wr.stateNumber()
	if !ok || len(wr.values) == 0 {
		wr.due = time.Time{} // an assert under way tells the number
		return
	}
	wr.number = wr.session.space.w.nextWrite()
	w := replication.Write{Kind: replication.WriteValues, State: number, Number: wr.number}
	layout := wr.source.State().Layout()
	for i := range wr.values {
		v := &wr.values[i]
		if v.number == 0 {
			v.number = wr.number
		}
		w.Values = append(w.Values, replication.WriteValue{Index: v.index, Type: layout.Type(v.index), Value: v.value})
	}
	wr.waiting, wr.due = true, time.Time{}
	wr.session.request(&w, func(now time.Time, r replication.WriteResult, err error) {
		wr.waiting = false
		wr.answered(now, w.Number, r, err)
	})
}

func (wr *writer) stateNumber() (uint64, bool) {
	if wr.own != nil {
		return wr.own.number, wr.own.number != 0
	}
	st := wr.source.Data().(*replication.State)
	return st.Number, true
}

// answered takes the holder's verdict on request number.
func (wr *writer) answered(now time.Time, number uint32, r replication.WriteResult, err error) {
	if wr.session.writers[wr.link] != wr {
		return // the link is gone
	}
	conn := wr.session.conn
	switch {
	case err != nil || r.Code == replication.WriteBusy || r.Code == replication.WriteWrongEpoch:
		wr.due = now.Add(writeRepeat)
		wr.session.space.w.counts.WritesRepeated++
		return
	case r.Code == replication.WriteOK:
		wr.settle(number, conn.Release)
	default:
		wr.settle(number, conn.Refuse)
		wr.session.space.w.counts.WritesRefused++
	}
	if len(wr.values) > 0 {
		wr.due = now // written while the request was under way
	}
}

// settle ends the values that request number carried.
func (wr *writer) settle(number uint32, tell func(wire.LinkID, int)) {
	wr.values = slices.DeleteFunc(wr.values, func(v written) bool {
		if v.number == 0 || v.number > number {
			return false
		}
		tell(wr.link, v.index)
		return true
	})
}

// request sends a write request to the holder. done is called by the worker,
// also when no answer came.
func (s *session) request(w *replication.Write, done func(now time.Time, r replication.WriteResult, err error)) {
	w.Session, w.Client, w.Space, w.Epoch = s.id, s.client, s.space.name, s.space.epoch
	to, bus := s.space.w, s.edge().cfg.Bus
	m := replication.Msg{Subject: s.edge().cfg.Subjects.Write(s.space.shard), Data: replication.AppendWrite(nil, w)}
	bus.Request(m, writeRepeat, func(answer replication.Msg, err error) {
		var r replication.WriteResult
		if err == nil {
			r, err = replication.ParseWriteResult(answer.Data)
		}
		to.post(len(answer.Data), func(_ *Worker, now time.Time) { done(now, r, err) })
	})
}

// nextWrite numbers the write requests of a worker.
func (w *Worker) nextWrite() uint32 {
	w.writeNumber++
	return w.writeNumber
}
